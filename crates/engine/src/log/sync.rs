//! Making an inode durable.
//!
//! 1. A file is logged while its data is on its way. Both are on the device before the flush that
//!    comes before the superblock; where data failed, the superblock is not written.
//! 2. What did not change in the running transaction is durable with the one before.
//! 3. What cannot be logged is committed: nothing is ever left out silently.
//! 4. Who waits for a group is in its transaction until the group is durable, so that the commit
//!    of the transaction comes after. Its data comes into its file meanwhile: the commit has it.

use userbtrfs_format::FileKind;
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{
    FullCommitReason, Handle, HandleKind, LogFailure, LogSyncPhase, LogSyncer, LogWriter,
    TransactionManager,
};

use super::collect::{self, InodeLogger, InodeToLog, LoggedInode};
use super::trace::{FsyncTracer, Listener, LogVolume, Phase, PhaseTimer, SyncOutcome};
use crate::data::{ErrSeq, FilePages, OrderedExtents, WriteContext};
use crate::error::{Error, Result};
use crate::inode::{Inode, Inodes, LogMode};

/// What makes inodes durable.
pub(crate) struct Log {
    nodes: Arc<Inodes>,
    writer: Arc<WriteContext>,
    transactions: Arc<TransactionManager>,
    fsync_tracer: FsyncTracer,
}

/// What makes an inode durable.
enum SyncPlan<'a> {
    /// This transaction must be.
    Wait(u64),
    /// Its group must be.
    Group(LoggedInode<'a>),
    /// The running transaction must be.
    Commit(FullCommitReason),
}

/// What is left to be done when the transaction is left.
enum RemainingWork {
    Nothing,
    /// This transaction must be durable.
    Wait(u64),
    /// This transaction must be committed.
    Commit(u64, LogFailure),
}

/// A sync of an inode that waits for the device and for others.
struct Waiting<'a, 'w> {
    nodes: &'a Inodes,
    data: Option<&'a mut OrderedExtents<'w>>,
    clock: PhaseTimer<'a>,
}

impl Waiting<'_, '_> {
    /// Whether its own data could not be written.
    fn has_failed(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.has_failed())
    }
}

