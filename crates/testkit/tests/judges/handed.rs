//! Images that we leave in an intermediate state, used by Linux, and again by us: with a log
//! pending, orphan inodes, half-dropped snapshots, and qgroups that were not rescanned.
//!
//! 1. In our turn subvolumes are made and deleted, and a snapshot of all is made and one of Linux
//!    deleted.
//! 2. Linux replays and cleans up, writes and deletes files of its own, creates and drops
//!    snapshots, balances, defragments and scrubs; then it is our turn again.
//! 3. Our changes are always visible; a snapshot has the state of the time when it was taken.
//! 4. `btrfs check` finds no errors after each turn, and Linux shows what we show.
//! 5. No balance runs out of space. Linux only relocates a block group if the metadata and its
//!    reservation for delayed allocations fit in the others; and it allocates another one if no
//!    group of the right size class has space for an extent, however empty the others are. A block
//!    group is a tenth of the device, and twice that with duplicated data: with 1 GiB, even
//!    filesystems that only Linux ever wrote run out of space then. So those are larger, and a
//!    block group is a smaller part.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use userbtrfs::mkfs::Profile;
use userbtrfs::{Filesystem, OpenOptions, TreeId};
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::linux::{Linux, Mount, run};
use userbtrfs_testkit::manifest::{Manifest, Mode};
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Drivers, Generator, Object, Operation};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::random_workload::RandomWorkload;
use userbtrfs_testkit::target::{self, Target};
use userbtrfs_testkit::{pattern, skip_unless_linux, walk_ours};

use super::made::{Made, by_kinds, check_file, with_memory};
use super::ours::judge_by_linux_but;
use super::threads::names_root;
use super::{assert_none, open};

/// The directories for the operations of the model, and for the changes by Linux.
const OWN: &str = "judged";
const LINUX: &str = "linux";
/// The file that is synced last.
const LOGGED: &str = "logged";
/// Its size in bytes.
const LOGGED_LEN: usize = 50_000;
/// The size of a device that can be balanced, in bytes; and with duplicated data.
const LEN: u64 = 1 << 30;
const LEN_TWICE: u64 = 8 << 30;
/// Attributes that Linux shows differently from the disk, for its own files: a hole in a shared
/// preallocated extent is data to it, and a property overrides the flag for incompressible data.
const NOT_COMPARED: &[&str] = &["segments", "flags"];
/// The number of turns of each side.
const TURNS: u32 = 3;
/// The number of our operations per turn.
const STEPS: u32 = 150;
/// Longer files are not defragmented, in bytes.
const FAR: u64 = 1 << 30;
/// The number of files that Linux creates at first.
const FILES: u32 = 40;
/// The number of kinds in CI.
const KINDS: usize = 3;

/// An image that is used in turns.
struct Handed<'a> {
    linux: &'a Linux,
    image: PathBuf,
    options: OpenOptions,
    has_quotas: bool,
    random: Random,
    generator: Generator,
    model: Model,
    /// The names of the snapshots, and the state when they were taken.
    snapshots: Vec<(String, Model)>,
    taken: u32,
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    run(Command::new("btrfs").args(words).args(paths)).unwrap();
}

/// Waits until deleted subvolumes are dropped: the cleaner thread wakes at a commit.
fn sync_dropped(root: &Path) {
    btrfs(&["filesystem", "sync"], &[root]);
    btrfs(&["subvolume", "sync"], &[root]);
}

/// Rescans qgroups when nothing else runs: Linux may count wrongly if it drops subvolumes during or
/// after a rescan.
fn count_anew(root: &Path) {
    sync_dropped(root);
    btrfs(&["filesystem", "sync"], &[root]);
    btrfs(&["quota", "rescan", "-w"], &[root]);
}

fn logged(turn: u32) -> Vec<u8> {
    pattern::bytes(turn + 1, 0, LOGGED_LEN)
}

