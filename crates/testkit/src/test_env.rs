//! The environment of tests, and conditions that they wait for.
//!
//! 1. A test whose requirements are missing prints SKIPPED and the reason. In CI nothing may be
//!    missing: there it panics.
//! 2. Each function that a test calls before it starts processes also limits its time.
//! 3. A test changes the machine only in a mount namespace of its own, and the process only for its
//!    own thread.

use std::env;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sched::CloneFlags;
use rustix::fs::Mode;

use crate::time_limit::limit_time;

/// The id of an unprivileged user.
pub const NOBODY: u32 = 65534;

/// How long a test waits for a condition: longer than any machine needs if nothing has failed.
const PATIENCE: Duration = Duration::from_mins(5);
/// The interval at which a condition is checked.
const PAUSE: Duration = Duration::from_millis(10);

/// The variable that is set in a separate run of a test.
const APART: &str = "USERBTRFS_TEST_RUNS_APART";

/// A script for [`is_apart`] that makes `/dev/fuse` accessible to all users, as on most systems.
pub const FUSE_FOR_ALL: &str =
    "mknod -m 666 \"$0/fuse\" c 10 229; mount --bind \"$0/fuse\" /dev/fuse";

/// Returns whether this is CI, where all requirements of tests are met.
pub fn is_ci() -> bool {
    env::var("CI").as_deref() == Ok("true")
}

/// Returns whether tests run with their full counts.
pub fn is_torture() -> bool {
    env::var("USERBTRFS_TORTURE").as_deref() == Ok("1")
}

/// Reports that a test, or a part of it, is skipped because of something missing.
pub fn skip(reason: &str) {
    assert!(!is_ci(), "in CI: {reason}");
    println!("SKIPPED: {reason}");
}

/// Sets a umask for this thread and the threads that it creates from now on, independent of other
/// tests in the same process.
pub fn set_own_umask(mask: u32) {
    nix::sched::unshare(CloneFlags::CLONE_FS).expect("nothing that needs a right");
    rustix::process::umask(Mode::from_raw_mode(mask));
}

/// Returns whether root can mount by FUSE; if not, reports a skipped test.
pub fn fuse_or_skip() -> bool {
    limit_time();
    let lack = match () {
        () if !rustix::process::geteuid().is_root() => "not root",
        () if !Path::new("/dev/fuse").exists() => "no /dev/fuse",
        () => return true,
    };
    skip(lack);
    false
}

/// Returns whether a program is installed; if not, reports a skipped test.
pub fn has_program(name: &str) -> bool {
    limit_time();
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_there {
        skip(&format!("no {name}"));
    }
    is_there
}

/// Waits until `so` returns true, for at most five minutes.
///
/// # Panics
///
/// Panics if it still returns false then.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "waited too long for: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until something is mounted at `point` by the server `server`, which was just started and
/// is called `name` in errors. Fails if it exits, or takes longer than five minutes.
pub fn until_mounted(name: &str, server: &mut Child, point: &Path) -> anyhow::Result<()> {
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev());
    let above = device(point.parent().context("a folder")?)?;
    let end = Instant::now() + PATIENCE;
    while device(point)? == above {
        ensure!(server.try_wait()?.is_none(), "{name} ended at once");
        if Instant::now() >= end {
            server.kill()?;
            bail!("{name} does not mount");
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns true if this is the separate run of a test in its own mount namespace. Otherwise starts
/// that run of the test called `test`, after the shell script `prepare` has set up the namespace,
/// with an empty directory as `$0`, and returns false: the test must return then.
///
/// # Panics
///
/// Panics if the test fails there.
pub fn is_apart(test: &str, prepare: &str) -> bool {
    limit_time();
    if env::var_os(APART).is_some() {
        return true;
    }
    let folder = tempfile::tempdir().expect("room for a directory");
    let script = format!("mount -t tmpfs -o mode=755 none \"$0\"\n{prepare}\nexec \"$@\"");
    let this: PathBuf = env::current_exe().expect("a test is a program");
    let mut command = Command::new("unshare");
    // Unmounts outside propagate into the namespace.
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
    // The separate run reports skips for this test.
    said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| println!("{line}"));
    false
}
