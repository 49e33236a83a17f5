//! Data on real images: extents are allocated, counted, split and dropped at random; `btrfs check`
//! finds them with their checksums, and nothing else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;
use userbtrfs_btree::{ItemEdit, ReadAhead};
use userbtrfs_device::{Buffer, Device, Operation, Slice};
use userbtrfs_format::{
    FileExtent, FileExtentKind, FileKind, InodeFlags, InodeItem, ItemKind, Key, Logical,
    RegularExtent, Timestamp, TreeId,
};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_testkit::devices::{
    Event, Fault, FaultyDevice, How, Recording, RecordingDevice, SparseImage,
};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::{available_or_skip, run};
use userbtrfs_testkit::random::Random;
use userbtrfs_transaction::{
    Error, FileExtentRef, Handle, HandleKind, SpaceKind, TransactionManager, TransactionOptions,
};

use super::{apply, attribute, key, open, open_on};

const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;
/// The object id of orphan items (-5): an inode that has one needs no name.
const ORPHANS: u64 = u64::MAX - 4;

/// A piece of a file: of an extent on disk, from `skip` on.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u64,
    len: u64,
    disk: Logical,
    disk_len: u64,
    skip: u64,
}

impl Piece {
    /// Returns its reference to the extent.
    fn reference(&self, inode: u64) -> FileExtentRef {
        let &Self { at, disk: logical, disk_len: len, skip, .. } = self;
        FileExtentRef { root: TreeId::FS, inode, offset: at.wrapping_sub(skip), logical, len }
    }

    fn edit(&self, inode: u64, generation: u64) -> ItemEdit {
        let &Self { at, len: bytes, disk, disk_len, skip: offset } = self;
        let regular =
            RegularExtent { disk, disk_bytes: disk_len, offset, bytes, ram_bytes: disk_len };
        let kind = FileExtentKind::Regular(regular);
        let extent = FileExtent { generation, compression: None, kind };
        ItemEdit::Put(Key::new(inode, ItemKind::EXTENT_DATA, at), extent.encode())
    }
}

/// Files without names, changed through the transaction manager alone.
struct Files {
    transactions: Arc<TransactionManager>,
    pieces: BTreeMap<u64, Vec<Piece>>,
    /// Allocated and written, and counted later: inode, address and length.
    late: Vec<(u64, Logical, u64)>,
    next: u64,
    random: Random,
}

impl Files {
    fn new(transactions: Arc<TransactionManager>, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { transactions, pieces: BTreeMap::new(), late: Vec::new(), next: 1 << 40, random }
    }

    /// Reserves, allocates and writes at most `len` bytes.
    fn allocate(&mut self, len: u64) -> Result<(Logical, u64), Error> {
        let _metadata = self.transactions.reserve(4)?;
        let mut reservation = self.transactions.reserve_data(len)?;
        let (disk, len) = self.transactions.allocate_data(len, SECTOR)?;
        reservation.shrink(len);
        let bytes = Arc::new(Buffer::from(&content(disk, len)[..]));
        let parts = (0..len).step_by(64 << 10).map(|at| {
            let end = len.min(at + (64 << 10));
            (Logical(disk.0 + at), Slice::new(Arc::clone(&bytes), to_usize(at)..to_usize(end)))
        });
        let volume = self.transactions.volume();
        let ends = volume.wait_writes(volume.submit_data(parts));
        assert!(ends.iter().all(Result::is_ok));
        Ok((disk, len))
    }

    /// Counts an extent, as the next one of a file.
    fn count(&mut self, inode: u64, disk: Logical, len: u64) {
        let transactions = Arc::clone(&self.transactions);
        let handle = transactions.start(HandleKind::Finish).unwrap();
        let pieces = self.pieces.entry(inode).or_default();
        let at = pieces.last().map_or(0, |last| last.at + last.len);
        let piece = Piece { at, len, disk, disk_len: len, skip: 0 };
        handle.allocated_data(&piece.reference(inode));
        transactions.add_checksums(&handle, disk, &sums(&transactions, disk, len));
        pieces.push(piece);
        self.put(&handle, inode, &[piece]);
    }

