//! Snapshots: made by the commit, before the entry that names them, in the same transaction.

use std::mem;

use userbtrfs_format::{ItemKind, Key, RootFlags, Timestamp, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex};
use uuid::Uuid;

use super::roots;
use super::state::SubvolumeName;
use super::uuid_tree::UuidChanges;
use crate::commit::{Handle, move_root};
use crate::context::TransactionContext;
use crate::editor::{Changes, Editor};
use crate::error::Result;
use crate::space::Reservation;

/// Adds the entry of a snapshot to its directory, as a delayed change of the transaction of the
/// handle.
pub type AddEntry = Box<dyn FnOnce(&Handle<'_>) + Send>;

/// A snapshot to be made.
pub struct NewSnapshot {
    /// The subvolume that it is a snapshot of.
    pub source: TreeId,
    /// Its id, from [`take_id`](super::take_id).
    pub id: TreeId,
    /// Its name.
    pub name: SubvolumeName,
    /// Its UUID.
    pub uuid: Uuid,
    /// The time of its creation.
    pub created: Timestamp,
    /// Whether it may not be changed.
    pub read_only: bool,
    /// The space for the items that the commit changes for it.
    pub reservation: Reservation,
    /// Called when it is made, unless the subvolume of its name is deleted. Until then the caller
    /// keeps the name free, and the directory in place.
    pub add_entry: AddEntry,
}

/// The snapshots that the commit of the running transaction makes.
pub(crate) struct PendingSnapshots(Mutex<Vec<NewSnapshot>>);

impl PendingSnapshots {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Class::ChangedRoots, Vec::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(crate) fn add(&self, snapshot: NewSnapshot) {
        self.0.lock().push(snapshot);
    }
}

/// Makes the snapshots of the transaction, with the handle of its commit. All delayed changes are
/// in the trees; `merge` merges those of the entries.
pub(crate) fn create_pending(
    pending: &PendingSnapshots,
    handle: &Handle<'_>,
    merge: impl Fn(&Handle<'_>) -> Result<()>,
) -> Result<()> {
    let pending = mem::take(&mut *pending.0.lock());
    for snapshot in pending {
        if create_if_named(handle, &snapshot)? {
            (snapshot.add_entry)(handle);
            merge(handle)?;
        }
    }
    Ok(())
}

/// Makes a snapshot, and returns true, unless the subvolume of its name is deleted: the snapshot
/// would be, too.
fn create_if_named(handle: &Handle<'_>, snapshot: &NewSnapshot) -> Result<bool> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    let is_named = context.tree_roots.root_item(snapshot.name.parent)?.is_some();
    if is_named {
        create(context, &context.editor(handle.generation()), snapshot)?;
    }
    Ok(is_named)
}

fn create(context: &TransactionContext, editor: &Editor<'_>, snapshot: &NewSnapshot) -> Result<()> {
    let source = context.tree_roots.tree(snapshot.source)?;
    let copy = source.snapshot(snapshot.id, context.tree_roots.store(), context)?;
    let (source_key, mut source_item) = roots::root_entry(context, snapshot.source)?;
    move_root(&mut source_item, &source, editor);
    source_item.last_snapshot = editor.generation;

    let mut item = source_item.clone();
    let root = copy.root();
    item.logical = root.logical;
    item.level = root.level;
    item.generation = root.generation;
    item.generation_v2 = Some(root.generation);
    item.flags.set(RootFlags::READ_ONLY, snapshot.read_only);
    // The source may have been deleted in this transaction.
    item.flags.remove(RootFlags::DEAD);
    item.refs = 1;
    let mut extended = item.extended.take().unwrap_or_else(roots::no_extension);
    extended.parent_uuid = mem::replace(&mut extended.uuid, snapshot.uuid);
    extended.otime = snapshot.created;
    extended.otransid = editor.generation;
    if !snapshot.read_only {
        // It may change, and then is no longer the subvolume that was received.
        extended.received_uuid = Uuid::nil();
        extended.stransid = 0;
        extended.rtransid = 0;
        extended.stime = Timestamp::default();
        extended.rtime = Timestamp::default();
    }
    let received = extended.received_uuid;
    item.extended = Some(extended);

    let mut changes = Changes::default();
    changes.put(source_key, source_item.encode());
    let key = Key::new(snapshot.id.0, ItemKind::ROOT_ITEM, editor.generation);
    changes.put(key, item.encode());
    snapshot.name.add_to(&mut changes, snapshot.id);
    editor.apply(TreeId::ROOT, &mut changes.into_edits())?;
    let mut uuids = UuidChanges::new(&context.tree_roots);
    uuids.add(snapshot.uuid, ItemKind::UUID_KEY_SUBVOL, snapshot.id)?;
    uuids.add(received, ItemKind::UUID_KEY_RECEIVED_SUBVOL, snapshot.id)?;
    uuids.apply(editor)?;
    context.tree_roots.adopt(Arc::new(copy));
    Ok(())
}
