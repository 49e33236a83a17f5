//! Renames of which at least one name is that of a subvolume, or between subvolumes.
//!
//! 1. Errors are those of Linux, in its order: of names that are there or not, of a directory below
//!    itself, of what may not be changed, of kinds, then of subvolumes.
//! 2. Only a subvolume is moved to another subvolume, and it replaces an empty directory only.
//! 3. A place, the empty directory that a snapshot has instead of a subvolume, is replaced, but
//!    neither moved nor exchanged.
//! 4. All renames of subvolumes hold the mutex of renames, so that no directory gets below itself.

use std::collections::BTreeSet;

use userbtrfs_format::{DirEntryKind, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{FullCommitReason, Reservation, subvolume};

use crate::error::{Error, InodeId, Result};
use crate::inode::dir::entry::subvolume_name;
use crate::inode::dir::lookup::{
    Found, check_new_name, find_name, full_entry, lookup, names, target_if_named,
};
use crate::inode::flush::item_limits::{check_room_for_entry, place_of_ref};
use crate::inode::ids::{EMPTY_DIR, ROOT_DIR};
use crate::inode::ops::create::{check_alive, new_entry, next_index, take_index};
use crate::inode::ops::namespace::Namespace;
use crate::inode::ops::operation::{Operation, lock_entries, lock_operations};
use crate::inode::ops::orphan::{UnlinkOutcome, drop_name, finish_unlink};
use crate::inode::ops::rename::{
    Place, RENAME_ITEMS, RenameKind, leave_whiteout, move_name, prepare_whiteout,
};
use crate::inode::ops::subvolume::{ADD_ITEMS, entry_of_subvolume, name_in, subvolume_entry};
use crate::inode::ops::targets::{check_mutable, directory_to_change};
use crate::inode::ops::unlink::check_empty;
use crate::inode::pending::delayed_items::RefIndex;
use crate::inode::{Entry, EntryTarget, Inode, Inodes};

/// Items that change: those of any rename, and those of two subvolumes in the root tree.
const ITEMS: u64 = RENAME_ITEMS + 2 * ADD_ITEMS;

/// The target of a name.
enum Occupant {
    /// An inode of the subvolume of the directory.
    Inode {
        /// The result of the lookup.
        found: Found,
        inode: Arc<Inode>,
    },
    /// A subvolume, by its root directory.
    Subvolume(Arc<Inode>),
    /// The empty directory in place of this subvolume, which a snapshot did not copy.
    Place(TreeId),
}

impl Occupant {
    fn target(&self) -> EntryTarget {
        match self {
            Self::Inode { found, .. } => found.target,
            Self::Subvolume(root) => EntryTarget::Subvolume(root.id().subvolume),
            Self::Place(id) => EntryTarget::Subvolume(*id),
        }
    }

    fn is_dir(&self) -> bool {
        match self {
            Self::Inode { found, .. } => found.kind == DirEntryKind::Directory,
            Self::Subvolume(_) | Self::Place(_) => true,
        }
    }

    fn is_subvolume(&self) -> bool {
        matches!(self, Self::Subvolume(_))
    }

    /// Returns the inode, or that of the root directory.
    fn inode(&self) -> Option<&Arc<Inode>> {
        match self {
            Self::Inode { inode, .. } | Self::Subvolume(inode) => Some(inode),
            Self::Place(_) => None,
        }
    }

    /// Returns the inode of a directory.
    fn dir(&self) -> Option<&Arc<Inode>> {
        self.inode().filter(|_| self.is_dir())
    }

    /// Returns the entry, whose directory is locked.
    fn entry(&self, namespace: &Namespace, place: Place<'_>) -> Result<Arc<Entry>> {
        let Place { dir, name } = place;
        match self {
            Self::Inode { found, inode } => {
                full_entry(&namespace.inodes, dir, name, found.clone(), inode)
            }
            Self::Subvolume(root) => {
                entry_of_subvolume(namespace, dir, name, root.id().subvolume, Some(root))
            }
            Self::Place(id) => entry_of_subvolume(namespace, dir, name, *id, None),
        }
    }
}

/// A rename, with the targets of its names.
struct Rename<'a> {
    namespace: &'a Namespace,
    from: Place<'a>,
    to: Place<'a>,
    kind: RenameKind,
    moved: &'a Occupant,
    there: Option<&'a Occupant>,
}

/// The entries of both names, and what is reserved for their change.
struct Entries {
    moved: Arc<Entry>,
    there: Option<Arc<Entry>>,
    reservation: Reservation,
}

