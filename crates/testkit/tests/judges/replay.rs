//! Logs left by Linux: our replay has the same result as that of Linux.
//!
//! 1. An image is copied while Linux has it mounted, after fsyncs and before any commit: as after a
//!    crash.
//! 2. Opened read-only, it shows what Linux shows after its own replay, and is not changed. Opened
//!    for writing, it is replayed on disk: then `btrfs check` finds no errors, and Linux mounts it
//!    and shows the same.
//! 3. Linux sets the time of the replay on directories and inodes whose names it removes; our
//!    replay keeps the logged times. Times after the copy was made are not compared.
//! 4. Our replay starts again after a crash at any write, with the same result.
//! 5. Linux does not replay a log that may stop the kernel.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::copy_file_range;
use serde_json::Value;
use tempfile::TempDir;
use userbtrfs::dump::{Format, dump_log};
use userbtrfs::{Filesystem, OpenOptions, PathResult, PendingLog, TreeId};
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::item_len_max;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::devices::{RecordingDevice, SparseImage};
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::{Difference, Manifest, Time, diff};
use userbtrfs_testkit::operation::{Generator, Object, Operation, to_text};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::target::{LinuxTarget, Target};
use userbtrfs_testkit::{walk_linux, walk_ours};
use userbtrfs_volume::Volume;

use super::fsynced::now;
use super::made::{Made, check_file, kinds};
use super::{
    SECTOR_LEN, Unpacked, assert_none, is_torture, open, open_device, open_to_write, seed, shown,
};

/// The number of operations before the last commit, and after it.
const BEFORE: usize = 150;
const AFTER: usize = 60;

/// The number of extents of a file whose items are in many leaves.
const SPREAD: u64 = 200;

/// The number of files that are fsynced before the crash.
const FSYNCED: u8 = 8;

/// The size of the header of an INODE_REF, and of an XATTR_ITEM, in bytes.
const REF_HEAD: usize = 10;
const ENTRY_HEAD: usize = 30;

/// The mount options of Linux.
const OPTIONS: [&str; 4] =
    ["noatime", "noatime,compress=zstd", "noatime,nodatacow", "noatime,compress-force=lzo"];

/// An image with a log, and the state that Linux shows after its own replay.
struct Left {
    _folder: TempDir,
    image: PathBuf,
    linux: Manifest,
    /// The time when the copy was made.
    since: Time,
}

impl Left {
    /// Copies an image that is mounted; `None` if the copy has no log, or one that Linux may be
    /// unable to replay.
    fn copy(image: &Path) -> Option<(TempDir, PathBuf)> {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("left");
        let mut cp = Command::new("cp");
        run(cp.args(["--sparse=always", "--reflink=never"]).arg(image).arg(&copy)).unwrap();
        (has_log(&copy) && linux_finds_room(&copy)).then_some((folder, copy))
    }

    fn judged(left: (TempDir, PathBuf), linux: &Linux) -> Self {
        let (folder, image) = left;
        let since = now();
        let replayed = folder.path().join("replayed");
        run(Command::new("cp").arg("--sparse=always").arg(&image).arg(&replayed)).unwrap();
        drop(linux.mount(&replayed, "noatime").unwrap());
        let shown = shown_by_linux(linux, &replayed);
        fs::remove_file(&replayed).unwrap();
        Self { _folder: folder, image, linux: shown, since }
    }

    /// Returns the differences from the state that Linux shows.
    fn differences(&self, ours: &Manifest) -> Vec<Difference> {
        let mut differences = diff(&self.linux, ours, &[]);
        differences.retain(|one| {
            let Some(entry) = self.linux.get(one.path.as_slice()) else { return true };
            let time = match one.attribute.as_str() {
                "ctime" => entry.ctime,
                "mtime" => entry.mtime,
                _ => return true,
            };
            let at = |time: Time| (time.seconds, time.nanoseconds);
            at(time) < at(self.since)
        });
        differences
    }

