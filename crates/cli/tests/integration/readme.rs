//! The examples of the README, typed in their order as they stand there.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::support::command::{Ran, command, verb};
use super::support::site::Site;

const README: &str = include_str!("../../../../README.md");

/// Returns the lines of all examples of the command.
fn examples() -> String {
    let section = README.split("\n## ").find(|it| it.starts_with("Examples\n")).unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|it| it.split("```").next().unwrap());
    blocks.collect()
}

/// Returns the value of PATH with the command of this build in front.
fn path_with_command() -> String {
    let command = Path::new(env!("CARGO_BIN_EXE_userbtrfs"));
    let others = std::env::var("PATH").unwrap();
    format!("{}:{others}", command.parent().unwrap().display())
}

#[test]
fn examples_of_the_readme_work_in_their_order() {
    // The examples mount; without FUSE this is skipped with a message.
    let Some(_site) = Site::new() else { return };
    let lines = examples();
    assert!(lines.matches("userbtrfs ").count() >= 12, "{lines}");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for dir in ["source/etc", "source/home/user", "tree"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("source/etc/hostname"), "host\n").unwrap();
    fs::write(at("source/home/user/file"), "at home").unwrap();
    let text = "compressible text ".repeat(20_000);
    fs::write(at("tree/file"), &text).unwrap();
    let mut mkfs = command(["mkfs", "-q", "--rootdir"]);
    Ran::from(mkfs.arg(at("source")).arg(at("disk.img")).output().unwrap()).good();
    let mut shell = Command::new("sh");
    shell.args(["-ec", &lines]).current_dir(folder.path()).env("PATH", path_with_command());
    let ran = shell.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if !ran.status.success() {
        // If it is not mounted, this fails, too.
        let _ = command(["umount", "--force"]).arg(at("mnt")).output();
    }
    assert!(ran.status.success(), "{said}");
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(out.contains(" hostname\n") && out.contains("\nhost\n"), "{out}");
    assert_eq!(fs::read_to_string(at("home/user/file")).unwrap(), "at home");
    assert_eq!(at("new.img").metadata().unwrap().len(), 3 << 30, "it was resized");
    for (path, expected) in [("/file", "hello\n"), ("/tree/file", &*text), ("/packed/file", &*text)]
    {
        assert_eq!(verb("cat", &at("new.img"), &[path]).good(), expected, "{path}");
    }
}
