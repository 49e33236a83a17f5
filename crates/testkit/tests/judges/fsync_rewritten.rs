//! A file whose blocks are rewritten while it is fsynced, with a crash at every write.
//!
//! 1. Each block of the file has a version; a writer writes the next one. The file is empty at
//!    first and grows; the last block is a short one.
//! 2. A syncing thread notes the versions written before, and the size. After a crash at any later
//!    point, no block has an older version, none is torn or has a version that was never written,
//!    and the file is not shorter.
//! 3. This also holds with commits in between, for an inline file, for a file that is overwritten
//!    in place, for one that ends in a growing hole, and if each fsync is a commit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use userbtrfs::mkfs::Options;
use userbtrfs::{File, Filesystem, OpenOptions};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, State, states};
use userbtrfs_testkit::devices::{RecordingDevice, SparseImage};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, open_to_write, seed};

/// The numbers of writing and of syncing threads.
const WRITERS: u64 = 2;
const SYNCERS: u64 = 2;
/// One in this many fsyncs is followed by a commit.
const COMMITTED: u64 = 6;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
struct Kind {
    blocks: u32,
    /// Whether overwrites are copied on write.
    cow: bool,
    /// Whether it is extended after its blocks.
    grows: bool,
    /// Whether an fsync writes a log rather than a commit.
    logged: bool,
}

/// A file of one block is inline.
const KINDS: [Kind; 6] = [
    Kind { blocks: 8, cow: true, grows: false, logged: true },
    Kind { blocks: 1, cow: true, grows: false, logged: true },
    Kind { blocks: 8, cow: false, grows: false, logged: true },
    Kind { blocks: 2, cow: true, grows: true, logged: true },
    Kind { blocks: 8, cow: false, grows: true, logged: true },
    Kind { blocks: 2, cow: true, grows: true, logged: false },
];

/// The sizes of a block, and of the last one.
const BLOCK: usize = 4096;
const LAST: usize = 1000;

/// The state that an fsync acknowledged after `events` events: versions of the blocks, and size.
struct Acknowledged {
    versions: Vec<u32>,
    size: u64,
    events: usize,
}

struct Workload<'a> {
    kind: Kind,
    filesystem: &'a Filesystem,
    device: &'a RecordingDevice,
    file: File,
    /// The version of each block; locked by its writer during the whole call.
    versions: Vec<Mutex<u32>>,
    /// The end of the file; locked by a thread that extends it.
    end: Mutex<u64>,
    acknowledged: Mutex<Vec<Acknowledged>>,
    rounds: u64,
}

impl Kind {
    /// Returns the total size of all blocks.
    fn whole(self) -> u64 {
        offset(self.blocks - 1) + LAST as u64
    }

    /// Returns the bytes of a version: zeros for version 0.
    fn bytes(self, block: u32, version: u32) -> Vec<u8> {
        let length = if block + 1 == self.blocks { LAST } else { BLOCK };
        match version {
            0 => vec![0; length],
            version => pattern::bytes(block + self.blocks * version, 0, length),
        }
    }
}

impl<'a> Workload<'a> {
    /// Creates the workload with an empty file that is committed.
    fn new(
        kind: Kind,
        filesystem: &'a Filesystem,
        device: &'a RecordingDevice,
        rounds: u64,
    ) -> Self {
        let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
        filesystem.commit().unwrap();
        let first = |_| Mutex::new(0);
        let versions = (0..kind.blocks).map(first).collect();
        let acknowledged = Mutex::new(Vec::new());
        let end = Mutex::new(kind.whole());
        Self { kind, filesystem, device, file, versions, end, acknowledged, rounds }
    }