impl<'a> Handed<'a> {
    /// Lets Linux create the first files, some of them in a subvolume.
    fn new(linux: &'a Linux, made: &Made, image: PathBuf, seed: u64) -> Self {
        made.image().write_to(&image).unwrap();
        let node_size = made.options.nodesize;
        let generator = Generator::new(seed, node_size).with_subvolumes(Drivers::Ours);
        let generator = generator.below_directory().commit_every(60);
        let mut random = Random::new(seed);
        let has_quotas = random.one_in(3);
        let model = Model::new(node_size);
        let snapshots = Vec::new();
        let taken = 0;
        let options = with_memory(seed);
        let mut handed =
            Self { linux, image, options, has_quotas, random, generator, model, snapshots, taken };
        let mount = handed.mount();
        if has_quotas {
            btrfs(&["quota", "enable"], &[mount.path()]);
        }
        let dir = mount.path().join(LINUX);
        let own = mount.path().join(OWN);
        fs::create_dir(&own).unwrap();
        // Independent of the umask, which other tests change.
        fs::set_permissions(&own, Permissions::from_mode(0o755)).unwrap();
        btrfs(&["subvolume", "create"], &[&dir]);
        for number in 0..FILES {
            let length = usize::try_from(handed.random.length(18)).unwrap();
            fs::write(dir.join(number.to_string()), pattern::bytes(number + 1, 0, length)).unwrap();
        }
        drop(mount);
        handed
    }

    fn mount(&self) -> Mount {
        self.linux.mount(&self.image, "noatime").unwrap()
    }

    /// Runs a turn of ours that ends in an intermediate state.
    fn turn_of_ours(&mut self, what: &str, turn: u32) {
        let mut target =
            EngineTarget::on_subvolume(&self.image, TreeId::FS, &self.options).unwrap();
        for _ in 0..STEPS {
            let operation = self.generator.next().expect("it does not end");
            let expected = self.model.apply(&operation);
            // The root of the model is an ordinary directory here, so operations on it would
            // differ.
            if !names_root(&operation) {
                let found = target::do_to(&mut target, &operation.clone().below(OWN.as_bytes(), 0));
                assert_eq!(found, expected, "{what}: {operation}");
            }
        }
        self.change_snapshots_by_us(target.filesystem());
        let object = Object::Path(LOGGED.into());
        let write = |seed| Operation::Write {
            object: object.clone(),
            offset: 0,
            length: LOGGED_LEN as u64,
            seed,
        };
        if turn == 0 {
            // The first compressed data of a filesystem cannot be logged.
            let path = LOGGED.into();
            target.apply(&Operation::Create { path, mode: Mode::new(0o600) }).unwrap();
            target.apply(&write(0)).unwrap();
        }
        // Handles are still open, so unnamed inodes exist.
        target.commit();
        self.model.apply(&Operation::Reopen).unwrap();
        target.apply(&write(turn + 1)).unwrap();
        let groups = |target: &EngineTarget| target.filesystem().stats().log.log_commits;
        let before = groups(&target);
        target.sync(&object, false).unwrap();
        let log = target.filesystem().stats().log;
        assert_eq!(groups(&target), before + 1, "{what}: no log is pending: {log:?}");
        target.abandon();
    }

    /// Makes a snapshot of the top-level subvolume, and deletes one, usually made by Linux.
    fn change_snapshots_by_us(&mut self, filesystem: &Filesystem) {
        let root = filesystem.root();
        if self.snapshots.len() > 1 {
            let index = self.random.index(self.snapshots.len());
            let (name, _) = self.snapshots.swap_remove(index);
            root.delete_subvolume(name.as_bytes()).unwrap();
        }
        self.taken += 1;
        let name = format!("snapshot-{}", self.taken);
        root.snapshot(name.as_bytes(), TreeId::FS, self.random.one_in(2)).unwrap();
        self.snapshots.push((name, self.model.snapshot_of_root()));
    }

