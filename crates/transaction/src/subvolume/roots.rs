//! Root items of subvolumes and the references between them.

use userbtrfs_btree::{ItemEdit, ReadAhead, Tree};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{
    DirEntry, DirEntryKind, FIRST_FREE_OBJECTID, IncompatFlags, ItemKind, Key, LAST_FREE_OBJECTID,
    ORPHAN_OBJECTID, RootExtension, RootFlags, RootInode, RootItem, RootRef, Timestamp, TreeId,
    dir_entries,
};
use userbtrfs_sync::Arc;
use uuid::Uuid;

use super::state::SubvolumeName;
use super::uuid_tree::UuidChanges;
use crate::commit::Handle;
use crate::context::TransactionContext;
use crate::editor::{Changes, Items, TreeItems};
use crate::error::{Error, Result};
use crate::roots::TreeRoots;
use crate::units::VERIFIED;

/// The name of the entry in the root tree's directory that leads to the default subvolume.
const DEFAULT: &[u8] = b"default";

/// The flag of the inode in a ROOT_ITEM that says that the other flags are valid.
const ROOT_ITEM_INIT: u64 = 1 << 31;

/// The mode of the unused inode in a ROOT_ITEM: a directory, 0755.
const ROOT_INODE_MODE: u32 = 0o040_755;

/// A subvolume to be created.
#[derive(Clone, Debug)]
pub struct NewSubvolume {
    /// Its id, from [`take_id`].
    pub id: TreeId,
    /// Its name.
    pub name: SubvolumeName,
    /// Its UUID.
    pub uuid: Uuid,
    /// The time of its creation.
    pub created: Timestamp,
    /// The items of its root directory, in key order.
    pub items: Vec<(Key, Vec<u8>)>,
}

impl SubvolumeName {
    /// Adds the references between the subvolume `id` and its parent.
    pub(super) fn add_to(&self, changes: &mut Changes, id: TreeId) {
        let data = RootRef { dirid: self.dir, sequence: self.index, name: &self.name }.encode();
        changes.put(Key::new(self.parent.0, ItemKind::ROOT_REF, id.0), data.clone());
        changes.put(Key::new(id.0, ItemKind::ROOT_BACKREF, self.parent.0), data);
    }

    fn remove_from(&self, changes: &mut Changes, id: TreeId) {
        changes.remove(Key::new(self.parent.0, ItemKind::ROOT_REF, id.0));
        changes.remove(Key::new(id.0, ItemKind::ROOT_BACKREF, self.parent.0));
    }
}

/// Returns an id for a new subvolume, which was never used before in this mount.
///
/// # Errors
/// [`Error::NoSpace`] if no id is left.
pub fn take_id(handle: &Handle<'_>) -> Result<TreeId> {
    let mut next = handle.context().subvolume_ids.next.lock();
    let id = *next;
    if id > LAST_FREE_OBJECTID {
        return Err(Error::NoSpace);
    }
    *next = id + 1;
    Ok(TreeId(id))
}

/// Creates the tree of a subvolume, its root item and its references.
pub fn create(handle: &Handle<'_>, new: &NewSubvolume) -> Result<()> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    check_alive(context, new.name.parent)?;
    let mut uuids = UuidChanges::new(&context.tree_roots);
    uuids.add(new.uuid, ItemKind::UUID_KEY_SUBVOL, new.id)?;
    let editor = context.editor(handle.generation());
    context.fail_on_error(|| {
        let tree = new_tree(context, new)?;
        let item = new_root_item(context, new, &tree);
        let mut changes = Changes::default();
        changes.put(Key::new(new.id.0, ItemKind::ROOT_ITEM, 0), item.encode());
        new.name.add_to(&mut changes, new.id);
        editor.apply(TreeId::ROOT, &mut changes.into_edits())?;
        uuids.apply(&editor)?;
        context.tree_roots.adopt(Arc::new(tree));
        Ok(())
    })
}

