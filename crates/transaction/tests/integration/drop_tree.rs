//! Deleted subvolumes are dropped in steps: `btrfs check` accepts the result of each, and Linux
//! finds all that is left.
//!
//! The images are made by Linux, with nodes of 4 KiB, so that trees have three levels. A subvolume
//! is deleted here by its items alone, so that nothing of its tree is dropped before the test.

mod deletion;
mod family;
mod interrupted;
mod resumed;
mod sharing;

use std::path::Path;

use tempfile::TempDir;
use userbtrfs_format::TreeId;
use userbtrfs_testkit::linux::{Linux, btrfs_check};
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::{skip_unless_linux, walk_linux};
use userbtrfs_transaction::{DropCounts, DropProgress, SpaceKind, TransactionManager};

use super::open;
use deletion::delete;
use family::{Family, SUBVOLUMES};

/// Drops a deleted subvolume with a commit after each step, and calls `see` after each.
fn drop_all(
    transactions: &TransactionManager,
    id: TreeId,
    references: u64,
    mut see: impl FnMut(usize),
) -> DropCounts {
    let mut all = DropCounts::default();
    for step in 0.. {
        assert!(step < 5000, "the drop does not end");
        let progress = transactions.drop_tree_step_of(id, references).unwrap();
        transactions.commit().unwrap();
        let (DropProgress::Dropped(counts) | DropProgress::Continues(counts)) = progress;
        all.freed += counts.freed;
        all.shared += counts.shared;
        all.converted += counts.converted;
        all.data += counts.data;
        see(step);
        if matches!(progress, DropProgress::Dropped(_)) {
            break;
        }
    }
    all
}

/// Asserts that Linux shows the subvolumes `kept`, as before, and no others.
fn judge(linux: &Linux, image: &Path, folder: &Path, kept: &[u64], before: &Manifest) {
    let copy = folder.join("copy");
    let after = linux.with_copy(image, &copy, |at| walk_linux::walk(at).unwrap()).unwrap();
    std::fs::remove_file(copy).unwrap();
    for (id, name) in SUBVOLUMES {
        let path = format!("/{name}");
        let old = before.below(path.as_bytes());
        let new = after.below(path.as_bytes());
        if kept.contains(&id) {
            let differences = diff(&old, &new, &[]);
            assert!(differences.is_empty(), "{name}: {}", differences[0]);
        } else {
            assert!(new.entries().is_empty(), "{name} is deleted");
        }
    }
}

#[test]
fn subvolumes_dropped_in_any_order_leave_the_others_and_no_space() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    for (order, references) in [
        ([256, 257, 258, 259, 260], 40),
        ([260, 259, 258, 257, 256], 300),
        ([257, 256, 259, 258, 260], 1),
        ([258, 256, 257, 260, 259], 5000),
    ] {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        std::fs::copy(&family.image, &image).unwrap();
        let transactions = open(&image).unwrap();
        for (index, id) in order.into_iter().enumerate() {
            delete(&transactions, TreeId(id));
            transactions.commit().unwrap();
            assert_eq!(transactions.dead_roots().unwrap(), [TreeId(id)]);
            // About eight times in each drop.
            let every = 1 + 120 / usize::try_from(references).unwrap();
            let counts = drop_all(&transactions, TreeId(id), references, |step| {
                if step % every == every - 1 {
                    btrfs_check(&image).unwrap();
                }
            });
            println!("{order:?}, {references} references: {id}: {counts:?}");
            assert!(transactions.dead_roots().unwrap().is_empty());
            judge(&linux, &image, folder.path(), &order[index + 1..], &family.manifest);
        }
        assert_eq!(transactions.space().usage(SpaceKind::Data).allocated, 0);
        transactions.close().unwrap();
        let used = transactions.volume().superblock().bytes_used;
        assert!(used < family.bytes_used_empty + (64 << 10), "{used} bytes are used");
    }
}
