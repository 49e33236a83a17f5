//! A file of a tebibyte in many pieces: truncated and deleted in transactions that stay small.

use std::thread;

use userbtrfs_mkfs::Profile;
use userbtrfs_transaction::bytes_for_items;

use super::*;
use crate::inode::EXTENTS_PER_STEP;
use crate::units::{SECTOR, SECTOR_LEN};

/// The number of pieces, their length, and the distance from one to the next.
const PIECES: u64 = 100_000;
const STRIDE: u64 = (1 << 40) / PIECES / 4096 * 4096;
const PIECE: u64 = 4096;
/// One piece in `WRITTEN` is written; the others are preallocated.
const WRITTEN: u64 = 16;

/// The changes of one handle: the extents of a step, each perhaps cut in two rounds, and a few
/// items of the inode.
const CHANGED_MAX: u64 = 2 * EXTENTS_PER_STEP as u64 + 100;
/// The items reserved for a step: fewer than the extents, since those are consecutive.
const RESERVED_MAX: u64 = EXTENTS_PER_STEP as u64 / 10;

/// Creates a file of a tebibyte, and commits it.
fn fragmented(lab: &Lab) {
    let file = lab.create("file");
    for number in 0..PIECES {
        let at = number * STRIDE;
        if number % WRITTEN == 0 {
            file.write_at(&number.to_le_bytes().repeat(512), at).unwrap();
        } else {
            file.allocate(at, PIECE, Allocate::Reserve { keep_size: false }).unwrap();
        }
    }
    file.set_len(1 << 40).unwrap();
    lab.fs.commit().unwrap();
    assert_eq!(pieces(&file), PIECES);
}

fn pieces(file: &File) -> u64 {
    let extents = file.extents().unwrap();
    extents.iter().filter(|extent| extent.kind != ExtentKind::Hole).count() as u64
}

fn transactions(fs: &Filesystem) -> &Arc<userbtrfs_transaction::TransactionManager> {
    fs.inner.transactions.as_ref().unwrap()
}

/// Runs `act` while another thread commits repeatedly; returns the number of commits.
fn with_commits(fs: &Filesystem, act: impl FnOnce() + Send) -> u64 {
    let before = transactions(fs).generation();
    thread::scope(|scope| {
        let acting = scope.spawn(act);
        while !acting.is_finished() {
            fs.commit().unwrap();
        }
        acting.join().unwrap();
    });
    transactions(fs).generation() - before
}

fn assert_small_steps(fs: &Filesystem) {
    let nodesize = fs.volume().geometry().nodesize;
    let largest = transactions(fs).take_high_water();
    assert!((1..=CHANGED_MAX).contains(&largest.items_changed), "{largest:?}");
    let most = bytes_for_items(RESERVED_MAX, nodesize);
    assert!((1..=most).contains(&largest.bytes_reserved), "{largest:?}, at most {most}");
}

#[test]
fn a_tebibyte_in_pieces_is_cut_and_deleted_in_small_steps() {
    let options = Options { metadata: Profile::Single, ..Options::default() };
    let lab = Lab::of(640 << 20, &options, 64 << 20);
    let none = lab.data_in_use();
    fragmented(&lab);
    let file = lab.file("file");

    transactions(&lab.fs).take_high_water();
    let commits = with_commits(&lab.fs, || file.set_len(1 << 39).unwrap());
    assert_small_steps(&lab.fs);
    assert!(commits >= 2, "{commits} commits while it was cut");
    lab.fs.commit().unwrap();
    let left = (1_u64 << 39).div_ceil(STRIDE);
    assert_eq!((pieces(&file), lab.data_in_use()), (left, none + left * PIECE));
    drop(file);

    // Commits here are only for space and memory.
    lab.file("file").set_len(7 << 36).unwrap();
    assert_small_steps(&lab.fs);
    lab.fs.commit().unwrap();

    let lab = cut_off_while_it_is_deleted(lab, none);
    assert!(lab.fs.metadata("file").is_err());
    // The first change completes the deletion.
    drop(lab.create("other"));
    lab.fs.commit().unwrap();
    assert_small_steps(&lab.fs);
    assert_eq!(lab.data_in_use(), none);
    lab.close();
}

/// Deletes the file, commits and aborts when a part of it is deleted, and reopens the filesystem.
fn cut_off_while_it_is_deleted(lab: Lab, none: u64) -> Lab {
    let Lab { device, memory, fs } = lab;
    let whole = fs.metadata("file").unwrap().allocated;
    transactions(&fs).take_high_water();
    let remover = fs.clone();
    let removing = thread::spawn(move || remover.remove_file("file"));
    let mut changed = 0;
    while changed < CHANGED_MAX / 4 {
        thread::yield_now();
        changed = transactions(&fs).take_high_water().items_changed;
        assert!(changed <= CHANGED_MAX, "{changed} items");
    }
    // A step was done. This waits at most for the step in progress.
    fs.commit().unwrap();
    fs.abandon();
    // The name was removed before; the next opener completes the deletion.
    removing.join().unwrap().unwrap();
    let lab = Lab::open(device, memory);
    let left = data_in_use(&lab.fs) - none;
    assert!((1..whole).contains(&left), "{left} of {whole} bytes");
    lab
}

/// Leaves written out early while files were being truncated once had items that overlapped.
#[test]
fn many_files_are_cut_with_little_memory() {
    let options = Options { nodesize: 4096, ..Options::default() };
    let lab = Lab::of(512 << 20, &options, 4 << 20);
    let files: Vec<_> = (0..600).map(|number| lab.create(&number.to_string())).collect();
    for file in &files {
        file.write_all_at(&[1].repeat(8 * SECTOR_LEN), 0).unwrap();
        // Each file gets a leaf of its own.
        for at in (10..90).step_by(2) {
            file.write_all_at(&[2; SECTOR_LEN], at * SECTOR).unwrap();
        }
    }
    lab.fs.commit().unwrap();
    for file in &files {
        file.write_all_at(&[3; SECTOR_LEN], 3 * SECTOR).unwrap();
    }
    lab.fs.commit().unwrap();
    for file in files {
        let mut bytes = vec![0; 8 * SECTOR_LEN];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        let sectors: Vec<u8> = bytes.iter().step_by(SECTOR_LEN).copied().collect();
        assert_eq!(sectors, [1, 1, 1, 3, 1, 1, 1, 1]);
        file.close().unwrap();
    }
    lab.close();
}