    fn turn_of_linux(&mut self, turn: u32) {
        let mount = self.mount();
        assert!(fs::read(mount.path().join(LOGGED)).unwrap() == logged(turn), "what was synced");
        self.change_snapshots(mount.path());
        let churned = mount.path().join(LINUX);
        let seed = self.random.number();
        RandomWorkload::new(&churned, vec![churned.clone()], seed).unwrap().run(40).unwrap();
        if self.random.one_in(2) {
            self.defragment(mount.path());
        }
        let usage = ["balance", "start", "-dusage=50", "-musage=50"];
        let all = ["balance", "start", "--full-balance"];
        btrfs(if self.random.one_in(3) { &all } else { &usage }, &[mount.path()]);
        btrfs(&["filesystem", "sync"], &[mount.path()]);
        let said = run(Command::new("btrfs").args(["scrub", "start", "-B"]).arg(mount.path()));
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        assert!(said.contains("no errors found"), "{said}");
        // The subvolume deleted last may be half dropped in our turn.
        self.drop_snapshot(mount.path());
        if self.has_quotas && self.random.one_in(2) {
            count_anew(mount.path());
        }
    }

    /// Defragments all files but very long ones, which Linux reads in small steps.
    fn defragment(&self, root: &Path) {
        let own = self.model.files().into_iter();
        let own = own.filter(|(path, _)| !self.model.is_read_only_at(path));
        let own = own.map(|(path, _)| root.join(OWN).join(OsStr::from_bytes(&path)));
        let linux = fs::read_dir(root.join(LINUX)).unwrap().map(|entry| entry.unwrap().path());
        for path in own.chain(linux) {
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_file() && metadata.len() <= FAR {
                btrfs(&["filesystem", "defragment"], &[&path]);
            }
        }
    }

    fn change_snapshots(&mut self, root: &Path) {
        for _ in 0..2 {
            self.taken += 1;
            let name = format!("snapshot-{}", self.taken);
            let kind: &[&str] = if self.random.one_in(2) { &["-r"] } else { &[] };
            btrfs(&[&["subvolume", "snapshot"], kind].concat(), &[root, &root.join(&name)]);
            self.snapshots.push((name, self.model.snapshot_of_root()));
        }
        self.drop_snapshot(root);
        if self.random.one_in(2) {
            sync_dropped(root);
        }
    }

    fn drop_snapshot(&mut self, root: &Path) {
        if self.snapshots.len() > 1 {
            let index = self.random.index(self.snapshots.len());
            let (name, _) = self.snapshots.swap_remove(index);
            btrfs(&["subvolume", "delete"], &[&root.join(name)]);
        }
    }

    fn judge(&self, what: &str) {
        check_file(what, &self.image);
        judge_by_linux_but(self.linux, what, &self.image, NOT_COMPARED);
        let mut complaints = self.linux.complaints().unwrap();
        // Linux warns until its next rescan.
        complaints.retain(|complaint| !complaint.contains("qgroup"));
        assert!(complaints.is_empty(), "{what}: Linux complains: {complaints:?}");
        let shown = walk_ours::walk(&open(&self.image, 64).unwrap()).unwrap();
        assert_shown(what, &self.model, &shown.below(format!("/{OWN}").as_bytes()));
        for (name, model) in &self.snapshots {
            let shown = shown.below(format!("/{name}/{OWN}").as_bytes());
            assert_shown(&format!("{what}, {name}"), model, &shown);
        }
    }
}

fn assert_shown(what: &str, model: &Model, shown: &Manifest) {
    assert_none(what, &model.differences(shown));
}

fn hand_over(linux: &Linux, made: &Made, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut handed = Handed::new(linux, made, folder.path().join("image"), seed);
    for turn in 0..TURNS {
        let what = format!("{}, seed {seed}, turn {turn}", made.name);
        handed.turn_of_ours(&what, turn);
        handed.turn_of_linux(turn);
        handed.judge(&what);
    }
    let what = format!("{}, seed {seed}, at the end", made.name);
    // Opening drops half-dropped subvolumes, and removes orphans.
    let filesystem = EngineTarget::on_image(&handed.image).unwrap();
    filesystem.close().unwrap();
    handed.judge(&what);
}

#[test]
fn linux_goes_on_where_we_left_it_and_so_do_we() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    by_kinds(KINDS, |made, seed| {
        let len = if made.options.data == Profile::Dup { LEN_TWICE } else { LEN };
        hand_over(&linux, &made.of_length(len), seed);
    });
}
