//! Blocks that other trees share are dropped while these copy them, and after a balance.

use std::process::Command;
use std::thread;

use tempfile::TempDir;
use userbtrfs_btree::{Cursor, ItemEdit, ReadAhead};
use userbtrfs_format::{InodeItem, ItemKind, Key, TreeId};
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_transaction::{DropProgress, HandleKind, SpaceKind, TransactionManager};

use super::deletion::{delete, first_from};
use super::family::{Family, SUBVOLUMES};
use super::{drop_all, judge};
use crate::open;

/// Inodes that are changed under one handle.
const BATCH: usize = 3;

/// Changes inodes of a subvolume, in an order that jumps through the tree, by a field that no
/// program sees. Returns early when `done` is set, and the number of changes.
fn change_inodes(transactions: &TransactionManager, id: TreeId, done: &AtomicBool) -> usize {
    let tree = transactions.tree_roots().tree(id).unwrap();
    let store = transactions.tree_roots().store();
    let mut inodes = Vec::new();
    let mut cursor = Cursor::seek(store, &tree, &Key::MIN, ReadAhead::Off).unwrap();
    while let Some(item) = cursor.item() {
        inodes.extend((item.key.kind == ItemKind::INODE_ITEM).then_some(item.key));
        cursor.advance().unwrap();
    }
    let mut changed = 0;
    for start in 0..97 {
        for batch in inodes.iter().skip(start).step_by(97).collect::<Vec<_>>().chunks(BATCH) {
            let _reservation = transactions.reserve(BATCH as u64).unwrap();
            let handle = transactions.start(HandleKind::Operation).unwrap();
            for &&key in batch {
                let (_, data) = first_from(transactions, &tree, key);
                let mut item = InodeItem::parse(&data).unwrap();
                item.sequence += 1;
                let put = ItemEdit::Put(key, item.encode().to_vec());
                handle.apply(&tree, &mut [put]).unwrap();
                changed += 1;
            }
            if done.load(Ordering::Relaxed) {
                return changed;
            }
        }
    }
    changed
}

#[test]
fn trees_are_dropped_while_others_copy_their_blocks() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    for (dead, kept) in [([256, 257], [258, 259, 260]), ([256, 258], [257, 259, 260])] {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        std::fs::copy(&family.image, &image).unwrap();
        let transactions = open(&image).unwrap();
        for id in dead {
            delete(&transactions, TreeId(id));
        }
        let done = AtomicBool::new(false);
        let changed = thread::scope(|scope| {
            let changers = kept.map(|id| {
                let transactions = &transactions;
                let done = &done;
                scope.spawn(move || change_inodes(transactions, TreeId(id), done))
            });
            let droppers = dead.map(|id| {
                let transactions = &transactions;
                scope.spawn(move || {
                    for step in 1.. {
                        let progress = transactions.drop_tree_step_of(TreeId(id), 12).unwrap();
                        if matches!(progress, DropProgress::Dropped(_)) {
                            return;
                        }
                        if step % 40 == 0 {
                            transactions.commit().unwrap();
                        }
                    }
                })
            });
            for dropper in droppers {
                dropper.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            changers.map(|thread| thread.join().unwrap())
        });
        println!("{dead:?} dropped: {changed:?} changes of {kept:?} meanwhile");
        transactions.close().unwrap();
        drop(transactions);
        btrfs_check(&image).unwrap();
        judge(&linux, &image, folder.path(), &kept, &family.manifest);
    }
}

#[test]
fn trees_are_dropped_after_a_balance() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    let mount = linux.mount(&family.image, "noatime").unwrap();
    run(Command::new("btrfs").args(["-q", "balance", "start", "--full-balance"]).arg(mount.path()))
        .unwrap();
    drop(mount);
    let transactions = open(&family.image).unwrap();
    let folder = TempDir::new().unwrap();
    let mut left: Vec<u64> = SUBVOLUMES.map(|(id, _)| id).to_vec();
    for id in [257, 256, 260, 258, 259] {
        delete(&transactions, TreeId(id));
        let counts = drop_all(&transactions, TreeId(id), 150, |_| {});
        println!("{id}: {counts:?}");
        left.retain(|other| *other != id);
        judge(&linux, &family.image, folder.path(), &left, &family.manifest);
    }
    assert_eq!(transactions.space().usage(SpaceKind::Data).allocated, 0);
}
