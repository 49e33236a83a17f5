//! A full filesystem continues to work, and does not commit for each reservation.

use tempfile::TempDir;
use userbtrfs_btree::ItemEdit;
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::{available_or_skip, btrfs_check};
use userbtrfs_transaction::{
    Error, FlushScope, Handle, Reservation, Result, TransactionHooks, TransactionManager,
    TransactionOptions,
};

use super::{apply, attribute, key, open, open_alone};

/// The number of items that an attribute changes.
const ITEMS: u64 = 4;

fn add(transactions: &TransactionManager, number: u64) -> bool {
    match transactions.reserve(ITEMS) {
        Ok(_reservation) => apply(transactions, vec![attribute(number, 1000)]),
        Err(Error::NoSpace) => return false,
        Err(error) => panic!("{error}"),
    }
    true
}

fn remove(transactions: &TransactionManager, number: u64) {
    let _reservation = transactions.reserve_for_removal(ITEMS).unwrap();
    apply(transactions, vec![ItemEdit::Remove(key(&attribute(number, 0)))]);
}

#[test]
fn full_filesystem_commits_rarely() {
    if !available_or_skip() {
        return;
    }
    for name in ["mixed", "fresh"] {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        Golden::named(name).unpack(&image).unwrap();
        let transactions = open(&image).unwrap();
        let begin = transactions.generation();
        let count = (0..1 << 20).find(|&number| !add(&transactions, number)).unwrap();
        let filled = transactions.generation() - begin;
        assert!(count > 5000, "{name}: {count} attributes");
        // Some are removed, and others added if they fit, all over the tree, whose blocks are
        // copied again.
        transactions.commit().unwrap();
        let begin = transactions.generation();
        let mut added = 0;
        let mut next = count;
        for number in (0..count).step_by(10) {
            remove(&transactions, number);
            if add(&transactions, next) {
                added += 1;
                next += 1;
            }
        }
        let changed = transactions.generation() - begin;
        let changes = count / 10 + added;
        println!("{name}: {count} in {filled} commits, then {changes} in {changed}");
        assert!(filled < 10, "{name}: {filled} commits until it was full");
        assert!(changed < changes / 78, "{name}: {changed} commits for {changes} changes");
        transactions.close().unwrap();
        drop(transactions);
        btrfs_check(&image).unwrap();
    }
}

/// Holds reservations until it is asked to write back.
struct Hoard(Mutex<Vec<Reservation>>);

impl TransactionHooks for Hoard {
    fn is_clean(&self) -> bool {
        true
    }

    fn merge(&self, _handle: &Handle<'_>, _what: FlushScope) -> Result<()> {
        Ok(())
    }

    fn write_back(&self) -> Result<()> {
        self.0.lock().clear();
        Ok(())
    }

    fn aborted(&self) {}
}

#[test]
fn cached_data_is_written_back_when_space_is_short() {
    // Two blocks of 16 KiB each.
    const ITEMS: u64 = 32;
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("image");
    Golden::named("fresh").unpack(&image).unwrap();
    let device = Arc::new(SparseImage::from_file(&image).unwrap().to_device());
    let transactions = open_alone(device, TransactionOptions::default()).unwrap();
    let hoard = Arc::new(Hoard(Mutex::new(Class::InodeState, Vec::new())));
    transactions.register(vec![Arc::clone(&hoard) as _]).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| transactions.space().reserve(1 << 20).ok()).collect();
    *hoard.0.lock() = all;
    assert!(transactions.space().reserve(1 << 20).is_err());
    assert_eq!(transactions.reserve(ITEMS).unwrap().bytes(), 1 << 20);
    assert!(hoard.0.lock().is_empty());
    transactions.close().unwrap();
}
