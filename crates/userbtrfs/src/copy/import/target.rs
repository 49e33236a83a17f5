//! Creates the files of a source in the filesystem, from its events.
//!
//! 1. Incomplete files are removed: a file is removed if any part of it fails.
//! 2. If the attributes of the source are kept, the default ACL of a directory is not inherited, as
//!    by `cp -p`; otherwise it is.
//! 3. Attributes are set last, and the times last of all, since every other change updates them.

use std::collections::HashMap;
use std::path::Path;

use userbtrfs_engine::api::{Attributes, Dir, Error, File, Inode, XattrMode};
use userbtrfs_format::Quoted;

use super::event::{Kind, Node, Origin, TreeEvent};
use super::prefetch::Cancelled;
use super::{ImportError, Importer, Keep, Progress, Reflink, Report};

/// The permission bits of a mode, with and without the set-id and sticky bits.
const PERMISSIONS: u32 = 0o7777;
const PLAIN_PERMISSIONS: u32 = 0o777;

/// The attributes that hold the access and the default POSIX ACL.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// The copies of source inodes with several names.
pub(super) type Links = HashMap<Origin, Inode>;

/// A copy in progress.
pub(super) struct Target<'a> {
    inserter: &'a Importer<'a>,
    report: &'a Report<'a>,
    given_up: &'a Cancelled,
    start: Dir,
    levels: Vec<Level>,
    /// The number of directories between here and one that could not be made, which counts too.
    lost: usize,
    /// The file that is being filled.
    file: Option<BegunFile>,
    /// The number of files that have begun so far.
    begun: u64,
}

/// A directory that is being filled.
struct Level {
    dir: Dir,
    node: Node,
}

/// A file that is being filled.
struct BegunFile {
    file: File,
    node: Node,
}

impl<'a> Target<'a> {
    pub(super) fn new(
        inserter: &'a Importer<'a>,
        dir: &Dir,
        report: &'a Report<'a>,
        given_up: &'a Cancelled,
    ) -> Self {
        let (levels, start) = (Vec::new(), inserter.options.keep.acls_in(dir.clone()));
        Self { inserter, report, given_up, start, levels, lost: 0, file: None, begun: 0 }
    }

