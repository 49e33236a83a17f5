//! Each read, write and flush of a snapshot, a new subvolume, a deletion with its cleaner, a clone
//! and a dedupe fails in turn.
//!
//! 1. The caller gets EIO, or EROFS once nothing can be written any more. No call hangs.
//! 2. A call that fails while the filesystem stays writable changed nothing visible.
//! 3. `btrfs check` accepts what is left on the device. It shows the state before or after the
//!    call; after, if all calls succeeded.
//! 4. After reopening, everything can be deleted, and all space is free then.

use rustix::io::Errno;
use userbtrfs::device::Operation as Request;
use userbtrfs::mkfs::Options;
use userbtrfs::{Allocate, File, Filesystem, OpenOptions, Result, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{Fault, FaultyDevice, SparseDevice, SparseImage};
use userbtrfs_testkit::engine_target::errno;
use userbtrfs_testkit::manifest::{Difference, Manifest, diff};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::faults::{faults, in_time};
use super::made::{Baseline, MIB, Made, check_image, check_image_by_copy};
use super::{assert_none, open_device, seed};

const KIB: u64 = 1024;
/// The size of a tree block.
const NODE: u32 = 4096;
/// The files of the subvolume, which fill several leaves.
const FILES: u64 = 120;
/// Faults of each kind of request that are tested in CI.
const SAMPLE: usize = 5;
/// Attributes that depend on when a call was made.
const TIMES: &[&str] = &["mtime", "ctime", "atime", "btime"];
/// Attributes of a file whose data may be lost by a failed write.
const LATE: &[&str] = &["size", "segments", "content"];

/// A call, and what makes it durable.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Changes of data that are only in memory when the call is made.
    before: fn(&Filesystem) -> Result<()>,
    call: fn(&Filesystem) -> Result<()>,
    after: fn(&Filesystem) -> Result<()>,
    /// Files with data that may be lost.
    dirty: &'static [&'static str],
}

/// A case whose data is durable before.
const CLEAN: Case =
    Case { name: "", before: |_| Ok(()), call: |_| Ok(()), after: Filesystem::commit, dirty: &[] };

const CASES: &[Case] = &[
    Case {
        name: "create",
        call: |fs| fs.root().create_subvolume(b"new", 0o755).map(drop),
        ..CLEAN
    },
    Case { name: "snapshot", call: snapshot, ..CLEAN },
    Case {
        name: "snapshot of dirty data",
        before: |fs| fs.open_file("data/late")?.write_all_at(&pattern::bytes(9, 0, 70_000), 0),
        call: snapshot,
        dirty: &["/data/late", "/new/late"],
        ..CLEAN
    },
    Case {
        name: "delete",
        call: |fs| fs.root().delete_subvolume(b"old").map(drop),
        after: |fs| {
            fs.commit()?;
            let deleted = fs.deleted_subvolumes()?;
            let ids: Vec<_> = deleted.iter().map(|subvolume| subvolume.id).collect();
            assert!(fs.wait_for_deleted(&ids, || true)?, "nothing stops the cleaner");
            fs.commit()
        },
        ..CLEAN
    },
    Case {
        name: "clone",
        call: |fs| fs.open_file("b")?.clone_range(&fs.open_file("a")?, 0, 0, 0),
        ..CLEAN
    },
    Case {
        name: "clone across subvolumes",
        call: |fs| {
            let source = fs.open_file("ahead")?;
            fs.open_file("data/late")?.clone_range(&source, 8 * KIB, 64 * KIB, 4 * KIB)
        },
        ..CLEAN
    },
    Case {
        name: "clone of dirty data",
        before: |fs| fs.open_file("a")?.write_all_at(&pattern::bytes(9, 0, 70_000), 50_000),
        call: |fs| fs.open_file("b")?.clone_range(&fs.open_file("a")?, 0, 0, 0),
        dirty: &["/a", "/b"],
        ..CLEAN
    },
    Case {
        name: "dedupe",
        call: |fs| {
            let source = fs.open_file("a")?;
            fs.open_file("equal")?.dedupe_range(&source, 0, 128 * KIB, 0).map(drop)
        },
        ..CLEAN
    },
];

