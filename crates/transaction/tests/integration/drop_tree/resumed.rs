//! A drop that was begun is continued: after Linux, and after another mount.

use std::process::Command;

use tempfile::TempDir;
use userbtrfs_btree::ItemEdit;
use userbtrfs_format::{ItemKind, Key, TreeId};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_transaction::{Damage, DropProgress, Error, HandleKind};

use super::deletion::delete;
use super::family::Family;
use super::interrupted::{ORIGIN, root_item};
use super::{drop_all, judge};
use crate::open;

/// It has a node of level 1 to itself.
const LATE: TreeId = TreeId(259);

#[test]
fn drop_that_linux_began_is_continued() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    let mut partly = 0;
    let mut dead = 0;
    for wakes_cleaner in [false, true, true, true] {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        std::fs::copy(&family.image, &image).unwrap();
        let mount = linux.mount(&image, "noatime").unwrap();
        let subvolume = mount.path().join("origin");
        run(Command::new("btrfs").args(["-q", "subvolume", "delete"]).arg(subvolume)).unwrap();
        if wakes_cleaner {
            run(Command::new("btrfs").args(["filesystem", "sync"]).arg(mount.path())).unwrap();
        }
        drop(mount);
        let transactions = open(&image).unwrap();
        if transactions.dead_roots().unwrap() == [ORIGIN] {
            dead += 1;
            let (_, item) = root_item(&transactions, ORIGIN);
            println!("level {}, {}", item.drop_level, item.drop_progress);
            partly += usize::from(item.drop_level > 0);
            drop_all(&transactions, ORIGIN, 50, |_| {});
        }
        assert!(transactions.dead_roots().unwrap().is_empty());
        transactions.close().unwrap();
        drop(transactions);
        judge(&linux, &image, folder.path(), &[257, 258, 259, 260], &family.manifest);
    }
    println!("{dead} were left by Linux, {partly} of them in part");
    assert!(dead > 0, "Linux always dropped all of it");
}

#[test]
fn drop_continues_after_each_mount() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    for references in [40, 200] {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        std::fs::copy(&family.image, &image).unwrap();
        let transactions = open(&image).unwrap();
        delete(&transactions, ORIGIN);
        transactions.close().unwrap();
        drop(transactions);
        for step in 0.. {
            let transactions = open(&image).unwrap();
            let progress = transactions.drop_tree_step_of(ORIGIN, references).unwrap();
            transactions.close().unwrap();
            drop(transactions);
            assert!(step < 500, "the drop does not end");
            if step % 7 == 3 {
                btrfs_check(&image).unwrap();
            }
            if matches!(progress, DropProgress::Dropped(_)) {
                println!("{references} references: {step} steps");
                break;
            }
        }
        judge(&linux, &image, folder.path(), &[257, 258, 259, 260], &family.manifest);
    }
}

#[test]
fn position_that_the_tree_does_not_have_is_damage() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    let transactions = open(&family.image).unwrap();
    delete(&transactions, LATE);
    let first = root_item(&transactions, LATE).1;
    for (level, objectid) in [(0, 300), (1, 299), (7, 300)] {
        let (key, mut item) = root_item(&transactions, LATE);
        item.drop_level = level;
        item.drop_progress = Key::new(objectid, ItemKind(3), 77);
        let handle = transactions.start(HandleKind::Operation).unwrap();
        let put = ItemEdit::Put(key, item.encode());
        handle.apply(transactions.tree_roots().roots(), &mut [put]).unwrap();
        drop(handle);
        let error = transactions.drop_tree_step(LATE).unwrap_err();
        let is_found = matches!(
            error,
            Error::Damaged(Damage::DropPosition { tree: LATE, level: at, .. }) if at == level
        );
        assert!(is_found, "{error}");
    }
    // Nothing was dropped, and the filesystem can still be written.
    let (key, _) = root_item(&transactions, LATE);
    let handle = transactions.start(HandleKind::Operation).unwrap();
    let put = ItemEdit::Put(key, first.encode());
    handle.apply(transactions.tree_roots().roots(), &mut [put]).unwrap();
    drop(handle);
    drop_all(&transactions, LATE, 500, |_| {});
    transactions.close().unwrap();
    btrfs_check(&family.image).unwrap();
    assert!(matches!(transactions.drop_tree_step(LATE), Err(Error::NoTree(LATE))));
}