    fn judge(&self, linux: &Linux, what: &str) {
        let before = fs::read(&self.image).unwrap();
        let opened = open(&self.image, 64).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(opened.replayed().is_some() && opened.warnings().is_empty(), "{what}");
        let ours = walk_ours::walk(&opened).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert_none(&format!("{what}, in memory"), &self.differences(&ours));
        drop(opened);
        assert!(fs::read(&self.image).unwrap() == before, "{what}: it was written to");
        let opened = open_for_writing(&self.image);
        let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(opened.replayed().is_some_and(|replayed| replayed.left_out.is_empty()), "{what}");
        let again = walk_ours::walk(&opened).unwrap();
        assert_none(&format!("{what}, for good"), &diff(&ours, &again, &[]));
        opened.close().unwrap();
        assert!(!has_log(&self.image), "{what}");
        check_file(what, &self.image);
        let shown = shown_by_linux(linux, &self.image);
        assert_none(&format!("{what}, shown by Linux"), &diff(&shown, &again, &[]));
    }
}

fn has_log(image: &Path) -> bool {
    let options = OpenOptions::new().pending_log(PendingLog::Leave).clone();
    options.open(image).unwrap().superblock().log_root.is_some()
}

/// Returns whether all items of names and xattrs are small enough for a replay by Linux: if those
/// of the log and the tree together exceed a leaf, it may lack space, and stop.
fn linux_finds_room(image: &Path) -> bool {
    let device = FileDevice::open(image, FileOptions::default()).unwrap();
    let volume = Volume::open(vec![Arc::new(device)]).unwrap();
    let mut told = Vec::new();
    let mut damaged = |error: &_| panic!("{error}");
    dump_log(&volume, Format::Json, &mut told, &mut damaged).unwrap();
    let told: Value = serde_json::from_slice(&told).unwrap();
    let mut items: HashMap<[String; 3], usize> = HashMap::new();
    for one in told.as_array().unwrap() {
        let number = |key| one[key].as_u64().map_or(0, |number| number.try_into().unwrap());
        let (item, len) = match (one["name"].as_str(), one["xattr"].as_str()) {
            (Some(name), _) => (one["dir"].to_string(), REF_HEAD + name.len()),
            (_, Some(name)) => (name.to_owned(), ENTRY_HEAD + name.len() + number("length")),
            _ => continue,
        };
        let [subvolume, inode] = ["subvolume", "inode"].map(|key| one[key].to_string());
        *items.entry([subvolume, inode, item]).or_default() += len;
    }
    let room = item_len_max(volume.geometry().nodesize);
    items.values().all(|len| 2 * len <= room)
}

fn open_for_writing(image: &Path) -> PathResult<Filesystem> {
    OpenOptions::new().write(true).subvolume_id(TreeId::FS).memory(16 << 20).open(image)
}

fn shown_by_linux(linux: &Linux, image: &Path) -> Manifest {
    let mount = linux.mount(image, "ro,noatime,subvolid=5").unwrap();
    walk_linux::walk(mount.path()).unwrap()
}

#[test]
fn golden_logs_are_replayed() {
    let mut count = 0;
    for (golden, replayed) in shown() {
        let Some(left) = golden.manifest_without_log().unwrap() else { continue };
        count += 1;
        let unpacked = Unpacked::new(&golden);
        let mut options = OpenOptions::new();
        options.subvolume_id(TreeId::FS).pending_log(PendingLog::Leave);
        let without = walk_ours::walk(&options.open(&unpacked.image).unwrap()).unwrap();
        assert_none(golden.name(), &diff(&left, &without, &[]));
        let refused = options.clone().write(true).open(&unpacked.image).err().unwrap();
        assert!(refused.to_string().contains("log"), "{refused}");
        let with = walk_ours::walk(&open(&unpacked.image, 64).unwrap()).unwrap();
        assert_none(golden.name(), &diff(&replayed, &with, &["ctime", "mtime"]));
        let opened = open_for_writing(&unpacked.image).unwrap();
        println!("{}: {:?}", golden.name(), opened.replayed());
        assert_none(golden.name(), &diff(&with, &walk_ours::walk(&opened).unwrap(), &[]));
        opened.close().unwrap();
        check_file(golden.name(), &unpacked.image);
    }
    assert!(count >= 2);
}

