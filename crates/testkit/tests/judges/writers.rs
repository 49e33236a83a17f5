//! Many threads in one file, with buffered and direct I/O.
//!
//! 1. Each thread has its own stripes, which share sectors with those of others: it reads back what
//!    it wrote, independent of the others, and all of it is found at the end. If stripes are whole
//!    sectors, this holds for any mix of buffered and direct I/O.
//! 2. If all threads write, truncate and punch at any offset, each byte is always one that some
//!    thread wrote, or zero.

use std::sync::Barrier;
use std::thread;

use userbtrfs::device::Buffer;
use userbtrfs::mkfs::Options;
use userbtrfs::{Allocate, File, Filesystem, InodeFlags, OpenOptions, TreeId};
use userbtrfs_format::SECTOR;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseDevice;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, seed};

const THREADS: u64 = 4;
/// The size of a stripe in bytes: not a multiple of anything, or whole sectors.
const STRIPE: u64 = 3001;
const STRIPE_OF_SECTORS: u64 = 2 * SECTOR;
/// The number of stripes of one thread.
const STRIPES: u64 = 60;
/// The maximum size of a file that all threads write anywhere, in bytes.
const SIZE_MAX: u64 = 900_000;
const NAME: &[u8] = b"file";

fn open_for_writing(device: &Arc<SparseDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.open_devices(vec![device.clone()]).unwrap()
}

/// Runs threads on one new file; returns its content at the end, checked after a reopen.
fn on_threads(
    what: &str,
    made: &Made,
    in_place: bool,
    work: impl Fn(&Filesystem, File, u64) + Sync,
) -> Vec<u8> {
    let device = Arc::new(made.image().to_device());
    let filesystem = open_for_writing(&device);
    let inode = filesystem.root().create(NAME, 0o644).unwrap();
    if in_place {
        inode.set_flags(InodeFlags::NODATACOW).unwrap();
    }
    let start = Barrier::new(usize::try_from(THREADS).unwrap());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let filesystem = &filesystem;
            let file = inode.open().unwrap();
            let work = &work;
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(filesystem, file, thread);
            });
        }
    });
    let shown = inode.open().unwrap().read_all().unwrap();
    filesystem.close().unwrap();
    check_image(what, &device.image());
    let left = open_device(Arc::new(device.image().to_device())).unwrap();
    let left = left.root().lookup(NAME).unwrap().open().unwrap().read_all().unwrap();
    assert!(left == shown, "{what}: another content after closing");
    left
}

fn rounds() -> impl Iterator<Item = (Made, bool, u64)> {
    let seed = seed();
    let rounds = if is_torture() { 100 } else { 1 };
    (seed..seed + rounds).flat_map(|seed| {
        [false, true].map(|in_place| {
            let made = Made::new("default", 192 * MIB, Options::default());
            (made, in_place, seed)
        })
    })
}

fn steps() -> u64 {
    if is_torture() { 3000 } else { 400 }
}

/// The content of the stripes of a thread: the seed of each, 0 for zeros.
type Stripes = Vec<u32>;

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

#[test]
fn threads_keep_to_their_stripes() {
    judge_stripes(STRIPE);
}

#[test]
fn threads_keep_to_their_stripes_past_memory_and_through_it() {
    judge_stripes(STRIPE_OF_SECTORS);
}

/// Lets threads write stripes of this length.
fn judge_stripes(len: u64) {
    skip_unless_linux!();
    for (made, in_place, seed) in rounds() {
        let what = format!("stripes of {len} bytes, in place: {in_place}, seed {seed}");
        let known = std::sync::Mutex::new(Vec::new());
        let found = on_threads(&what, &made, in_place, |filesystem, file, thread| {
            let stripes =
                Keeper { file: &file, thread, len, random: Random::new(seed ^ thread << 40) }
                    .run(filesystem);
            file.close().unwrap();
            known.lock().unwrap().push((thread, stripes));
        });
        for (thread, stripes) in known.into_inner().unwrap() {
            for (stripe, seed) in (0..).zip(stripes) {
                let start = place(thread, stripe, len);
                let mut there = vec![0; index(len)];
                let from = index(start).min(found.len());
                let to = (from + there.len()).min(found.len());
                there[..to - from].copy_from_slice(&found[from..to]);
                let expected = pattern::bytes(seed, start, index(len));
                assert!(there == expected, "{what}: {stripe} of thread {thread}");
            }
        }
    }
}

/// Returns the start of a stripe of a thread, for stripes of a given length.
fn place(thread: u64, stripe: u64, len: u64) -> u64 {
    (stripe * THREADS + thread) * len
}

/// A thread that changes its stripes of a file.
struct Keeper<'a> {
    file: &'a File,
    thread: u64,
    /// The length of a stripe, in bytes.
    len: u64,
    random: Random,
}

