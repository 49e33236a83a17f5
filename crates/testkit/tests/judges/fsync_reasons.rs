//! A sync that commits the transaction instead of a log has a reason, which is counted.
//!
//! 1. A long random sequence runs in a single thread: a transaction ends only by an explicit
//!    commit, by an fsync with a reason for not logging, or because space that it freed is needed,
//!    which is counted.
//! 2. For each reason, the number of counted commits equals that of fsyncs that reported it.
//! 3. Such fsyncs occur: sometimes space is allocated, and with the log disabled all are.
//! 4. Every reason can occur.

use anyhow::{Context, Result, anyhow, bail, ensure};
use userbtrfs::device::Operation as Request;
use userbtrfs::mkfs::Options;
use userbtrfs::{
    Allocate, CommitTrigger, Compress, File, Filesystem, FullCommitReason, OpenOptions, RenameMode,
    SyncOutcome, SyncRecord, TreeId, XattrMode,
};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_testkit::devices::{Fault, FaultyDevice, How, SparseDevice};
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{Object, Operation};
use userbtrfs_testkit::target::step;

use super::fsynced::{Sequence, Step};
use super::made::{MIB, Made, check_image};
use super::{is_torture, seed};

/// The number of steps of a sequence in CI, and in torture.
const LENGTH: usize = 3_000;
const LENGTH_OF_TORTURE: usize = 100_000;
/// The number of sequences.
const SEQUENCES: u64 = 6;
/// The number of files in a sequence that need new block groups.
const LONG_FILES: usize = 4;

/// The number of syncs by the log, and by commits for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Synced {
    logged: u64,
    committed: [u64; FullCommitReason::ALL.len()],
}

impl Synced {
    fn add(&mut self, other: Self) {
        self.logged += other.logged;
        self.committed.iter_mut().zip(other.committed).for_each(|(sum, more)| *sum += more);
    }

    fn of(&self, reason: FullCommitReason) -> u64 {
        self.committed[place(reason)]
    }
}

fn place(reason: FullCommitReason) -> usize {
    FullCommitReason::ALL.iter().position(|one| *one == reason).expect("all are listed")
}

type Records = Arc<Mutex<Vec<SyncRecord>>>;

/// A filesystem with counts of its syncs.
struct Watched {
    target: EngineTarget,
    records: Records,
    since_opened: Synced,
    before: Synced,
}

impl Watched {
    fn new(target: EngineTarget) -> Self {
        let records = Records::new(Mutex::new(Class::DeviceQueue, Vec::new()));
        let since_opened = Synced::default();
        let before = Synced::default();
        let mut watched = Self { target, records, since_opened, before };
        watched.listen();
        watched
    }

    fn listen(&mut self) {
        let records = Arc::clone(&self.records);
        self.target.filesystem().trace_syncs(move |record| records.lock().push(*record));
        self.before.add(std::mem::take(&mut self.since_opened));
    }

    fn generation(&self) -> u64 {
        self.target.filesystem().superblock().generation
    }

    /// Returns the number of ended transactions, except those that ended because of space.
    fn ended(&self) -> u64 {
        let for_space = self.target.filesystem().stats().commits.by(CommitTrigger::Space);
        self.generation() - for_space
    }

    fn do_step(&mut self, model: &mut Model, one: &Step, index: usize) -> Result<()> {
        let before = self.ended();
        match one {
            Step::Do(Operation::Reopen) => {
                self.check()?;
                self.operate(model, &Operation::Reopen, index)?;
                self.listen();
            }
            Step::Do(operation) => {
                self.operate(model, operation, index)?;
                let is_asked = *operation == Operation::Commit;
                ensure!(is_asked || self.ended() == before, "a commit without a reason");
                ensure!(self.records.lock().is_empty(), "a sync that nobody asked for");
            }
            Step::Sync { object, data_only } => self.sync(model, object, *data_only)?,
        }
        Ok(())
    }

    fn operate(&mut self, model: &mut Model, operation: &Operation, index: usize) -> Result<()> {
        step(&mut self.target, model, operation, index).map_err(|mismatch| anyhow!("{mismatch}"))
    }

    fn sync(&mut self, model: &Model, object: &Object, data_only: bool) -> Result<()> {
        let before = self.ended();
        let synced = self.target.sync(object, data_only);
        ensure!(synced.is_ok() == model.node(object).is_some(), "{synced:?}");
        let records = std::mem::take(&mut *self.records.lock());
        ensure!(records.len() == usize::from(synced.is_ok()), "{records:?}");
        let mut commits = 0;
        for record in &records {
            match record.how {
                SyncOutcome::Unchanged => {}
                SyncOutcome::Failed => bail!("{record:?}"),
                SyncOutcome::Logged => self.since_opened.logged += 1,
                SyncOutcome::Committed(reason) => {
                    self.since_opened.committed[place(reason)] += 1;
                    commits += 1;
                }
            }
        }
        ensure!(self.ended() == before + commits, "{records:?}, not {commits} commits");
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let log = self.target.filesystem().stats().log;
        let counted = FullCommitReason::ALL.map(|reason| log.commits(reason));
        let told = self.since_opened.committed;
        ensure!(counted == told, "counted {counted:?}, told {told:?}");
        Ok(())
    }
}