/// Removes a subvolume's references and UUIDs, and lists its tree as one that is to be dropped.
pub fn delete(handle: &Handle<'_>, id: TreeId, name: &SubvolumeName) -> Result<()> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    check_alive(context, id)?;
    if default(&context.tree_roots)? == Some(id) {
        return Err(Error::DefaultSubvolume(id));
    }
    if contains_others(context, id)? {
        return Err(Error::SubvolumeNotEmpty(id));
    }
    let (key, mut item) = root_entry(context, id)?;
    let mut uuids = UuidChanges::new(&context.tree_roots);
    if let Some(extended) = &item.extended {
        let received = ItemKind::UUID_KEY_RECEIVED_SUBVOL;
        uuids.remove(extended.uuid, ItemKind::UUID_KEY_SUBVOL, id)?;
        uuids.remove(extended.received_uuid, received, id)?;
    }
    item.refs = 0;
    item.flags |= RootFlags::DEAD;
    item.drop_progress = Key::MIN;
    item.drop_level = 0;
    let mut changes = Changes::default();
    changes.put(key, item.encode());
    changes.put(Key::new(ORPHAN_OBJECTID, ItemKind::ORPHAN_ITEM, id.0), Vec::new());
    name.remove_from(&mut changes, id);
    let editor = context.editor(handle.generation());
    context.fail_on_error(|| {
        editor.apply(TreeId::ROOT, &mut changes.into_edits())?;
        uuids.apply(&editor)
    })
}

/// Replaces the name of a subvolume.
pub fn rename(
    handle: &Handle<'_>,
    id: TreeId,
    old: &SubvolumeName,
    new: &SubvolumeName,
) -> Result<()> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    check_alive(context, id)?;
    check_alive(context, new.parent)?;
    let mut changes = Changes::default();
    old.remove_from(&mut changes, id);
    new.add_to(&mut changes, id);
    let editor = context.editor(handle.generation());
    context.fail_on_error(|| editor.apply(TreeId::ROOT, &mut changes.into_edits()))
}

/// Changes the root item of a subvolume, except for its root and its UUIDs.
pub fn change_root_item(
    handle: &Handle<'_>,
    id: TreeId,
    change: impl FnOnce(&mut RootItem),
) -> Result<()> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    check_alive(context, id)?;
    let (key, mut item) = root_entry(context, id)?;
    change(&mut item);
    let edit = ItemEdit::Put(key, item.encode());
    let editor = context.editor(handle.generation());
    context.fail_on_error(|| editor.apply(TreeId::ROOT, &mut [edit]))
}

/// Sets the UUID that a subvolume was received with, and keeps the UUID tree.
pub fn set_received_uuid(handle: &Handle<'_>, id: TreeId, received: Uuid) -> Result<()> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    check_alive(context, id)?;
    let kind = ItemKind::UUID_KEY_RECEIVED_SUBVOL;
    let (key, mut item) = root_entry(context, id)?;
    let extended = item.extended.get_or_insert_with(no_extension);
    let before = std::mem::replace(&mut extended.received_uuid, received);
    let mut uuids = UuidChanges::new(&context.tree_roots);
    if before != received {
        uuids.remove(before, kind, id)?;
    }
    uuids.add(received, kind, id)?;
    let editor = context.editor(handle.generation());
    context.fail_on_error(|| {
        uuids.apply(&editor)?;
        editor.apply(TreeId::ROOT, &mut [ItemEdit::Put(key, item.encode())])
    })
}

/// Sets the subvolume that is mounted when none is named.
pub fn set_default(handle: &Handle<'_>, id: TreeId) -> Result<()> {
    let context = handle.context();
    let _one = context.subvolume_ids.change.lock();
    check_alive(context, id)?;
    let target = Key::new(id.0, ItemKind::ROOT_ITEM, u64::MAX);
    let kind = DirEntryKind::Directory;
    let entry = DirEntry { target, transid: 0, kind, name: DEFAULT, data: &[] };
    let edit = ItemEdit::Put(default_key(&context.tree_roots), entry.encode());
    let editor = context.editor(handle.generation());
    context.fail_on_error(|| editor.apply(TreeId::ROOT, &mut [edit]))?;
    context.volume().add_incompat(IncompatFlags::DEFAULT_SUBVOL);
    Ok(())
}

