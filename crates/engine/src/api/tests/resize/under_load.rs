//! Shrinking while files are read, overwritten in place, cloned and synced.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use userbtrfs_format::InodeFlags;

use super::*;

/// The length of each file.
const LEN: usize = 6 << 20;
/// The rounds of shrinking and growing.
const ROUNDS: u64 = 6;
/// The size that is shrunk to.
const SMALL_SIZE: u64 = 400 * MIB;
/// The bytes that are written, read or shared at a time.
const PIECE: usize = 16 << 10;

/// Tells threads to end, counts their steps, and makes their numbers.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    steps: AtomicU64,
}

impl Load {
    /// Repeats a step, which gets random numbers, until the load is over.
    fn repeat(&self, seed: u64, mut step: impl FnMut(&mut dyn FnMut(usize) -> usize)) {
        let mut state = seed;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            usize::try_from(state >> 33).unwrap() % end
        };
        while !self.is_over.load(Ordering::Relaxed) {
            step(&mut below);
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Opens a file with new handles and nothing in the page cache.
fn uncached(filesystem: &Filesystem, name: &str) -> File {
    let file = filesystem.open_file(name).unwrap();
    pages(&file).drop_clean();
    file
}

fn pages(file: &File) -> Arc<crate::data::FilePages> {
    Arc::clone(&file.pages)
}

/// Reads pieces of a file that does not change.
fn read(filesystem: &Filesystem, name: &str, content: &[u8], load: &Load, seed: u64) {
    let mut bytes = vec![0; PIECE];
    load.repeat(seed, |below| {
        let at = below(LEN - PIECE);
        let read = uncached(filesystem, name).read_at(&mut bytes, at as u64).unwrap();
        assert_eq!(read, PIECE);
        assert!(bytes == content[at..at + PIECE], "{name} at {at}");
    });
}

/// Overwrites pieces of a file, reads them back, and syncs now and then; returns the content.
fn overwrite(filesystem: &Filesystem, name: &str, load: &Load, seed: u64) -> Vec<u8> {
    let file = filesystem.open_file(name).unwrap();
    let mut content = filesystem.read(name).unwrap();
    let mut number = 0;
    load.repeat(seed, |below| {
        let at = below(LEN / PIECE) * PIECE;
        number += 1;
        content[at..at + PIECE].copy_from_slice(&pattern(number, PIECE));
        file.write_all_at(&content[at..at + PIECE], at as u64).unwrap();
        if number.is_multiple_of(8) {
            file.sync_all().unwrap();
        }
        let at = below(LEN / PIECE) * PIECE;
        let mut bytes = vec![0; PIECE];
        let read = uncached(filesystem, name).read_at(&mut bytes, at as u64).unwrap();
        assert_eq!(read, PIECE);
        assert!(bytes == content[at..at + PIECE], "{name} at {at}");
    });
    content
}

/// Clones and dedupes pieces of a file that does not change into another one; returns the content.
fn share(filesystem: &Filesystem, from: &str, to: &str, load: &Load, seed: u64) -> Vec<u8> {
    let source = filesystem.open_file(from).unwrap();
    let target = filesystem.open_file(to).unwrap();
    let from = filesystem.read(from).unwrap();
    let mut content = filesystem.read(to).unwrap();
    load.repeat(seed, |below| {
        let place = |number: usize| number * PIECE;
        let at = place(below(LEN / PIECE));
        if below(2) == 0 {
            let other = place(below(LEN / PIECE));
            content[at..at + PIECE].copy_from_slice(&from[other..other + PIECE]);
            target.clone_range(&source, other as u64, PIECE as u64, at as u64).unwrap();
        } else {
            content[at..at + PIECE].copy_from_slice(&from[at..at + PIECE]);
            target.write_all_at(&content[at..at + PIECE], at as u64).unwrap();
            let deduped = target.dedupe_range(&source, at as u64, PIECE as u64, at as u64);
            assert!(matches!(deduped.unwrap(), Deduped::Same { .. }));
        }
        if below(8) == 0 {
            target.sync_all().unwrap();
        }
    });
    content
}

/// Creates and deletes subvolumes, whose trees are dropped in the background.
fn delete(filesystem: &Filesystem, load: &Load, seed: u64) {
    load.repeat(seed, |_| {
        let root = filesystem.root();
        let subvolume = root.create_subvolume(b"short-lived", 0o755).unwrap();
        let file = subvolume.create(b"file", 0o644).unwrap().open().unwrap();
        file.write_all_at(&pattern(seed, PIECE), 0).unwrap();
        drop((file, subvolume));
        root.delete_subvolume(b"short-lived").unwrap();
    });
}

/// Shrinks and grows a filesystem; before each time, the content of files is put behind what is
/// allocated, by rewriting it while that is full.
fn resize_in_rounds(filesystem: &Filesystem) {
    for round in 0..ROUNDS {
        let filler = filesystem.root().create(b"filler", 0o644).unwrap().open().unwrap();
        filler.allocate(0, SMALL_SIZE, Allocate::Reserve { keep_size: false }).unwrap();
        let moved = filesystem.root().create(format!("moved-{round}").as_bytes(), 0o644).unwrap();
        let moved = moved.open().unwrap();
        moved.write_all_at(&content(u32::try_from(round).unwrap()), 0).unwrap();
        filesystem.commit().unwrap();
        drop(filler);
        filesystem.root().remove_file(b"filler").unwrap();
        filesystem.commit().unwrap();
        let beyond = filesystem.inner.transactions.as_ref().unwrap().device_size();
        assert_eq!(beyond, GIB);
        let size = NewSize::Bytes(SMALL_SIZE);
        assert_eq!(filesystem.resize(size, ImageLength::Follow).unwrap(), SMALL_SIZE);
        filesystem.resize(NewSize::Bytes(GIB), ImageLength::Follow).unwrap();
        if round >= 2 {
            filesystem.root().remove_file(format!("moved-{}", round - 2).as_bytes()).unwrap();
        }
    }
}

#[test]
fn files_are_used_while_their_extents_are_relocated() {
    let (_folder, image, filesystem) = image_of_1_gib();
    let make = |name: &str, flags: InodeFlags| {
        let inode = filesystem.root().create(name.as_bytes(), 0o644).unwrap();
        inode.set_flags(flags).unwrap();
        let file = inode.open().unwrap();
        file.write_all_at(&pattern(7, LEN), 0).unwrap();
    };
    let filler = filesystem.root().create(b"filler", 0o644).unwrap().open().unwrap();
    filler.allocate(0, SMALL_SIZE, Allocate::Reserve { keep_size: false }).unwrap();
    make("read", InodeFlags::empty());
    make("read-nodatacow", InodeFlags::NODATACOW);
    make("overwritten", InodeFlags::NODATACOW);
    make("source", InodeFlags::empty());
    make("target", InodeFlags::empty());
    let prealloc = filesystem.root().create(b"prealloc", 0o644).unwrap().open().unwrap();
    prealloc.allocate(0, LEN as u64, Allocate::Reserve { keep_size: false }).unwrap();
    filesystem.commit().unwrap();
    drop((filler, prealloc));
    filesystem.root().remove_file(b"filler").unwrap();

    let load = Load::default();
    let constant = pattern(7, LEN);
    let contents = thread::scope(|scope| {
        let filesystem = &filesystem;
        let load = &load;
        let constant = &constant;
        let readers = ["read", "read-nodatacow"]
            .map(|name| scope.spawn(move || read(filesystem, name, constant, load, 1)));
        let writers = ["overwritten", "prealloc"]
            .map(|name| scope.spawn(move || overwrite(filesystem, name, load, 2)));
        let deleting = scope.spawn(move || delete(filesystem, load, 4));
        let sharing = scope.spawn(move || share(filesystem, "source", "target", load, 3));
        let resized = scope.spawn(move || resize_in_rounds(filesystem)).join();
        load.is_over.store(true, Ordering::Relaxed);
        let [(), ()] = readers.map(|thread| thread.join().unwrap());
        let [overwritten, prealloc] = writers.map(|thread| thread.join().unwrap());
        let target = sharing.join().unwrap();
        deleting.join().unwrap();
        resized.unwrap();
        [("overwritten", overwritten), ("prealloc", prealloc), ("target", target)]
    });
    assert!(load.steps.load(Ordering::Relaxed) > 100);
    let check = |filesystem: &Filesystem| {
        for (name, content) in &contents {
            assert!(filesystem.read(name).unwrap() == *content, "{name}");
        }
        for name in ["read", "read-nodatacow", "source"] {
            assert!(filesystem.read(name).unwrap() == constant, "{name}");
        }
        for round in ROUNDS - 2..ROUNDS {
            let moved = filesystem.read(format!("moved-{round}")).unwrap();
            assert!(moved == content(u32::try_from(round).unwrap()), "{round}");
        }
    };
    check(&filesystem);
    filesystem.close().unwrap();
    let checked = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(&image).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let reopened = OpenOptions::new().open(&image).unwrap();
    check(&reopened);
}
