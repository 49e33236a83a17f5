//! A filesystem that compresses is filled with compressible and incompressible data to ENOSPC, and
//! emptied again, five times, by one thread and by several.
//!
//! 1. Data of a successful write is kept, though its compressed size is known only at writeback.
//! 2. A write reserves the uncompressed size, so one that fails is made again after a commit, and
//!    then in smaller parts. The filesystem is full if one sector fails after a commit.
//! 3. Each filling has the space of the first one, and all of it is freed again.
//! 4. Linux can use a full filesystem.

use rustix::io::Errno;
use userbtrfs::mkfs::Options;
use userbtrfs::{BlockGroupFlags, Compress, Dir, Error, File, Filesystem, OpenOptions, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseDevice;
use userbtrfs_testkit::engine_target::errno;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::fill::on_threads;
use super::made::{Baseline, MIB, Made, check_image};
use super::ours::check_full_image;
use super::{SECTOR_LEN, is_torture, seed};

/// The number of times that it is filled.
const TIMES: u32 = 5;
/// The maximum size of a file, in bytes.
const FILE_LEN_MAX: u64 = 3 * MIB;
/// The maximum number of bytes of one write.
const WRITE_LEN_MAX: usize = 256 << 10;
/// How often each byte of compressible data is repeated, so that all methods halve it at least.
const RUN_LEN: usize = 16;
/// The bits of compressible data: more values look incompressible to the sampling.
const VALUES: u8 = 0x0f;
/// The maximum space left for data, in bytes.
const LEFT_MAX: u64 = MIB;

/// A file and its expected content.
struct Filled {
    name: Vec<u8>,
    size: usize,
    seed: u32,
    is_compressible: bool,
}

impl Filled {
    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        if !self.is_compressible {
            return pattern::bytes(self.seed, offset as u64, len);
        }
        let first = offset / RUN_LEN;
        let runs = pattern::bytes(self.seed, first as u64, len / RUN_LEN + 2);
        (offset..offset + len).map(|at| runs[at / RUN_LEN - first] & VALUES).collect()
    }
}

#[test]
fn compressing_filesystem_is_filled_and_emptied_five_times() {
    skip_unless_linux!();
    let seed = seed();
    let mut all = vec![
        (Made::new("mixed", 24 * MIB, Options::mixed()), "lzo", 1),
        (Made::new("default", 96 * MIB, Options::default()), "zstd:1", 3),
    ];
    if is_torture() {
        let nodes = Options { nodesize: 4096, ..Options::default() };
        all.push((Made::new("4k nodes", 400 * MIB, nodes), "zlib:3", 4));
        all.push((Made::new("mixed, large", 300 * MIB, Options::mixed()), "zstd:9", 4));
    }
    for (made, method, threads) in all {
        fill_and_empty(&made, method, threads, seed);
    }
}

fn fill_and_empty(made: &Made, method: &str, threads: u64, seed: u64) {
    let device = Arc::new(made.image().to_device());
    let mut baseline = Baseline::of(&open(&device, method));
    for time in 0..TIMES {
        let what = format!("{}, {method}, seed {seed}, time {time}", made.name);
        let filesystem = open(&device, method);
        let files = on_threads(&filesystem, threads, |dir, thread| {
            let mut random = Random::new(seed ^ u64::from(time) << 32 ^ thread << 40);
            fill(&filesystem, &dir, &mut random)
        });
        filesystem.commit().unwrap_or_else(|error| panic!("{what}: {error}"));
        let stored = assert_full(&what, &filesystem);
        assert_compressed(&what, files.iter().flatten(), stored);
        baseline.assert_taken(&what, stored);
        filesystem.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_full_image(&what, &device.image());
        let filesystem = open(&device, method);
        on_threads(&filesystem, threads, |dir, thread| {
            for file in &files[usize::try_from(thread).unwrap()] {
                let content = dir.lookup(&file.name).unwrap().open().unwrap().read_all().unwrap();
                assert!(content == file.bytes(0, file.size), "{what}: {} bytes", file.size);
                dir.remove_file(&file.name).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
        });
        filesystem.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        check_image(&what, &device.image());
        baseline.assert_back(&what, &open(&device, method), made.options.nodesize);
    }
}

/// Checks that the stored bytes are at most those of incompressible files and half of the others,
/// and a sector of each file.
fn assert_compressed<'a>(what: &str, files: impl Iterator<Item = &'a Filled>, stored: u64) {
    let most =
        |file: &Filled| SECTOR_LEN + if file.is_compressible { file.size / 2 } else { file.size };
    let most: usize = files.map(most).sum();
    assert!(stored <= most as u64, "{what}: {stored} bytes are stored, more than {most}");
}

fn open(device: &Arc<SparseDevice>, method: &str) -> Filesystem {
    let compress = Compress { method: method.parse().unwrap(), force: false };
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
    options.compress(Some(compress)).open_devices(vec![device.clone()]).unwrap()
}

/// Creates files until there is no space.
fn fill(filesystem: &Filesystem, dir: &Dir, random: &mut Random) -> Vec<Filled> {
    let mut files = Vec::new();
    loop {
        let name = files.len().to_string().into_bytes();
        let file = match dir.create(&name, 0o644).and_then(|inode| inode.open()) {
            Ok(file) => file,
            Err(error) => {
                assert_no_space(&error);
                return files;
            }
        };
        let wanted = usize::try_from(1 + random.below(FILE_LEN_MAX)).unwrap();
        let seed = u32::try_from(1 + random.below(1 << 31)).unwrap();
        let mut filled = Filled { name, size: 0, seed, is_compressible: random.one_in(2) };
        write(filesystem, &file, &mut filled, wanted);
        file.close().unwrap();
        let is_full = filled.size < wanted;
        files.push(filled);
        if is_full {
            return files;
        }
    }
}

/// Writes a file; stops if there is no space.
fn write(filesystem: &Filesystem, file: &File, filled: &mut Filled, wanted: usize) {
    let mut len_max = WRITE_LEN_MAX;
    let mut is_committed = false;
    while filled.size < wanted {
        let len = len_max.min(wanted - filled.size);
        match file.write_at(&filled.bytes(filled.size, len), filled.size as u64) {
            Ok(taken) => {
                filled.size += taken;
                is_committed = false;
            }
            Err(error) => {
                assert_no_space(&error);
                if !is_committed {
                    filesystem.commit().unwrap();
                    is_committed = true;
                } else if len_max > SECTOR_LEN {
                    len_max /= 2;
                } else {
                    break;
                }
            }
        }
    }
    assert_eq!(file.len(), filled.size as u64);
}

fn assert_no_space(error: &Error) {
    assert_eq!(errno(error), Errno::NOSPC, "{error}");
}

/// Checks that data uses almost all of its space; returns the bytes that it uses.
fn assert_full(what: &str, filesystem: &Filesystem) -> u64 {
    let usage = filesystem.usage().unwrap();
    let of_data = usage.kinds.iter().filter(|kind| kind.flags.contains(BlockGroupFlags::DATA));
    let mut used = 0;
    for kind in of_data {
        let left = kind.total - kind.used;
        let is_mixed = kind.flags.contains(BlockGroupFlags::METADATA);
        assert!(is_mixed || left <= LEFT_MAX, "{what}: {left} of {} bytes are left", kind.total);
        used += kind.used;
    }
    used
}
