//! Tests of files through the public API, on a filesystem in memory.

mod at_once;
mod cloning;
mod coherence;
mod compressing;
mod defragmenting;
mod device;
#[cfg(feature = "experiments")]
mod experiments;
#[cfg(not(shuttle))]
mod extent_sharing;
mod failing;
mod fragmented;
mod full;
mod full_sharing;
#[cfg(not(shuttle))]
mod label;
mod landing;
mod listing;
mod model;
mod orphans;
mod repairing;
#[cfg(not(shuttle))]
mod resize;
mod salvaging;
#[cfg(debug_assertions)]
mod searching;
mod seeking;
mod serving;
mod shared;
#[cfg(not(shuttle))]
mod sharing;
mod shutdown;
mod small;
mod syncing;
mod tree_sizes;
mod unlinked;
mod writing;

use std::path::PathBuf;
use std::process::Command;

use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_mkfs::Options;
use userbtrfs_sync::Arc;

use super::*;

/// A filesystem in memory that is open for writing.
struct Lab {
    device: Arc<MemoryDevice>,
    memory: u64,
    fs: Filesystem,
}

impl Lab {
    fn new() -> Self {
        Self::of(128 << 20, &Options::default(), 32 << 20)
    }

    /// Creates one of `len` bytes, with a memory bound.
    fn of(len: usize, options: &Options, memory: u64) -> Self {
        let device = Arc::new(MemoryDevice::new(len));
        userbtrfs_mkfs::make(&*device, options).unwrap();
        Self::open(device, memory)
    }

    fn open(device: Arc<MemoryDevice>, memory: u64) -> Self {
        let fs = open(Arc::clone(&device) as Arc<dyn Device>, memory);
        Self { device, memory, fs }
    }

    fn create(&self, name: &str) -> File {
        self.fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap()
    }

    fn file(&self, name: &str) -> File {
        self.fs.open_file(name).unwrap()
    }

    /// Closes it, runs Linux's checker on the image if that is available, and opens it again.
    fn reopened(self) -> Self {
        let Self { device, memory, fs } = self;
        fs.close().unwrap();
        check(&device);
        Self::open(device, memory)
    }

    fn close(self) {
        self.reopened().fs.close().unwrap();
    }

    /// Returns the bytes of data that are reserved or allocated.
    fn data_in_use(&self) -> u64 {
        data_in_use(&self.fs)
    }
}

fn data_in_use(fs: &Filesystem) -> u64 {
    let usage = fs.usage().unwrap();
    let is_data = |flags: userbtrfs_format::BlockGroupFlags| {
        flags.contains(userbtrfs_format::BlockGroupFlags::DATA)
    };
    usage.kinds.iter().filter(|kind| is_data(kind.flags)).map(|kind| kind.used).sum()
}

fn open(device: Arc<dyn Device>, memory: u64) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_seconds(0).memory(memory);
    options.open_devices(vec![device]).unwrap()
}

/// Runs `btrfs check` on an image, if it is available.
fn check(device: &MemoryDevice) {
    let name = format!("userbtrfs-engine-{:?}", std::thread::current().id());
    let path: PathBuf = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    std::fs::write(&path, device.snapshot()).unwrap();
    // Shuttle has no testkit.
    #[cfg(not(shuttle))]
    userbtrfs_testkit::time_limit::limit_time();
    let checked = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let Ok(output) = checked else { return };
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}", text.concat());
}

/// Returns bytes that differ by position.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        random.next();
        bytes.extend_from_slice(&random.0.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Small random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) {
        let factor = 6_364_136_223_846_793_005;
        let step = 1_442_695_040_888_963_407;
        self.0 = self.0.wrapping_mul(factor).wrapping_add(step);
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next();
        (self.0 >> 33) % bound
    }
}
