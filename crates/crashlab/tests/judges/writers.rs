//! Many threads in one file.
//!
//! 1. Each has stripes of its own, which share sectors with those of others: what it wrote it reads
//!    back, whatever the others do, and all of it is there in the end.
//! 2. Where all write, truncate and punch at any place, each byte is at all times one that somebody
//!    put there, or zero.

use std::sync::Barrier;
use std::thread;

use userbtrfs::mkfs::Options;
use userbtrfs::{Allocate, File, Filesystem, InodeFlags, OpenOptions, TreeId};
use userbtrfs_crashlab::devices::SparseDevice;
use userbtrfs_crashlab::random::Random;
use userbtrfs_crashlab::{pattern, skip_unless_linux};
use userbtrfs_sync::Arc;

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, seed};

const THREADS: u64 = 4;
/// Bytes of a stripe: not a multiple of anything.
const STRIPE: u64 = 3001;
/// Stripes of one thread.
const STRIPES: u64 = 60;
/// The largest size, in bytes, where all write anywhere.
const SIZE_MAX: u64 = 900_000;
const NAME: &[u8] = b"file";

fn open_for_writing(device: &Arc<SparseDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.open_devices(vec![device.clone()]).unwrap()
}

/// Has threads work on one new file; gives what is in it at the end, as it is after reopening.
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
            let (filesystem, file) = (&filesystem, inode.open().unwrap());
            let (work, start) = (&work, &start);
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
    let (seed, rounds) = (seed(), if is_torture() { 100 } else { 1 });
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

/// What a thread put into its stripes: the seed of each, 0 for zeros.
type Stripes = Vec<u32>;

/// Where a stripe of a thread starts.
fn place(thread: u64, stripe: u64) -> u64 {
    (stripe * THREADS + thread) * STRIPE
}

fn stripe_bytes(seed: u32, start: u64) -> Vec<u8> {
    pattern::bytes(seed, start, usize::try_from(STRIPE).unwrap())
}

#[test]
fn threads_keep_to_their_stripes() {
    skip_unless_linux!();
    for (made, in_place, seed) in rounds() {
        let what = format!("stripes, in place: {in_place}, seed {seed}");
        let known = std::sync::Mutex::new(Vec::new());
        let found = on_threads(&what, &made, in_place, |filesystem, file, thread| {
            let stripes = keep_to_stripes(filesystem, &file, thread, seed);
            file.close().unwrap();
            known.lock().unwrap().push((thread, stripes));
        });
        for (thread, stripes) in known.into_inner().unwrap() {
            for (stripe, seed) in (0..).zip(stripes) {
                let start = place(thread, stripe);
                let mut there = vec![0; usize::try_from(STRIPE).unwrap()];
                let from = usize::try_from(start).unwrap().min(found.len());
                let to = (from + there.len()).min(found.len());
                there[..to - from].copy_from_slice(&found[from..to]);
                assert!(there == stripe_bytes(seed, start), "{what}: {stripe} of thread {thread}");
            }
        }
    }
}

fn keep_to_stripes(filesystem: &Filesystem, file: &File, thread: u64, seed: u64) -> Stripes {
    let mut random = Random::new(seed ^ thread << 40);
    let mut stripes = vec![0; usize::try_from(STRIPES).unwrap()];
    for _ in 0..steps() {
        let stripe = random.index(stripes.len());
        let start = place(thread, stripe as u64);
        match random.below(40) {
            0 => file.sync_all().unwrap(),
            1 => filesystem.commit().unwrap(),
            2..6 => {
                file.allocate(start, STRIPE, Allocate::PunchHole).unwrap();
                stripes[stripe] = 0;
            }
            6 => file.allocate(start, STRIPE, Allocate::Reserve { keep_size: true }).unwrap(),
            7..9 => {
                file.allocate(start, STRIPE, Allocate::ZeroRange { keep_size: true }).unwrap();
                stripes[stripe] = 0;
            }
            _ => {
                stripes[stripe] = u32::try_from(1 + random.below(1 << 31)).unwrap();
                let bytes = stripe_bytes(stripes[stripe], start);
                assert_eq!(file.write_at(&bytes, start).unwrap(), bytes.len());
            }
        }
        let mut found = vec![0; usize::try_from(STRIPE).unwrap()];
        file.read_at(&mut found, start).unwrap();
        let expected = stripe_bytes(stripes[stripe], start);
        assert!(found == expected, "thread {thread}, stripe {stripe}, seed {seed}");
    }
    stripes
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
        assert_known(&found, 0);
    }
}

fn write_anywhere(filesystem: &Filesystem, file: &File, thread: u64, seed: u64) {
    let mut random = Random::new(seed ^ thread << 40);
    for _ in 0..steps() {
        let (offset, length) = (random.below(SIZE_MAX), random.length(16));
        match random.below(32) {
            0 => file.sync_all().unwrap(),
            1 => filesystem.commit().unwrap(),
            2..5 => file.set_len(offset).unwrap(),
            5..8 => file.allocate(offset, length, Allocate::PunchHole).unwrap(),
            8 => file.allocate(offset, length, Allocate::ZeroRange { keep_size: false }).unwrap(),
            9 => file.allocate(offset, length, Allocate::Reserve { keep_size: false }).unwrap(),
            10..22 => {
                let mine = u32::try_from(1 + thread).unwrap();
                let bytes = pattern::bytes(mine, offset, usize::try_from(length).unwrap());
                assert_eq!(file.write_at(&bytes, offset).unwrap(), bytes.len());
            }
            _ => {
                let mut found = vec![0; usize::try_from(length).unwrap()];
                let read = file.read_at(&mut found, offset).unwrap();
                assert_known(&found[..read], offset);
            }
        }
    }
}

/// Each byte is zero or of the pattern of some thread.
fn assert_known(found: &[u8], offset: u64) {
    let patterns: Vec<_> = (1..=u32::try_from(THREADS).unwrap())
        .map(|seed| pattern::bytes(seed, offset, found.len()))
        .collect();
    for (at, byte) in found.iter().enumerate() {
        let is_known = *byte == 0 || patterns.iter().any(|pattern| pattern[at] == *byte);
        assert!(is_known, "{byte:#x} at {}", offset + at as u64);
    }
}
