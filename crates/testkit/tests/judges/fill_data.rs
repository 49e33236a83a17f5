//! A filesystem is filled with data to the last mebibyte and emptied again, repeatedly, by one
//! thread and by several.
//!
//! 1. Data of a successful write is kept, however little space there is at writeback.
//! 2. If there is no space, the operation fails with ENOSPC; so may an overwrite, which then
//!    changes nothing.
//! 3. Existing files can always be truncated and removed, and all space is freed again.
//! 4. Linux can use a full filesystem.

use rustix::io::Errno;
use userbtrfs::mkfs::{Options, Profile};
use userbtrfs::{BlockGroupFlags, Dir, Error, File, Filesystem, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseDevice;
use userbtrfs_testkit::engine_target::errno;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::fill::on_threads;
use super::made::{Baseline, MIB, Made, check_image};
use super::ours::check_full_image;
use super::{is_torture, seed};

/// The number of times that it is filled.
const TIMES: u32 = 5;
/// The size of large files, in bytes, if there is space.
const LARGE: u64 = 4 * MIB;
/// Small files are shorter than this.
const SMALL: u64 = 6000;
/// The maximum space left for data, in bytes.
const LEFT_MAX: u64 = MIB;

fn small() -> Vec<Made> {
    let nodes = |nodesize| Options { nodesize, ..Options::default() };
    let mut all = vec![
        Made::new("mixed", 24 * MIB, Options::mixed()),
        Made::new("4k nodes", 72 * MIB, nodes(4096)),
    ];
    if is_torture() {
        let dup = Options { data: Profile::Dup, ..nodes(16384) };
        all.push(Made::new("data twice", 200 * MIB, dup));
        all.push(Made::new("default", 400 * MIB, nodes(16384)));
        all.push(Made::new("mixed, large", 300 * MIB, Options::mixed()));
    }
    all
}

#[test]
fn filesystem_filled_with_data_can_be_emptied() {
    skip_unless_linux!();
    let seed = seed();
    let rounds = if is_torture() { 5 } else { 1 };
    for seed in seed..seed + rounds {
        for made in small() {
            for threads in [1, 4] {
                fill_and_empty(&made, threads, seed);
            }
        }
    }
}

/// A file and its expected content: size and seed.
#[derive(Clone)]
struct Filled {
    name: Vec<u8>,
    size: u64,
    seed: u32,
    /// A range with another seed.
    over: Option<(u64, u64, u32)>,
}

impl Filled {
    fn content(&self) -> Vec<u8> {
        let mut bytes = pattern::bytes(self.seed, 0, index(self.size));
        if let Some((start, length, seed)) = self.over {
            pattern::fill(seed, start, &mut bytes[index(start)..index(start + length)]);
        }
        bytes
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The files of each thread.
type Files = Vec<Vec<Filled>>;

fn fill_and_empty(made: &Made, threads: u64, seed: u64) {
    let device = Arc::new(made.image().to_device());
    let mut baseline = Baseline::of(&open_for_writing(&device));
    for time in 0..TIMES {
        let what = format!("{}, {threads} threads, seed {seed}, time {time}", made.name);
        let random = |thread: u64| Random::new(seed ^ u64::from(time) << 32 ^ thread << 40);
        let filesystem = open_for_writing(&device);
        let files: Files = on_threads(&filesystem, threads, |dir, thread| {
            let mut files = Vec::new();
            let mut random = random(thread);
            fill(&dir, LARGE..LARGE + 1, &mut files, &mut random);
            files
        });
        let large: u64 = files.iter().flatten().map(|file| file.size).sum();
        assert!(large > made.len / 4, "{what}: only {large} bytes were taken");
        baseline.assert_taken(&what, large);
        let files: Files = on_threads(&filesystem, threads, |dir, thread| {
            let mut files = files[index(thread)].clone();
            let mut random = random(threads + thread);
            overwrite(&dir, &mut files, &mut random);
            fill(&dir, 1..SMALL, &mut files, &mut random);
            files
        });
        filesystem.commit().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_full(&what, &filesystem);
        assert_all_hold(&what, &filesystem, &files);
        filesystem.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_full_image(&what, &device.image());
        let filesystem = open_for_writing(&device);
        assert_all_hold(&what, &filesystem, &files);
        on_threads(&filesystem, threads, |dir, thread| {
            let files = files[index(thread)].clone();
            empty(&what, &dir, files, &mut random(2 * threads + thread));
        });
        filesystem.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_image(&what, &device.image());
        baseline.assert_back(&what, &open_for_writing(&device), made.options.nodesize);
    }
}

fn assert_all_hold(what: &str, filesystem: &Filesystem, files: &Files) {
    on_threads(filesystem, files.len() as u64, |dir, thread| {
        assert_holds(what, &dir, &files[index(thread)]);
    });
}

fn open_for_writing(device: &Arc<SparseDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
    options.open_devices(vec![device.clone()]).unwrap()
}

/// Creates files of some sizes until there is no space.
fn fill(dir: &Dir, sizes: std::ops::Range<u64>, files: &mut Vec<Filled>, random: &mut Random) {
    loop {
        let name = format!("{}-{}", files.len(), "n".repeat(random.index(40))).into_bytes();
        let wanted = sizes.start + random.below(sizes.end - sizes.start);
        let seed = u32::try_from(1 + random.below(1 << 31)).unwrap();
        let file = match dir.create(&name, 0o644).and_then(|inode| inode.open()) {
            Err(error) => return assert_no_space(&error),
            Ok(file) => file,
        };
        let size = write_until_full(&file, wanted, seed, random);
        file.close().unwrap();
        files.push(Filled { name, size, seed, over: None });
        if size < wanted {
            return;
        }
    }
}

fn assert_no_space(error: &Error) {
    assert_eq!(errno(error), Errno::NOSPC, "{error}");
}

/// Writes until there is no space; returns the number of bytes written.
fn write_until_full(file: &File, wanted: u64, seed: u32, random: &mut Random) -> u64 {
    let mut size = 0;
    while size < wanted {
        let length = random.length(18).min(wanted - size);
        match file.write_at(&pattern::bytes(seed, size, index(length)), size) {
            Ok(taken) => size += taken as u64,
            Err(error) => {
                assert_no_space(&error);
                break;
            }
        }
    }
    assert_eq!(file.len(), size);
    size
}

fn overwrite(dir: &Dir, files: &mut [Filled], random: &mut Random) {
    for filled in files.iter_mut().filter(|filled| filled.size > 0) {
        let file = dir.lookup(&filled.name).unwrap().open().unwrap();
        let start = random.below(filled.size);
        let length = random.length(16).min(filled.size - start);
        match file.write_at(&pattern::bytes(99, start, index(length)), start) {
            Ok(taken) => filled.over = Some((start, taken as u64, 99)),
            Err(error) => assert_no_space(&error),
        }
        file.close().unwrap();
    }
}

/// Checks that data uses almost all of its space.
fn assert_full(what: &str, filesystem: &Filesystem) {
    let usage = filesystem.usage().unwrap();
    for kind in usage.kinds.iter().filter(|kind| kind.flags == BlockGroupFlags::DATA) {
        let left = kind.total - kind.used;
        assert!(left <= LEFT_MAX, "{what}: {left} of {} bytes are left", kind.total);
    }
}

fn assert_holds(what: &str, dir: &Dir, files: &[Filled]) {
    for filled in files {
        let content = dir.lookup(&filled.name).unwrap().open().unwrap().read_all().unwrap();
        assert!(content == filled.content(), "{what}: {} bytes, {:?}", filled.size, filled.over);
    }
}

/// Truncates some files, punches holes into others, and removes all.
fn empty(what: &str, dir: &Dir, mut files: Vec<Filled>, random: &mut Random) {
    random.shuffle(&mut files);
    for filled in files {
        let ended = dir.lookup(&filled.name).and_then(|inode| match random.below(4) {
            0 => inode.open()?.set_len(filled.size / 2),
            1 if filled.size > 1 => {
                let punch = userbtrfs::Allocate::PunchHole;
                inode.open()?.allocate(1, filled.size / 2, punch)
            }
            _ => Ok(()),
        });
        // Truncating within a sector rewrites it, for which there may be no space.
        if let Err(error) = ended {
            assert_no_space(&error);
        }
        dir.remove_file(&filled.name).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
