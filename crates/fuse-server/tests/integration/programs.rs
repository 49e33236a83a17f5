//! Programs as people use them, each in an image of its own, which Linux must then show unchanged.

use std::fs;

use userbtrfs_testkit::programs::{End, Program};
use userbtrfs_testkit::test_env::{is_torture, skip};
use userbtrfs_testkit::walk_linux;

use crate::support::Site;

/// The size of an image, of which most is a hole: large enough for builds and for full runs.
const BYTES: u64 = 16 << 30;

/// Runs a program in a mount of ours; in a torture run, first in one by Linux.
fn run(name: &str) {
    let program = Program::named(name);
    if program.is_long && !is_torture() {
        return println!("SKIPPED: {name} takes minutes, and is run in full alone");
    }
    let Some(site) = Site::new() else { return };
    let outside = |side: &str| {
        let outside = site.at(side);
        fs::create_dir(&outside).unwrap();
        outside
    };
    if is_torture() {
        site.format_sized(BYTES, &[]);
        let end = site.with_linux("noatime", |root| program.run(root, &outside("linux"), true));
        end.unwrap();
    }
    site.format_sized(BYTES, &[]);
    let (end, shown) = site.with_ours(|root| {
        let end = program.run(root, &outside("ours"), is_torture()).unwrap();
        (end, walk_linux::walk(root).unwrap())
    });
    site.judge(&shown);
    if let End::Skipped(reason) = end {
        skip(&reason);
    }
}

#[test]
fn git() {
    run("git");
}

#[test]
fn tar_and_rsync() {
    run("archive");
}

#[test]
fn sqlite() {
    run("sqlite");
}

#[test]
fn dbench() {
    run("dbench");
}

#[test]
fn fio() {
    run("fio");
}

#[test]
fn fs_mark() {
    run("fs_mark");
}

#[test]
fn sixteen_processes() {
    run("processes");
}

#[test]
fn postgres() {
    run("postgres");
}

#[test]
fn cargo() {
    run("cargo");
}
