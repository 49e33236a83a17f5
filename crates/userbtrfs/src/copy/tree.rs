//! Makes the copy of a tree, from the events of its source.
//!
//! 1. An incomplete file is readable by its owner only, and is removed, under all its names, if any
//!    part of its content fails. A file that lacks an attribute stays.
//! 2. The owner is set first, then extended attributes, then the mode, then the times, since each
//!    of them can change those after it. Set-id bits are not set without the owner.
//! 3. ACLs that the source does not have are removed before the mode is set: with them, the mode
//!    would grant rights to the users that they name. If that fails, the mode is not set.
//! 4. An existing non-directory is replaced, unless it is the source, [`CopyOptions::no_clobber`]
//!    is set, or [`CopyOptions::keep_made`] is set and it was just made; a directory is not. It is
//!    replaced when the new file is complete: until then that has a temporary name in the same
//!    directory, and so has each of its other names at which something exists. A copy that fails or
//!    is stopped leaves what was there. With [`CopyOptions::in_place`] an existing file gets the
//!    content when all of it is in a new one.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use userbtrfs_engine::api::{Attributes, Error};
use userbtrfs_format::Quoted;

use super::error::{CopyError, Report, SideError, source_error};
use super::linked::{Linked, Links, replace_name, temporary_name};
use super::options::{CopyOptions, Keep, Observer, Reflink};
use super::progress::Progress;
use super::shared::{SharedData, SharedFiles};
use super::sink::{Item, Sink};
use super::source::{Entry, Event, Kind, is_entry_name};

/// The permission bits of a mode, those without the set-id and sticky bits, and the set-id bits.
const PERMISSIONS: u32 = 0o7777;
const PLAIN_PERMISSIONS: u32 = 0o777;
const SET_ID: u32 = 0o6000;

/// Permissions of incomplete files and directories: access for their owner only.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// The attributes that hold the access and the default POSIX ACL.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The paths of the copies that were made.
pub(super) type Made = Mutex<HashSet<PathBuf>>;

/// The state of a copy that all its threads share.
pub(super) struct Context<'a, S: Sink> {
    options: &'a CopyOptions,
    progress: &'a Progress,
    report: &'a Report<'a>,
    observer: Option<&'a Observer<'a>>,
    links: &'a Links<S>,
    /// The paths that are not replaced.
    made: Option<&'a Made>,
    shared: Option<&'a SharedFiles>,
    /// True after an error after which nothing can succeed.
    has_ended: AtomicBool,
}

/// A file that is being filled.
pub(super) struct NewFile<S: Sink> {
    pub(super) file: S::File,
    pub(super) item: Item<S>,
    /// The end of the data written so far.
    end: AtomicU64,
}

impl<'a, S: Sink> Context<'a, S> {
    pub(super) fn new(
        options: &'a CopyOptions,
        progress: &'a Progress,
        observer: Option<&'a Observer<'a>>,
        links: &'a Links<S>,
        made: Option<&'a Made>,
        shared: Option<&'a SharedFiles>,
        report: &'a Report<'a>,
    ) -> Self {
        let has_ended = AtomicBool::new(false);
        Self { options, progress, report, observer, links, made, shared, has_ended }
    }

