//! A walk through the files of an image: the source of a copy within it.
//!
//! 1. The entries of a directory are read in the order of the directory.
//! 2. No symbolic link is followed, except in the path that the caller gives.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use userbtrfs_engine::api::{
    Chunk, Dir, Error, FileKind, FileReader, Inode, Metadata, Walk, WalkEntry,
};

use super::ImportError;
use super::event::{Attributes, Kind, Node, Origin, TreeEvent, Xattrs};
use super::prefetch::{Content, Next, Piece, Source};

/// A walk through the files of an image.
pub(super) struct ImageTree {
    walk: Walk,
    /// The path at which the walk starts.
    path: PathBuf,
    /// The name of the copy of the first inode; `None` if only its entries are copied.
    name: Option<Vec<u8>>,
    /// The last entry of the walk, if it is not returned yet.
    upcoming: Option<WalkEntry>,
    /// The number of directories that were entered and not left.
    entered: usize,
}

impl ImageTree {
    /// Starts at an inode, to be copied into the directory `to` as `name`.
    pub(super) fn new(
        source: &Inode,
        path: &[u8],
        to: &Dir,
        name: Option<&[u8]>,
    ) -> Result<Self, ImportError> {
        let (walk, path) = (source.walk(path), path_of(path));
        if is_within(to, source).map_err(failed(&path, "read"))? {
            return Err(ImportError::Target { path, error: Box::new(Error::IntoItself) });
        }
        let name = name.map(<[u8]>::to_vec);
        Ok(Self { walk, path, name, upcoming: None, entered: 0 })
    }

    /// Returns the event of an entry, after leaving the directories that do not contain it.
    fn give(&mut self, entry: WalkEntry) -> Next<FileContent> {
        if self.entered > entry.depth {
            self.upcoming = Some(entry);
            return self.leave();
        }
        let name = match entry.depth {
            0 => self.name.take(),
            _ => entry.path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec),
        };
        let is_dir = entry.kind == FileKind::Directory;
        let path = path_of(&entry.path);
        let given = describe(&entry.inode, path.clone(), name)
            .and_then(|node| give_node(&entry.inode, node))
            .map_err(failed(&path, "read"));
        match given {
            Ok(next) => {
                self.entered += usize::from(is_dir);
                next
            }
            Err(error) => {
                if is_dir {
                    self.walk.skip_dir();
                }
                Next::Step(TreeEvent::Failed(error))
            }
        }
    }

    fn leave(&mut self) -> Next<FileContent> {
        self.entered -= 1;
        Next::Step(TreeEvent::Leave)
    }
}

impl Source for ImageTree {
    type Content = FileContent;

    fn next(&mut self) -> Option<Next<FileContent>> {
        if let Some(entry) = self.upcoming.take() {
            return Some(self.give(entry));
        }
        match self.walk.next() {
            Some(Ok(entry)) => Some(self.give(entry)),
            Some(Err(error)) => {
                let error = failed(&self.path, "read below")(error);
                Some(Next::Step(TreeEvent::Failed(error)))
            }
            None => (self.entered > 0).then(|| self.leave()),
        }
    }
}

/// Returns true if `dir` is `above` or below it; looks no further than the subvolume of `dir`.
fn is_within(dir: &Dir, above: &Inode) -> Result<bool, Error> {
    let mut seen = HashSet::new();
    let mut way = Some(dir.inode().clone());
    while let Some(inode) = way.take_if(|inode| seen.insert(inode.id())) {
        if inode.id() == above.id() {
            return Ok(true);
        }
        way = inode.names()?.into_iter().next().map(|(parent, _)| parent);
    }
    Ok(false)
}

fn give_node(inode: &Inode, node: Node) -> Result<Next<FileContent>, Error> {
    Ok(match node.kind {
        Kind::Directory => Next::Step(TreeEvent::Enter(node)),
        Kind::File => {
            let content = FileContent::new(inode, &node.path)?;
            Next::File(node, content)
        }
        _ => Next::Step(TreeEvent::Other(node)),
    })
}

fn describe(inode: &Inode, path: PathBuf, name: Option<Vec<u8>>) -> Result<Node, Error> {
    let metadata = inode.metadata()?;
    let kind = match metadata.kind {
        FileKind::Directory => Kind::Directory,
        FileKind::Regular => Kind::File,
        FileKind::Symlink => Kind::Symlink(inode.read_link()?),
        _ => Kind::Special(metadata.device),
    };
    Ok(Node {
        name,
        path,
        several: metadata.nlink > 1 && !metadata.is_dir(),
        kind,
        attributes: attributes(&metadata),
        xattrs: Xattrs { found: inode.xattrs()?, unread: Vec::new() },
        origin: Origin::Inside(inode.id()),
    })
}

fn attributes(metadata: &Metadata) -> Attributes {
    let &Metadata { mode, uid, gid, accessed, modified, .. } = metadata;
    Attributes { mode, uid, gid, accessed, modified }
}

/// The content of a file, in the chunks of its reader.
pub(super) struct FileContent {
    reader: FileReader,
    path: PathBuf,
    /// The current chunk, and how many of its bytes were returned.
    current: Option<(Chunk, usize)>,
    end: u64,
}

impl FileContent {
    fn new(inode: &Inode, path: &Path) -> Result<Self, Error> {
        let reader = inode.open()?.reader();
        Ok(Self { reader, path: path.to_path_buf(), current: None, end: 0 })
    }

    /// Returns the next piece of the current chunk; `None` if there is no more data in it.
    fn give(&mut self, room: &mut [u8]) -> Option<Piece> {
        let (chunk, done) = self.current.as_mut()?;
        let left = &chunk.bytes()?[*done..];
        let len = left.len().min(room.len());
        room[..len].copy_from_slice(&left[..len]);
        let offset = chunk.offset() + *done as u64;
        *done += len;
        (len > 0).then_some(Piece::Data { offset, len })
    }
}

impl Content for FileContent {
    fn read(&mut self, room: &mut [u8]) -> Result<Piece, ImportError> {
        loop {
            if let Some(piece) = self.give(room) {
                return Ok(piece);
            }
            let next = self.reader.next_chunk().map_err(failed(&self.path, "read"))?;
            let Some(chunk) = next else {
                return Ok(Piece::End { size: self.end, remark: None });
            };
            self.end = chunk.offset() + chunk.len();
            self.current = Some((chunk, 0));
        }
    }
}

fn path_of(path: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.to_vec()))
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(Error) -> ImportError {
    let path = path.to_path_buf();
    move |error| ImportError::Source { path: path.clone(), doing, error: error.into() }
}