    fn run(&self, seed: u64) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let is_over = &is_over;
                scope.spawn(move || self.write(seed ^ writer << 32, is_over));
            }
            let syncer = |syncer| scope.spawn(move || self.sync(seed ^ syncer << 40));
            let syncers: Vec<_> = (1..=SYNCERS).map(syncer).collect();
            let ended: Vec<_> = syncers.into_iter().map(ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok), "an fsync failed");
        });
    }

    fn write(&self, seed: u64, is_over: &AtomicBool) {
        let mut random = Random::new(seed);
        let kind = self.kind;
        while !is_over.load(Ordering::Relaxed) {
            let block = random.below(kind.blocks.into());
            let block = u32::try_from(block).unwrap();
            let mut version = self.versions[usize::try_from(block).unwrap()].lock().unwrap();
            // The earlier versions are complete; this one may become durable or not.
            self.file.write_at(&kind.bytes(block, *version + 1), offset(block)).unwrap();
            *version += 1;
            drop(version);
            if random.one_in(4) {
                thread::yield_now();
            }
        }
    }

    fn sync(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut last = Vec::new();
        for _ in 0..self.rounds {
            let versions = self.versions_but(&last);
            last.clone_from(&versions);
            if self.kind.grows && random.one_in(2) {
                self.grow();
            }
            let size = self.file.len();
            if random.one_in(2) {
                self.file.sync_data().unwrap();
            } else {
                self.file.sync_all().unwrap();
            }
            let acknowledged = Acknowledged { versions, size, events: self.device.count() };
            self.acknowledged.lock().unwrap().push(acknowledged);
            if random.one_in(COMMITTED) {
                self.filesystem.commit().unwrap();
            }
        }
    }

    fn grow(&self) {
        let mut end = self.end.lock().unwrap();
        *end += BLOCK as u64;
        self.file.set_len(*end).unwrap();
    }

    /// Returns the versions of all blocks, once they differ from `last`.
    fn versions_but(&self, last: &[u32]) -> Vec<u32> {
        loop {
            let versions = self.versions.iter().map(|version| *version.lock().unwrap());
            let versions: Vec<_> = versions.collect();
            if versions != last {
                return versions;
            }
            thread::yield_now();
        }
    }

    /// Returns the oldest version that each block may have.
    fn oldest(&self, completed: usize) -> Vec<u32> {
        let mut oldest = vec![0; self.versions.len()];
        for one in self.acknowledged.lock().unwrap().iter().filter(|one| one.events <= completed) {
            for (oldest, version) in oldest.iter_mut().zip(&one.versions) {
                *oldest = version.max(oldest).to_owned();
            }
        }
        oldest
    }

    /// Returns the minimum size of the file.
    fn shortest(&self, completed: usize) -> u64 {
        let acknowledged = self.acknowledged.lock().unwrap();
        let durable = acknowledged.iter().filter(|one| one.events <= completed);
        durable.map(|one| one.size).max().unwrap_or(0)
    }

    fn judge(&self, state: &State) {
        let what = format!("{:?}: {} events, {} lost", self.kind, state.completed, state.lost);
        let left = open_device(Arc::new(state.image.to_device())).unwrap();
        let mut bytes = left.read("/file").unwrap_or_else(|error| panic!("{what}: {error}"));
        let sizes = self.shortest(state.completed)..=*self.end.lock().unwrap();
        let size = u64::try_from(bytes.len()).unwrap();
        assert!(sizes.contains(&size), "{what}: {size} bytes, and not {sizes:?}");
        // The end of the file may be missing, and a hole may follow the blocks.
        let whole = usize::try_from(self.kind.whole()).unwrap();
        let behind = bytes.split_off(bytes.len().min(whole));
        assert!(behind.iter().all(|byte| *byte == 0), "{what}: a hole has bytes");
        bytes.resize(whole, 0);
        let oldest = self.oldest(state.completed);
        for (block, found) in (0..).zip(bytes.chunks(BLOCK)) {
            let at = usize::try_from(block).unwrap();
            // The last write may not be counted yet.
            let mut possible = oldest[at]..=*self.versions[at].lock().unwrap() + 1;
            let is_it = |version| self.kind.bytes(block, version) == found;
            assert!(possible.any(is_it), "{what}: block {block}, at least {}", oldest[at]);
        }
    }
}

fn offset(block: u32) -> u64 {
    u64::from(block) * BLOCK as u64
}

fn image() -> SparseImage {
    Made::new("plain", 128 * MIB, Options::default()).image()
}

fn open(device: &Arc<RecordingDevice>, kind: Kind) -> Filesystem {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .commit_seconds(0)
        .data_cow(kind.cow)
        .data_checksums(kind.cow)
        .tree_log(kind.logged);
    options.open_devices(vec![device.clone()]).unwrap()
}

#[test]
fn fsynced_data_that_is_rewritten_meanwhile_is_kept() {
    skip_unless_linux!();
    let (rounds, turns, count) = if is_torture() { (40, 200, 100) } else { (20, 6, 40) };
    let first = seed();
    for (turn, kind) in (0..turns).flat_map(|turn| KINDS.map(|kind| (turn, kind))) {
        let seed = first.wrapping_add(turn);
        let device = Arc::new(RecordingDevice::on(&image()));
        let filesystem = open(&device, kind);
        let workload = Workload::new(kind, &filesystem, &device, rounds);
        let before = device.count();
        workload.run(seed);
        let recording = device.recording();
        let in_order = states(&recording, Choice::Sample { seed, count });
        let reordered = states(&recording, Choice::Reordered { seed, count });
        let mut judged = 0;
        for state in in_order.chain(reordered).filter(|state| state.completed >= before) {
            workload.judge(&state);
            if judged % 20 == 0 {
                // The replayed image is sound.
                let device = Arc::new(state.image.to_device());
                open_to_write(device.clone()).close().unwrap();
                check_image(&format!("{kind:?}, seed {seed}"), &device.image());
            }
            judged += 1;
        }
        assert!(judged > count / 4, "only {judged} cuts");
        drop(workload);
        filesystem.abandon();
    }
}
