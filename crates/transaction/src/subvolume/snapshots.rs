//! Snapshots: made by the commit, in one transaction with the entry that names them, and before it.

use std::mem;

use userbtrfs_format::{ItemKind, Key, RootFlags, Timestamp, TreeId};
use userbtrfs_sync::Arc;
use uuid::Uuid;

use super::roots;
use super::state::NewSnapshot;
use super::uuid_tree;
use crate::commit::{Handle, move_root};
use crate::context::TransactionContext;
use crate::editor::{Changes, Editor};
use crate::error::Result;

/// Has the commit of the handle's transaction make a snapshot, and then add its entry. The snapshot
/// has all changes of its source that are made in this transaction, except for entries of snapshots
/// that the commit makes after it, and its own.
pub fn snapshot_at_commit(handle: &Handle<'_>, snapshot: NewSnapshot) {
    handle.context().snapshots.0.lock().push(snapshot);
}

/// Makes the snapshots of the transaction, with the handle of its commit. All delayed changes are in
/// the trees; `merge` merges those of the entries.
pub(crate) fn create_pending(
    handle: &Handle<'_>,
    merge: impl Fn(&Handle<'_>) -> Result<()>,
) -> Result<()> {
    let context = handle.context();
    let pending = mem::take(&mut *context.snapshots.0.lock());
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
    uuid_tree::add(editor, snapshot.uuid, ItemKind::UUID_KEY_SUBVOL, snapshot.id)?;
    uuid_tree::add(editor, received, ItemKind::UUID_KEY_RECEIVED_SUBVOL, snapshot.id)?;
    context.tree_roots.adopt(Arc::new(copy));
    Ok(())
}
