//! A filesystem without space left.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Site, pattern};

/// Small, so that it is full soon.
const IMAGE_BYTES: u64 = 160 << 20;
/// What the kernel sends in one request, and no part of which there is space for may stand for
/// the whole.
const FILE_BYTES: usize = 800 << 10;
/// Files that do not fit after which it is full.
const FAILED_MAX: usize = 3;

/// Copies a file until that fails, and gives the names of the copies that are there: `copy` says
/// that each is.
fn fill(root: &Path, copy: impl Fn(&Path) -> bool) -> Vec<String> {
    let (mut whole, mut failed) = (Vec::new(), 0);
    for number in 0.. {
        let name = number.to_string();
        match copy(&root.join(&name)) {
            true => whole.push(name),
            false => failed += 1,
        }
        if failed == FAILED_MAX {
            return whole;
        }
    }
    unreachable!("space ends")
}

/// A file is there as a whole, or its writer is told by close(2) or fsync(2): also the one that
/// only a part of a request finds space for.
fn what_is_closed_without_an_error_is_whole(script: &str) {
    let Some(site) = Site::new() else { return };
    site.format_sized(IMAGE_BYTES, &["-m", "single"]);
    let source = site.at("source");
    fs::write(&source, pattern(FILE_BYTES)).unwrap();
    let copy = |to: &Path| {
        let mut command = Command::new("sh");
        let output = command.args(["-ec", script, "sh"]).args([&source, to]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("No space left"), "{output:?}");
        output.status.success()
    };
    let whole = site.with_ours(|root| fill(root, copy));
    assert!(whole.len() > 50, "{whole:?}");
    let are_there = |root: &Path| {
        for name in &whole {
            assert!(fs::read(root.join(name)).unwrap() == pattern(FILE_BYTES), "{name}");
        }
    };
    site.with_ours(are_there);
    site.with_linux("ro,noatime", are_there);
    userbtrfs_crashlab::linux::btrfs_check(&site.image()).unwrap();
}

#[test]
fn what_is_closed_without_an_error_is_there() {
    what_is_closed_without_an_error_is_whole("export LC_ALL=C; cp \"$1\" \"$2\"");
}

#[test]
fn what_is_synced_without_an_error_is_there() {
    let script = "export LC_ALL=C; dd if=\"$1\" of=\"$2\" bs=64k conv=fsync";
    what_is_closed_without_an_error_is_whole(script);
}

/// Direct I/O is told the reason, too.
#[test]
fn what_is_written_directly_without_an_error_is_there() {
    let script = "export LC_ALL=C; dd if=\"$1\" of=\"$2\" bs=800k oflag=direct";
    what_is_closed_without_an_error_is_whole(script);
}
