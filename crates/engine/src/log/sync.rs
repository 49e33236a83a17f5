//! Makes an inode durable: fsync.
//!
//! 1. A file is logged while its data is in flight. Both are written before the flush that precedes
//!    the superblock; if a write of the data fails, the superblock is not written.
//! 2. An inode that did not change in the running transaction is durable with the one before. The
//!    inode of a subvolume does not change with its name: it is durable when all renames are.
//! 3. An inode that cannot be logged is made durable by a full commit: nothing is silently left
//!    out.
//! 4. A thread that waits for a log commit stays in its transaction until the log commit is
//!    durable, so that the commit of the transaction comes after it. Meanwhile the thread's data is
//!    added to its file: the commit includes it.

#[cfg(feature = "experiments")]
mod experiments;

use userbtrfs_format::{FileKind, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{
    FullCommitReason, Handle, HandleKind, LogFailure, LogSyncPhase, LogSyncer, LogWriter,
    TransactionManager,
};

use super::collect::{self, InodeLogger, InodeToLog, LogResult, LoggedInode};
use super::sync_stats::{SyncCounts, SyncStats};
use super::trace::{FsyncTracer, Listener, LogVolume, Phase, PhaseTimer, SyncOutcome};
use crate::data::{ErrSeq, FilePages, OrderedExtents, Writeback};
use crate::error::{Error, InodeId, Result};
use crate::inode::{Inode, Inodes, LogMode, ROOT_DIR};

/// Makes inodes durable, by the log or by a commit.
pub(crate) struct Log {
    nodes: Arc<Inodes>,
    writeback: Arc<Writeback>,
    transactions: Arc<TransactionManager>,
    fsync_tracer: FsyncTracer,
    counts: SyncCounts,
}

/// The way to make an inode durable.
enum SyncPlan<'a> {
    /// Wait until this transaction is durable.
    Wait(u64),
    /// Wait until the log commit of the logged inode is durable.
    Log(LoggedInode<'a>),
    /// Commit the running transaction.
    Commit(FullCommitReason),
}

/// The work that remains after the sync has left the transaction.
enum RemainingWork {
    Nothing,
    /// Wait until this transaction is durable.
    Wait(u64),
    /// Commit this transaction.
    Commit(u64, LogFailure),
}

/// A sync of an inode that waits for the device and for other threads.
struct Waiting<'a, 'w> {
    nodes: &'a Inodes,
    data: Option<&'a mut OrderedExtents<'w>>,
    clock: PhaseTimer<'a>,
}

impl Waiting<'_, '_> {
    /// Returns whether its own data could not be written.
    fn has_failed(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.has_failed())
    }
}

