//! Writes a log commit.
//!
//! 1. Under the lock of the logs the leader completes its log commit and closes it; it updates the
//!    tree of the log roots to lead to each log as it is, and seals the nodes: later changes of a
//!    log copy them.
//! 2. Then the nodes are written, in any order, while data that the log commit refers to, of the
//!    leader and of other threads, is in flight. When all of it has completed, a flush makes it
//!    durable, with all that was written before; then the previous superblock must be durable; then
//!    that of the log is written.
//! 3. The leader holds a handle of the transaction throughout: so neither can the commit unblock
//!    the next transaction, nor does another thread write a superblock after the previous one.
//! 4. Nothing is retried: a failure marks the transaction. If data that a log commit refers to
//!    failed, the superblock is not written. A failed flush or superblock write ends all writing:
//!    the error may concern the writes of other threads, and the device reports it only once.
//! 5. Data is recorded in its file while its owner holds a handle of the transaction: the commit
//!    has all that a log refers to.

use userbtrfs_btree::{DirtyList, Root};
use userbtrfs_device::CrashPoint;
use userbtrfs_format::Logical;
use userbtrfs_sync::thread;
use userbtrfs_volume::Slice;

use super::commits::{JoinOutcome, LogCommitLeader};
use super::full_commit::{FullCommitReason, LogFailure};
use super::stats::count;
use super::writer::{LogTransId, LogWriter, PendingIoToken, SubvolumeLogs};
use crate::commit::Handle;
use crate::error::Result;

/// The nodes of a log commit, sealed for writing.
struct SealedNodes {
    list: DirtyList,
    nodes: Vec<(Logical, Slice)>,
    /// The root of the tree of the log roots; `None` if there is no log.
    root: Option<Root>,
}

/// A caller that syncs a log commit.
pub trait LogSyncer {
    /// Makes the last changes to the logs before the log commit that this caller leads is closed.
    /// The error is the reason why the transaction must be committed.
    fn complete(&mut self, writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason>;

    /// Waits for the data in flight of this caller that its log commit refers to, and records it in
    /// its file, in the handle's transaction; later calls only return the same result. An error
    /// means that the log must not become durable: the transaction is marked.
    fn finish_io(&mut self, handle: &Handle<'_>) -> Result<(), FullCommitReason>;

    /// Reports that the time since the last report was spent waiting for `what`.
    fn waited(&mut self, what: LogSyncPhase);
}

/// A phase of a log sync, named after what the caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSyncPhase {
    /// The device: its data, the nodes, the flush, the superblock.
    Device,
    /// Other threads: those that write the log commit, or the one before, or data that the log
    /// commit refers to.
    Writers,
    /// The superblock of the previous transaction.
    Commit,
}

/// A caller without data in flight.
impl LogSyncer for () {
    fn complete(&mut self, _writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason> {
        Ok(())
    }

    fn finish_io(&mut self, _handle: &Handle<'_>) -> Result<(), FullCommitReason> {
        Ok(())
    }

    fn waited(&mut self, _what: LogSyncPhase) {}
}

/// A caller that syncs, and its pending I/O.
struct SyncingMember<'a> {
    pending_io: Option<PendingIoToken<'a>>,
    member: &'a mut dyn LogSyncer,
}

impl SyncingMember<'_> {
    /// Waits for the caller's data, and ends the pending I/O with the result.
    fn finish_io(&mut self, handle: &Handle<'_>) -> Result<(), LogFailure> {
        let finished = self.member.finish_io(handle).map_err(LogFailure::from);
        if let Some(PendingIoToken(pending_io)) = self.pending_io.take() {
            pending_io.end(finished.clone());
        }
        finished
    }
}

/// Waits until a log commit is durable; writes it if no other thread does. All data in flight of
/// the caller has completed on return.
pub(crate) fn sync(
    logs: &SubvolumeLogs,
    handle: &Handle<'_>,
    log_transid: LogTransId,
    pending_io: Option<PendingIoToken<'_>>,
    member: &mut dyn LogSyncer,
) -> Result<(), LogFailure> {
    let mut member = SyncingMember { pending_io, member };
    let synced = if log_transid.transaction == handle.generation() {
        LogSync { logs, handle }.sync_commit(log_transid, &mut member)
    } else {
        // It becomes durable with its transaction.
        logs.context.state.wait_durable(log_transid.transaction).map_err(LogFailure::from)
    };
    // Not done yet if the log commit was given up before.
    let finished = member.finish_io(handle);
    synced.and(finished)
}

/// A sync under a handle of the transaction whose logs it writes.
struct LogSync<'a> {
    logs: &'a SubvolumeLogs,
    handle: &'a Handle<'a>,
}