/// Runs a sequence.
fn run(seed: u64, with_log: bool) -> Result<Synced> {
    let length = if is_torture() { LENGTH_OF_TORTURE } else { LENGTH };
    let Sequence { base, steps } = Sequence::long(seed, length).with_long_files(LONG_FILES);
    let device = Arc::new(base.image.to_device());
    let options = base.options().tree_log(with_log).clone();
    let mut watched = Watched::new(EngineTarget::with_options(device, &options)?);
    let mut model = Model::new(base.made.options.nodesize);
    for (index, one) in steps.iter().enumerate() {
        let done = watched.do_step(&mut model, one, index);
        done.with_context(|| format!("seed {seed}, step {index}: {one}"))?;
    }
    watched.check()?;
    let Watched { target, mut before, since_opened, .. } = watched;
    before.add(since_opened);
    target.close()?;
    Ok(before)
}

#[test]
fn each_commit_in_the_place_of_a_log_has_a_reason() {
    let seed = seed();
    let mut all = Synced::default();
    for seed in seed..seed + SEQUENCES {
        all.add(run(seed, true).unwrap());
    }
    println!("{all:?} for {:?}", FullCommitReason::ALL);
    assert!(all.logged > 100 && all.of(FullCommitReason::NewBlockGroup) > 0, "{all:?}");
    let unfit = [FullCommitReason::Disabled, FullCommitReason::Failed];
    assert!(unfit.iter().all(|reason| all.of(*reason) == 0), "{all:?}");
    let without = run(seed, false).unwrap();
    let disabled = without.of(FullCommitReason::Disabled);
    assert!(disabled > 10, "{without:?}");
    assert_eq!((without.logged, without.committed.iter().sum::<u64>()), (0, disabled));
}

/// For each reason: a sync reports it, and it is counted.
#[test]
fn each_reason_is_reached_and_told_by_its_name() {
    for reason in FullCommitReason::ALL {
        println!("{reason}");
        let mut one = One::new(reason);
        one.reach(reason);
        let told: Vec<_> = one.records.lock().iter().map(|record| record.how).collect();
        let committed = |how: &&SyncOutcome| matches!(how, SyncOutcome::Committed(_));
        let committed: Vec<_> = told.iter().filter(committed).collect();
        assert_eq!(committed, [&SyncOutcome::Committed(reason)], "{reason}: {told:?}");
        let log = one.filesystem.stats().log;
        let counted = FullCommitReason::ALL.map(|one| log.commits(one));
        let only = FullCommitReason::ALL.map(|one| u64::from(one == reason));
        assert_eq!(counted, only, "{reason}");
        one.filesystem.close().unwrap();
        check_image("committed", &one.image.image());
    }
}

/// A filesystem on which something cannot be logged.
struct One {
    filesystem: Filesystem,
    device: Arc<FaultyDevice>,
    image: Arc<SparseDevice>,
    records: Records,
}

impl One {
    fn new(reason: FullCommitReason) -> Self {
        let nodes = |nodesize| Options { nodesize, ..Options::default() };
        let made = match reason {
            FullCommitReason::NoSpace => Made::new("mixed", 32 * MIB, Options::mixed()),
            FullCommitReason::LargeItem => Made::new("4k nodes", 128 * MIB, nodes(4096)),
            // Large enough for that many extents without new block groups.
            FullCommitReason::TooManyExtents => Made::new("large", 1024 * MIB, Options::default()),
            _ => Made::new("default", 256 * MIB, Options::default()),
        };
        let image = Arc::new(made.image().to_device());
        let device = Arc::new(FaultyDevice::new(image.clone()));
        let mut options = OpenOptions::new();
        options.write(true).subvolume_id(TreeId::FS).commit_seconds(0);
        options.tree_log(reason != FullCommitReason::Disabled);
        if reason == FullCommitReason::Feature {
            let method = "zstd".parse().unwrap();
            options.compress(Some(Compress { method, force: false }));
        }
        let filesystem = options.open_devices(vec![device.clone()]).unwrap();
        let records = Records::new(Mutex::new(Class::DeviceQueue, Vec::new()));
        let told = Arc::clone(&records);
        filesystem.trace_syncs(move |record| told.lock().push(*record));
        Self { filesystem, device, image, records }
    }

    fn create(&self, name: &str) -> File {
        self.filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap()
    }

