//! A filesystem is filled with metadata to the last block and emptied again, repeatedly.
//!
//! 1. If there is no space, the operation fails with ENOSPC, and earlier changes are kept.
//! 2. Existing files can always be removed.
//! 3. All space is freed again.
//! 4. Linux can use a full filesystem.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::io::Errno;
use userbtrfs::mkfs::Options;
use userbtrfs::{Dir, Error, Filesystem, OpenOptions, TreeId, XattrMode};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseDevice;
use userbtrfs_testkit::engine_target::errno;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;

use super::made::{Baseline, MIB, Made, check_image};
use super::ours::check_full_image;
use super::{is_torture, seed};

/// The number of times that it is filled.
const TIMES: u32 = 5;

fn small() -> Vec<Made> {
    let plain = Options::default;
    let nodes = |nodesize| Options { nodesize, ..plain() };
    let group_tree = Options { block_group_tree: true, ..nodes(4096) };
    let mut all = vec![
        Made::new("mixed", 16 * MIB, Options::mixed()),
        Made::new("4k nodes, block group tree", 57 * MIB, group_tree),
    ];
    if is_torture() {
        all.push(Made::new("default", 128 * MIB, plain()));
        all.push(Made::new("64k nodes", 128 * MIB, nodes(64 << 10)));
        all.push(Made::new("mixed, large", 256 * MIB, Options::mixed()));
    }
    all
}

#[test]
fn filesystem_full_of_metadata_can_be_emptied() {
    skip_unless_linux!();
    let seed = seed();
    for (made, threads) in small().iter().zip([1, 4].into_iter().cycle()) {
        fill_and_empty(made, threads, seed);
        if is_torture() {
            fill_and_empty(made, 5 - threads, seed);
        }
    }
}

fn open_for_writing(device: &Arc<SparseDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0);
    options.open_devices(vec![device.clone()]).unwrap()
}

fn fill_and_empty(made: &Made, threads: u64, seed: u64) {
    let device = Arc::new(made.image().to_device());
    let mut baseline = Baseline::of(&open_for_writing(&device));
    for time in 0..TIMES {
        let what = format!("{}, {threads} threads, time {time}", made.name);
        let filesystem = open_for_writing(&device);
        let count = AtomicU64::new(0);
        on_threads(&filesystem, threads, |dir, thread| {
            fill(&dir, seed ^ thread, &count).unwrap_or_else(|error| panic!("{what}: {error}"));
        });
        let count = count.into_inner();
        assert!(count > 1000, "{what}: hardly anything was made");
        baseline.assert_taken(&what, count);
        filesystem.commit().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_full_image(&what, &device.image());
        on_threads(&filesystem, threads, |dir, _| {
            dir.remove_content().unwrap_or_else(|error| panic!("{what}: {error}"));
        });
        filesystem.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_image(&what, &device.image());
        baseline.assert_back(&what, &open_for_writing(&device), made.options.nodesize);
    }
}

/// Runs each thread in a directory of its own, which is created if missing; returns the results.
pub(crate) fn on_threads<T: Send>(
    filesystem: &Filesystem,
    threads: u64,
    work: impl Fn(Dir, u64) -> T + Sync,
) -> Vec<T> {
    let root = filesystem.root();
    let dir = |thread: u64| match root.lookup(thread.to_string().as_bytes()) {
        Err(Error::NotFound) => root.create_dir(thread.to_string().as_bytes(), 0o755),
        found => found.and_then(|inode| inode.open_dir()),
    };
    let dirs: Vec<_> = (0..threads).map(|thread| dir(thread).unwrap()).collect();
    thread::scope(|scope| {
        let work = &work;
        let spawn = |(thread, dir)| scope.spawn(move || work(dir, thread));
        let all: Vec<_> = (0..).zip(dirs).map(spawn).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Creates files until there is no space.
fn fill(dir: &Dir, seed: u64, count: &AtomicU64) -> Result<(), Error> {
    let mut random = Random::new(seed);
    for number in 0_u64.. {
        match make_one(dir, number, &mut random) {
            Ok(()) => count.fetch_add(1, Ordering::Relaxed),
            Err(error) if errno(&error) == Errno::NOSPC => break,
            Err(error) => return Err(error),
        };
    }
    // Files can be listed, and still be removed one by one.
    for entry in dir.entries().take(10).collect::<Vec<_>>() {
        dir.remove_file(entry?.name())?;
    }
    Ok(())
}

fn make_one(dir: &Dir, number: u64, random: &mut Random) -> Result<(), Error> {
    let length = random.index(240);
    let name = format!("{number}-{}", "n".repeat(length));
    let inode = dir.create(name.as_bytes(), 0o644)?;
    match random.below(4) {
        0 => inode.set_xattr(b"user.filler", &random.bytes(2000), XattrMode::Either),
        1 => inode.write_content(&random.bytes(2000)),
        2 => dir.link(format!("{number}-link").as_bytes(), &inode),
        _ => Ok(()),
    }
}
