//! A walk through the files of an image.
//!
//! 1. The entries of a directory are read in the order of the directory.
//! 2. Each directory is entered once: one that contains itself, or has a second name, is an error.
//! 3. An error names the entry that cannot be read, and the walk continues after it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use userbtrfs_engine::api::{
    Chunk, Dir, DirEntries, DirEntry, Error, FileKind, FileReader, Inode, TreeId, join_path,
};

use super::{
    Attributes, Content, ContentReader, Entry, Event, Kind, LazyXattrs, Origin, Piece, Source,
    is_entry_name,
};
use crate::copy::error::{CopyError, source_error};
use crate::copy::options::{CopyOptions, Filter};

/// A walk through the files of an image.
pub(in crate::copy) struct ImageTree {
    first: Option<(Inode, PathBuf)>,
    levels: Vec<Level>,
    /// The subvolume to which the walk is limited.
    only: Option<TreeId>,
    filter: Option<Filter>,
}

/// A directory that was entered and not left.
struct Level {
    dir: Dir,
    path: PathBuf,
    entries: DirEntries,
}

impl ImageTree {
    /// Starts at an inode. With `one_subvolume`, other subvolumes are empty directories.
    pub(in crate::copy) fn new(source: &Inode, path: PathBuf, options: &CopyOptions) -> Self {
        let only = options.one_subvolume.then_some(source.id().subvolume);
        let filter = options.filter.clone();
        Self { first: Some((source.clone(), path)), levels: Vec::new(), only, filter }
    }

    /// Returns the event of an inode; `open` opens it if it is a directory.
    fn visit(
        &mut self,
        inode: &Inode,
        path: PathBuf,
        name: &[u8],
        open: impl FnOnce() -> Result<Dir, Error>,
    ) -> Result<Event<ImageContent>, Error> {
        let metadata = inode.metadata()?;
        let kind = match metadata.kind {
            FileKind::Directory => Kind::Directory,
            FileKind::Regular => Kind::File,
            FileKind::Symlink => Kind::Symlink(inode.read_link()?),
            _ => Kind::Special(metadata.device),
        };
        if metadata.is_dir() {
            self.push(inode, open, &path)?;
        }
        let entry = Entry {
            name: name.to_vec(),
            path: path.clone(),
            attributes: Attributes {
                mode: metadata.mode,
                uid: metadata.uid,
                gid: metadata.gid,
                accessed: metadata.accessed,
                modified: metadata.modified,
            },
            origin: Origin::Image(inode.id()),
            has_links: metadata.nlink > 1 && !metadata.is_dir(),
            xattrs: LazyXattrs::of(inode.clone()),
            kind,
        };
        Ok(match entry.kind {
            Kind::Directory => Event::Enter(entry),
            Kind::File => {
                let size = metadata.size;
                Event::File(entry, ImageContent { inode: inode.clone(), path, size })
            }
            _ => Event::Other(entry),
        })
    }

    fn push(
        &mut self,
        inode: &Inode,
        open: impl FnOnce() -> Result<Dir, Error>,
        path: &Path,
    ) -> Result<(), Error> {
        let id = inode.id();
        if self.levels.iter().any(|level| level.dir.inode().id() == id) {
            return Err(Error::DirectoryLoop(id));
        }
        let dir = open()?;
        let is_left_out = self.only.is_some_and(|only| id.subvolume != only);
        // A listing that starts past its end finds nothing.
        let entries = dir.entries_from(if is_left_out { u64::MAX } else { 0 });
        self.levels.push(Level { dir, path: path.to_path_buf(), entries });
        Ok(())
    }
}

impl ImageTree {
    /// Returns true if the filter leaves out an entry of the innermost directory.
    fn leaves_out(&self, entry: &DirEntry, path: &Path) -> bool {
        let (Some(filter), Some(top)) = (&self.filter, self.levels.first()) else { return false };
        let is_dir = entry.kind() == Some(FileKind::Directory);
        !filter.takes(&top.path, path, is_dir)
    }
}

impl Source for ImageTree {
    type Content = ImageContent;

    fn next(&mut self) -> Option<Event<ImageContent>> {
        if let Some((inode, path)) = self.first.take() {
            let event = self.visit(&inode, path.clone(), b"", || inode.open_dir());
            return Some(or_failed(event, &path));
        }
        let (entry, path) = loop {
            let level = self.levels.last_mut()?;
            let entry = match level.entries.next() {
                None => {
                    self.levels.pop();
                    return Some(Event::Leave);
                }
                Some(Ok(entry)) => entry,
                Some(Err(error)) => return Some(Event::Failed(source_error(&level.path)(error))),
            };
            let path = join_path(level.path.as_os_str().as_bytes(), entry.name());
            let path = PathBuf::from(OsString::from_vec(path));
            if !self.leaves_out(&entry, &path) {
                break (entry, path);
            }
        };
        if !is_entry_name(entry.name()) {
            return Some(Event::Failed(CopyError::Name { path }));
        }
        let dir = self.levels.last()?.dir.clone();
        let event = dir
            .follow(&entry)
            .and_then(|inode| self.visit(&inode, path.clone(), entry.name(), || dir.enter(&entry)));
        Some(or_failed(event, &path))
    }
}

fn or_failed(event: Result<Event<ImageContent>, Error>, path: &Path) -> Event<ImageContent> {
    event.unwrap_or_else(|error| Event::Failed(source_error(path)(error)))
}

/// Returns true if `dir` is `above` or below it; looks no further than the subvolume of `dir`.
pub(in crate::copy) fn is_within(dir: &Dir, above: &Inode) -> Result<bool, Error> {
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

/// The content of a file, which is opened when it is read.
pub(in crate::copy) struct ImageContent {
    pub(in crate::copy) inode: Inode,
    pub(in crate::copy) path: PathBuf,
    /// The size of the file when the walk visited it.
    pub(in crate::copy) size: u64,
}

impl Content for ImageContent {
    type Reader = ImageReader;

    fn into_reader(self) -> ImageReader {
        ImageReader { content: self, reader: None, current: None, end: 0 }
    }
}

/// A reader of all of a file, in the chunks of the reader of its filesystem.
pub(in crate::copy) struct ImageReader {
    content: ImageContent,
    reader: Option<FileReader>,
    /// The current chunk, and how many of its bytes were returned.
    current: Option<(Chunk, usize)>,
    end: u64,
}

impl ImageReader {
    /// Returns the next chunk; opens the file before the first.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, Error> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            unopened => unopened.insert(self.content.inode.open()?.reader()),
        };
        reader.next_chunk()
    }

    /// Returns the next piece of the current chunk; `None` if there is no more data in it.
    fn next_piece(&mut self, room: &mut [u8]) -> Option<Piece> {
        let (chunk, done) = self.current.as_mut()?;
        let left = &chunk.bytes()?[*done..];
        let len = left.len().min(room.len());
        room[..len].copy_from_slice(&left[..len]);
        let offset = chunk.offset() + *done as u64;
        *done += len;
        (len > 0).then_some(Piece::Data { offset, len })
    }
}

impl ContentReader for ImageReader {
    fn read(&mut self, room: &mut [u8]) -> Result<Piece, CopyError> {
        loop {
            if let Some(piece) = self.next_piece(room) {
                return Ok(piece);
            }
            let next = self.next_chunk();
            let Some(chunk) = next.map_err(source_error(&self.content.path))? else {
                return Ok(Piece::End { size: self.end, shares: false, remark: None });
            };
            self.end = chunk.offset() + chunk.len();
            self.current = Some((chunk, 0));
        }
    }
}