/// Renames `old` in a directory to `new` in the same directory or another one, also of another
/// subvolume. Like [`super::rename::rename`], it looks the names up before and after locking.
pub(crate) fn rename_subvolume(
    namespace: &Namespace,
    (old_dir, old): (InodeId, &[u8]),
    (new_dir, new): (InodeId, &[u8]),
    kind: RenameKind,
) -> Result<()> {
    check_new_name(old)?;
    namespace.inodes.log_tracker.wait_for_pause();
    if new_dir.number == EMPTY_DIR || old_dir.number == EMPTY_DIR {
        return Err(refuse_move_into_place(namespace, (old_dir, old), new, kind)?);
    }
    let mut refused = None;
    for dir in [old_dir, new_dir] {
        match directory_to_change(namespace, dir) {
            Ok(_) => {}
            Err(error @ (Error::ReadOnly | Error::NotPermitted)) => {
                refused = refused.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    let old_dir = namespace.inodes.inode(old_dir)?;
    let new_dir = namespace.inodes.inode(new_dir)?;
    let from = Place { dir: &old_dir, name: old };
    let to = Place { dir: &new_dir, name: new };
    let mut reservation = namespace.inodes.reserve_for_name(ITEMS)?;
    loop {
        let moved = occupant(namespace, from)?.ok_or(Error::NotFound)?;
        check_new_name(new)?;
        let there = occupant(namespace, to)?;
        let there = there.as_ref();
        let rename = Rename { namespace, from, to, kind, moved: &moved, there };
        let Some(fate) = rename.run(&mut refused, &mut reservation)? else { continue };
        if let Some(replaced) = there.and_then(Occupant::inode) {
            finish_unlink(namespace, replaced, fate);
        }
        return Ok(());
    }
}

/// Returns why a name is not moved into a place, which has no names.
fn refuse_move_into_place(
    namespace: &Namespace,
    (dir, name): (InodeId, &[u8]),
    new: &[u8],
    kind: RenameKind,
) -> Result<Error> {
    lookup(&namespace.inodes, dir, name)?.ok_or(Error::NotFound)?;
    check_new_name(new)?;
    if kind == RenameKind::Exchange {
        return Ok(Error::NotFound);
    }
    let dir = directory_to_change(namespace, dir)?;
    if let Some(Occupant::Subvolume(root)) = occupant(namespace, Place { dir: &dir, name })? {
        namespace.subvolumes.get(&namespace.inodes.tree_roots, root.id().subvolume)?;
    }
    Ok(Error::NotPermitted)
}

/// Returns the target of a name; `None` if the name is free.
fn occupant(namespace: &Namespace, place: Place<'_>) -> Result<Option<Occupant>> {
    let inodes = &namespace.inodes;
    let Place { dir, name } = place;
    loop {
        let Some(found) = find_name(inodes, dir, name)? else { return Ok(None) };
        match found.target {
            EntryTarget::Subvolume(id) => return subvolume_or_place(inodes, place, id).map(Some),
            EntryTarget::Inode(_) => {
                if let Some(inode) = target_if_named(inodes, dir, name, found.target)? {
                    return Ok(Some(Occupant::Inode { found, inode }));
                }
            }
        }
    }
}

fn subvolume_or_place(inodes: &Inodes, place: Place<'_>, id: TreeId) -> Result<Occupant> {
    let target = EntryTarget::Subvolume(id);
    let root = target.resolve(&inodes.tree_roots, place.dir.id(), place.name)?;
    match root.number {
        EMPTY_DIR => Ok(Occupant::Place(id)),
        _ => Ok(Occupant::Subvolume(inodes.inode(root)?)),
    }
}

/// Returns true if a directory is `above`, or below it, in any subvolume. The caller keeps
/// directories and subvolumes from being moved.
fn is_within(inodes: &Inodes, dir: &Inode, above: InodeId) -> Result<bool> {
    let mut id = dir.id();
    let mut met = BTreeSet::new();
    while id != above {
        if !met.insert(id) {
            return Err(Error::DirectoryLoop(id));
        }
        id = if id.number == ROOT_DIR {
            match subvolume_name(&inodes.tree_roots, id.subvolume)? {
                Some((subvolume, link)) => InodeId { subvolume, number: link.dir },
                None => return Ok(false),
            }
        } else {
            let up = names(inodes, id)?.into_iter().next().ok_or(Error::DirectoryLoop(id))?;
            InodeId { number: up.dir, ..id }
        };
    }
    Ok(true)
}

impl Rename<'_> {
    /// Renames if the names still have the same targets, and returns the outcome for a replaced
    /// inode; otherwise returns `None`. `refused` is why one of the directories may not be changed.
    fn run(
        &self,
        refused: &mut Option<Error>,
        reservation: &mut Option<Reservation>,
    ) -> Result<Option<UnlinkOutcome>> {
        let Self { namespace, from, to, moved, there, .. } = *self;
        let _mutex = namespace.renames.lock();
        let replaced = there.and_then(Occupant::dir);
        let _entries = lock_entries([Some(from.dir), Some(to.dir), replaced]);
        let _operations = lock_operations([moved.inode(), there.and_then(Occupant::inode)]);
        let same = |now: Option<Occupant>, was: Option<&Occupant>| {
            now.map(|now| (now.target(), now.is_subvolume()))
                == was.map(|was| (was.target(), was.is_subvolume()))
        };
        if !same(occupant(namespace, from)?, Some(moved)) || !same(occupant(namespace, to)?, there)
        {
            return Ok(None);
        }
        self.check_names()?;
        refused.take().map_or(Ok(()), Err)?;
        self.check_kinds()?;
        self.check_subvolumes()?;
        let entries = Entries {
            moved: moved.entry(namespace, from)?,
            there: there.map(|there| there.entry(namespace, to)).transpose()?,
            reservation: reservation.take().ok_or(Error::NoSpace)?,
        };
        if self.kind == RenameKind::Exchange {
            self.exchange(entries).map(|()| Some(UnlinkOutcome::Kept))
        } else {
            self.replace(entries).map(Some)
        }
    }

    fn is_exchange(&self) -> bool {
        self.kind == RenameKind::Exchange
    }

    /// Checks that the names are there or not, as they must be, and that no directory is moved into
    /// itself.
    fn check_names(&self) -> Result<()> {
        use RenameKind::{Exchange, NoReplace, WhiteoutNoReplace};
        match (self.kind, self.there) {
            (NoReplace | WhiteoutNoReplace(_), Some(_)) => return Err(Error::Exists),
            (Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        check_alive(self.from.dir)?;
        check_alive(self.to.dir)?;
        let inodes = &self.namespace.inodes;
        if let Some(moved) = self.moved.dir()
            && is_within(inodes, self.to.dir, moved.id())?
        {
            return Err(Error::IntoItself);
        }
        let Some(there) = self.there.and_then(Occupant::dir) else { return Ok(()) };
        match is_within(inodes, self.from.dir, there.id())? {
            true if self.is_exchange() => Err(Error::IntoItself),
            true => Err(Error::NotEmpty),
            false => Ok(()),
        }
    }

    /// Checks flags and kinds.
    fn check_kinds(&self) -> Result<()> {
        check_mutable(self.from.dir)?;
        self.moved.inode().map_or(Ok(()), |moved| check_mutable(moved))?;
        if let Some(there) = self.there {
            check_mutable(self.to.dir)?;
            there.inode().map_or(Ok(()), |there| check_mutable(there))?;
            match (self.moved.is_dir(), there.is_dir()) {
                _ if self.is_exchange() => {}
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
        }
        if Arc::ptr_eq(self.from.dir, self.to.dir) {
            return Ok(());
        }
        // A directory that gets another parent is changed by that.
        let there = self.there.filter(|_| self.is_exchange());
        for moved in [Some(self.moved), there].into_iter().flatten() {
            if let Occupant::Subvolume(root) = moved {
                let Namespace { subvolumes, inodes, .. } = self.namespace;
                subvolumes.get(&inodes.tree_roots, root.id().subvolume)?;
            }
        }
        Ok(())
    }

    /// Checks what holds for subvolumes, and for what is replaced.
    fn check_subvolumes(&self) -> Result<()> {
        let there = self.there;
        let is_moved = |occupant: &Occupant| {
            self.from.dir.id().subvolume == self.to.dir.id().subvolume || occupant.is_subvolume()
        };
        if !is_moved(self.moved) || (self.is_exchange() && !there.is_none_or(is_moved)) {
            return Err(Error::CrossDevice);
        }
        if matches!(self.moved, Occupant::Place(_)) {
            return Err(Error::NotEmpty);
        }
        match there {
            Some(Occupant::Place(_)) if self.is_exchange() => Err(Error::NotEmpty),
            Some(Occupant::Subvolume(_)) if !self.is_exchange() => Err(Error::NotEmpty),
            Some(Occupant::Inode { inode, .. }) if !self.is_exchange() && self.moved.is_dir() => {
                check_empty(inode)
            }
            None => check_room_for_entry(&self.namespace.inodes, self.to.dir, self.to.name),
            Some(_) => Ok(()),
        }
    }

    /// Moves the old name to the new one, and leaves a whiteout if that is asked for.
    fn replace(&self, entries: Entries) -> Result<UnlinkOutcome> {
        let Self { namespace, from, to, .. } = *self;
        let Entries { moved, there, reservation } = entries;
        let new = self.prepare_move(self.moved, to)?;
        next_index(&namespace.inodes, from.dir)?;
        let whiteout = prepare_whiteout(namespace, from.dir, self.kind)?;
        let operation = Operation::begin(&namespace.inodes)?;
        // Nothing is logged of what changes from here on.
        operation.require_commit(FullCommitReason::Subvolume);
        let new = give_name(&operation, self.moved, (from, &moved), (to, new))?;
        if Arc::ptr_eq(from.dir, to.dir) {
            operation.change_entries(to.dir, [&moved].into_iter().chain(&there), [&new]);
        } else {
            operation.change_entries(to.dir, &there, [&new]);
            operation.remove_entry(from.dir, &moved);
        }
        let fate = match (self.there, &there) {
            (Some(Occupant::Inode { inode, .. }), Some(entry)) => {
                drop_name(&operation, inode, to.dir, entry)
            }
            _ => UnlinkOutcome::Kept,
        };
        if let Some(whiteout) = whiteout {
            leave_whiteout(&operation, from, &whiteout);
        }
        operation.hold(to.dir, Some(reservation));
        Ok(fate)
    }

    /// Exchanges both names.
    fn exchange(&self, entries: Entries) -> Result<()> {
        let Self { namespace, from, to, .. } = *self;
        let Entries { moved, there, reservation } = entries;
        let there_occupant = self.there.expect("it was checked");
        let there = there.expect("it was checked");
        let moved_to = self.prepare_move(self.moved, to)?;
        let there_to = self.prepare_move(there_occupant, from)?;
        let operation = Operation::begin(&namespace.inodes)?;
        // Nothing is logged of what changes from here on.
        operation.require_commit(FullCommitReason::Subvolume);
        let give_names = || -> Result<_> {
            let new_moved = give_name(&operation, self.moved, (from, &moved), (to, moved_to))?;
            let give = (from, there_to);
            Ok((new_moved, give_name(&operation, there_occupant, (to, &there), give)?))
        };
        // Half of it cannot be undone. Neither parent can be deleted: it has a subvolume.
        let transactions = namespace.inodes.transactions()?;
        let named = give_names().inspect_err(|error| transactions.fail(&error.to_string()));
        let (new_moved, new_there) = named?;
        if Arc::ptr_eq(from.dir, to.dir) {
            operation.change_entries(to.dir, [&moved, &there], [&new_moved, &new_there]);
        } else {
            operation.change_entries(to.dir, [&there], [&new_moved]);
            operation.change_entries(from.dir, [&moved], [&new_there]);
        }
        operation.hold(to.dir, Some(reservation));
        Ok(())
    }

    /// Takes the index for a name that an inode or a subvolume gets, and chooses the item of the
    /// inode that stores it.
    fn prepare_move(&self, moved: &Occupant, to: Place<'_>) -> Result<NewPlace> {
        let inodes = &self.namespace.inodes;
        let item = match moved {
            Occupant::Inode { inode, .. } => place_of_ref(inodes, inode, to.dir.number(), to.name)?,
            Occupant::Subvolume(_) | Occupant::Place(_) => RefIndex::Ref,
        };
        Ok(NewPlace { index: take_index(inodes, to.dir)?, item })
    }
}

/// The place of a new name: its index, and the item of the inode that stores it.
#[derive(Clone, Copy)]
struct NewPlace {
    index: u64,
    item: RefIndex,
}

/// Replaces the name that an inode or a subvolume itself has, and returns the new entry.
fn give_name(
    operation: &Operation<'_>,
    moved: &Occupant,
    (from, old): (Place<'_>, &Arc<Entry>),
    (to, new): (Place<'_>, NewPlace),
) -> Result<Arc<Entry>> {
    match moved {
        Occupant::Inode { inode, .. } => {
            let entry = new_entry(operation, new.index, to.name, inode);
            move_name(operation, (from, old), inode, (to, &entry), new.item);
            Ok(entry)
        }
        Occupant::Subvolume(root) => {
            let id = root.id().subvolume;
            let old = name_in(from.dir, old.index, from.name);
            let renamed = name_in(to.dir, new.index, to.name);
            subvolume::rename(&operation.handle, id, &old, &renamed)?;
            Ok(subvolume_entry(operation, new.index, to.name, id))
        }
        Occupant::Place(_) => unreachable!("it is not moved"),
    }
}
