//! Renames.

use std::collections::BTreeSet;

use userbtrfs_format::{DirEntryKind, FileKind};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::Reservation;

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::lookup::{
    Found, check_new_name, find_name, find_name_again, full_entry, names, show_other_entry,
    target_if_named,
};
use crate::inode::flush::item_limits::{check_room_for_entry, place_of_ref};
use crate::inode::log_state::tracker::NameRemoval;
use crate::inode::ops::create::{
    CREATE_ITEMS, NewInode, NewKind, check_alive, make_inode, new_entry, next_index, take_index,
    take_number,
};
use crate::inode::ops::inherit::{DefaultAcl, Inherited};
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::{Operation, lock_entries, lock_operations};
use crate::inode::ops::orphan::{UnlinkOutcome, drop_name, finish_unlink};
use crate::inode::ops::property::InheritedProps;
use crate::inode::ops::targets::directory_to_change;
use crate::inode::ops::unlink::{UNLINK_ITEMS, check_empty, check_removable};
use crate::inode::pending::delayed_items::RefIndex;
use crate::inode::{EMPTY_DIR, Entry, Inode, Inodes, ROOT_DIR};

/// How a rename treats an existing new name, and whether it leaves a whiteout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenameKind {
    /// An inode with the new name is replaced.
    Replace,
    /// The new name must not exist (RENAME_NOREPLACE).
    NoReplace,
    /// The names are exchanged (RENAME_EXCHANGE).
    Exchange,
    /// An inode with the new name is replaced; a whiteout of this owner gets the old name
    /// (RENAME_WHITEOUT).
    Whiteout(Owner),
    /// The new name must not exist; a whiteout of this owner gets the old name.
    WhiteoutNoReplace(Owner),
}

/// User and group.
pub(crate) type Owner = (u32, u32);

/// A whiteout to be created.
pub(in crate::inode::ops) struct Whiteout {
    id: InodeId,
    index: u64,
    owner: Owner,
}

/// Items that change: those of both names, and a whiteout.
pub(in crate::inode::ops) const RENAME_ITEMS: u64 = 2 * UNLINK_ITEMS + CREATE_ITEMS;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(in crate::inode::ops) struct Place<'a> {
    pub(in crate::inode::ops) dir: &'a Arc<Inode>,
    pub(in crate::inode::ops) name: &'a [u8],
}

/// The target of a name. Its inode is locked together with that of the other name.
struct RenameTarget {
    found: Found,
    inode: Arc<Inode>,
}

impl RenameTarget {
    fn is_dir(&self) -> bool {
        self.found.kind == DirEntryKind::Directory
    }
}

/// A rename, with the targets of its names.
struct Rename<'a> {
    namespace: &'a Namespace,
    from: Place<'a>,
    to: Place<'a>,
    kind: RenameKind,
    moved: &'a RenameTarget,
    there: Option<&'a RenameTarget>,
}

/// Renames `old` in a directory to `new` in the same directory or another one of the same
/// subvolume. Returns [`Error::CrossDevice`] or [`Error::IsSubvolume`] if
/// [`super::subvolume_rename::rename_subvolume`] is to be called instead.
///
/// Which locks are needed depends on the targets of the names, which are certain only under
/// these locks. So the names are looked up before and after locking.
pub(crate) fn rename(
    namespace: &Namespace,
    (old_dir, old): (InodeId, &[u8]),
    (new_dir, new): (InodeId, &[u8]),
    kind: RenameKind,
) -> Result<()> {
    check_new_name(old)?;
    let is_place = |dir: InodeId| dir.number == EMPTY_DIR;
    if old_dir.subvolume != new_dir.subvolume || is_place(old_dir) || is_place(new_dir) {
        return Err(Error::CrossDevice);
    }
    namespace.inodes.log_tracker.wait_for_pause();
    let old_dir = directory_to_change(namespace, old_dir)?;
    let new_dir = directory_to_change(namespace, new_dir)?;
    let from = Place { dir: &old_dir, name: old };
    let to = Place { dir: &new_dir, name: new };
    let mut reservation = namespace.inodes.reserve_for_name(RENAME_ITEMS)?;
    loop {
        let moved = occupant(&namespace.inodes, from)?.ok_or(Error::NotFound)?;
        check_new_name(new)?;
        let there = occupant(&namespace.inodes, to)?;
        let moved = &moved;
        let there = there.as_ref();
        let rename = Rename { namespace, from, to, kind, moved, there };
        if let Some(fate) = rename.run(&mut reservation)? {
            if let Some(there) = there {
                finish_unlink(namespace, &there.inode, fate);
            }
            return show_other_entry(&namespace.inodes, from.dir, from.name);
        }
    }
}