    /// Counts and reports an error.
    pub(super) fn report(&self, error: CopyError) {
        let progress = self.progress;
        let is_of_attribute = error.is_of_attribute();
        let counter = if is_of_attribute { &progress.not_kept } else { &progress.errors };
        Progress::add(counter, 1);
        if error.is_final() {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        (self.report)(error);
    }

    /// Returns true until the copy is stopped, or cannot succeed any more.
    pub(super) fn continues(&self) -> bool {
        !self.progress.is_stopped() && !self.has_ended.load(Ordering::Relaxed)
    }

    /// Records a new file or directory, and calls the observer with it.
    fn notify(&self, item: &Item<S>) {
        if let Some(made) = self.made {
            made.lock().expect("no one panics with it").insert(item.path.clone());
        }
        if let Some(observer) = self.observer {
            observer(&item.entry.path, &item.path);
        }
    }

    /// Fails if the copy of another source would be replaced.
    fn check_not_made(&self, item: &Item<S>) -> Result<(), CopyError> {
        let Some(made) = self.made else { return Ok(()) };
        if made.lock().expect("no one panics with it").contains(&item.path) {
            return Err(CopyError::JustCreated { path: item.path.clone() });
        }
        Ok(())
    }

    /// Returns the mode with which a new inode is made.
    fn first_mode(&self, entry: &Entry) -> u32 {
        match (self.options.keep, &entry.kind) {
            (Keep::Mode, _) => entry.attributes.mode & PLAIN_PERMISSIONS,
            (Keep::Attributes | Keep::Everything, Kind::Directory) => PRIVATE_DIR,
            (Keep::Attributes | Keep::Everything, _) => PRIVATE,
        }
    }

    /// Makes an empty file; `None` if it became another name of a file that was copied before, or
    /// an existing file stays.
    fn begin(&self, item: Item<S>) -> Result<Option<NewFile<S>>, CopyError> {
        let Some(mut item) = self.link(item)? else { return Ok(None) };
        let mode = self.first_mode(&item.entry);
        let mut first = S::make_file(&item, mode);
        let exists = first.as_ref().is_err_and(|error| error.is(Errno::EXIST));
        if exists && self.options.in_place && !self.options.no_clobber {
            self.check_not_made(&item)?;
            item.existing = open_existing(&item)?;
            if item.existing.is_some() {
                first = S::make_unnamed(&item, mode);
            }
        }
        let mut first = Some(first);
        let make = |item: &Item<S>| first.take().unwrap_or_else(|| S::make_file(item, mode));
        let Some(file) = self.replacing(&mut item, make)? else { return Ok(None) };
        self.remember(&item, S::object_of_file(&file));
        Ok(Some(NewFile { file, item, end: AtomicU64::new(0) }))
    }

    /// Makes a file share the data of its source, and returns its size; `None` if its data has to
    /// be copied.
    pub(super) fn share(&self, new: &NewFile<S>) -> Result<Option<u64>, CopyError> {
        if self.options.reflink == Reflink::Never {
            return Ok(None);
        }
        match S::share(&new.file, new.item.entry.origin) {
            Ok(shared) => {
                let size = shared.unwrap_or(0);
                new.end.fetch_max(size, Ordering::Relaxed);
                Progress::add(&self.progress.bytes, size);
                Ok(shared)
            }
            Err(_) if self.options.reflink == Reflink::Auto => {
                // The part that is shared already is copied like the rest.
                S::set_len(&new.file, 0).map_err(target_error(&new.item))?;
                Ok(None)
            }
            Err(error) => Err(target_error(&new.item)(error)),
        }
    }

    /// Writes data of a file.
    pub(super) fn write(
        &self,
        new: &NewFile<S>,
        bytes: &[u8],
        offset: u64,
    ) -> Result<(), CopyError> {
        S::write(&new.file, bytes, offset).map_err(target_error(&new.item))?;
        let len = bytes.len() as u64;
        new.end.fetch_max(offset + len, Ordering::Relaxed);
        Progress::add(&self.progress.bytes, len);
        Ok(())
    }

    /// Makes a file share data with the copy of another file, or copies it if that is not possible.
    pub(super) fn write_shared(
        &self,
        new: &NewFile<S>,
        data: &SharedData,
    ) -> Result<(), CopyError> {
        let range = data.range;
        let copy = self.shared.and_then(|shared| shared.copy_of(range.origin));
        // The rest is copied, and if that fails, too, its error is the one to report.
        let len = copy.and_then(|copy| S::share_range(&new.file, copy, range).ok()).unwrap_or(0);
        let end = range.offset + len;
        if len > 0 {
            new.end.fetch_max(end, Ordering::Relaxed);
            Progress::add(&self.progress.bytes, len);
        }
        data.read(end, |bytes, offset| self.write(new, bytes, offset))
    }

    /// Records a file with which files that follow may share data.
    pub(super) fn add_shared(&self, new: &NewFile<S>) {
        if let (Some(shared), Some(copy)) = (self.shared, S::id(&new.file)) {
            shared.add_copy(new.item.entry.origin, copy);
        }
    }

    /// Sets the size and the attributes of a file whose data was written.
    pub(super) fn complete(&self, new: &NewFile<S>, size: u64) -> Result<(), CopyError> {
        let NewFile { file, item, end } = new;
        if end.load(Ordering::Relaxed) < size {
            S::set_len(file, size).map_err(target_error(item))?;
        }
        if let Some(existing) = &item.existing {
            S::replace_content(existing, file).map_err(target_error(item))?;
            let is_synced = if self.options.fsync { S::sync(existing) } else { Ok(()) };
            return is_synced.map_err(target_error(item));
        }
        self.keep(item, S::object_of_file(file), true);
        if self.options.fsync { S::sync(file).map_err(target_error(item)) } else { Ok(()) }
    }

    /// Completes a file, and closes it.
    pub(super) fn close(&self, new: NewFile<S>, size: u64) {
        let done = self.complete(&new, size);
        let NewFile { file, item, .. } = new;
        self.finish(&item, done.and_then(|()| S::close(file).map_err(target_error(&item))));
    }

    /// Gives a file that is complete its name and counts it, or removes it.
    pub(super) fn finish(&self, item: &Item<S>, done: Result<(), CopyError>) {
        match done.and_then(|()| self.replace(item)) {
            Ok(()) => {
                if self.options.fsync && item.temporary.is_some() {
                    self.done(item, S::sync_dir(&item.dir));
                }
                self.notify(item);
                Progress::add(&self.progress.files, 1);
            }
            Err(error) => {
                self.report(error);
                self.discard(item);
            }
        }
    }

    /// Removes an incomplete file under all its names.
    pub(super) fn discard(&self, item: &Item<S>) {
        if item.existing.is_some() {
            // The incomplete file has no name.
            return;
        }
        // If this fails, too, the error before it is the one to report.
        let _ = S::remove(item);
        if item.entry.has_links {
            let mut links = self.links.lock().expect("no one panics with it");
            links.remove(&item.entry.origin).iter().for_each(|it| S::remove_links(&it.names));
        }
    }

    /// Moves a complete inode from its temporary names to those of the copy.
    fn replace(&self, item: &Item<S>) -> Result<(), CopyError> {
        if !item.entry.has_links {
            return replace_name(item, None).map_err(target_error(item));
        }
        // Held meanwhile: another name is made from one that exists.
        let mut links = self.links.lock().expect("no one panics with it");
        let Some(linked) = links.get_mut(&item.entry.origin) else {
            return replace_name(item, None).map_err(target_error(item));
        };
        replace_name(item, Some(&mut linked.names)).map_err(target_error(item))?;
        linked.is_complete = true;
        for other in std::mem::take(&mut linked.waiting) {
            match replace_name(&other, Some(&mut linked.names)).map_err(target_error(&other)) {
                Ok(()) => self.notify(&other),
                Err(error) => self.report(error),
            }
        }
        Ok(())
    }

    /// Makes a file without content.
    fn make_other(&self, item: Item<S>) -> Result<(), CopyError> {
        let Some(mut item) = self.link(item)? else { return Ok(()) };
        let kind = item.entry.attributes.mode & !PERMISSIONS;
        let mode = kind | self.first_mode(&item.entry);
        let made = self.replacing(&mut item, |item| S::make_other(item, mode))?;
        let Some(other) = made else { return Ok(()) };
        let object = S::object_of_other(&item, &other);
        self.keep(&item, object, true);
        self.remember(&item, object);
        self.replace(&item).inspect_err(|_| self.discard(&item))?;
        self.notify(&item);
        Progress::add(&self.progress.others, 1);
        Ok(())
    }

    /// Records the copy of an inode for the other names of that inode.
    fn remember(&self, item: &Item<S>, object: S::Object<'_>) {
        if item.entry.has_links && self.options.keep == Keep::Everything {
            let mut links = self.links.lock().expect("no one panics with it");
            let names = S::links(item, object);
            let linked = Linked { names, is_complete: false, waiting: Vec::new() };
            links.insert(item.entry.origin, linked);
        }
    }

    /// Makes a hard link if the inode was copied under another name. Returns the item if not,
    /// `None` if the link is made or an existing file stays.
    fn link(&self, mut item: Item<S>) -> Result<Option<Item<S>>, CopyError> {
        if !item.entry.has_links {
            return Ok(Some(item));
        }
        // Held meanwhile: a file that fails is removed under this name, too.
        let mut links = self.links.lock().expect("no one panics with it");
        let Some(linked) = links.get_mut(&item.entry.origin) else { return Ok(Some(item)) };
        match self.replacing(&mut item, |item| S::make_link(item, &mut linked.names)) {
            Ok(Some(())) if item.temporary.is_some() && !linked.is_complete => {
                linked.waiting.push(item);
                return Ok(None);
            }
            Ok(Some(())) => {
                replace_name(&item, Some(&mut linked.names)).map_err(target_error(&item))?;
            }
            Ok(None) => return Ok(None),
            // A link is not possible: a second file with the same content is made.
            Err(CopyError::Target { error, .. })
                if error.is(Errno::XDEV) || error.is(Errno::MLINK) =>
            {
                item.temporary = None;
                return Ok(Some(item));
            }
            Err(error) => return Err(error),
        }
        self.notify(&item);
        Ok(None)
    }

    /// Gives a copy the attributes of its source. Failures are reported, and the rest is still set.
    fn keep(&self, item: &Item<S>, object: S::Object<'_>, is_new: bool) {
        let options = self.options;
        let of = item.entry.attributes;
        let keeps = options.keep != Keep::Mode;
        let mut attributes = Attributes {
            uid: options.uid.or(keeps.then_some(of.uid)),
            gid: options.gid.or(keeps.then_some(of.gid)),
            accessed: keeps.then_some(of.accessed),
            modified: keeps.then_some(of.modified),
            ..Attributes::default()
        };
        let has_owner = self.set_owner(item, object, &attributes);
        let given = match options.keep {
            Keep::Everything => self.set_xattrs(item, object),
            Keep::Attributes | Keep::Mode => Vec::new(),
        };
        if keeps && !matches!(item.entry.kind, Kind::Symlink(_)) {
            let has_acls = S::INHERITS_ACLS || !is_new;
            if !has_acls || self.done(item, remove_acls::<S>(object, &given)) {
                let mask = if has_owner { PERMISSIONS } else { PERMISSIONS & !SET_ID };
                attributes.mode = Some(of.mode & mask);
            }
        }
        self.done(item, S::set_attributes(object, &attributes));
    }

    fn set_owner(&self, item: &Item<S>, object: S::Object<'_>, attributes: &Attributes) -> bool {
        match S::set_owner(object, attributes) {
            // EINVAL: the owner is not mapped in this user namespace.
            Err(error) if error.is(Errno::PERM) || error.is(Errno::INVAL) => {
                let path = item.path.clone();
                let what = "owner".to_owned();
                self.report(CopyError::NotKept { path, what, error });
                false
            }
            set => self.done(item, set),
        }
    }

    /// Sets the extended attributes of the source, and returns the names of those that were set.
    fn set_xattrs<'i>(&self, item: &'i Item<S>, object: S::Object<'_>) -> Vec<&'i [u8]> {
        let xattrs = item.entry.xattrs.get();
        if let Some(error) = &xattrs.failure {
            self.report(source_error(&item.entry.path)(error.clone()));
        }
        for (name, error) in &xattrs.unread {
            let path = item.entry.path.clone();
            let what = Quoted(name).to_string();
            self.report(CopyError::NotRead { path, what, error: (*error).into() });
        }
        let mut given = Vec::new();
        for (name, value) in &xattrs.found {
            match S::set_xattr(object, name, value) {
                Err(error) if error.refuses_xattr() => {
                    let path = item.path.clone();
                    let what = Quoted(name).to_string();
                    self.report(CopyError::NotKept { path, what, error });
                }
                set if self.done(item, set.clone()) => given.push(&name[..]),
                _ => {}
            }
        }
        given
    }

    /// Calls `make`; if a non-directory exists at the name, calls it again with a temporary name,
    /// or returns `None` if existing files stay.
    fn replacing<T>(
        &self,
        item: &mut Item<S>,
        mut make: impl FnMut(&Item<S>) -> Result<T, SideError>,
    ) -> Result<Option<T>, CopyError> {
        let exists = match make(item) {
            Err(error) if error.is(Errno::EXIST) => error,
            made => return made.map(Some).map_err(target_error(item)),
        };
        if self.options.no_clobber {
            return Ok(None);
        }
        self.check_not_made(item)?;
        if S::is_source(item).map_err(target_error(item))? {
            return Err(replaced_by_itself(item));
        }
        if let Some(image) = self.options.except
            && S::is_image(item, image).map_err(target_error(item))?
        {
            return Err(CopyError::Itself { path: item.path.clone() });
        }
        S::check_replaceable(item).map_err(|error| target_error(item)(error.during(&exists)))?;
        loop {
            item.temporary = Some(temporary_name());
            match make(item) {
                Err(error) if error.is(Errno::EXIST) => {}
                made => return made.map(Some).map_err(target_error(item)),
            }
        }
    }

    /// Reports an error; returns true if there is none.
    fn done(&self, item: &Item<S>, done: Result<(), SideError>) -> bool {
        done.map_err(|error| self.report(target_error(item)(error))).is_ok()
    }
}

/// Removes the ACLs that are not in `given`: they were inherited from the parent directory, or were
/// there before.
fn remove_acls<S: Sink>(object: S::Object<'_>, given: &[&[u8]]) -> Result<(), SideError> {
    let mut others = ACLS.into_iter().filter(|acl| !given.contains(acl));
    others.try_for_each(|acl| S::remove_xattr(object, acl))
}

/// Opens the file at the name of a copy that gets its content, if there is such a file.
fn open_existing<S: Sink>(item: &Item<S>) -> Result<Option<S::File>, CopyError> {
    let existing = S::open_existing(item).map_err(target_error(item))?;
    if existing.is_some() && S::is_source(item).map_err(target_error(item))? {
        return Err(replaced_by_itself(item));
    }
    Ok(existing)
}

/// Returns the error of a copy that would replace its source.
fn replaced_by_itself<S: Sink>(item: &Item<S>) -> CopyError {
    source_error(&item.entry.path)(Error::Invalid("a file cannot be replaced by itself"))
}

/// Returns an error of making the copy of an item.
fn target_error<S: Sink>(item: &Item<S>) -> impl Fn(SideError) -> CopyError {
    |error| CopyError::Target { path: item.path.clone(), error }
}

/// The start of a copy.
pub(super) struct Start<S: Sink> {
    /// The directory of the copy.
    pub(super) dir: Arc<S::Dir>,
    /// The name of the copy there; `None` if the entries of the source are copied into `dir`.
    pub(super) name: Option<Vec<u8>>,
    /// The path of the copy, for messages.
    pub(super) path: PathBuf,
}

/// A copy in progress: the directories from its start to the current one.
pub(super) struct Tree<'a, S: Sink> {
    pub(super) context: &'a Context<'a, S>,
    start: Start<S>,
    levels: Vec<Level<S>>,
    /// The number of directories between here and one that could not be made, which counts too.
    lost: usize,
}