    /// Splits an item into two of one extent.
    fn split(&mut self, inode: u64) {
        let transactions = Arc::clone(&self.transactions);
        let which = self.random.below(self.pieces[&inode].len().max(1) as u64);
        let pieces = self.pieces.get_mut(&inode).unwrap();
        let Some(piece) = pieces.get(to_usize(which)).copied().filter(|p| p.len > SECTOR) else {
            return;
        };
        let half = piece.len / 2 / SECTOR * SECTOR;
        let left = Piece { len: half, ..piece };
        let at = piece.at + half;
        let len = piece.len - half;
        let skip = piece.skip + half;
        let right = Piece { at, len, skip, ..piece };
        pieces.splice(to_usize(which)..=to_usize(which), [left, right]);
        let handle = transactions.start(HandleKind::Operation).unwrap();
        handle.add_file_extent(&right.reference(inode));
        self.put(&handle, inode, &[left, right]);
    }

    /// Removes the pieces of a file from the index `keep` on.
    fn cut(&mut self, inode: u64, keep: usize) {
        let transactions = Arc::clone(&self.transactions);
        let gone = self.pieces.get_mut(&inode).unwrap().split_off(keep);
        let handle = transactions.start(HandleKind::Operation).unwrap();
        for piece in &gone {
            handle.drop_file_extent(&piece.reference(inode));
        }
        let tree = transactions.tree_roots().tree(TreeId::FS).unwrap();
        let item = |piece: &Piece| ItemEdit::Remove(key(&piece.edit(inode, 0)));
        let mut edits: Vec<_> = gone.iter().map(item).collect();
        handle.apply(&tree, &mut edits).unwrap();
        self.put(&handle, inode, &[]);
    }

    /// Writes pieces of a file, and its inode.
    fn put(&self, handle: &Handle<'_>, inode: u64, pieces: &[Piece]) {
        let size = self.pieces[&inode].iter().map(|piece| piece.len).sum();
        let orphan = Key::new(ORPHANS, ItemKind::ORPHAN_ITEM, inode);
        let item = inode_item(handle.generation(), size);
        let mut edits =
            vec![ItemEdit::Put(Key::new(inode, ItemKind::INODE_ITEM, 0), item.encode().to_vec())];
        edits.extend(pieces.iter().map(|piece| piece.edit(inode, handle.generation())));
        edits.push(ItemEdit::Put(orphan, Vec::new()));
        let tree = self.transactions.tree_roots().tree(TreeId::FS).unwrap();
        handle.apply(&tree, &mut edits).unwrap();
        handle.subvolume_changed(TreeId::FS);
    }

    /// Makes one random change, or a commit.
    fn step(&mut self) {
        if self.random.one_in(20) {
            self.transactions.commit().unwrap();
        } else {
            self.step_without_commit();
        }
    }

    fn step_without_commit(&mut self) {
        let inode = match self.random.below(4) {
            0 => {
                self.next += 1;
                self.pieces.insert(self.next, Vec::new());
                self.next
            }
            _ => self.some_file(),
        };
        match self.random.below(20) {
            0..8 => self.write(inode),
            8..11 => self.split(inode),
            11..15 => {
                let pieces = self.pieces[&inode].len() as u64;
                let keep = self.random.below(pieces + 1);
                self.cut(inode, to_usize(keep));
            }
            15 => {
                self.cut(inode, 0);
                self.write(inode);
            }
            16 => self.finish_late(),
            17 => {
                if let Ok((disk, len)) = self.allocate(MIB) {
                    self.late.push((inode, disk, len));
                }
            }
            18 => self.transactions.merge_pending().unwrap(),
            _ => {}
        }
    }

    fn some_file(&mut self) -> u64 {
        let which = self.random.below(self.pieces.len().max(1) as u64);
        let found = self.pieces.keys().nth(to_usize(which)).copied();
        found.unwrap_or_else(|| {
            self.pieces.insert(self.next, Vec::new());
            self.next
        })
    }

