//! Transactions on real images: `btrfs check` accepts the result of each commit.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod data;
mod drop_tree;
mod full;
mod log;

use std::path::Path;

use tempfile::TempDir;
use userbtrfs_btree::ItemEdit;
use userbtrfs_codec::hash::name_hash;
use userbtrfs_device::{Device, FileDevice, FileOptions};
use userbtrfs_format::{DirEntry, DirEntryKind, ItemKind, Key, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::{available_or_skip, btrfs_check};
use userbtrfs_transaction::{Error, HandleKind, TransactionManager, TransactionOptions, TreeRoots};
use userbtrfs_volume::{OpenError, Volume};

fn open(image: &Path) -> Result<Arc<TransactionManager>, OpenError> {
    let options = FileOptions { writable: true, ..FileOptions::default() };
    let device = FileDevice::open(image, options).unwrap();
    open_on(Arc::new(device), TransactionOptions::default())
}

fn open_on(
    device: Arc<dyn Device>,
    options: TransactionOptions,
) -> Result<Arc<TransactionManager>, OpenError> {
    let transactions = open_alone(device, options)?;
    transactions.register(Vec::new()).unwrap();
    Ok(transactions)
}

/// Opens a manager without hooks.
fn open_alone(
    device: Arc<dyn Device>,
    options: TransactionOptions,
) -> Result<Arc<TransactionManager>, OpenError> {
    let volume = Arc::new(Volume::open_for_writing(vec![device])?);
    let tree_roots = Arc::new(TreeRoots::new(volume, 8 << 20));
    let transactions = match TransactionManager::open(tree_roots, options) {
        Ok(transactions) => transactions,
        Err(Error::Unwritable(why)) => return Err(OpenError::Unwritable(vec![why.to_owned()])),
        Err(error) => panic!("{error}"),
    };
    Ok(transactions)
}

/// An extended attribute of the root directory: an item that can be there or not.
fn attribute(number: u64, len: usize) -> ItemEdit {
    let name = format!("user.{number}");
    let entry = DirEntry {
        target: Key::MIN,
        transid: 0,
        kind: DirEntryKind::Xattr,
        name: name.as_bytes(),
        data: &vec![7; len],
    };
    let key = Key::new(256, ItemKind::XATTR_ITEM, u64::from(name_hash(name.as_bytes())));
    ItemEdit::Put(key, entry.encode())
}

fn key(edit: &ItemEdit) -> Key {
    userbtrfs_btree::Edit::key(edit)
}

fn apply(transactions: &TransactionManager, mut edits: Vec<ItemEdit>) {
    edits.sort_unstable_by_key(key);
    edits.dedup_by_key(|edit| key(edit));
    let tree = transactions.tree_roots().tree(TreeId::FS).unwrap();
    let handle = transactions.start(HandleKind::Operation).unwrap();
    handle.apply(&tree, &mut edits).unwrap();
    handle.subvolume_changed(TreeId::FS);
}

#[test]
fn commit_without_changes_can_be_opened() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("image");
    Golden::named("fresh").unpack(&image).unwrap();
    let transactions = open(&image).unwrap();
    let generation = transactions.start(HandleKind::Operation).unwrap().generation();
    transactions.commit_transaction(generation).unwrap();
    assert_eq!(transactions.volume().superblock().generation, generation);
    assert_eq!(transactions.tree_roots().roots().root().generation, generation);
    drop(transactions);
    drop(open(&image).unwrap());
    if available_or_skip() {
        btrfs_check(&image).unwrap();
    }
}

#[test]
fn commits_on_every_golden_image_pass_btrfs_check() {
    if !available_or_skip() {
        return;
    }
    for golden in Golden::all().unwrap() {
        let folder = TempDir::new().unwrap();
        let image = folder.path().join("image");
        golden.unpack(&image).unwrap();
        let transactions = match open(&image) {
            Ok(transactions) => transactions,
            Err(error) => {
                println!("{}: {error}", golden.name());
                continue;
            }
        };
        println!("{}", golden.name());
        let count = 2000;
        for round in 0..4 {
            apply(&transactions, (0..count).map(|n| attribute(round * count + n, 100)).collect());
            transactions.commit().unwrap();
        }
        let remove = |n| ItemEdit::Remove(key(&attribute(n, 0)));
        apply(&transactions, (0..4 * count).filter(|n| n % 3 != 0).map(remove).collect());
        transactions.commit().unwrap();
        apply(&transactions, (0..4 * count).filter(|n| n % 3 == 0).map(remove).collect());
        transactions.close().unwrap();
        drop(transactions);
        btrfs_check(&image).unwrap();
    }
}