/// Returns the subvolume that is mounted when none is named; `None` if the root tree names none.
pub fn default(tree_roots: &TreeRoots) -> Result<Option<TreeId>> {
    let target =
        TreeItems::new(tree_roots, TreeId::ROOT)?.get(&default_key(tree_roots), |data| {
            let mut entries = dir_entries(data).map(|entry| entry.expect(VERIFIED));
            entries.find(|entry| entry.name == DEFAULT).map(|entry| entry.target)
        })?;
    let root = target.flatten().filter(|target| target.kind == ItemKind::ROOT_ITEM);
    Ok(root.map(|target| TreeId(target.objectid)))
}

/// Returns the key of the item that names the default subvolume.
fn default_key(tree_roots: &TreeRoots) -> Key {
    let dir = tree_roots.store().volume().superblock().root_dir_objectid;
    Key::new(dir, ItemKind::DIR_ITEM, u64::from(name_hash(DEFAULT)))
}

/// Checks that a subvolume is not being deleted.
fn check_alive(context: &TransactionContext, id: TreeId) -> Result<()> {
    match context.tree_roots.root_item(id)? {
        Some(_) => Ok(()),
        None => Err(Error::DeletedSubvolume(id)),
    }
}

/// Returns true if the root tree has references from a subvolume to others.
fn contains_others(context: &TransactionContext, id: TreeId) -> Result<bool> {
    let first = Key::new(id.0, ItemKind::ROOT_REF, 0);
    let roots = context.tree_roots.roots();
    let cursor = context.tree_roots.cursor(roots, &first, ReadAhead::Off)?;
    let is_ref = |key: Key| key.objectid == id.0 && key.kind == ItemKind::ROOT_REF;
    Ok(cursor.item().is_some_and(|item| is_ref(item.key)))
}

/// Returns the root item of a subvolume in any state.
pub(super) fn root_entry(context: &TransactionContext, id: TreeId) -> Result<(Key, RootItem)> {
    context.tree_roots.root_entry(id)?.ok_or(Error::NoTree(id))
}

/// Returns the highest id of a subvolume, also of one that is being deleted.
fn new_tree(context: &TransactionContext, new: &NewSubvolume) -> Result<Tree> {
    let store = context.tree_roots.store();
    let first = context.tree_roots.roots().search(store, &Key::MIN)?;
    let chunk_tree_uuid = first.leaf.header().chunk_tree_uuid;
    let tree = Tree::create(new.id, store, context, chunk_tree_uuid);
    let tree = tree.map_err(|_| Error::NoSpace)?;
    let put = |(key, data): &(Key, Vec<u8>)| ItemEdit::Put(*key, data.clone());
    let mut items: Vec<_> = new.items.iter().map(put).collect();
    tree.apply(store, context, &mut items)?;
    Ok(tree)
}

fn new_root_item(context: &TransactionContext, new: &NewSubvolume, tree: &Tree) -> RootItem {
    let generation = context.state.generation();
    let root = tree.root();
    let nodesize = u64::from(context.nodesize());
    let blocks = tree.take_growth().max(0).cast_unsigned();
    RootItem {
        generation: root.generation,
        root_dirid: FIRST_FREE_OBJECTID,
        logical: root.logical,
        level: root.level,
        byte_limit: 0,
        bytes_used: blocks.saturating_mul(nodesize),
        last_snapshot: 0,
        flags: RootFlags::empty(),
        refs: 1,
        drop_progress: Key::MIN,
        drop_level: 0,
        generation_v2: Some(root.generation),
        inode: RootInode {
            generation: 1,
            size: 3,
            nbytes: nodesize,
            nlink: 1,
            mode: ROOT_INODE_MODE,
            flags: ROOT_ITEM_INIT,
            ..RootInode::default()
        },
        extended: Some(RootExtension {
            uuid: new.uuid,
            ctransid: generation,
            otransid: generation,
            ctime: new.created,
            otime: new.created,
            ..no_extension()
        }),
    }
}

/// Returns an extension without UUIDs, transactions and times.
pub(super) fn no_extension() -> RootExtension {
    RootExtension {
        uuid: Uuid::nil(),
        parent_uuid: Uuid::nil(),
        received_uuid: Uuid::nil(),
        ctransid: 0,
        otransid: 0,
        stransid: 0,
        rtransid: 0,
        ctime: Timestamp::default(),
        otime: Timestamp::default(),
        stime: Timestamp::default(),
        rtime: Timestamp::default(),
    }
}