fn occupant(inodes: &Inodes, place: Place<'_>) -> Result<Option<RenameTarget>> {
    loop {
        let Some(found) = find_name(inodes, place.dir, place.name)? else { return Ok(None) };
        let inode = target_if_named(inodes, place.dir, place.name, found.target)?;
        if let Some(inode) = inode {
            return Ok(Some(RenameTarget { found, inode }));
        }
    }
}

/// Returns true if a directory is `above`, or below it. The caller keeps directories from being
/// moved.
fn is_within(inodes: &Inodes, dir: &Inode, above: &Inode) -> Result<bool> {
    let mut id = dir.id();
    let mut met = BTreeSet::new();
    while id != above.id() {
        if id.number == ROOT_DIR {
            return Ok(false);
        }
        let up = names(inodes, id)?.into_iter().next();
        let up = up.filter(|_| met.insert(id.number)).ok_or(Error::DirectoryLoop(id))?;
        id.number = up.dir;
    }
    Ok(true)
}

impl Rename<'_> {
    /// Renames if the names still have the same targets, and returns the outcome for the replaced
    /// inode; otherwise returns `None`.
    fn run(&self, reservation: &mut Option<Reservation>) -> Result<Option<UnlinkOutcome>> {
        // Needed even if the rename will be refused, since the ancestors of a directory are
        // checked.
        let of_dirs = self.moved.is_dir() || self.there.is_some_and(RenameTarget::is_dir);
        let _mutex = (self.crosses() && of_dirs).then(|| self.namespace.renames.lock());
        let replaced = self.there.filter(|there| there.is_dir()).map(|there| &there.inode);
        let _entries = lock_entries([Some(self.from.dir), Some(self.to.dir), replaced]);
        let there = self.there.map(|there| &there.inode);
        let _operations = lock_operations([Some(&self.moved.inode), there]);
        let moved = self.find(self.from, Some(self.moved))?;
        let there = self.find(self.to, self.there)?;
        let same = |found: &Option<Found>, was: Option<&RenameTarget>| {
            found.as_ref().map(|found| found.target) == was.map(|was| was.found.target)
        };
        if !same(&moved, Some(self.moved)) || !same(&there, self.there) {
            return Ok(None);
        }
        self.check()?;
        if self.there.is_some_and(|there| Arc::ptr_eq(&there.inode, &self.moved.inode)) {
            return Ok(Some(UnlinkOutcome::Kept));
        }
        if reservation.is_none() {
            return Err(Error::NoSpace);
        }
        let old = self.entry(self.from, moved, Some(self.moved))?.expect("it was found");
        let there = self.entry(self.to, there, self.there)?;
        match (self.kind, there) {
            (RenameKind::Exchange, Some(there)) => self.exchange(&old, &there, reservation),
            (_, there) => self.replace(&old, there.as_ref(), reservation),
        }
        .map(Some)
    }

    fn crosses(&self) -> bool {
        !Arc::ptr_eq(self.from.dir, self.to.dir)
    }

    /// Adjusts the removal of a name whose inode gets another one by this rename.
    fn moved(&self, name_removal: NameRemoval, inode: &Inode) -> NameRemoval {
        if self.crosses() { name_removal.moved_away(inode.kind()) } else { name_removal.moved() }
    }

    fn find(&self, place: Place<'_>, before: Option<&RenameTarget>) -> Result<Option<Found>> {
        find_name_again(
            &self.namespace.inodes,
            place.dir,
            place.name,
            before.map(|before| &before.found),
        )
    }

    fn entry(
        &self,
        place: Place<'_>,
        found: Option<Found>,
        occupant: Option<&RenameTarget>,
    ) -> Result<Option<Arc<Entry>>> {
        let both = found.zip(occupant);
        let entry = both.map(|(found, there)| {
            full_entry(&self.namespace.inodes, place.dir, place.name, found, &there.inode)
        });
        entry.transpose()
    }

    /// Checks that the rename is allowed.
    fn check(&self) -> Result<()> {
        use RenameKind::{NoReplace, WhiteoutNoReplace};
        match self.there {
            Some(_) if matches!(self.kind, NoReplace | WhiteoutNoReplace(_)) => {
                return Err(Error::Exists);
            }
            None if self.kind == RenameKind::Exchange => return Err(Error::NotFound),
            _ => {}
        }
        check_removable(self.from.dir, &self.moved.inode)?;
        if let Some(there) = self.there {
            check_removable(self.to.dir, &there.inode)?;
        }
        check_alive(self.from.dir)?;
        check_alive(self.to.dir)?;
        self.check_ancestors()?;
        let Some(there) = self.there.filter(|_| self.kind != RenameKind::Exchange) else {
            return Ok(());
        };
        if Arc::ptr_eq(&there.inode, &self.moved.inode) {
            return Ok(());
        }
        match (self.moved.is_dir(), there.is_dir()) {
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            (true, true) => check_empty(&there.inode),
            (false, false) => Ok(()),
        }
    }

    /// Checks that no directory is moved into itself.
    fn check_ancestors(&self) -> Result<()> {
        if !self.crosses() {
            return Ok(());
        }
        if self.moved.is_dir() && is_within(&self.namespace.inodes, self.to.dir, &self.moved.inode)?
        {
            return Err(Error::IntoItself);
        }
        let Some(there) = self.there.filter(|there| there.is_dir()) else { return Ok(()) };
        match (is_within(&self.namespace.inodes, self.from.dir, &there.inode)?, self.kind) {
            (true, RenameKind::Exchange) => Err(Error::IntoItself),
            (true, _) => Err(Error::NotEmpty),
            (false, _) => Ok(()),
        }
    }

    /// Moves the old name to the new one, whose entry was `there`.
    fn replace(
        &self,
        old: &Arc<Entry>,
        there: Option<&Arc<Entry>>,
        reservation: &mut Option<Reservation>,
    ) -> Result<UnlinkOutcome> {
        let namespace = self.namespace;
        let from = self.from;
        let to = self.to;
        let moved = &self.moved.inode;
        if there.is_none() {
            check_room_for_entry(&namespace.inodes, to.dir, to.name)?;
        }
        let place = place_of_ref(&namespace.inodes, moved, to.dir.number(), to.name)?;
        let index = take_index(&namespace.inodes, to.dir)?;
        next_index(&namespace.inodes, from.dir)?;
        let whiteout = prepare_whiteout(namespace, from.dir, self.kind)?;
        let operation = Operation::begin(&namespace.inodes)?;
        let name_removal = operation.name_removal(from.dir, old, moved);
        let name_removal = self.moved(name_removal, moved);
        let whiteout_id = whiteout.as_ref().map(|whiteout| whiteout.id);
        let mut partings =
            vec![whiteout_id.map_or(name_removal, |id| name_removal.followed_by(id))];
        let there = there.zip(self.there);
        partings.extend(there.map(|(entry, there)| {
            operation.name_removal(to.dir, entry, &there.inode).followed_by(moved.id())
        }));
        let new = new_entry(&operation, index, to.name, moved);
        let fate = self.shuffle(&operation, &partings, whiteout_id, || {
            move_name(&operation, (from, old), moved, (to, &new), place);
            let replaced = there.map(|(entry, _)| entry);
            if Arc::ptr_eq(from.dir, to.dir) {
                operation.change_entries(to.dir, [old].into_iter().chain(replaced), [&new]);
            } else {
                operation.change_entries(to.dir, replaced, [&new]);
                operation.remove_entry(from.dir, old);
            }
            let fate =
                there.map(|(entry, there)| drop_name(&operation, &there.inode, to.dir, entry));
            if let Some(whiteout) = whiteout {
                leave_whiteout(&operation, from, &whiteout);
            }
            // It may have been opened since its removal was noted.
            if fate == Some(UnlinkOutcome::Kept) {
                let last = partings.last().expect("something was replaced");
                operation.log_tracker().survived(operation.generation(), last);
            }
            fate
        });
        operation.hold(to.dir, reservation.take());
        Ok(fate.unwrap_or(UnlinkOutcome::Kept))
    }

    /// Runs `change`, which makes all name changes, while the inodes that take part are marked
    /// moving: they are logged before it or after it.
    fn shuffle<R>(
        &self,
        operation: &Operation<'_>,
        partings: &[NameRemoval],
        whiteout: Option<InodeId>,
        change: impl FnOnce() -> R,
    ) -> R {
        let dirs = [self.from.dir, self.to.dir].map(|dir| dir.id());
        let there = self.there.map(|there| there.inode.id());
        let moving: Vec<_> =
            dirs.into_iter().chain([self.moved.inode.id()]).chain(there).chain(whiteout).collect();
        let log_tracker = operation.log_tracker();
        let running = operation.generation();
        log_tracker.depart(running, partings, &moving);
        let changed = change();
        log_tracker.arrived(running, partings, &moving);
        changed
    }

    /// Exchanges both names.
    fn exchange(
        &self,
        old: &Arc<Entry>,
        new: &Arc<Entry>,
        reservation: &mut Option<Reservation>,
    ) -> Result<UnlinkOutcome> {
        let namespace = self.namespace;
        let from = self.from;
        let to = self.to;
        let moved = &self.moved.inode;
        let there = &self.there.expect("something is there").inode;
        let place_of_moved = place_of_ref(&namespace.inodes, moved, to.dir.number(), to.name)?;
        let place_of_there = place_of_ref(&namespace.inodes, there, from.dir.number(), from.name)?;
        let index_of_moved = take_index(&namespace.inodes, to.dir)?;
        let index_of_there = take_index(&namespace.inodes, from.dir)?;
        let operation = Operation::begin(&namespace.inodes)?;
        let name_removal = |dir, entry, inode: &Inode, follower: &Inode| {
            self.moved(operation.name_removal(dir, entry, inode), inode).followed_by(follower.id())
        };
        let partings =
            [name_removal(from.dir, old, moved, there), name_removal(to.dir, new, there, moved)];
        let moved_entry = new_entry(&operation, index_of_moved, to.name, moved);
        let there_entry = new_entry(&operation, index_of_there, from.name, there);
        self.shuffle(&operation, &partings, None, || {
            move_name(&operation, (from, old), moved, (to, &moved_entry), place_of_moved);
            move_name(&operation, (to, new), there, (from, &there_entry), place_of_there);
            if Arc::ptr_eq(from.dir, to.dir) {
                operation.change_entries(to.dir, [old, new], [&moved_entry, &there_entry]);
            } else {
                operation.change_entries(to.dir, [new], [&moved_entry]);
                operation.change_entries(from.dir, [old], [&there_entry]);
            }
        });
        operation.hold(to.dir, reservation.take());
        Ok(UnlinkOutcome::Kept)
    }
}