impl LogSyncer for Waiting<'_, '_> {
    fn complete(&mut self, writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason> {
        collect::complete(self.nodes, writer)
    }

    fn finish_io(&mut self, handle: &Handle<'_>) -> Result<(), FullCommitReason> {
        let landed = self.data.as_mut().is_none_or(|data| data.land(Some(handle)));
        if landed { Ok(()) } else { Err(FullCommitReason::DataFailed) }
    }

    fn waited(&mut self, what: LogSyncPhase) {
        self.clock.lap(match what {
            LogSyncPhase::Device => Phase::Device,
            LogSyncPhase::Writers => Phase::Writers,
            LogSyncPhase::Commit => Phase::Commit,
        });
    }
}

impl Log {
    pub(crate) fn new(
        nodes: &Arc<Inodes>,
        writeback: &Arc<Writeback>,
        transactions: &Arc<TransactionManager>,
    ) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            writeback: Arc::clone(writeback),
            transactions: Arc::clone(transactions),
            fsync_tracer: FsyncTracer::new(),
            counts: SyncCounts::default(),
        }
    }

    /// Sets the listener that receives a record of each sync from now on.
    pub(crate) fn listen(&self, listener: Option<Listener>) {
        self.fsync_tracer.set(listener);
    }

    /// Returns the counters of syncs since the filesystem was opened.
    pub(crate) fn sync_stats(&self) -> SyncStats {
        self.counts.get()
    }

    /// Makes a file's data and attributes durable; reports writeback errors of the file that its
    /// user has not seen, also those of other threads' writes.
    pub(crate) fn sync_file(&self, pages: &Arc<FilePages>, reported: &ErrSeq) -> Result<()> {
        let _counted = self.counts.start();
        let clock = self.fsync_tracer.clock();
        let inode = pages.inode();
        let since = reported.number();
        let synced = self.writeback.submit(pages).and_then(|mut data| {
            if data.has_failed() {
                clock.end(inode.id(), SyncOutcome::Failed, LogVolume::default());
                Ok(())
            } else {
                self.make_durable(inode, Some(&mut data), clock)
            }
        });
        pages.check_and_advance_error(since, reported)?;
        synced
    }

    /// Makes an inode durable that is not a regular file; a directory with its entries.
    pub(crate) fn sync(&self, inode: &Arc<Inode>) -> Result<()> {
        assert!(inode.kind() != FileKind::Regular, "a file has data");
        let _counted = self.counts.start();
        self.make_durable(inode, None, self.fsync_tracer.clock())
    }

    fn make_durable(
        &self,
        inode: &Arc<Inode>,
        data: Option<&mut OrderedExtents<'_>>,
        mut clock: PhaseTimer<'_>,
    ) -> Result<()> {
        clock.lap(Phase::WriteBack);
        let waiting = Waiting { nodes: &self.nodes, data, clock };
        self.sync_planned(inode.id(), waiting, |log, handle, data| {
            log.log(handle, &InodeToLog { inode, data })
        })
    }

    /// Makes an inode durable by a plan that is made in the running transaction.
    fn sync_planned<'w, F>(
        &self,
        inode: InodeId,
        mut waiting: Waiting<'_, 'w>,
        plan: F,
    ) -> Result<()>
    where
        F: for<'a> FnOnce(&'a Self, &'a Handle<'a>, Option<&OrderedExtents<'w>>) -> SyncPlan<'a>,
    {
        let (amount, left) = self.log_and_wait(&mut waiting, plan)?;
        let (how, done) = match left {
            RemainingWork::Nothing if amount.items == 0 => (SyncOutcome::Unchanged, Ok(())),
            RemainingWork::Nothing => (SyncOutcome::Logged, Ok(())),
            RemainingWork::Wait(generation) => {
                let durable = self.transactions.wait_durable(generation);
                waiting.waited(LogSyncPhase::Commit);
                (SyncOutcome::Unchanged, durable.map_err(Error::from))
            }
            // The file reports the failure; the next sync commits.
            RemainingWork::Commit(..) if waiting.has_failed() => (SyncOutcome::Failed, Ok(())),
            RemainingWork::Commit(generation, failure) => {
                let how = SyncOutcome::Committed(failure.reason());
                let failed = match failure {
                    LogFailure::Commit(_) => Ok(()),
                    LogFailure::Failed(error) => Err(Error::LogUnwritten(error)),
                };
                let committed =
                    self.transactions.commit_transaction(generation).map_err(Error::from);
                waiting.waited(LogSyncPhase::Device);
                (how, committed.and(failed))
            }
        };
        waiting.clock.end(inode, how, amount);
        done
    }

    /// Does the part of a sync that runs in the transaction; afterwards the inode's data is written
    /// and added to its file. Returns what was put into the log, and the remaining work.
    fn log_and_wait<'w, F>(
        &self,
        waiting: &mut Waiting<'_, 'w>,
        plan: F,
    ) -> Result<(LogVolume, RemainingWork)>
    where
        F: for<'a> FnOnce(&'a Self, &'a Handle<'a>, Option<&OrderedExtents<'w>>) -> SyncPlan<'a>,
    {
        let handle = self.transactions.start(HandleKind::Writing)?;
        let commit = |failure| RemainingWork::Commit(handle.generation(), failure);
        let next = plan(self, &handle, waiting.data.as_deref());
        waiting.clock.lap(Phase::Collect);
        let (amount, left) = match next {
            SyncPlan::Wait(generation) => (LogVolume::default(), RemainingWork::Wait(generation)),
            SyncPlan::Log(LoggedInode { log_transid, pending_io, amount }) => {
                if let Some(data) = waiting.data.as_mut() {
                    data.logged(log_transid);
                }
                let synced = self.transactions.sync_log(&handle, log_transid, pending_io, waiting);
                let left = synced.map_or_else(commit, |()| RemainingWork::Nothing);
                (amount, left)
            }
            SyncPlan::Commit(reason) => {
                self.transactions.require_commit(&handle, reason);
                (LogVolume::default(), commit(reason.into()))
            }
        };
        // A failure is reported by the file.
        let _told = waiting.finish_io(&handle);
        waiting.waited(LogSyncPhase::Device);
        Ok((amount, left))
    }

    /// Returns the plan for an inode that last changed in an earlier transaction.
    fn plan_unchanged<'a>(
        &self,
        handle: &Handle<'_>,
        inode: InodeId,
        changed: u64,
    ) -> SyncPlan<'a> {
        if !is_subvolume_root(inode) {
            return SyncPlan::Wait(changed);
        }
        match self.check_name(handle, inode) {
            Ok(()) => SyncPlan::Wait(handle.generation() - 1),
            Err(reason) => SyncPlan::Commit(reason),
        }
    }

    /// Returns an error if an inode may be that of a subvolume which the transaction renamed: a
    /// rename marks its transaction, but does not change the inode.
    fn check_name(&self, handle: &Handle<'_>, inode: InodeId) -> LogResult<()> {
        if is_subvolume_root(inode) { self.transactions.check_loggable(handle) } else { Ok(()) }
    }

    fn log<'a>(&'a self, handle: &'a Handle<'a>, whole: &InodeToLog<'_>) -> SyncPlan<'a> {
        let inode = whole.inode;
        let log_tracker = self.nodes.log_tracker();
        if self.nodes.is_deleted(inode.id().subvolume) {
            return SyncPlan::Commit(FullCommitReason::Subvolume);
        }
        // Read first: if the inode gets its first name meanwhile, `item` counts that name.
        let is_linkable = inode.is_linkable();
        let running = handle.generation();
        let item = inode.item();
        let is_settled = whole.data.is_none_or(OrderedExtents::is_empty);
        if is_settled && item.transid < running {
            return self.plan_unchanged(handle, inode.id(), item.transid);
        }
        if item.nlink == 0 && !is_linkable {
            match log_tracker.lost_any(running, inode.id()) {
                Ok(true) => {}
                Ok(false) if item.generation == running => return SyncPlan::Wait(0),
                // It lost its names before: with that durable, it can never be found.
                Ok(false) => return SyncPlan::Wait(running - 1),
                Err(forgotten) => return SyncPlan::Commit(forgotten.into()),
            }
        }
        let logged = log_tracker.logged(running, inode.id()).filter(|it| it.mode == LogMode::All);
        if let Some((stamp, log_transid)) = logged.and_then(|logged| logged.whole)
            && is_settled
            && inode.stamp(running) == Some(stamp)
            && self.check_name(handle, inode.id()).is_ok()
        {
            return SyncPlan::Log(LoggedInode {
                log_transid,
                pending_io: None,
                amount: LogVolume::default(),
            });
        }
        #[cfg(feature = "experiments")]
        if let Err(reason) = self.flush_before_logging(handle, inode) {
            return SyncPlan::Commit(reason);
        }
        let collected = self.transactions.logs(handle).and_then(|mut writer| {
            InodeLogger::new(&self.nodes, &mut writer, inode.id().subvolume).run(whole)
        });
        collected.map_or_else(SyncPlan::Commit, SyncPlan::Log)
    }
}

/// Returns true for the root directory of a subvolume that has a name.
fn is_subvolume_root(inode: InodeId) -> bool {
    inode.number == ROOT_DIR && inode.subvolume != TreeId::FS
}
