//! `scripts/install`, which `make install` and `make uninstall` run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use userbtrfs_testkit::time_limit::limit_time;

use super::support::assert_says;

/// Runs the script below `root` with a variable, as a user whose new files are private.
fn install(root: &Path, dropin: &str, arguments: &[&str]) -> Output {
    limit_time();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(script).args(arguments);
    command.env("BINARY", env!("CARGO_BIN_EXE_userbtrfs")).env("DESTDIR", root);
    command.env("PREFIX", "/usr/local").env("SBINDIR", "/opt/sbin").env("DROPIN", dropin);
    // Nothing is stripped: that takes long, and needs a tool.
    command.env("STRIP", "true").output().unwrap()
}

#[track_caller]
fn assert_done(output: &Output) {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Returns all directories below a directory.
fn dirs_below(dir: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let dirs = below.filter(|path| path.symlink_metadata().unwrap().is_dir());
    dirs.flat_map(|path| [dirs_below(&path), vec![path]].concat()).collect()
}

#[test]
fn another_program_btrfs_is_neither_replaced_nor_removed() {
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("usr/local/bin");
    let btrfs = bin.join("btrfs");
    fs::create_dir_all(&bin).unwrap();
    fs::write(&btrfs, "theirs").unwrap();
    let refused = install(root.path(), "1", &[]);
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_says(&said, &[btrfs.to_str().unwrap(), "no link to userbtrfs"]);
    assert!(!bin.join("userbtrfs").exists());
    assert_done(&install(root.path(), "", &[]));
    assert!(bin.join("userbtrfs").exists());
    assert_done(&install(root.path(), "1", &["--remove"]));
    assert_eq!(fs::read(&btrfs).unwrap(), b"theirs");
    assert!(!bin.join("userbtrfs").exists());

    fs::remove_file(&btrfs).unwrap();
    for _ in 0..2 {
        assert_done(&install(root.path(), "1", &[]));
        assert_eq!(fs::read_link(&btrfs).unwrap(), Path::new("userbtrfs"));
    }
    assert_done(&install(root.path(), "", &["--remove"]));
    assert!(btrfs.symlink_metadata().is_err());
}

#[test]
fn directories_are_for_all_users_whatever_the_umask() {
    let root = tempfile::tempdir().unwrap();
    assert_done(&install(root.path(), "1", &[]));
    let dirs = dirs_below(root.path());
    assert!(dirs.contains(&root.path().join("opt/sbin")), "{dirs:?}");
    for dir in dirs {
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o755, "{dir:?}");
    }
}
