//! Logs and commits under loom: the transaction state and the log commits together, every
//! interleaving of two to three threads, up to some preemptions.
//!
//! 1. A log, and the tree of the log roots, are created once, in the transaction of the thread that
//!    logs; the commit drops both.
//! 2. The superblock that leads to a log of N is written when the one of N - 1 is durable, and not
//!    if that failed; the superblock of N is written after it.
//! 3. A superblock leads to each change whose sync succeeded; a commit contains the others.

use loom::thread;
use userbtrfs_sync::{Arc, Class, Mutex};

use super::commits::{JoinOutcome, LogCommitLeader, LogCommits};
use crate::commit::state::{
    Commit, CommitDoing, CommitRole, Failed, JoinKind, Open, TransactionState,
};

/// The first transaction of a world.
const FIRST: u64 = 7;
/// Why a thread can be joined.
const JOINED: &str = "loom fails the model itself";
/// Why a call succeeds.
const SOUND: &str = "nothing fails in this model";

/// The failure of a log commit.
#[derive(Clone, Debug)]
struct Unwritten;

/// The logs of a transaction: changes are bits.
#[derive(Default)]
struct Trees {
    /// The transaction they belong to, if there are any.
    generation: Option<u64>,
    bits: u64,
    /// The bits that the tree of the log roots leads to, once there is one.
    listed: Option<u64>,
}

/// The durable state.
#[derive(Default)]
struct Disk {
    committed: u64,
    bits: u64,
    /// The log that the superblock leads to, and its transaction.
    log: Option<(u64, u64)>,
}

struct World {
    transaction_state: TransactionState,
    commits: LogCommits<Unwritten>,
    trees: Mutex<Trees>,
    disk: Mutex<Disk>,
}

impl World {
    fn new() -> Self {
        let disk = Disk { committed: FIRST - 1, ..Disk::default() };
        Self {
            transaction_state: TransactionState::new(FIRST),
            commits: LogCommits::new(Unwritten),
            trees: Mutex::new(Class::LogRoot, Trees::default()),
            disk: Mutex::new(Class::DeviceQueue, disk),
        }
    }

    /// Logs a change, and waits until it is durable; a leader writes with `write`.
    fn sync(&self, bit: u64, write: Write) -> Result<(), Unwritten> {
        let transaction_guard =
            self.transaction_state.join(JoinKind::Writing).map_err(|_| Unwritten)?;
        let generation = transaction_guard.generation();
        let log_transid = self.log(generation, bit);
        let synced = loop {
            match self.commits.join(log_transid) {
                JoinOutcome::Ended(end) => break end,
                JoinOutcome::Lead(lead) => {
                    let written = write(self, generation, &lead);
                    lead.end(written);
                }
            }
        };
        drop(transaction_guard);
        if synced.is_ok() {
            let disk = self.disk.lock();
            let logged = disk.log.filter(|(of, _)| *of == disk.committed + 1);
            let shown = disk.bits | logged.map_or(0, |(_, bits)| bits);
            assert_eq!(shown & bit, bit, "it is durable");
        }
        synced
    }

    fn log(&self, generation: u64, bit: u64) -> u64 {
        let mut trees = self.trees.lock();
        let of = *trees.generation.get_or_insert(generation);
        assert_eq!(of, generation, "the logs of another transaction are gone");
        trees.bits |= bit;
        self.commits.collecting()
    }

    /// Writes a log commit.
    fn write(
        &self,
        generation: u64,
        lead: &LogCommitLeader<'_, Unwritten>,
    ) -> Result<(), Unwritten> {
        let mut trees = self.trees.lock();
        assert_eq!(trees.generation, Some(generation), "it writes its own");
        let bits = trees.bits;
        let before = trees.listed.replace(bits);
        assert!(before.is_none_or(|before| before & !bits == 0), "nothing is lost from it");
        lead.close();
        drop(trees);
        self.transaction_state.wait_durable(generation - 1).map_err(|_| Unwritten)?;
        self.transaction_state.check().map_err(|_| Unwritten)?;
        let mut disk = self.disk.lock();
        assert_eq!(disk.committed, generation - 1, "the superblock before is durable");
        assert!(disk.log.is_none_or(|(of, logged)| of < generation || logged & !bits == 0));
        disk.log = Some((generation, bits));
        Ok(())
    }

    /// Closes a log commit, and fails to write it.
    fn fail_to_write(
        &self,
        _: u64,
        lead: &LogCommitLeader<'_, Unwritten>,
    ) -> Result<(), Unwritten> {
        let _trees = self.trees.lock();
        lead.close();
        Err(Unwritten)
    }