impl LogSyncer for Waiting<'_, '_> {
    fn complete(&mut self, writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason> {
        collect::complete(self.nodes, writer)
    }

    fn land(&mut self, handle: &Handle<'_>) -> Result<(), FullCommitReason> {
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
        writer: &Arc<WriteContext>,
        transactions: &Arc<TransactionManager>,
    ) -> Self {
        let (nodes, writer) = (Arc::clone(nodes), Arc::clone(writer));
        Self {
            nodes,
            writer,
            transactions: Arc::clone(transactions),
            fsync_tracer: FsyncTracer::new(),
        }
    }

    /// Who is told of each sync from now on.
    pub(crate) fn listen(&self, listener: Option<Listener>) {
        self.fsync_tracer.set(listener);
    }

    /// Makes a file durable, its data and its attributes; tells its user what could not be written
    /// of it, be it by others.
    pub(crate) fn sync_file(&self, pages: &Arc<FilePages>, told: &ErrSeq) -> Result<()> {
        let (clock, inode, since) = (self.fsync_tracer.clock(), pages.inode(), told.number());
        let synced = self.writer.submit(pages).and_then(|mut data| match data.has_failed() {
            true => {
                clock.end(inode.id(), SyncOutcome::Failed, LogVolume::default());
                Ok(())
            }
            false => self.make_durable(inode, Some(&mut data), clock),
        });
        pages.tell_failure(since, told)?;
        synced
    }

    /// Makes an inode durable that is no file; of a directory, its entries, too.
    pub(crate) fn sync(&self, inode: &Arc<Inode>) -> Result<()> {
        assert!(inode.kind() != FileKind::Regular, "a file has data");
        self.make_durable(inode, None, self.fsync_tracer.clock())
    }

    fn make_durable(
        &self,
        inode: &Arc<Inode>,
        data: Option<&mut OrderedExtents<'_>>,
        mut clock: PhaseTimer<'_>,
    ) -> Result<()> {
        clock.lap(Phase::WriteBack);
        let mut waiting = Waiting { nodes: &self.nodes, data, clock };
        let (amount, left) = self.log_and_wait(inode, &mut waiting)?;
        let (how, done) = match left {
            RemainingWork::Nothing if amount.items == 0 => (SyncOutcome::Unchanged, Ok(())),
            RemainingWork::Nothing => (SyncOutcome::Logged, Ok(())),
            RemainingWork::Wait(generation) => {
                let durable = self.transactions.wait_durable(generation);
                waiting.waited(LogSyncPhase::Commit);
                (SyncOutcome::Unchanged, durable.map_err(Error::from))
            }
            // Its file tells that; who syncs next commits.
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
        waiting.clock.end(inode.id(), how, amount);
        done
    }

    /// Does what is done for an inode in the running transaction: afterwards its data has landed.
    /// Gives what was put into the log, and what is left.
    fn log_and_wait(
        &self,
        inode: &Arc<Inode>,
        waiting: &mut Waiting<'_, '_>,
    ) -> Result<(LogVolume, RemainingWork)> {
        let handle = self.transactions.start(HandleKind::Writing)?;
        let commit = |failure| RemainingWork::Commit(handle.generation(), failure);
        let next = self.log(&handle, &InodeToLog { inode, data: waiting.data.as_deref() });
        waiting.clock.lap(Phase::Collect);
        let (amount, left) = match next {
            SyncPlan::Wait(generation) => (LogVolume::default(), RemainingWork::Wait(generation)),
            SyncPlan::Group(LoggedInode { group, pending_io, amount }) => {
                if let Some(data) = waiting.data.as_mut() {
                    data.logged(group);
                }
                let synced = self.transactions.sync_log(&handle, group, pending_io, waiting);
                let left = synced.map_or_else(commit, |()| RemainingWork::Nothing);
                (amount, left)
            }
            SyncPlan::Commit(reason) => {
                self.transactions.require_commit(&handle, reason);
                (LogVolume::default(), commit(reason.into()))
            }
        };
        // What failed of it is told by its file.
        let _told = waiting.land(&handle);
        waiting.waited(LogSyncPhase::Device);
        Ok((amount, left))
    }

    fn log<'a>(&'a self, handle: &'a Handle<'a>, whole: &InodeToLog<'_>) -> SyncPlan<'a> {
        let (inode, log_tracker) = (whole.inode, self.nodes.log_tracker());
        // Asked first: who gets its first name meanwhile has it in what is asked next.
        let is_linkable = inode.is_linkable();
        let (running, item) = (handle.generation(), inode.item());
        let is_settled = whole.data.is_none_or(OrderedExtents::is_empty);
        if is_settled && item.transid < running {
            return SyncPlan::Wait(item.transid);
        }
        if item.nlink == 0 && !is_linkable {
            match log_tracker.lost_any(running, inode.id()) {
                Ok(true) => {}
                Ok(false) if item.generation == running => return SyncPlan::Wait(0),
                // It lost its names before; then nobody will ever find it.
                Ok(false) => return SyncPlan::Wait(running - 1),
                Err(forgotten) => return SyncPlan::Commit(forgotten.into()),
            }
        }
        let logged = log_tracker.logged(running, inode.id()).filter(|it| it.mode == LogMode::All);
        if let Some((stamp, group)) = logged.and_then(|logged| logged.whole)
            && is_settled
            && inode.stamp(running) == Some(stamp)
        {
            return SyncPlan::Group(LoggedInode {
                group,
                pending_io: None,
                amount: LogVolume::default(),
            });
        }
        let collected = self.transactions.logs(handle).and_then(|mut writer| {
            InodeLogger::new(&self.nodes, &mut writer, inode.id().subvolume).run(whole)
        });
        collected.map_or_else(SyncPlan::Commit, SyncPlan::Group)
    }
}