impl LogSync<'_> {
    fn sync_commit(
        &self,
        log_transid: LogTransId,
        member: &mut SyncingMember<'_>,
    ) -> Result<(), LogFailure> {
        let SubvolumeLogs { commits, counts, .. } = self.logs;
        let leads = commits.try_lead(log_transid.number).map(|lead| Ok(JoinOutcome::Lead(lead)));
        match leads.unwrap_or_else(|| self.join_commit(log_transid, member))? {
            JoinOutcome::Ended(end) => {
                count(&counts.shared, 1);
                end
            }
            JoinOutcome::Lead(lead) => {
                count(&counts.waits_for_log_commit, u64::from(lead.has_waited()));
                let written = self.write_commit(&lead, member);
                if let Err(failure) = &written {
                    self.logs.mark(failure.reason());
                }
                if written.is_ok() {
                    self.logs.context.volume().crash_point(CrashPoint::LogBeforeWake);
                }
                lead.end(written.clone());
                written
            }
        }
    }

    /// Waits for a log commit that another thread writes, or for the one before it.
    fn join_commit(
        &self,
        log_transid: LogTransId,
        member: &mut SyncingMember<'_>,
    ) -> Result<JoinOutcome<'_, LogFailure>, LogFailure> {
        let finished = member.finish_io(self.handle);
        member.member.waited(LogSyncPhase::Device);
        finished?;
        let role = self.logs.commits.join(log_transid.number);
        member.member.waited(LogSyncPhase::Writers);
        Ok(role)
    }

    fn write_commit(
        &self,
        lead: &LogCommitLeader<'_, LogFailure>,
        member: &mut SyncingMember<'_>,
    ) -> Result<(), LogFailure> {
        let context = &self.logs.context;
        let before = self.handle.generation() - 1;
        if lead.is_shared() {
            // Other threads may be about to sync, but lack a processor: each that joins this log
            // commit does not need one of its own.
            thread::yield_now();
        }
        let SealedNodes { list, nodes, root } = self.seal_commit(lead, member.member)?;
        context.volume().crash_point(CrashPoint::LogSealed);
        let count_nodes = nodes.len() as u64;
        let in_flight = context.volume().submit_data(nodes);
        let finished = member.finish_io(self.handle);
        let written = context.volume().wait_writes(in_flight);
        member.member.waited(LogSyncPhase::Device);
        written.into_iter().collect::<Result<(), _>>()?;
        finished?;
        context.volume().crash_point(CrashPoint::LogNodesWritten);
        lead.gather()?;
        member.member.waited(LogSyncPhase::Writers);
        context.fail_on_error(|| Ok(context.volume().flush()?))?;
        member.member.waited(LogSyncPhase::Device);
        self.wait_for_superblock(before)?;
        member.member.waited(LogSyncPhase::Commit);
        context.fail_on_error(|| Ok(context.volume().check_durable()?))?;
        self.logs.check()?;
        if let Some(root) = root.filter(|_| count_nodes > 0) {
            let Root { logical, level, generation } = root;
            self.logs.blocks.assert_submitted(logical);
            let write = || context.volume().write_log_superblock(logical, level, generation);
            context.volume().crash_point(CrashPoint::LogBeforeSuperblock);
            context.fail_on_error(|| Ok(write()?))?;
            context.volume().crash_point(CrashPoint::LogAfterSuperblock);
            self.logs.blocks.superblock_is_durable();
        }
        member.member.waited(LogSyncPhase::Device);
        context.tree_roots.store().written(list);
        self.count_commit(count_nodes);
        Ok(())
    }

    /// Waits until the superblock of the previous transaction is durable; fails if a commit failed.
    fn wait_for_superblock(&self, before: u64) -> Result<(), LogFailure> {
        if !self.logs.context.state.is_durable(before) {
            count(&self.logs.counts.waits_for_commit, 1);
            self.logs.context.state.wait_durable(before)?;
        }
        Ok(self.logs.context.state.check()?)
    }

    fn count_commit(&self, nodes: u64) {
        let counts = &self.logs.counts;
        count(&counts.log_commits, 1);
        count(&counts.nodes, nodes);
        count(&counts.bytes, nodes * u64::from(self.logs.context.nodesize()));
    }

    /// Closes a log commit, and seals its nodes for writing.
    fn seal_commit(
        &self,
        lead: &LogCommitLeader<'_, LogFailure>,
        leader: &mut dyn LogSyncer,
    ) -> Result<SealedNodes, LogFailure> {
        let mut writer = self.logs.writer(self.handle)?;
        leader.complete(&mut writer)?;
        let listed = writer.list_roots();
        listed.map_err(|error| LogFailure::Commit((&error).into()))?;
        // Checked now that the last node that the superblock leads to is allocated.
        if self.logs.context.space.draws_on_new_groups() {
            return Err(FullCommitReason::NewBlockGroup.into());
        }
        let store = self.logs.context.tree_roots.store();
        let list = store.dirty_at(self.logs.blocks.seal());
        let sealed = store.seal(&list).map(|sealed| {
            let (logical, node) = sealed?;
            Ok((logical, node.into()))
        });
        let nodes = sealed.collect::<Result<_>>()?;
        lead.close();
        Ok(SealedNodes { list, nodes, root: writer.root() })
    }
}
