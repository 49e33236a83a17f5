//! Making in the filesystem what the steps of a walk say.

use std::collections::HashMap;
use std::path::Path;

use userbtrfs_engine::api::{Attributes, Dir, Error, Inode, XattrMode};
use userbtrfs_format::Quoted;

use super::source::{Content, Node, Step};
use super::{InsertError, Inserter, Progress, Report};

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

/// What was made of inodes with several names, by device and number.
pub(super) type Links = HashMap<(u64, u64), Inode>;

/// A copy under way.
pub(super) struct Target<'a> {
    inserter: &'a Inserter<'a>,
    report: &'a Report<'a>,
    start: Dir,
    levels: Vec<Level>,
    /// How many directories deep it is in one that could not be made.
    lost: usize,
}

/// A directory that is being filled.
struct Level {
    dir: Dir,
    node: Node,
}

impl<'a> Target<'a> {
    pub(super) fn new(inserter: &'a Inserter<'a>, dir: &Dir, report: &'a Report<'a>) -> Self {
        Self { inserter, report, start: dir.clone(), levels: Vec::new(), lost: 0 }
    }

    /// Does a step.
    pub(super) fn take(&mut self, step: Step) -> Result<(), InsertError> {
        match step {
            Step::Enter(_) if self.lost > 0 => self.lost += 1,
            Step::Leave if self.lost > 0 => self.lost -= 1,
            Step::Other(_) if self.lost > 0 => {}
            Step::Enter(node) => match self.make_dir(&node) {
                Ok(dir) => self.levels.push(Level { dir, node }),
                Err(error) => {
                    self.lost = 1;
                    return Err(failed(&node.path, error));
                }
            },
            Step::Other(node) => {
                self.make(&node).map_err(|error| failed(&node.path, error))?;
            }
            Step::Leave => {
                let level = self.levels.pop().expect("what is left was entered");
                self.complete(level.dir.inode(), &level.node)
                    .map_err(|error| failed(&level.node.path, error))?;
                self.count_other();
            }
        }
        Ok(())
    }

    /// The directory that is being filled.
    fn dir(&self) -> &Dir {
        self.levels.last().map_or(&self.start, |level| &level.dir)
    }

    fn make_dir(&self, node: &Node) -> Result<Dir, Error> {
        let Some(name) = &node.name else { return Ok(self.dir().clone()) };
        match self.dir().create_dir(name, node.attributes.mode & PERMISSIONS) {
            Err(Error::Exists) => self.dir().lookup(name)?.open_dir(),
            made => made,
        }
    }

    fn make(&self, node: &Node) -> Result<(), Error> {
        let name = node.name.as_deref().expect("only directories have none");
        if self.make_link(node, name)? {
            return Ok(());
        }
        let inode = self.replacing(name, || self.make_new(node, name))?;
        if let Some(id) = node.several {
            self.inserter.links.lock().expect("no one panics with it").insert(id, inode);
        }
        Ok(())
    }

    /// Gives what was made under another name this one, too.
    fn make_link(&self, node: &Node, name: &[u8]) -> Result<bool, Error> {
        let links = self.inserter.links.lock().expect("no one panics with it");
        let Some(first) = node.several.and_then(|id| links.get(&id)) else { return Ok(false) };
        match self.replacing(name, || self.dir().link(name, first)) {
            Ok(()) => Ok(true),
            // Then it is another file with the same content.
            Err(Error::CrossDevice | Error::TooManyLinks) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn make_new(&self, node: &Node, name: &[u8]) -> Result<Inode, Error> {
        let mode = node.attributes.mode;
        let inode = match &node.content {
            Content::File(_) | Content::LargeFile => self.dir().create(name, mode & PERMISSIONS)?,
            Content::Symlink(target) => self.dir().symlink(name, target)?,
            Content::Special(device) => self.dir().make_node(name, mode, *device)?,
            Content::Directory => unreachable!("directories are entered"),
        };
        let filled = self.fill(&inode, &node.content).and_then(|()| self.complete(&inode, node));
        match filled {
            Ok(()) => Ok(inode),
            Err(error) => {
                // What is not complete goes; where that fails, too, the first error says more.
                let _ = self.dir().remove_file(name);
                Err(error)
            }
        }
    }

    /// Gives a file its content.
    fn fill(&self, inode: &Inode, content: &Content) -> Result<(), Error> {
        match content {
            Content::File(bytes) => {
                if !bytes.is_empty() {
                    inode.write_content(bytes)?;
                }
                Progress::add(&self.inserter.progress.files, 1);
                Progress::add(&self.inserter.progress.bytes, bytes.len() as u64);
            }
            Content::LargeFile => return Err(Error::Unsupported("files of more than 2048 bytes")),
            _ => self.count_other(),
        }
        Ok(())
    }

    /// Gives what was made its attributes; the times last, which all else would change.
    fn complete(&self, inode: &Inode, node: &Node) -> Result<(), Error> {
        for (name, value) in &node.xattrs {
            match inode.set_xattr(name, value, XattrMode::Either) {
                Err(error @ (Error::Unsupported(_) | Error::BadAttributeName(_))) => {
                    let (path, name) = (node.path.clone(), Quoted(name).to_string());
                    (self.report)(InsertError::NotKept { path, name, error: Box::new(error) });
                }
                set => set?,
            }
        }
        let options = &self.inserter.options;
        let attributes = &node.attributes;
        let has_mode = !matches!(node.content, Content::Symlink(_));
        inode.set_attributes(&Attributes {
            mode: has_mode.then_some(attributes.mode & PERMISSIONS),
            uid: Some(options.uid.unwrap_or(attributes.uid)),
            gid: Some(options.gid.unwrap_or(attributes.gid)),
            accessed: Some(attributes.accessed),
            modified: Some(attributes.modified),
            ..Attributes::default()
        })
    }

    /// Does `make`; if something that is no directory is in the way, removes it first.
    fn replacing<T>(&self, name: &[u8], make: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        match make() {
            Err(Error::Exists) => {
                self.dir().remove_file(name)?;
                make()
            }
            made => made,
        }
    }

    fn count_other(&self) {
        Progress::add(&self.inserter.progress.others, 1);
    }
}

fn failed(path: &Path, error: Error) -> InsertError {
    InsertError::Target { path: path.to_path_buf(), error: Box::new(error) }
}
