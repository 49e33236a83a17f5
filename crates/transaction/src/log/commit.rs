//! Writing a group of changes of logs.
//!
//! 1. Under the lock of the logs its leader completes the group and closes it; the tree of the log
//!    roots is made to lead to each log as it is, and the nodes are sealed: who changes a log from
//!    then on copies them.
//! 2. Then the nodes are written, in any order, while data that the group speaks of is on its way,
//!    of the leader and of others. When all of it is there, a flush makes it durable, with all that
//!    was written before; then the superblock before must be durable; then the log's is written.
//! 3. The leader is in the transaction all the time: neither can it be handed over, nor does
//!    anybody else write a superblock after the one waited for.
//! 4. Nothing is tried again: what fails marks the transaction. Where data failed that a group
//!    speaks of, the superblock is not written. A flush or a superblock that fails ends all
//!    writing: the error may be about what others wrote, and is told once.
//! 5. Data comes into its file while its owner is in the transaction: what a log promises, the
//!    commit has.

use userbtrfs_btree::{DirtyList, ItemEdit, Root};
use userbtrfs_format::{ItemKind, Key, Logical, RootFlags, RootInode, RootItem, TreeId};
use userbtrfs_sync::{Arc, thread};
use userbtrfs_volume::Slice;

use super::commits::{JoinOutcome, LogCommitLeader, PendingIo};
use super::stats::count;
use super::{FullCommitReason, LogFailure, LogTransId, LogWriter, SubvolumeLog, SubvolumeLogs};
use crate::commit::Handle;
use crate::error::Result;
use crate::manager::TransactionManager;

/// The nodes of a group, as they are to be written.
struct Sealed {
    list: DirtyList,
    nodes: Vec<(Logical, Slice)>,
    /// The tree of the log roots; nothing where there is no log.
    root: Option<Root>,
}

/// Who waits for a group.
pub trait LogSyncer {
    /// Makes the last changes to the logs before a group is closed which the member leads. An
    /// error says why the transaction must be committed.
    fn complete(&mut self, writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason>;

    /// Waits for the data that is on its way of which the member's group speaks, and puts it into
    /// its file, in the handle's transaction; asked again, only says how that ended. An error says
    /// that the log must not become durable: the transaction is marked.
    fn land(&mut self, handle: &Handle<'_>) -> Result<(), FullCommitReason>;

    /// Is told that it waited for this until now, since it was last told.
    fn waited(&mut self, what: LogSyncPhase);
}

/// What a member of a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSyncPhase {
    /// The device: its data, the nodes, the flush, the superblock.
    Device,
    /// Others: those who write the group, or the one before, or data of which the group speaks.
    Writers,
    /// The superblock of the transaction before.
    Commit,
}

/// Who has no data on its way.
impl LogSyncer for () {
    fn complete(&mut self, _writer: &mut LogWriter<'_>) -> Result<(), FullCommitReason> {
        Ok(())
    }

    fn land(&mut self, _handle: &Handle<'_>) -> Result<(), FullCommitReason> {
        Ok(())
    }

    fn waited(&mut self, _what: LogSyncPhase) {}
}

/// That data will be there of which a group speaks.
#[must_use = "the group fails without it"]
pub struct PendingIoToken<'a>(pub(super) PendingIo<'a, LogFailure>);

/// A member, and what it promised.
struct Pledged<'a> {
    pending_io: Option<PendingIoToken<'a>>,
    member: &'a mut dyn LogSyncer,
}

impl Pledged<'_> {
    /// Keeps what was promised, or breaks it.
    fn land(&mut self, handle: &Handle<'_>) -> Result<(), LogFailure> {
        let landed = self.member.land(handle).map_err(LogFailure::from);
        if let Some(PendingIoToken(pending_io)) = self.pending_io.take() {
            pending_io.end(landed.clone());
        }
        landed
    }
}

impl TransactionManager {
    /// Waits until a group is durable; writes it, if nobody else does. What was written of data
    /// before [`LogWriter::group`] was asked is durable then, too; and what is on its way by this
    /// member, who gave a `pending_io` for that: however this ends, all of it has landed.
    ///
    /// An error says that it is not durable, and that the transaction must be committed.
    pub fn sync_log(
        &self,
        handle: &Handle<'_>,
        group: LogTransId,
        pending_io: Option<PendingIoToken<'_>>,
        member: &mut dyn LogSyncer,
    ) -> Result<(), LogFailure> {
        let mut member = Pledged { pending_io, member };
        let synced = match group.transaction == handle.generation() {
            true => self.sync_group(handle, group, &mut member),
            // It goes with its transaction.
            false => {
                self.transaction_state.wait_durable(group.transaction).map_err(LogFailure::from)
            }
        };
        // Where the group was given up before.
        let landed = member.land(handle);
        synced.and(landed)
    }

    fn sync_group(
        &self,
        handle: &Handle<'_>,
        group: LogTransId,
        member: &mut Pledged<'_>,
    ) -> Result<(), LogFailure> {
        let SubvolumeLogs { groups, counts, .. } = &self.logs;
        let leads = groups.try_lead(group.number).map(|lead| Ok(JoinOutcome::Lead(lead)));
        match leads.unwrap_or_else(|| self.join_group(handle, group, member))? {
            JoinOutcome::Ended(end) => {
                count(&counts.shared, 1);
                end
            }
            JoinOutcome::Lead(lead) => {
                count(&counts.waits_for_group, u64::from(lead.has_waited()));
                let written = self.write_group(handle, &lead, member);
                if let Err(failure) = &written {
                    self.logs.mark(failure.reason());
                }
                lead.end(written.clone());
                written
            }
        }
    }

