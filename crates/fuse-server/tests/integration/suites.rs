//! Common test suites for filesystems: pjdfstest and fsx.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use userbtrfs_engine::api::OpenOptions;
use userbtrfs_testkit::test_env::is_torture;
use userbtrfs_testkit::walk_linux;

use crate::direct;
use crate::support::{Ours, Site, shell, tool_or_skip};

/// The least number of pjdfstest's tests that Linux's btrfs passes: with fewer the suite is broken.
const PASSED_MIN: usize = 360;

/// The verdict of each test of pjdfstest, as it prints them.
type Verdicts = BTreeMap<String, String>;

/// A mount passes every test that Linux's btrfs passes.
#[test]
fn pjdfstest_passes_all_that_linux_passes() {
    let Some(program) = tool_or_skip("pjdfstest") else { return };
    let Some(site) = Site::new() else { return };
    fs::write(site.at("pjdfstest.toml"), pjdfstest_settings(&site)).unwrap();
    site.format();
    let linux = site.with_linux("", |root| pjdfstest(&program, &site, root).0);
    site.format();
    let (ours, said, shown) = site.with_ours(|root| {
        let (ours, said) = pjdfstest(&program, &site, root);
        (ours, said, walk_linux::walk(root).unwrap())
    });
    let passed = |verdicts: &Verdicts| verdicts.values().filter(|verdict| *verdict == "ok").count();
    println!("pjdfstest: {} of {} passed, {} by Linux", passed(&ours), ours.len(), passed(&linux));
    assert!(passed(&linux) >= PASSED_MIN, "{linux:#?}");
    let is_worse = |name: &&String| linux[*name] == "ok" && ours.get(*name) != linux.get(*name);
    let worse: Vec<_> = linux.keys().filter(is_worse).collect();
    assert!(worse.is_empty(), "Linux passes {worse:#?}\n{said}");
    site.judge(&shown);
}

/// Returns the settings of pjdfstest: two users without rights, each with its group, and the
/// optional features that btrfs has.
fn pjdfstest_settings(site: &Site) -> String {
    let user = |name| {
        let group = shell(&site.at(""), &format!("id -gn {name}"));
        format!("[\"{name}\", \"{}\"]", group.trim())
    };
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\n\
         utimensat = {{}}\nstat_st_birthtime = {{}}\n[settings]\nnaptime = 0.02\n\
         [dummy_auth]\nentries = [{}, {}]\n",
        user("nobody"),
        user("daemon")
    )
}

/// Runs the suite in a directory. Returns the verdict of each test, and the whole output.
fn pjdfstest(program: &Path, site: &Site, root: &Path) -> (Verdicts, String) {
    let mut command = Command::new(program);
    command.arg("-c").arg(site.at("pjdfstest.toml")).arg("-p").arg(root);
    // A directory on another filesystem.
    command.arg("-s").arg(site.at(""));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = |line: &str| {
        let (name, verdict) = line.split_once("  ")?;
        let is_test = name.contains("::") && !name.starts_with(char::is_whitespace);
        is_test.then(|| (name.to_owned(), verdict.trim().to_owned()))
    };
    (said.lines().filter_map(verdict).collect(), said)
}

/// The ways of I/O that fsx has: the name of each, and its settings.
const WAYS: &[(&str, &str)] = &[
    ("calls", "[weights]\nmapread = 0\nmapwrite = 0\nclose_open = 1\nsendfile = 2\n"),
    ("mapped", "[weights]\nread = 0\nwrite = 0\ninvalidate = 1\n"),
    (
        "aligned",
        "[opsize]\nalign = 4096\n[weights]\nclose_open = 1\npunch_hole = 5\ncopy_file_range = 3\n",
    ),
    (
        "all",
        "flen = 1000000\n[weights]\nclose_open = 2\ninvalidate = 1\nfsync = 0.3\nfdatasync = 0.3\n\
         posix_fallocate = 3\npunch_hole = 5\nsendfile = 3\nposix_fadvise = 3\n\
         copy_file_range = 3\n",
    ),
];

/// Runs all ways at the same time, each in a file of its own, for twenty seconds, or for eight
/// minutes in a torture run; and one past the kernel's cache, which fsx does not have.
#[test]
fn fsx_reads_what_it_wrote() {
    let Some(program) = tool_or_skip("fsx") else { return };
    let Some(site) = Site::new() else { return };
    let (seconds, operations) = if is_torture() { (240, 10_000) } else { (10, 200) };
    let time = Duration::from_secs(seconds);
    for (first, memory) in [(1, 256 << 20), (2, 8 << 20)] {
        site.format();
        let ours = Ours::new(&site, OpenOptions::new().write(true).memory(memory));
        thread::scope(|scope| {
            for (name, settings) in WAYS {
                let program = &program;
                let site = &site;
                let file = ours.path().join(name);
                let seeds = (first..).step_by(2);
                scope.spawn(move || fsx(program, site, &file, settings, seeds, operations, time));
            }
            direct::reads_what_it_writes(&ours.path().join("direct"), first, time);
        });
        let shown = walk_linux::walk(ours.path()).unwrap();
        ours.end();
        site.judge(&shown);
    }
}

/// Runs fsx with one seed after the other for `time`, each for `operations` operations. It is never
/// killed: then the kernel would lose times that it has not sent yet.
fn fsx(
    program: &Path,
    site: &Site,
    file: &Path,
    settings: &str,
    seeds: impl Iterator<Item = u64>,
    operations: u64,
    time: Duration,
) {
    let end = Instant::now() + time;
    let name = file.file_name().unwrap().display();
    let settings_file: PathBuf = site.at(&format!("fsx-{name}.toml"));
    fs::write(&settings_file, settings).unwrap();
    let mut times = 0;
    for seed in seeds.take_while(|_| Instant::now() < end) {
        let mut command = Command::new(program);
        command.arg("-f").arg(&settings_file).arg("-P").arg(site.at(""));
        command.args(["-S", &seed.to_string(), "-N", &operations.to_string()]).arg(file);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}, seed {seed}: {said}");
        times += 1;
    }
    println!("fsx, {name}: {times} times {operations} operations");
}
