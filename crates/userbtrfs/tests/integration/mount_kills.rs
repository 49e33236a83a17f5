//! The server of a mount is killed while programs work.
//!
//! 1. What was fsynced is there: by our replay, and by that of Linux.
//! 2. Both show the same then, all of it but times that a replay sets, and `btrfs check` finds
//!    nothing.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_crashlab::here::{is_torture, until};
use userbtrfs_crashlab::linux::{self, Linux, btrfs_check};
use userbtrfs_crashlab::manifest::Time;
use userbtrfs_crashlab::programs::Program;
use userbtrfs_crashlab::random::Random;
use userbtrfs_crashlab::stories::differences_of_replays;
use userbtrfs_crashlab::{walk_linux, walk_ours};

use super::mount::Site;
use super::support::synced;

/// How soon the server is killed, in milliseconds.
const SOON: u64 = 300;
const LATE: u64 = 3000;

/// Where a program works, and where files are fsynced besides; each has a directory of its own.
const PLACES: [&str; 2] = ["work", "synced"];

#[test]
fn what_was_fsynced_survives_a_kill() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let (names, times) = match is_torture() {
        true => (Program::ALL.iter().map(|program| program.name).collect(), 20),
        false => (vec!["git", "sqlite", "processes"], 1),
    };
    let seed = match std::env::var("USERBTRFS_SEED") {
        Ok(asked) => asked.parse().unwrap(),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into(),
    };
    println!("USERBTRFS_SEED={seed}");
    let mut random = Random::new(seed);
    for name in names {
        for turn in 0..times {
            let delay = Duration::from_millis(SOON + random.below(LATE - SOON));
            println!("{name} {turn}: killed after {delay:?}");
            site.made.format("2G");
            let outside = site.made.at(&format!("outside-{name}-{turn}"));
            fs::create_dir(&outside).unwrap();
            let synced = kill_during(&site, Program::named(name), &outside, delay);
            judge(&linux, &site, synced, &outside, Time::now());
        }
    }
}

/// Kills the server in the middle of what a program does; gives how many files each writer has
/// fsynced.
fn kill_during(site: &Site, program: Program, outside: &Path, delay: Duration) -> u64 {
    // A database server is another user, and wants to get there.
    fs::set_permissions(site.made.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = site.serve(&["-o", "allow_other"]);
    let [work, folder] = PLACES.map(|name| site.point().join(name));
    fs::create_dir(&work).unwrap();
    fs::create_dir(&folder).unwrap();
    File::open(site.point()).unwrap().sync_all().unwrap();
    let mut command = program.command(&work, outside, is_torture());
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut running = command.spawn().unwrap();
    let synced = synced::write_until(&folder, || {
        thread::sleep(delay);
        server.kill().unwrap();
        server.wait().unwrap();
    });
    // It fails now, or was done before.
    running.wait().unwrap();
    Command::new("umount").arg("-l").arg(site.point()).status().unwrap();
    until("the end", || !site.is_mounted());
    assert!(synced > 0);
    synced
}

/// Replays the log by Linux and by us, each in its copy, some time after it was cut. Linux gives a
/// file that loses a name in the replay the time of that.
fn judge(linux: &Linux, site: &Site, synced: u64, outside: &Path, cut: Time) {
    let look = |root: &Path| {
        synced::check(&root.join(PLACES[1]), synced, "Linux");
        check_rows(&root.join(PLACES[0]), outside, "Linux");
        walk_linux::walk(root).unwrap()
    };
    let theirs = linux.with_copy(&site.image(), &site.made.at("copy"), look).unwrap();

    // Opening it for writing replays.
    OpenOptions::new().write(true).open(site.image()).unwrap().close().unwrap();
    btrfs_check(&site.image()).unwrap();
    let all = site.made.at("all");
    site.made.does("get", &["/", all.to_str().unwrap()]);
    synced::check(&all.join(PLACES[1]), synced, "ours");
    check_rows(&all.join(PLACES[0]), outside, "ours");
    fs::remove_dir_all(all).unwrap();
    let ours = walk_ours::walk(&Filesystem::open(site.image()).unwrap()).unwrap();
    let differences = differences_of_replays(&ours, &theirs, cut);
    assert!(differences.is_empty(), "ours, and Linux's: {differences:#?}");
}

/// Rows that a database said were committed are in it.
fn check_rows(work: &Path, outside: &Path, who: &str) {
    for mode in ["wal", "delete"] {
        let said = fs::read_to_string(outside.join(format!("sqlite-{mode}"))).unwrap_or_default();
        // The first lines are answers to its settings.
        let Some(committed) = said.lines().rev().find_map(|line| line.parse::<u64>().ok()) else {
            continue;
        };
        let copy = outside.join(format!("{who}-{mode}"));
        fs::create_dir(&copy).unwrap();
        for end in ["", "-wal", "-journal"] {
            let file = format!("{mode}.db{end}");
            let _ = fs::copy(work.join(&file), copy.join(&file));
        }
        let ask = |question: &str| {
            let mut sqlite = Command::new("sqlite3");
            let output = linux::run(sqlite.arg(copy.join(format!("{mode}.db"))).arg(question));
            String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
        };
        assert_eq!(ask("PRAGMA integrity_check"), "ok", "{who}, {mode}");
        let rows = ask("SELECT count(*) = max(n), max(n) FROM t");
        let (whole, last) = rows.split_once('|').unwrap();
        let last: u64 = last.parse().unwrap();
        println!("{who}, {mode}: {committed} rows were committed, {last} are there");
        assert!(whole == "1" && last >= committed, "{who}, {mode}: {rows} of {committed}");
    }
}
