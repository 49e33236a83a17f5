//! A drop that is interrupted is continued by Linux, after a cut at any write.

use std::process::Command;

use tempfile::TempDir;
use userbtrfs_format::{ItemKind, Key, RootItem, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::devices::{RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::random::seed;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::test_env::is_torture;
use userbtrfs_transaction::{TransactionManager, TransactionOptions};

use super::deletion::{delete, first_from};
use super::family::Family;
use super::{drop_all, judge};
use crate::{open, open_on};

/// The states of a device after a cut that Linux continues from, outside of torture runs.
const CUTS: usize = 10;

pub(super) const ORIGIN: TreeId = TreeId(256);

pub(super) fn root_item(transactions: &TransactionManager, id: TreeId) -> (Key, RootItem) {
    let key = Key::new(id.0, ItemKind::ROOT_ITEM, 0);
    let (key, data) = first_from(transactions, transactions.tree_roots().roots(), key);
    assert_eq!(key.objectid, id.0);
    (key, RootItem::parse(&data).unwrap())
}

#[test]
fn linux_finishes_a_drop_that_was_cut_off_at_any_write() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let family = Family::make(&linux);
    let transactions = open(&family.image).unwrap();
    delete(&transactions, ORIGIN);
    transactions.close().unwrap();
    drop(transactions);

    let device = RecordingDevice::on(&SparseImage::from_file(&family.image).unwrap());
    let device = Arc::new(device);
    let transactions = open_on(Arc::clone(&device) as _, TransactionOptions::default()).unwrap();
    drop_all(&transactions, ORIGIN, 60, |_| {});
    transactions.close().unwrap();
    drop(transactions);

    let recording = device.recording();
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("image");
    let seed = seed();
    let sample = Choice::Sample { seed, count: CUTS };
    let prefixes = if is_torture() { Choice::EveryPrefix } else { sample };
    let reordered = Choice::Reordered { seed, count: CUTS };
    let mut begun = 0;
    for state in states(&recording, prefixes).chain(states(&recording, reordered)) {
        println!("{} events, {} lost", state.completed, state.lost);
        state.image.write_to(&image).unwrap();
        btrfs_check(&image).unwrap();
        let transactions = open(&image).unwrap();
        let has_begun = transactions.dead_roots().unwrap().contains(&ORIGIN)
            && root_item(&transactions, ORIGIN).1.drop_level > 0;
        begun += usize::from(has_begun);
        drop(transactions);
        state.image.write_to(&image).unwrap();
        let mount = linux.mount(&image, "noatime,commit=1").unwrap();
        run(Command::new("btrfs").args(["subvolume", "sync"]).arg(mount.path())).unwrap();
        drop(mount);
        linux.assert_no_complaints().unwrap();
        btrfs_check(&image).unwrap();
        assert!(open(&image).unwrap().dead_roots().unwrap().is_empty());
        judge(&linux, &image, folder.path(), &[257, 258, 259, 260], &family.manifest);
        std::fs::remove_file(&image).unwrap();
    }
    assert!(begun > 0, "Linux continued from no position");
}