/// Prepares the whiteout that a rename leaves in a directory, if it leaves one.
pub(in crate::inode::ops) fn prepare_whiteout(
    namespace: &Namespace,
    dir: &Inode,
    kind: RenameKind,
) -> Result<Option<Whiteout>> {
    match kind {
        RenameKind::Whiteout(owner) | RenameKind::WhiteoutNoReplace(owner) => {
            let id = take_number(namespace, dir)?;
            let index = take_index(&namespace.inodes, dir)?;
            Ok(Some(Whiteout { id, index, owner }))
        }
        _ => Ok(None),
    }
}

/// Replaces a name of an inode by another one, atomically: a thread that walks up the
/// directories must never find it with no name, or with both.
pub(in crate::inode::ops) fn move_name(
    operation: &Operation<'_>,
    (from, old): (Place<'_>, &Arc<Entry>),
    inode: &Arc<Inode>,
    (to, new): (Place<'_>, &Arc<Entry>),
    place: RefIndex,
) {
    operation.change(inode, |state| {
        state.remove_ref(from.dir.number(), old);
        state.add_ref(to.dir.number(), new, place);
        state.item.ctime = operation.now;
    });
}

/// Adds a name that does not exist to an inode.
fn give_name(
    operation: &Operation<'_>,
    inode: &Arc<Inode>,
    to: Place<'_>,
    index: u64,
    place: RefIndex,
) {
    let entry = new_entry(operation, index, to.name, inode);
    operation.add_name(inode, to.dir, &entry, place);
    operation.add_entry(to.dir, &entry);
}

/// Creates a whiteout with a name that does not exist: a character device 0:0.
pub(in crate::inode::ops) fn leave_whiteout(
    operation: &Operation<'_>,
    place: Place<'_>,
    whiteout: &Whiteout,
) {
    let &Whiteout { id, index, owner: (uid, gid) } = whiteout;
    let kind = NewKind::Special(FileKind::CharDevice, 0);
    let default_acl = DefaultAcl::Ignored;
    let new = NewInode { kind, mode: 0, default_acl, uid, gid, xattrs: &[] };
    let props = InheritedProps::by_flags(place.dir.kind_and_flags().1);
    let inherited = Inherited::without_lists(props, new.mode);
    let inode = make_inode(operation, place.dir, id, &new, &inherited);
    give_name(operation, &inode, place, index, RefIndex::Ref);
}