/// A directory that is being filled.
struct Level<S: Sink> {
    dir: Arc<S::Dir>,
    item: Item<S>,
    is_new: bool,
}

impl<'a, S: Sink> Tree<'a, S> {
    pub(super) fn new(context: &'a Context<'a, S>, start: Start<S>) -> Self {
        Self { context, start, levels: Vec::new(), lost: 0 }
    }

    /// Applies an event; returns a file that has to be filled, with its content.
    pub(super) fn take<C>(&mut self, event: Event<C>) -> Option<(NewFile<S>, C)> {
        if self.lost > 0 {
            match event {
                Event::Enter(_) => self.lost += 1,
                Event::Leave => self.lost -= 1,
                Event::Other(_) | Event::File(..) | Event::Failed(_) => {}
            }
            return None;
        }
        let mut begun = None;
        let done = match event {
            Event::Enter(entry) => self.enter(entry).inspect_err(|_| self.lost = 1),
            Event::Leave => {
                self.leave();
                Ok(())
            }
            Event::Other(entry) => self.item(entry).and_then(|it| self.context.make_other(it)),
            Event::File(entry, content) => {
                let file = self.item(entry).and_then(|item| self.context.begin(item));
                file.map(|file| begun = file.map(|file| (file, content)))
            }
            Event::Failed(error) => Err(error),
        };
        done.unwrap_or_else(|error| self.context.report(error));
        begun
    }