    fn has_committed(&self) -> bool {
        self.records.lock().iter().any(|record| matches!(record.how, SyncOutcome::Committed(_)))
    }

    fn fail_next_write(&self) {
        let operation = Request::Write;
        self.device.arm(Fault { operation, after: 0, how: How::Eio, lasting: false });
    }

    /// Syncs a directory from which a committed file was moved to another one.
    fn move_away(&self) {
        let root = self.filesystem.root();
        let dir = root.create_dir(b"dir", 0o755).unwrap();
        self.create("a");
        self.filesystem.commit().unwrap();
        root.rename(b"a", &dir, b"a", RenameMode::Replace).unwrap();
        root.sync_all().unwrap();
    }

    fn reach(&mut self, reason: FullCommitReason) {
        match reason {
            FullCommitReason::Disabled => self.create("a").sync_all().unwrap(),
            FullCommitReason::NewBlockGroup => self.take_new_space(),
            FullCommitReason::NoSpace => self.fill(),
            FullCommitReason::Failed => {
                let file = self.create("a");
                self.fail_next_write();
                file.sync_all().unwrap_err();
            }
            FullCommitReason::DataFailed => {
                let [file, other] = ["a", "b"].map(|name| self.create(name));
                file.append(&[7; 4096]).unwrap();
                self.fail_next_write();
                file.sync_all().unwrap_err();
                other.sync_all().unwrap();
            }
            FullCommitReason::TooManyExtents => self.scatter(),
            FullCommitReason::LargeItem => {
                let inode = self.create("a").inode().clone();
                self.filesystem.commit().unwrap();
                inode.set_xattr(b"user.a", &[b'v'; 3000], XattrMode::Either).unwrap();
                inode.sync_all().unwrap();
            }
            FullCommitReason::Forgotten => self.move_on(),
            FullCommitReason::SpaceBehindEnd => self.take_the_name_of_space(),
            FullCommitReason::NameMoved => self.move_away(),
            FullCommitReason::Subvolume => {
                self.filesystem.root().create_subvolume(b"subvolume", 0o755).unwrap();
                self.create("a").sync_all().unwrap();
            }
            FullCommitReason::Feature => {
                let file = self.create("a");
                file.append(&[7; 8192]).unwrap();
                file.sync_all().unwrap();
                file.append(&[8; 8192]).unwrap();
                file.sync_all().unwrap();
            }
        }
    }

    /// Writes files until they need another block group.
    fn take_new_space(&self) {
        for number in 0_u32.. {
            let file = self.create(&number.to_string());
            file.append(&vec![7; 3 << 20]).unwrap();
            file.sync_all().unwrap();
            file.close().unwrap();
            if self.has_committed() {
                return;
            }
        }
    }

    /// Uses all space except that needed to remove files.
    fn fill(&self) {
        let small: Vec<_> = (0..64).map(|number| format!("small {number}")).collect();
        for name in &small {
            self.create(name).close().unwrap();
        }
        let root = self.filesystem.root();
        let file = self.create("a");
        for length in [1 << 20, 64 << 10, 4096] {
            while file.append(&vec![7; length]).is_ok() {}
        }
        self.filesystem.commit().unwrap();
        for name in small {
            root.remove_file(name.as_bytes()).unwrap();
            root.sync_all().unwrap();
            if self.has_committed() {
                break;
            }
        }
        file.close().unwrap();
    }

    /// Creates a file with more extents than are logged.
    fn scatter(&self) {
        let file = self.create("a");
        for number in 0..=1 << 15 {
            file.write_at(&[7; 4096], 8192 * number).unwrap();
        }
        file.sync_all().unwrap();
        file.close().unwrap();
    }

    /// Logs a new owner of the name of a file whose allocation past the end changed; the log then
    /// only records that the renamed file exists.
    fn take_the_name_of_space(&self) {
        let root = self.filesystem.root();
        let file = self.create("a");
        let behind = Allocate::Reserve { keep_size: true };
        file.allocate(0, 1 << 20, behind).unwrap();
        self.filesystem.commit().unwrap();
        file.allocate(1 << 20, 4096, behind).unwrap();
        root.rename(b"a", &root, b"b", RenameMode::NoReplace).unwrap();
        self.create("a").sync_all().unwrap();
        file.close().unwrap();
    }

    /// Renames a logged file so often that its names are not tracked any more.
    fn move_on(&self) {
        let root = self.filesystem.root();
        let file = self.create("a");
        file.sync_all().unwrap();
        for number in 0..140_000 {
            let [from, to] = if number % 2 == 0 { [b"a", b"b"] } else { [b"b", b"a"] };
            root.rename(from, &root, to, RenameMode::NoReplace).unwrap();
        }
        file.sync_all().unwrap();
        file.close().unwrap();
    }
}
