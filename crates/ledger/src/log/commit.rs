//! Writing a group of changes of logs.
//!
//! 1. Under the lock of the logs the group is closed, the tree of the log roots made to lead to
//!    each log as it is, and the nodes sealed: who changes a log from then on copies them.
//! 2. Then the nodes are written, in any order, and a flush makes them durable, with all that was
//!    written before; then the superblock before must be durable; then the log's is written.
//! 3. The leader is in the transaction all the time: neither can it be handed over, nor does
//!    anybody else write a superblock after the one waited for.
//! 4. Nothing is tried again: what fails marks the transaction.

use userbtrfs_btree::{DirtyList, ItemEdit, Root};
use userbtrfs_format::{ItemKind, Key, Logical, RootFlags, RootInode, RootItem, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_volume::Buffer;

use super::group::{Lead, Role};
use super::stats::count;
use super::{CommitReason, Log, LogFailure, LogGroup, LogWriter, Logs};
use crate::error::Result;
use crate::ledger::Ledger;
use crate::txn::Handle;

/// The nodes of a group, as they are to be written.
struct Sealed {
    list: DirtyList,
    nodes: Vec<(Logical, Arc<Buffer>)>,
    /// The tree of the log roots; nothing where there is no log.
    root: Option<Root>,
}

impl Ledger {
    /// Waits until a group is durable; writes it, if nobody else does. What was written of data
    /// before [`LogWriter::group`] was asked is durable then, too. The transaction is left.
    ///
    /// An error says that it is not durable, and that the transaction must be committed.
    pub fn sync_log(&self, handle: Handle<'_>, group: LogGroup) -> Result<(), LogFailure> {
        let synced = match group.transaction == handle.generation() {
            true => self.sync_group(&handle, group),
            // It goes with its transaction.
            false => self.gate.wait_durable(group.transaction).map_err(LogFailure::from),
        };
        drop(handle);
        synced
    }

    fn sync_group(&self, handle: &Handle<'_>, group: LogGroup) -> Result<(), LogFailure> {
        let Logs { groups, counts, .. } = &self.logs;
        match groups.join(group.number) {
            Role::Ended(end) => {
                count(&counts.shared, 1);
                end
            }
            Role::Lead(lead) => {
                count(&counts.waits_for_group, u64::from(lead.has_waited()));
                let written = self.write_group(handle, &lead);
                if let Err(failure) = &written {
                    self.logs.mark(failure.reason());
                }
                lead.end(written.clone());
                written
            }
        }
    }

    fn write_group(
        &self,
        handle: &Handle<'_>,
        lead: &Lead<'_, LogFailure>,
    ) -> Result<(), LogFailure> {
        let before = handle.generation() - 1;
        if self.space.draws_on_new_groups() {
            // What the transaction before made is old once that is completed.
            self.gate.wait_completed(before)?;
        }
        let Sealed { list, nodes, root } = self.seal_group(handle, lead)?;
        let count_nodes = nodes.len() as u64;
        self.volume().write_blocks(nodes)?;
        self.volume().flush()?;
        if !self.gate.is_durable(before) {
            count(&self.logs.counts.waits_for_commit, 1);
            self.gate.wait_durable(before)?;
        }
        self.gate.check()?;
        self.logs.check()?;
        if let Some(root) = root.filter(|_| count_nodes > 0) {
            self.volume().write_log_superblock(root.logical, root.level)?;
        }
        self.forest.store().written(list);
        self.count_group(count_nodes);
        Ok(())
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
        lead: &Lead<'_, LogFailure>,
    ) -> Result<Sealed, LogFailure> {
        let mut writer = self.logs(handle)?;
        if self.space.draws_on_new_groups() {
            return Err(CommitReason::NewBlockGroup.into());
        }
        let listed = writer.list_roots();
        listed.map_err(|error| LogFailure::Commit((&error).into()))?;
        let store = self.forest.store();
        let list = store.dirty_at(self.logs.blocks.take_unwritten());
        let nodes = store.seal(&list).collect::<Result<_, _>>()?;
        lead.close();
        Ok(Sealed { list, nodes, root: writer.trees.roots.as_ref().map(|tree| tree.root()) })
    }
}

impl LogWriter<'_> {
    /// Makes the tree of the log roots lead to each log as it is.
    fn list_roots(&mut self) -> Result<()> {
        let moved = |(id, log): (&TreeId, &Log)| {
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