impl Keeper<'_> {
    fn run(mut self, filesystem: &Filesystem) -> Stripes {
        let mut stripes = vec![0; index(STRIPES)];
        for _ in 0..steps() {
            let stripe = self.random.index(stripes.len());
            let start = place(self.thread, stripe as u64, self.len);
            stripes[stripe] = self.change(filesystem, stripes[stripe], start);
            let expected = pattern::bytes(stripes[stripe], start, index(self.len));
            assert!(self.read(start) == expected, "thread {}, stripe {stripe}", self.thread);
        }
        stripes
    }

    /// Applies an operation to a stripe; returns the seed of its content afterwards.
    fn change(&mut self, filesystem: &Filesystem, seed: u32, start: u64) -> u32 {
        let file = self.file;
        let len = self.len;
        match self.random.below(40) {
            0 => file.sync_all().unwrap(),
            1 => filesystem.commit().unwrap(),
            2..6 => {
                file.allocate(start, len, Allocate::PunchHole).unwrap();
                return 0;
            }
            6 => file.allocate(start, len, Allocate::Reserve { keep_size: true }).unwrap(),
            7..9 => {
                file.allocate(start, len, Allocate::ZeroRange { keep_size: true }).unwrap();
                return 0;
            }
            _ => {
                let seed = u32::try_from(1 + self.random.below(1 << 31)).unwrap();
                self.write(&pattern::bytes(seed, start, index(len)), start);
                return seed;
            }
        }
        seed
    }

    /// Returns whether to use direct I/O, which needs whole sectors.
    fn is_direct(&mut self) -> bool {
        self.len.is_multiple_of(SECTOR) && self.random.one_in(2)
    }

    fn write(&mut self, bytes: &[u8], start: u64) {
        if self.is_direct() {
            self.file.write_direct(&Arc::new(Buffer::from(bytes)), start).unwrap();
        } else {
            assert_eq!(self.file.write_at(bytes, start).unwrap(), bytes.len());
        }
    }

    fn read(&mut self, start: u64) -> Vec<u8> {
        if self.is_direct() {
            return self.file.read_direct(start, index(self.len)).unwrap().to_vec();
        }
        let mut found = vec![0; index(self.len)];
        self.file.read_at(&mut found, start).unwrap();
        found
    }
}

#[test]
fn each_byte_is_one_that_somebody_wrote() {
    skip_unless_linux!();
    for (made, in_place, seed) in rounds() {
        let what = format!("anywhere, in place: {in_place}, seed {seed}");
        let found = on_threads(&what, &made, in_place, |filesystem, file, thread| {
            write_anywhere(filesystem, &file, thread, seed);
            file.close().unwrap();
        });
        assert_known(&found, 0, THREADS);
    }
}

fn write_anywhere(filesystem: &Filesystem, file: &File, thread: u64, seed: u64) {
    let mut random = Random::new(seed ^ thread << 40);
    let mine = u32::try_from(1 + thread).unwrap();
    for _ in 0..steps() {
        let offset = random.below(SIZE_MAX);
        let length = random.length(16);
        match random.below(32) {
            0 => file.sync_all().unwrap(),
            1 => filesystem.commit().unwrap(),
            2..5 => file.set_len(offset).unwrap(),
            5..8 => file.allocate(offset, length, Allocate::PunchHole).unwrap(),
            8 => file.allocate(offset, length, Allocate::ZeroRange { keep_size: false }).unwrap(),
            9 => file.allocate(offset, length, Allocate::Reserve { keep_size: false }).unwrap(),
            10..18 => {
                let bytes = pattern::bytes(mine, offset, index(length));
                assert_eq!(file.write_at(&bytes, offset).unwrap(), bytes.len());
            }
            18..22 => {
                let (start, len) = sectors(offset, length);
                let bytes = pattern::bytes(mine, start, index(len));
                file.write_direct(&Arc::new(Buffer::from(&bytes[..])), start).unwrap();
            }
            22..26 => {
                let (start, len) = sectors(offset, length);
                let found = file.read_direct(start, index(len)).unwrap();
                assert_known(&found, start, THREADS);
            }
            _ => {
                let mut found = vec![0; index(length)];
                let read = file.read_at(&mut found, offset).unwrap();
                assert_known(&found[..read], offset, THREADS);
            }
        }
    }
}

/// Returns the range of whole sectors that contains a range.
fn sectors(offset: u64, length: u64) -> (u64, u64) {
    let start = offset / SECTOR * SECTOR;
    (start, (offset + length).next_multiple_of(SECTOR) - start)
}

/// Checks that each byte is zero or from the pattern of one of `threads` threads.
pub(crate) fn assert_known(found: &[u8], offset: u64, threads: u64) {
    let patterns: Vec<_> = (1..=u32::try_from(threads).unwrap())
        .map(|seed| pattern::bytes(seed, offset, found.len()))
        .collect();
    for (at, byte) in found.iter().enumerate() {
        let is_known = *byte == 0 || patterns.iter().any(|pattern| pattern[at] == *byte);
        assert!(is_known, "{byte:#x} at {}", offset + at as u64);
    }
}