    /// Commits this transaction, or waits for the thread that does; its superblock may fail.
    fn commit(&self, generation: u64, succeeds: bool) -> Result<(), Failed> {
        match self.transaction_state.begin_commit(generation)? {
            CommitRole::Lead(commit) => self.lead(commit, succeeds),
            CommitRole::Joined => self.transaction_state.wait_durable(generation),
        }
    }

    fn lead(&self, commit: Commit<'_, Open>, succeeds: bool) -> Result<(), Failed> {
        let commit = commit.exclude_writing()?.exclude_operations()?.exclude_finish()?;
        let bits = self.drop_logs(&commit);
        let generation = commit.generation();
        let commit = commit.unblock()?;
        if !succeeds {
            // Dropping the unfinished commit fails the transaction state.
            drop(commit);
            return self.transaction_state.check();
        }
        let mut disk = self.disk.lock();
        assert_eq!(disk.committed, generation - 1, "one after the other");
        disk.committed = generation;
        disk.bits = disk.bits | bits;
        drop(disk);
        commit.durable()?.complete();
        Ok(())
    }

    /// Drops the logs of a transaction that no thread is in; returns their bits.
    fn drop_logs(&self, commit: &Commit<'_, CommitDoing>) -> u64 {
        let trees = std::mem::take(&mut *self.trees.lock());
        assert!(trees.generation.is_none_or(|of| of == commit.generation()));
        self.commits.renew();
        trees.bits
    }
}

/// How a leader writes its log commit.
type Write = fn(&World, u64, &LogCommitLeader<'_, Unwritten>) -> Result<(), Unwritten>;

/// The part of a thread, which gets a bit of its own.
type Part = fn(&World, u64);

fn explore(preemptions: usize, parts: &'static [Part]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let world = Arc::new(World::new());
        let start = |(index, part): (usize, &Part)| {
            let world = Arc::clone(&world);
            let part = *part;
            thread::spawn(move || part(&world, 1 << index))
        };
        let (here, others) = parts.split_last().expect("there are some");
        let threads: Vec<_> = others.iter().enumerate().map(start).collect();
        here(&world, 1 << others.len());
        threads.into_iter().for_each(|thread| thread.join().expect(JOINED));
    });
}

fn sync(world: &World, bit: u64) {
    world.sync(bit, World::write).expect(SOUND);
}

fn sync_twice(world: &World, bit: u64) {
    sync(world, bit);
    sync(world, bit << 8);
}

fn commit(world: &World, _: u64) {
    world.commit(FIRST, true).expect(SOUND);
}

fn commit_twice(world: &World, _: u64) {
    world.commit(FIRST, true).expect(SOUND);
    world.commit(FIRST + 1, true).expect(SOUND);
}

/// A commit that fails after the next transaction began.
fn fail(world: &World, _: u64) {
    world.commit(FIRST, false).expect_err("it fails");
}

/// Syncs, which may fail; no log of the transaction after the failed one is ever written.
fn try_to_sync(world: &World, bit: u64) {
    let _result = world.sync(bit, World::write);
    let disk = world.disk.lock();
    assert_eq!(disk.committed, FIRST - 1);
    assert!(disk.log.is_none_or(|(of, _)| of == FIRST), "the log of {:?}", disk.log);
}

#[test]
fn logs_are_created_once_and_dropped_by_commit() {
    explore(4, &[sync, commit]);
    explore(3, &[sync_twice, commit]);
    explore(3, &[sync, sync, commit]);
    explore(2, &[sync_twice, sync, commit_twice]);
}

/// Commits a change that cannot be logged; then logs start again.
fn sync_or_commit(world: &World, bit: u64) {
    if world.sync(bit, World::fail_to_write).is_err() {
        world.commit(world.transaction_state.generation(), true).expect(SOUND);
        assert_eq!(world.disk.lock().bits & bit, bit, "it is committed");
    }
}

fn sync_or_commit_and_sync(world: &World, bit: u64) {
    sync_or_commit(world, bit);
    sync(world, bit << 8);
}

#[test]
fn failed_log_write_is_committed_and_logs_start_again() {
    explore(4, &[sync_or_commit_and_sync]);
    explore(3, &[sync_or_commit, sync_or_commit]);
    explore(2, &[sync_or_commit, sync_or_commit, sync_or_commit]);
}

#[test]
fn log_is_not_written_after_previous_commit_failed() {
    explore(4, &[try_to_sync, fail]);
    explore(3, &[try_to_sync, try_to_sync, fail]);
}