#[test]
fn a_log_that_is_discarded_is_lost() {
    for (golden, _) in shown() {
        let Some(left) = golden.manifest_without_log().unwrap() else { continue };
        let unpacked = Unpacked::new(&golden);
        let mut options = OpenOptions::new();
        options.subvolume_id(TreeId::FS).pending_log(PendingLog::Discard);
        assert!(options.open(&unpacked.image).unwrap().superblock().log_root.is_some());
        options.write(true).open(&unpacked.image).unwrap().close().unwrap();
        assert!(!has_log(&unpacked.image));
        let ours = walk_ours::walk(&open(&unpacked.image, 64).unwrap()).unwrap();
        assert_none(golden.name(), &diff(&left, &ours, &[]));
        check_file(golden.name(), &unpacked.image);
    }
}

/// Returns a path that an operation names, or its parent.
fn touched(operation: &Operation, random: &mut Random) -> Option<Vec<u8>> {
    let path = match operation {
        Operation::Create { path, .. }
        | Operation::Mkdir { path, .. }
        | Operation::Mknod { path, .. }
        | Operation::Symlink { path, .. }
        | Operation::Unlink { path }
        | Operation::Rmdir { path } => path,
        Operation::Link { to, .. } => to,
        Operation::Rename { from, to, .. } => {
            if random.one_in(3) {
                from
            } else {
                to
            }
        }
        other => match other.object()? {
            Object::Path(path) => return Some(path.as_slice().to_vec()),
            Object::Handle(_) => return None,
        },
    };
    let path = path.as_slice();
    let parent = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at);
    Some(if random.one_in(2) { path.to_vec() } else { path[..parent].to_vec() })
}

/// Runs random operations with Linux, with fsyncs of what they change, on an image of this kind;
/// returns no image if the last fsync was a commit.
fn left_by_linux(
    linux: &Linux,
    made: &Made,
    options: &str,
    seed: u64,
) -> (Option<(TempDir, PathBuf)>, Vec<Operation>) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    made.image().write_to(&image).unwrap();
    let mut target = LinuxTarget::with_options(linux, &image, options).unwrap();
    let mut random = Random::new(seed ^ 0x5eed);
    let mut generator = Generator::new(seed, made.options.nodesize).commit_every(0);
    let mut done = Vec::new();
    let mut act = |target: &mut LinuxTarget<'_>, operation: Operation| {
        let _ = target.apply(&operation);
        done.push(operation);
    };
    for operation in generator.by_ref().take(BEFORE) {
        act(&mut target, operation);
    }
    target.commit();
    let mut known = vec![Vec::new()];
    for operation in generator.take(AFTER) {
        known.extend(touched(&operation, &mut random));
        act(&mut target, operation);
        if random.one_in(3) {
            let at = known.len() - 1 - random.index(known.len().min(8));
            let object = Object::Path(known[at].clone().into());
            act(&mut target, Operation::Sync { object });
        }
    }
    (Left::copy(&image), done)
}

#[test]
fn log_of_linux_is_replayed_as_linux_replays_it() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let count = if is_torture() { 3000 } else { 36 };
    let kinds = kinds();
    let mut logs = 0;
    for (number, seed) in (0..count).zip(seed..) {
        let made = &kinds[number % kinds.len()];
        let options = OPTIONS[number / 3 % OPTIONS.len()];
        let (left, done) = left_by_linux(&linux, made, options, seed);
        let Some(left) = left else { continue };
        logs += 1;
        let what = format!("seed {seed}, {}, {options}", made.name);
        let text = to_text(&done);
        if std::env::var("USERBTRFS_SHOW").is_ok() {
            println!("{what}:\n{text}");
        }
        Left::judged(left, &linux).judge(&linux, &what);
        linux.assert_no_complaints().unwrap();
    }
    println!("{logs} logs of {count}");
    assert!(logs * 2 >= count, "only {logs} of {count} left a log");
}