    fn write(&mut self, inode: u64) {
        self.pieces.entry(inode).or_default();
        let sectors = self.random.length(10);
        match self.allocate(sectors * SECTOR) {
            Ok((disk, len)) => self.count(inode, disk, len),
            Err(Error::NoSpace) => self.cut(inode, 0),
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes a file of pieces of at most `len_max` bytes until there is no space; returns how many
    /// bytes.
    fn fill(&mut self, len_max: u64) -> u64 {
        self.next += 1;
        let mut filled = 0;
        let mut len_max = len_max;
        while len_max >= SECTOR {
            match self.allocate(len_max) {
                Ok((disk, len)) => {
                    self.count(self.next, disk, len);
                    filled += len;
                }
                Err(Error::NoSpace) => len_max /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        filled
    }

    /// Counts what was allocated earlier, perhaps in an earlier transaction, or gives it back.
    fn finish_late(&mut self) {
        for (inode, disk, len) in std::mem::take(&mut self.late) {
            match self.random.below(3) {
                0 => self.transactions.give_back_data(disk, len),
                _ => self.count(inode, disk, len),
            }
        }
    }

    fn close(mut self) {
        self.finish_late();
        self.transactions.close().unwrap();
        for kind in SpaceKind::ALL {
            assert_eq!(self.transactions.space().usage(kind).reserved, 0);
        }
    }
}

fn inode_item(generation: u64, size: u64) -> InodeItem {
    let now = Timestamp::default();
    InodeItem {
        generation,
        transid: generation,
        size,
        nbytes: size,
        block_group: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        mode: 0o100_644,
        kind: FileKind::Regular,
        rdev: 0,
        flags: InodeFlags::empty(),
        sequence: 0,
        atime: now,
        ctime: now,
        mtime: now,
        otime: now,
    }
}

/// Returns the content of a range on disk: each sector contains its address.
fn content(disk: Logical, len: u64) -> Vec<u8> {
    let sector = |at: u64| (disk.0 + at).to_le_bytes().repeat(512);
    (0..len).step_by(4096).flat_map(sector).collect()
}

fn sums(transactions: &TransactionManager, disk: Logical, len: u64) -> Vec<u8> {
    let kind = transactions.volume().geometry().checksum_kind;
    let sectors = content(disk, len);
    sectors.chunks(4096).flat_map(|sector| kind.compute(sector).as_bytes().to_vec()).collect()
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

/// Checks all that `btrfs check` can, with data.
fn check(image: &Path) {
    let options = ["check", "--readonly", "--check-data-csum"];
    run(Command::new("btrfs").args(options).arg(image)).unwrap();
}

/// A golden image, unpacked.
fn unpack(name: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("image");
    Golden::named(name).unpack(&image).unwrap();
    (folder, image)
}

/// Every kind of checksum, of block group, of node, and of record of free space.
const IMAGES: [&str; 12] = [
    "basic",
    "blake2",
    "block-group-tree",
    "dup",
    "mixed",
    "nodesize-4k",
    "nodesize-64k",
    "old-format",
    "sha256",
    "single",
    "space-cache-v1",
    "xxhash",
];

#[test]
fn data_on_golden_images_passes_btrfs_check() {
    if !available_or_skip() {
        return;
    }
    for name in IMAGES {
        println!("{name}");
        let (_folder, image) = unpack(name);
        for round in 0..2 {
            let mut files = Files::new(open(&image).unwrap(), round);
            files.next += round << 20;
            (0..60).for_each(|_| files.step());
            files.close();
        }
        check(&image);
    }
}

/// Data fills all space to the last MiB; it can then be removed, and written again.
#[test]
fn a_filesystem_is_filled_emptied_and_filled_again() {
    if !available_or_skip() {
        return;
    }
    for name in ["fresh", "mixed"] {
        let (_folder, image) = unpack(name);
        let mut files = Files::new(open(&image).unwrap(), 1);
        let len_max = [16 * MIB, MIB / 4, 16 * MIB];
        let filled = len_max.map(|len_max| {
            let filled = files.fill(len_max);
            assert!(files.transactions.reserve_data(MIB).is_err());
            files.transactions.commit().unwrap();
            for inode in files.pieces.keys().copied().collect::<Vec<_>>() {
                let _removal = files.transactions.reserve_for_removal(4).unwrap();
                files.cut(inode, 0);
            }
            filled
        });
        println!("{name}: {filled:?}");
        assert!(filled[0] > 40 * MIB && filled[2] > filled[0] / 10 * 9, "{name}: {filled:?}");
        files.close();
        check(&image);
    }
}

/// Threads allocate, count and drop data, while another one commits all the time.
#[test]
fn threads_write_data_while_commits_go_on() {
    if !available_or_skip() {
        return;
    }
    let (folder, image) = unpack("xxhash");
    let device = Arc::new(SparseImage::from_file(&image).unwrap().to_device());
    let transactions = open_on(Arc::clone(&device) as _, TransactionOptions::default()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let transactions = &transactions;
        let work = |seed: u64| {
            move || {
                let mut files = Files::new(Arc::clone(transactions), seed);
                files.next += seed << 20;
                (0..60).for_each(|_| files.step_without_commit());
                files.finish_late();
            }
        };
        let threads: Vec<_> = (1..5).map(|seed| scope.spawn(work(seed))).collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                transactions.commit().unwrap();
            }
        });
        for thread in threads {
            thread.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    transactions.close().unwrap();
    let image = folder.path().join("written");
    SparseImage::copy_of(&*device).unwrap().write_to(&image).unwrap();
    check(&image);
}

/// Returns the ranges of the device that a superblock leads to.
fn in_use(transactions: &TransactionManager) -> Vec<Range<u64>> {
    let tree_roots = transactions.tree_roots();
    let volume = transactions.volume();
    let tree = tree_roots.tree(TreeId::EXTENT).unwrap();
    let mut cursor = tree_roots.cursor(&tree, &Key::MIN, ReadAhead::Off).unwrap();
    let mut ranges = Vec::new();
    while let Some(item) = cursor.item() {
        let len = match item.key.kind {
            ItemKind::EXTENT_ITEM => item.key.offset,
            ItemKind::METADATA_ITEM => u64::from(volume.geometry().nodesize),
            _ => 0,
        };
        if len > 0 {
            let copies = volume.map(Logical(item.key.objectid), len).unwrap().copies();
            ranges.extend(copies.map(|at| at.0..at.0 + len));
        }
        cursor.advance().unwrap();
    }
    ranges
}

fn overlap(one: &[Range<u64>], other: &[Range<u64>]) -> u64 {
    let both =
        |a: &Range<u64>, b: &Range<u64>| b.end.min(a.end).saturating_sub(b.start.max(a.start));
    one.iter().map(|a| other.iter().map(|b| both(a, b)).sum::<u64>()).sum()
}

/// Commits; checks that what was freed is discarded once the superblock is durable, and nothing
/// that this superblock needs. Returns how much.
fn commit_and_judge(
    transactions: &TransactionManager,
    device: &RecordingDevice,
    before: &[Range<u64>],
) -> u64 {
    drop(device.take());
    transactions.commit().unwrap();
    let after = in_use(transactions);
    let discarded = discards_after_the_superblock(&device.take());
    assert_eq!(overlap(&discarded, &after), 0, "what is needed is given back");
    let freed = before.iter().map(|range| range.end - range.start).sum::<u64>();
    let freed = freed - overlap(before, &after);
    assert_eq!(overlap(&discarded, before), freed);
    freed
}

/// Returns a filesystem in which all space for data is in block groups, and free.
fn with_all_groups() -> (TempDir, Arc<TransactionManager>) {
    let (folder, image) = unpack("fresh");
    let transactions = open(&image).unwrap();
    let handle = transactions.start(HandleKind::Operation).unwrap();
    while transactions.space().make_data_chunk() {}
    drop(handle);
    (folder, transactions)
}

/// Returns the end of the chunk that an address is in.
fn end_of_chunk(transactions: &TransactionManager, at: Logical) -> u64 {
    let chunks = transactions.volume().chunks();
    let chunk = chunks.iter().find(|chunk| chunk.logical <= at && at < chunk.end());
    chunk.expect("it was allocated").end().0
}

#[test]
fn sequential_data_fills_block_group_before_next_one() {
    for piece in [5 * MIB, 700 << 10, 8 * MIB, 3 * MIB + SECTOR] {
        let (_folder, transactions) = with_all_groups();
        let total = transactions.space().usage(SpaceKind::Data).total;
        assert!(total > 40 * MIB, "{total} bytes");
        let _reserved = transactions.reserve_data(total / 4 * 3).unwrap();
        let mut taken: Vec<(Logical, u64)> = Vec::new();
        while taken.iter().map(|(_, len)| len).sum::<u64>() < total / 2 {
            taken.push(transactions.allocate_data(piece, SECTOR).unwrap());
        }
        for pair in taken.windows(2) {
            let (at, len) = pair[0];
            let (next, _) = pair[1];
            let end = at.0 + len;
            assert!(
                next.0 == end || end == end_of_chunk(&transactions, at),
                "{piece}: {next} after {at}, {len} bytes: {taken:?}"
            );
        }
    }
}

/// Even if an older group has enough space: once a new one is in use, more data in it costs
/// nothing.
#[test]
fn sequential_data_continues_in_new_block_group() {
    let (_folder, image) = unpack("fresh");
    let transactions = open(&image).unwrap();
    let _reserved = transactions.reserve_data(20 * MIB).unwrap();
    let next = || transactions.allocate_data(MIB, SECTOR).unwrap();
    let first = next();
    while !transactions.space().draws_on_new_groups() {
        next();
    }
    let last = next();
    transactions.give_back_data(first.0, first.1);
    assert_eq!(next().0.0, last.0.0 + last.1);
}

#[test]
fn commit_discards_exactly_what_it_freed() {
    for name in ["dup", "mixed"] {
        println!("{name}");
        let (_folder, image) = unpack(name);
        let device = Arc::new(RecordingDevice::on(&SparseImage::from_file(&image).unwrap()));
        let options = TransactionOptions { discard: true, ..TransactionOptions::default() };
        let transactions = open_on(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
        let mut files = Files::new(Arc::clone(&transactions), 7);
        let mut given = 0;
        for _ in 0..12 {
            let before = in_use(&transactions);
            (0..5).for_each(|_| files.step_without_commit());
            given += commit_and_judge(&transactions, &device, &before);
        }
        assert!(given > MIB, "{given} bytes were given back");
        // All block groups are made and removed.
        files.fill(16 * MIB);
        transactions.commit().unwrap();
        let chunks = transactions.volume().chunks().len();
        for inode in files.pieces.keys().copied().collect::<Vec<_>>() {
            files.cut(inode, 0);
        }
        for _ in 0..3 {
            commit_and_judge(&transactions, &device, &in_use(&transactions));
            files.next += 1;
            files.write(files.next);
        }
        assert!(transactions.volume().chunks().len() < chunks, "chunks are removed");
        assert!(transactions.discards().bytes > 40 * MIB && transactions.discards().failed == 0);
        files.close();
    }
}

#[test]
fn logged_data_is_discarded_once_no_superblock_leads_to_log() {
    let (_folder, image) = unpack("dup");
    let device = Arc::new(RecordingDevice::on(&SparseImage::from_file(&image).unwrap()));
    let options = TransactionOptions { discard: true, ..TransactionOptions::default() };
    let transactions = open_on(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    let (logical, len) = {
        let _reserved = transactions.reserve_data(MIB).unwrap();
        transactions.allocate_data(MIB, SECTOR).unwrap()
    };
    transactions.give_back_data(logical, len);
    drop(device.take());
    assert!(transactions.space().take_data_at(transactions.tree_roots(), logical, len).unwrap());
    transactions.give_back_logged_data(logical, len);
    apply(&transactions, vec![attribute(1, 10)]);
    transactions.commit().unwrap();
    let copy = transactions.volume().map(logical, len).unwrap().copies().next().unwrap();
    let discarded = discards_after_the_superblock(&device.take());
    let place = std::slice::from_ref(&(copy.0..copy.0 + len)).to_vec();
    assert_eq!(overlap(&discarded, &place), len);
    transactions.close().unwrap();
}

#[test]
fn failed_discards_do_no_harm() {
    let (_folder, image) = unpack("dup");
    let inner = Arc::new(SparseImage::from_file(&image).unwrap().to_device());
    let device = Arc::new(FaultyDevice::new(inner));
    let operation = Operation::Discard;
    let how = How::Eio;
    device.arm(Fault { operation, after: 5, how, lasting: true });
    let options = TransactionOptions { discard: true, ..TransactionOptions::default() };
    let transactions = open_on(device, options).unwrap();
    let mut files = Files::new(Arc::clone(&transactions), 3);
    for _ in 0..4 {
        (0..10).for_each(|_| files.step_without_commit());
        transactions.commit().unwrap();
    }
    assert!(transactions.discards().failed > 0 && transactions.discards().bytes > 0);
    files.close();
}

fn discards_after_the_superblock(recording: &Recording) -> Vec<Range<u64>> {
    let mut written = false;
    let mut ranges = Vec::new();
    for recorded in &recording.events {
        match recorded.event {
            Event::Write { offset, fua, .. } if offset == 64 << 10 => written |= fua,
            Event::Discard { offset, len } => {
                assert!(written, "the superblock before still leads there");
                ranges.push(offset..offset + len);
            }
            _ => {}
        }
    }
    ranges
}