    /// Waits for a group that somebody else writes, or the one before it.
    fn join_group(
        &self,
        handle: &Handle<'_>,
        group: LogTransId,
        member: &mut Pledged<'_>,
    ) -> Result<JoinOutcome<'_, LogFailure>, LogFailure> {
        let landed = member.land(handle);
        member.member.waited(LogSyncPhase::Device);
        landed?;
        let role = self.logs.groups.join(group.number);
        member.member.waited(LogSyncPhase::Writers);
        Ok(role)
    }

    fn write_group(
        &self,
        handle: &Handle<'_>,
        lead: &LogCommitLeader<'_, LogFailure>,
        member: &mut Pledged<'_>,
    ) -> Result<(), LogFailure> {
        let before = handle.generation() - 1;
        if lead.is_shared() {
            // Some may be about to sync, and have no processor: each that comes with this group is
            // spared one of its own.
            thread::yield_now();
        }
        let Sealed { list, nodes, root } = self.seal_group(handle, lead, member.member)?;
        let count_nodes = nodes.len() as u64;
        let on_their_way = self.volume().submit_data(nodes);
        let landed = member.land(handle);
        let written = self.volume().wait_writes(on_their_way);
        member.member.waited(LogSyncPhase::Device);
        written.into_iter().collect::<Result<(), _>>()?;
        landed?;
        lead.gather()?;
        member.member.waited(LogSyncPhase::Writers);
        self.telling(|| Ok(self.volume().flush()?))?;
        member.member.waited(LogSyncPhase::Device);
        self.wait_for_superblock(before)?;
        member.member.waited(LogSyncPhase::Commit);
        self.telling(|| Ok(self.volume().check_durable()?))?;
        self.logs.check()?;
        if let Some(root) = root.filter(|_| count_nodes > 0) {
            let write = || self.volume().write_log_superblock(root.logical, root.level);
            self.telling(|| Ok(write()?))?;
            self.logs.blocks.superblock_is_durable();
        }
        member.member.waited(LogSyncPhase::Device);
        self.tree_roots.store().written(list);
        self.count_group(count_nodes);
        Ok(())
    }

    /// The superblock of the transaction before is durable, and no commit has failed.
    fn wait_for_superblock(&self, before: u64) -> Result<(), LogFailure> {
        if !self.transaction_state.is_durable(before) {
            count(&self.logs.counts.waits_for_commit, 1);
            self.transaction_state.wait_durable(before)?;
        }
        Ok(self.transaction_state.check()?)
    }

    fn count_group(&self, nodes: u64) {
        let counts = &self.logs.counts;
        count(&counts.groups, 1);
        count(&counts.nodes, nodes);
        count(&counts.bytes, nodes * u64::from(self.volume().geometry().nodesize));
    }

    /// Closes a group, and makes its nodes what they will be on the device.
    fn seal_group(
        &self,
        handle: &Handle<'_>,
        lead: &LogCommitLeader<'_, LogFailure>,
        leader: &mut dyn LogSyncer,
    ) -> Result<Sealed, LogFailure> {
        let mut writer = self.logs(handle)?;
        leader.complete(&mut writer)?;
        let listed = writer.list_roots();
        listed.map_err(|error| LogFailure::Commit((&error).into()))?;
        // With the last node that the superblock leads to.
        if self.space.draws_on_new_groups() {
            return Err(FullCommitReason::NewBlockGroup.into());
        }
        let store = self.tree_roots.store();
        let list = store.dirty_at(self.logs.blocks.seal());
        let sealed = store.seal(&list).map(|sealed| {
            let (logical, node) = sealed?;
            Ok((logical, node.into()))
        });
        let nodes = sealed.collect::<Result<_>>()?;
        lead.close();
        Ok(Sealed { list, nodes, root: writer.trees.roots.as_ref().map(|tree| tree.root()) })
    }
}

impl LogWriter<'_> {
    /// Makes the tree of the log roots lead to each log as it is.
    fn list_roots(&mut self) -> Result<()> {
        let moved = |(id, log): (&TreeId, &SubvolumeLog)| {
            let root = log.tree.root();
            (log.listed != Some(root)).then_some((*id, root))
        };
        let moved: Vec<_> = self.trees.logs.iter().filter_map(moved).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let roots = match &self.trees.roots {
            Some(roots) => Arc::clone(roots),
            None => self.create()?,
        };
        self.trees.roots = Some(Arc::clone(&roots));
        let mut edits: Vec<_> = moved.iter().map(|&(id, root)| root_edit(id, root)).collect();
        self.change(&roots, &mut edits)?;
        for (id, root) in moved {
            self.trees.logs.get_mut(&id).expect("just seen").listed = Some(root);
        }
        Ok(())
    }
}

/// The item that leads to the log of a subvolume, with what Linux says in it besides.
fn root_edit(subvolume: TreeId, root: Root) -> ItemEdit {
    let key = Key::new(TreeId::TREE_LOG.0, ItemKind::ROOT_ITEM, subvolume.0);
    let directory =
        RootInode { generation: 1, size: 3, nlink: 1, mode: 0o40755, ..Default::default() };
    let item = RootItem {
        generation: root.generation,
        root_dirid: 0,
        logical: root.logical,
        level: root.level,
        byte_limit: 0,
        bytes_used: 0,
        last_snapshot: 0,
        flags: RootFlags::empty(),
        refs: 0,
        drop_progress: Key::MIN,
        drop_level: 0,
        generation_v2: Some(root.generation),
        inode: directory,
        extended: None,
    };
    ItemEdit::Put(key, item.encode())
}