fn snapshot(fs: &Filesystem) -> Result<()> {
    let source = fs.lookup("data")?.id().subvolume;
    fs.root().snapshot(b"new", source, false).map(drop)
}

fn open(device: Arc<dyn userbtrfs::device::Device>) -> Result<Filesystem> {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(4 << 20);
    options.open_devices(vec![device])
}

fn made() -> Made {
    Made::new("sharing", 256 * MIB, Options { nodesize: NODE, ..Options::default() })
}

/// Makes the filesystem that all cases begin with.
fn base() -> SparseImage {
    let device = Arc::new(made().image().to_device());
    let fs = open(device.clone()).unwrap();
    let file = |path: &str, len: usize| -> File {
        fs.write(path, pattern::bytes(1, 0, len)).unwrap();
        fs.open_file(path).unwrap()
    };
    drop([file("a", 200_003), file("b", 90_000), file("equal", 160_000)]);
    let ahead = file("ahead", 5000);
    ahead.allocate(0, 128 * KIB, Allocate::Reserve { keep_size: false }).unwrap();
    ahead.write_all_at(&pattern::bytes(2, 0, 20_000), 40_000).unwrap();
    drop(ahead);
    let data = fs.root().create_subvolume(b"data", 0o755).unwrap();
    drop(file("data/late", 30_000));
    for number in 0..FILES {
        let len = if number % 4 == 0 { 9000 } else { 300 };
        drop(file(&format!("data/{number}"), len));
    }
    data.create_subvolume(b"inner", 0o755).unwrap();
    drop(file("data/inner/file", 10_000));
    fs.root().snapshot(b"old", data.inode().id().subvolume, false).unwrap();
    for number in (0..FILES).step_by(5) {
        drop(file(&format!("data/{number}"), 700));
        drop(file(&format!("old/{}", number + 1), 20_000));
    }
    drop(data);
    fs.close().unwrap();
    device.image()
}

/// A case with the filesystem that it begins with, and the states before and after it.
struct Tested {
    case: Case,
    base: SparseImage,
    old: Manifest,
    new: Manifest,
}

impl Tested {
    fn new(case: Case, base: SparseImage) -> Self {
        let device = Arc::new(base.to_device());
        let fs = open(device.clone()).unwrap();
        let old = walk_ours::walk(&fs).unwrap();
        for part in [case.before, case.call, case.after] {
            part(&fs).unwrap();
        }
        fs.close().unwrap();
        let new = shown(&device.image());
        Self { case, base, old, new }
    }

    /// Returns the number of requests of a kind that the case makes.
    fn count(&self, request: Request) -> u64 {
        let device = Arc::new(FaultyDevice::new(Arc::new(self.base.to_device())));
        let fs = open(device.clone()).unwrap();
        (self.case.before)(&fs).unwrap();
        let before = device.count(request);
        (self.case.call)(&fs).unwrap();
        (self.case.after)(&fs).unwrap();
        device.count(request) - before
    }

    /// Returns the differences from a state, except those of times, and after a failure of data
    /// that may be lost.
    fn differences(&self, state: &Manifest, shown: &Manifest, has_failed: bool) -> Vec<Difference> {
        let mut differences = diff(state, shown, TIMES);
        differences.retain(|one| {
            let is_dirty =
                self.case.dirty.iter().any(|path| path.as_bytes() == one.path.as_slice());
            !(has_failed && is_dirty && LATE.contains(&one.attribute.as_str()))
        });
        differences
    }

    /// Tests one fault; returns whether a call failed because of it.
    fn judge(self: &Arc<Self>, fault: Fault) -> bool {
        let what = format!("{}: {fault:?}", self.case.name);
        let inner = Arc::new(self.base.to_device());
        let device = Arc::new(FaultyDevice::new(inner.clone()));
        let fs = open(device.clone()).unwrap();
        device.arm(fault);
        let tested = Arc::clone(self);
        let place = what.clone();
        let has_failed = in_time(&what, move || tested.run(&place, fs, &device));
        if self.assert_left(&what, &inner, has_failed) {
            assert_emptied(&what, &inner);
        }
        has_failed
    }