#[test]
fn a_replay_that_is_cut_starts_again_and_ends_the_same() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let count = if is_torture() { 200 } else { 4 };
    let kinds = kinds();
    for (number, seed) in (0..count).zip(seed..) {
        let made = &kinds[number % kinds.len()];
        let Some(left) = left_by_linux(&linux, made, "noatime", seed).0 else { continue };
        let left = Left::judged(left, &linux);
        let base = SparseImage::from_file(&left.image).unwrap();
        let device = Arc::new(RecordingDevice::on(&base));
        let mut options = OpenOptions::new();
        options.write(true).subvolume_id(TreeId::FS).memory(4 << 20);
        options.open_devices(vec![device.clone()]).unwrap().abandon();
        let recording = device.recording();
        for choice in [Choice::EveryPrefix, Choice::Reordered { seed, count: 40 }] {
            for state in states(&recording, choice) {
                let what = format!("seed {seed}, {}, {} events", made.name, state.completed);
                let opened = open_device(Arc::new(state.image.to_device()));
                let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                let ours = walk_ours::walk(&opened).unwrap();
                assert_none(&what, &left.differences(&ours));
            }
        }
    }
}

/// A file may have its first sector compressed in an inline item, and extents after it: a log of
/// Linux for the former does not affect the latter.
#[test]
fn a_compressed_item_in_a_log_is_of_the_first_sector_alone() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for made in kinds().iter().filter(|made| ["4k nodes", "hole items"].contains(&made.name)) {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        made.image().write_to(&image).unwrap();
        let mount = linux.mount(&image, "noatime,compress=zstd").unwrap();
        let commit = || run(Command::new("sync").arg("-f").arg(mount.path())).unwrap();
        let files = ["shared", "spread", "grown"].map(|name| mount.path().join(name));
        let [shared, spread, grown] = files.map(|path| {
            fs::File::options().read(true).write(true).create_new(true).open(path).unwrap()
        });
        for file in [&spread, &grown] {
            file.write_all_at(&[b'x'; SECTOR_LEN], 0).unwrap();
        }
        commit();
        for at in 1..SPREAD {
            spread.write_all_at(&[b'y'; SECTOR_LEN], at * 2 * SECTOR_LEN as u64).unwrap();
        }
        shared.write_all_at(&[b'z'; 2 * SECTOR_LEN], 0).unwrap();
        commit();
        // After a clone, all items of each changed leaf are logged.
        grown.set_len(1 << 20).unwrap();
        for (file, mut at) in [(&spread, SECTOR_LEN as u64), (&grown, 1 << 19)] {
            copy_file_range(&shared, Some(&mut 0), file, Some(&mut at), SECTOR_LEN).unwrap();
            file.sync_all().unwrap();
        }
        let left = Left::copy(&image).expect("a log");
        drop((shared, spread, grown));
        drop(mount);
        Left::judged(left, &linux).judge(&linux, made.name);
        linux.assert_no_complaints().unwrap();
    }
}

/// Until the superblock without a log is durable, the next replay finds everything that was
/// fsynced.
#[test]
fn a_log_is_whole_until_it_is_discarded() {
    for made in kinds().iter().filter(|made| ["default", "mixed"].contains(&made.name)) {
        let device = Arc::new(made.image().to_device());
        let opened = open_to_write(device.clone());
        let expected: Vec<Vec<u8>> = (1..=FSYNCED).map(|byte| vec![byte; 3 * SECTOR_LEN]).collect();
        for content in &expected {
            let name = content[0].to_string();
            let file = opened.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
            file.write_at(content, 0).unwrap();
            file.sync_all().unwrap();
        }
        opened.abandon();
        let device = Arc::new(RecordingDevice::on(&device.image()));
        let mut options = OpenOptions::new();
        options.write(true).subvolume_id(TreeId::FS).pending_log(PendingLog::Discard);
        options.open_devices(vec![device.clone()]).unwrap().abandon();
        let mut kept = 0;
        let mut lost = 0;
        for state in states(&device.recording(), Choice::EveryPrefix) {
            let what = format!("{}, {} events", made.name, state.completed);
            let opened = open_device(Arc::new(state.image.to_device())).unwrap();
            if opened.replayed().is_none() {
                lost += 1;
                continue;
            }
            kept += 1;
            for content in &expected {
                let found = opened.read(content[0].to_string());
                assert!(found.unwrap_or_else(|error| panic!("{what}: {error}")) == *content);
            }
        }
        assert!(kept > 3 && lost > 0, "{}: kept {kept}, lost {lost}", made.name);
    }
}
