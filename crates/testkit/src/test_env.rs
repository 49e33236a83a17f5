//! What there is where tests run, and what they wait for.
//!
//! 1. A test for which something is missing says SKIPPED, and why. CI has all that it takes: there
//!    it panics.
//! 2. What a test changes of the machine, it changes in a namespace of mounts of its own; what it
//!    changes of the process, for its own thread.

use std::env;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::sched::CloneFlags;
use rustix::fs::Mode;

/// A user without rights.
pub const NOBODY: u32 = 65534;

/// Set where a test runs apart.
const APART: &str = "USERBTRFS_TEST_RUNS_APART";

/// For [`is_apart`]: anybody may open `/dev/fuse`, as on most systems.
pub const FUSE_FOR_ALL: &str =
    "mknod -m 666 \"$0/fuse\" c 10 229; mount --bind \"$0/fuse\" /dev/fuse";

/// Whether this is CI, which has all that tests take.
pub fn is_ci() -> bool {
    env::var("CI").as_deref() == Ok("true")
}

/// Whether every count is done in full.
pub fn is_torture() -> bool {
    env::var("USERBTRFS_TORTURE").as_deref() == Ok("1")
}

/// Says that a test, or a part of it, is skipped for want of something.
pub fn skip(reason: &str) {
    assert!(!is_ci(), "in CI: {reason}");
    println!("SKIPPED: {reason}");
}

/// Gives the thread, and those that it makes from now on, a umask of its own: tests that run beside
/// each other in one process each have theirs.
pub fn set_own_umask(mask: u32) {
    nix::sched::unshare(CloneFlags::CLONE_FS).expect("nothing that needs a right");
    rustix::process::umask(Mode::from_raw_mode(mask));
}

/// Whether root can mount by FUSE; otherwise says that something is skipped.
pub fn fuse_or_skip() -> bool {
    let lack = match () {
        () if !rustix::process::geteuid().is_root() => "not root",
        () if !Path::new("/dev/fuse").exists() => "no /dev/fuse",
        () => return true,
    };
    skip(lack);
    false
}

/// Whether a program is there; otherwise says that something is skipped.
pub fn has_program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_there {
        skip(&format!("no {name}"));
    }
    is_there
}

/// Waits until it is so, for at most ten seconds.
///
/// # Panics
///
/// Where it is not so after that.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("waited too long for: {what}");
}

/// Waits until something is mounted at `point`, by a server that was just started and says who it
/// is by `name`; an error where it ends before, or takes longer than ten seconds.
pub fn until_mounted(name: &str, server: &mut Child, point: &Path) -> anyhow::Result<()> {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev());
    let above = device(point.parent().context("a folder")?)?;
    for _ in 0..1000 {
        if device(point)? != above {
            return Ok(());
        }
        ensure!(server.try_wait()?.is_none(), "{name} ended at once");
        thread::sleep(Duration::from_millis(10));
    }
    server.kill()?;
    bail!("{name} does not mount")
}

/// Whether this is a run of a test apart, in a namespace of mounts of its own. Where not, has one
/// made: of the test called `test`, after a script of the shell has prepared the namespace, with an
/// empty directory as `$0`. Then the test is over.
///
/// # Panics
///
/// Where the test fails there.
pub fn is_apart(test: &str, prepare: &str) -> bool {
    if env::var_os(APART).is_some() {
        return true;
    }
    let folder = tempfile::tempdir().expect("room for a directory");
    let script = format!("mount -t tmpfs -o mode=755 none \"$0\"\n{prepare}\nexec \"$@\"");
    let this: PathBuf = env::current_exe().expect("a test is a program");
    let mut command = Command::new("unshare");
    // What is unmounted elsewhere is unmounted there.
    command
        .args(["--mount", "--propagation", "slave", "sh", "-ec", &script])
        .arg(folder.path())
        .arg(this);
    command.args([test, "--exact", "--nocapture"]).env(APART, "1");
    let output = command.output().expect("unshare is there where mount is");
    let [said, wrong] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let is_good = output.status.success() && said.contains("1 passed");
    assert!(is_good, "{test}, apart: {}\n{said}{wrong}", output.status);
    // What it says of itself as a test was said of this one.
    said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| println!("{line}"));
    false
}