    /// Applies an event.
    pub(super) fn take(&mut self, step: TreeEvent, bytes: &[u8]) -> Result<(), ImportError> {
        match step {
            TreeEvent::Enter(_) if self.lost > 0 => self.lost += 1,
            TreeEvent::Leave if self.lost > 0 => self.lost -= 1,
            TreeEvent::Other(_) if self.lost > 0 => {}
            TreeEvent::Enter(node) => self.enter(node)?,
            TreeEvent::Leave => self.leave()?,
            TreeEvent::Other(node) => {
                self.make(&node).map_err(|error| failed(&node.path, error))?;
            }
            TreeEvent::Begin(node) => self.begin(node)?,
            TreeEvent::Data { offset, bytes: at } => {
                self.fill(|target, begun| target.write(begun, &bytes[at], offset))?;
            }
            TreeEvent::End { size } => {
                self.fill(|target, begun| target.complete_file(begun, size))?;
                self.close()?;
            }
            TreeEvent::Failed(error) => {
                self.discard();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes the file that is being filled, and cancels reading it.
    pub(super) fn discard(&mut self) {
        let Some(BegunFile { file, node }) = self.file.take() else { return };
        drop(file);
        self.undo(&node);
        self.given_up.give_up(self.begun);
    }

    /// Removes an incomplete file.
    fn undo(&self, node: &Node) {
        // If this fails too, the error before it is the one to report.
        let _ = self.dir().remove_file(name_of(node));
    }

    /// Returns the directory that is being filled.
    fn dir(&self) -> &Dir {
        self.levels.last().map_or(&self.start, |level| &level.dir)
    }

    fn enter(&mut self, node: Node) -> Result<(), ImportError> {
        match self.make_dir(&node) {
            Ok(dir) => {
                self.levels.push(Level { dir, node });
                Ok(())
            }
            Err(error) => {
                self.lost = 1;
                Err(failed(&node.path, error))
            }
        }
    }

    fn make_dir(&self, node: &Node) -> Result<Dir, Error> {
        let is_origin = |level: &Level| Origin::Inside(level.dir.inode().id()) == node.origin;
        if self.levels.iter().any(is_origin) {
            return Err(Error::IntoItself);
        }
        let Some(name) = &node.name else { return Ok(self.dir().clone()) };
        let dir = match self.dir().create_dir(name, self.mode(node)) {
            Err(Error::Exists) => self.dir().lookup(name)?.open_dir(),
            made => made.inspect(|_| self.notify(node)),
        };
        Ok(self.inserter.options.keep.acls_in(dir?))
    }

    /// Calls the observer with a new file or directory.
    fn notify(&self, node: &Node) {
        let Some(observer) = self.inserter.observer else { return };
        let names = self.levels.iter().map(|level| &level.node).chain([node]);
        let below = names.skip(1).filter_map(|node| node.name.as_deref());
        observer(&node.path, &below.collect::<Vec<_>>().join(&b'/'));
    }

    fn leave(&mut self) -> Result<(), ImportError> {
        let level = self.levels.pop().expect("what is left was entered");
        self.complete(level.dir.inode(), &level.node)
            .map_err(|error| failed(&level.node.path, error))?;
        Progress::add(&self.inserter.progress.others, 1);
        Ok(())
    }

    /// Makes a file without content.
    fn make(&self, node: &Node) -> Result<(), Error> {
        if self.make_link(node)? {
            self.notify(node);
            return Ok(());
        }
        let name = name_of(node);
        let inode = self.replacing(node, || match &node.kind {
            Kind::Symlink(target) => self.dir().symlink(name, target),
            Kind::Special(device) => self.dir().make_node(name, node.attributes.mode, *device),
            Kind::Directory | Kind::File => unreachable!("they have steps of their own"),
        })?;
        if let Err(error) = self.complete(&inode, node) {
            self.undo(node);
            return Err(error);
        }
        self.remember(node, &inode);
        self.notify(node);
        Progress::add(&self.inserter.progress.others, 1);
        Ok(())
    }

    /// Makes an empty file, to be filled.
    fn begin(&mut self, node: Node) -> Result<(), ImportError> {
        self.begun += 1;
        if self.lost > 0 {
            self.given_up.give_up(self.begun);
            return Ok(());
        }
        let begun = self
            .make_link(&node)
            .and_then(|linked| if linked { Ok(None) } else { self.make_file(&node).map(Some) });
        match begun {
            Ok(Some(file)) => {
                self.file = Some(BegunFile { file, node });
                self.share()?;
            }
            Ok(None) => {
                self.notify(&node);
                self.given_up.give_up(self.begun);
            }
            Err(error) => {
                self.given_up.give_up(self.begun);
                return Err(failed(&node.path, error));
            }
        }
        Ok(())
    }

    /// Completes the file that has begun as a clone of its source, if they are of one filesystem;
    /// then its data is not read.
    fn share(&mut self) -> Result<(), ImportError> {
        let reflink = self.inserter.options.reflink;
        let Some(BegunFile { file, node }) = &self.file else { return Ok(()) };
        let Origin::Inside(id) = node.origin else { return Ok(()) };
        if reflink == Reflink::Never {
            return Ok(());
        }
        let source = file.inode().filesystem().inode(id).open();
        let shared = source.and_then(|source| file.clone_range(&source, 0, 0, 0));
        if reflink == Reflink::Auto && shared.is_err() {
            // What is cloned already is written again.
            return self.fill(|_, begun| begun.file.set_len(0));
        }
        self.fill(|target, begun| {
            shared?;
            let size = begun.file.len();
            Progress::add(&target.inserter.progress.bytes, size);
            target.complete_file(begun, size)
        })?;
        self.close()?;
        self.given_up.give_up(self.begun);
        Ok(())
    }

    fn make_file(&self, node: &Node) -> Result<File, Error> {
        let inode = self.replacing(node, || self.dir().create(name_of(node), self.mode(node)))?;
        inode.open()
    }

    /// Calls `act` with the file that is being filled, if there is one; if `act` fails, the file
    /// is discarded.
    fn fill(
        &mut self,
        act: impl FnOnce(&Self, &BegunFile) -> Result<(), Error>,
    ) -> Result<(), ImportError> {
        let Some(begun) = &self.file else { return Ok(()) };
        act(self, begun).map_err(|error| failed(&begun.node.path, error)).inspect_err(|_| {
            self.discard();
        })
    }

    fn write(&self, begun: &BegunFile, bytes: &[u8], offset: u64) -> Result<(), Error> {
        begun.file.write_all_at(bytes, offset)?;
        Progress::add(&self.inserter.progress.bytes, bytes.len() as u64);
        Ok(())
    }

    /// Sets the size and the attributes of a file.
    fn complete_file(&self, begun: &BegunFile, size: u64) -> Result<(), Error> {
        let BegunFile { file, node } = begun;
        if file.len() < size {
            file.set_len(size)?;
        }
        self.complete(file.inode(), node)?;
        if self.inserter.options.fsync { file.sync_all() } else { Ok(()) }
    }

    /// Closes the file that is being filled, and is complete.
    fn close(&mut self) -> Result<(), ImportError> {
        let Some(BegunFile { file, node }) = self.file.take() else { return Ok(()) };
        let inode = file.inode().clone();
        if let Err(error) = file.close() {
            self.undo(&node);
            return Err(failed(&node.path, error));
        }
        self.remember(&node, &inode);
        self.notify(&node);
        Progress::add(&self.inserter.progress.files, 1);
        Ok(())
    }

    /// Records the copy of an inode for the other names of that inode.
    fn remember(&self, node: &Node, inode: &Inode) {
        if node.several && self.inserter.options.keep == Keep::Everything {
            let mut links = self.inserter.links.lock().expect("no one panics with it");
            links.insert(node.origin, inode.clone());
        }
    }

    /// Makes a hard link if the inode was copied under another name; returns true if it did.
    fn make_link(&self, node: &Node) -> Result<bool, Error> {
        let links = self.inserter.links.lock().expect("no one panics with it");
        let Some(first) = links.get(&node.origin) else { return Ok(false) };
        let (dir, name) = (self.dir(), name_of(node));
        let is_first = || dir.lookup(name).is_ok_and(|there| there.id() == first.id());
        let link = || match dir.link(name, first) {
            Err(Error::Exists) if is_first() => Ok(()),
            linked => linked,
        };
        match self.replacing(node, link) {
            Ok(()) => Ok(true),
            // A link is not possible: a second file with the same content is made.
            Err(Error::CrossDevice | Error::TooManyLinks) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the permissions of a new file.
    fn mode(&self, node: &Node) -> u32 {
        let kept = match self.inserter.options.keep {
            Keep::Mode => PLAIN_PERMISSIONS,
            Keep::Attributes | Keep::Everything => PERMISSIONS,
        };
        node.attributes.mode & kept
    }

    /// Sets the attributes of a new file.
    fn complete(&self, inode: &Inode, node: &Node) -> Result<(), Error> {
        let options = &self.inserter.options;
        let given = match options.keep {
            Keep::Everything => self.set_xattrs(inode, node),
            Keep::Mode | Keep::Attributes => Ok(()),
        };
        let (mode, times, owner) = match options.keep {
            Keep::Mode => (None, None, (options.uid, options.gid)),
            Keep::Attributes | Keep::Everything => {
                let of = &node.attributes;
                let mode = !matches!(node.kind, Kind::Symlink(_));
                let owner = (options.uid.or(Some(of.uid)), options.gid.or(Some(of.gid)));
                (mode.then_some(of.mode & PERMISSIONS), Some(of), owner)
            }
        };
        let attributes = Attributes {
            mode,
            uid: owner.0,
            gid: owner.1,
            accessed: times.map(|of| of.accessed),
            modified: times.map(|of| of.modified),
            ..Attributes::default()
        };
        // Set these even if the xattrs failed: a directory stays then, and should not lack both.
        given.and(if attributes == Attributes::default() {
            Ok(())
        } else {
            inode.set_attributes(&attributes)
        })
    }

    fn set_xattrs(&self, inode: &Inode, node: &Node) -> Result<(), Error> {
        let mut given = Vec::new();
        for (name, error) in &node.xattrs.unread {
            let (path, name) = (node.path.clone(), Quoted(name).to_string());
            let error = (*error).into();
            (self.report)(ImportError::NotRead { path, name, error });
        }
        for (name, value) in &node.xattrs.found {
            match inode.set_xattr(name, value, XattrMode::Either) {
                Err(
                    error @ (Error::Unsupported(_)
                    | Error::BadAttributeName(_)
                    | Error::Invalid(_)
                    | Error::AttributeTooLong),
                ) => {
                    let (path, name) = (node.path.clone(), Quoted(name).to_string());
                    (self.report)(ImportError::NotKept { path, name, error: Box::new(error) });
                }
                set => {
                    set?;
                    given.push(&name[..]);
                }
            }
        }
        match node.kind {
            Kind::Directory => remove_lists(inode, &given),
            _ => Ok(()),
        }
    }

    /// Calls `make`; if a non-directory exists at the name, removes it and calls `make` again.
    fn replacing<T>(&self, node: &Node, make: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        match make() {
            Err(Error::Exists) => {
                let (dir, name) = (self.dir(), name_of(node));
                if matches!(node.origin, Origin::Inside(id) if dir.lookup(name)?.id() == id) {
                    return Err(Error::Invalid("a file cannot be replaced by itself"));
                }
                dir.remove_file(name)?;
                make()
            }
            made => made,
        }
    }
}

/// Removes the ACLs of a directory that are not in `given`: if it existed before, they could grant
/// access that its source does not.
fn remove_lists(inode: &Inode, given: &[&[u8]]) -> Result<(), Error> {
    for list in LISTS.into_iter().filter(|list| !given.contains(list)) {
        match inode.remove_xattr(list) {
            Ok(()) | Err(Error::NoAttribute) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn name_of(node: &Node) -> &[u8] {
    node.name.as_deref().expect("only directories have none")
}

fn failed(path: &Path, error: Error) -> ImportError {
    ImportError::Target { path: path.to_path_buf(), error: Box::new(error) }
}