    /// Gives the directories of a copy that was stopped their attributes.
    pub(super) fn end(mut self) {
        while !self.levels.is_empty() && !self.context.has_ended.load(Ordering::Relaxed) {
            self.leave();
        }
    }

    /// Returns the name of the copy of an entry.
    fn item(&self, entry: Entry) -> Result<Item<S>, CopyError> {
        let (dir, name, path) = match self.levels.last() {
            None => {
                let name = self.start.name.clone().unwrap_or_default();
                (&self.start.dir, name, self.start.path.clone())
            }
            Some(level) => {
                let path = level.item.path.join(OsStr::from_bytes(&entry.name));
                (&level.dir, entry.name.clone(), path)
            }
        };
        let is_start = self.levels.is_empty() && self.start.name.is_none();
        if !is_start && !is_entry_name(&name) {
            return Err(CopyError::Name { path: entry.path });
        }
        let name = CString::new(name).expect("a name without NUL");
        Ok(Item { entry, dir: Arc::clone(dir), name, temporary: None, path, existing: None })
    }

    fn enter(&mut self, entry: Entry) -> Result<(), CopyError> {
        let context = self.context;
        let item = self.item(entry)?;
        let Item { entry, dir, name, .. } = &item;
        if self.levels.iter().any(|level| S::is_dir(&level.dir, entry.origin)) {
            return Err(source_error(&entry.path)(Error::IntoItself));
        }
        let (dir, is_new) = if name.is_empty() {
            (Arc::clone(dir), false)
        } else {
            let made = S::make_dir(&item, context.first_mode(entry), context.options.keep);
            let (dir, is_new) = made.map_err(target_error(&item))?;
            (Arc::new(dir), is_new)
        };
        if S::is_dir(&dir, entry.origin) {
            return Err(replaced_by_itself(&item));
        }
        if is_new {
            context.notify(&item);
        }
        self.levels.push(Level { dir, item, is_new });
        Ok(())
    }

    fn leave(&mut self) {
        let Level { dir, item, is_new } = self.levels.pop().expect("what is left was entered");
        self.context.keep(&item, S::object_of_dir(&dir), is_new);
        Progress::add(&self.context.progress.others, 1);
    }
}