    /// Makes the calls; returns whether one failed.
    fn run(&self, what: &str, fs: Filesystem, device: &FaultyDevice) -> bool {
        device.unseen(|| (self.case.before)(&fs)).unwrap();
        let called = (self.case.call)(&fs);
        let ended = if called.is_ok() { (self.case.after)(&fs) } else { Ok(()) };
        for error in [called.as_ref().err(), ended.as_ref().err()].into_iter().flatten() {
            assert!(device.failed() > 0, "{what}: {error}");
            assert!(matches!(errno(error), Errno::IO | Errno::ROFS), "{what}: {error}");
        }
        device.disarm();
        let has_failed = called.is_err() || ended.is_err();
        let shown = walk_ours::walk(&fs);
        if fs.is_writable() {
            let state = if called.is_ok() { &self.new } else { &self.old };
            let differences = self.differences(state, &shown.unwrap(), has_failed);
            assert_none(&format!("{what}: in memory, {called:?}"), &differences);
        } else {
            // It is shown without a hang, or an error.
            drop(shown);
            let refused = fs.root().create(b"refused", 0o644).map(drop).unwrap_err();
            assert!(matches!(errno(&refused), Errno::IO | Errno::ROFS), "{what}: {refused}");
        }
        fs.abandon();
        has_failed
    }

    /// Checks what is on the device. Returns whether it can be opened for writing: not if the
    /// failed write was that of the primary superblock.
    fn assert_left(&self, what: &str, device: &SparseDevice, has_failed: bool) -> bool {
        let image = device.image();
        let opened = open_device(Arc::new(image.to_device())).unwrap();
        let is_intact = opened.warnings().is_empty();
        if is_intact {
            check_image(what, &image);
        } else {
            check_image_by_copy(what, &image);
        }
        drop(opened);
        let shown = shown(&image);
        let new = self.differences(&self.new, &shown, has_failed);
        if !has_failed || !self.differences(&self.old, &shown, true).is_empty() {
            assert_none(&format!("{what}: what is left"), &new);
        }
        is_intact
    }
}

fn shown(image: &SparseImage) -> Manifest {
    walk_ours::walk(&open_device(Arc::new(image.to_device())).unwrap()).unwrap()
}

/// Deletes everything, and checks that all space is free.
fn assert_emptied(what: &str, device: &Arc<SparseDevice>) {
    let empty = open_device(Arc::new(made().image().to_device())).unwrap();
    let mut baseline = Baseline::of(&empty);
    let fs = open(device.clone()).unwrap();
    let entries: Vec<_> = fs.root().entries().map(std::result::Result::unwrap).collect();
    for entry in entries {
        let name = entry.name();
        if fs.remove_file(name).is_err() {
            fs.remove_dir_all(name).unwrap();
        }
    }
    let deleted = fs.deleted_subvolumes().unwrap();
    let ids: Vec<_> = deleted.iter().map(|subvolume| subvolume.id).collect();
    assert!(fs.wait_for_deleted(&ids, || true).unwrap(), "{what}: nothing stops the cleaner");
    fs.close().unwrap();
    let image = device.image();
    let opened = open_device(Arc::new(image.to_device())).unwrap();
    baseline.assert_back(what, &opened, NODE);
    assert!(opened.deleted_subvolumes().unwrap().is_empty(), "{what}");
    check_image(&format!("{what}: emptied"), &image);
}

#[test]
fn every_request_of_a_sharing_call_fails_in_turn() {
    skip_unless_linux!();
    let base = base();
    for (case, seed) in CASES.iter().zip((seed()..).step_by(1000)) {
        let tested = Arc::new(Tested::new(*case, base.clone()));
        let is_seen = !diff(&tested.old, &tested.new, TIMES).is_empty();
        assert!(is_seen || case.name == "dedupe", "{}: nothing changes", case.name);
        for request in [Request::Read, Request::Write, Request::Flush] {
            let count = tested.count(request);
            let faults = if count > 0 { faults(request, count, seed, SAMPLE) } else { Vec::new() };
            let tried = faults.len();
            let failed = faults.into_iter().filter(|fault| tested.judge(*fault)).count();
            println!("{}: {failed} of {tried} faults of {count} {request:?}s reported", case.name);
            assert!(failed > 0 || request == Request::Read, "{}: no fault matters", case.name);
        }
    }
}
