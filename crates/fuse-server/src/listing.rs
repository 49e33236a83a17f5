//! Lists directories.
//!
//! 1. A position in a listing is 1 after `.`, 2 after `..`, and from then on the engine's position
//!    of an entry: it stays valid while entries are added and removed, and no other entry ever gets
//!    it.
//! 2. A listing shows no entry that was added after it began: see `listing_ends`.
//! 3. A listing with nodes (READDIRPLUS) counts a reference for each node that it sends, and for no
//!    other. An entry is listed even if its inode is damaged.
//! 4. An invalid name, in a damaged directory, is left out. It never ends a listing, as a page
//!    without a line would.

use userbtrfs_engine::api::{Dir, DirEntry, FileKind, InodeId};
use userbtrfs_fuse::{
    DirectoryEntry, Entries, Entry, Errno, FOREVER, FileType, Name, Names, NodeId, Read, Reply,
    may_sleep,
};

use crate::context::Context;
use crate::errno;
use crate::lookup::LookupOps;

/// The position after `..`: no entry has a lower one.
const AFTER_DOTS: u64 = 2;

/// The minimum size of an entry in a listing, without and with its node.
const NAME_BYTES: u32 = 32;
const ENTRY_BYTES: u32 = 160;

/// READDIR and READDIRPLUS.
pub(crate) struct ListingOps<'a> {
    pub(crate) context: &'a Context,
}

/// A line of a listing.
enum Line {
    /// `.` or `..`: the position after it, its inode number, its name.
    Dots(u64, u64, &'static str),
    Entry(u64, DirEntry),
}

impl Line {
    /// Returns the line as it is sent.
    fn shown(&self) -> DirectoryEntry<'_> {
        let (ino, next, kind, name) = match self {
            Self::Dots(next, ino, name) => (*ino, *next, FileType::Directory, name.as_bytes()),
            Self::Entry(ino, entry) => {
                let kind = entry.kind().map_or(FileType::Unknown, file_type);
                (*ino, entry.position(), kind, entry.name())
            }
        };
        DirectoryEntry { ino, next, kind, name: Name::new(name).expect("a name that can be") }
    }

    fn entry(&self) -> Option<&DirEntry> {
        match self {
            Self::Dots(..) => None,
            Self::Entry(_, entry) => Some(entry),
        }
    }
}

impl ListingOps<'_> {
    pub(crate) fn readdir(&self, node: NodeId, read: &Read, reply: Reply<Names>) {
        if self.is_listed(node, read) {
            return reply.begin().send();
        }
        let lines = match may_sleep(|| self.lines(node, read, NAME_BYTES)) {
            Ok((_, lines)) => lines,
            Err(error) => return reply.fail(error),
        };
        let mut list = reply.begin();
        let _whole = lines.iter().all(|line| list.add(&line.shown()));
        list.send();
    }

    pub(crate) fn readdirplus(&self, node: NodeId, read: &Read, reply: Reply<Entries>) {
        if self.is_listed(node, read) {
            reply.begin().send();
        } else {
            may_sleep(|| self.list_with_nodes(node, read, reply));
        }
    }

    fn list_with_nodes(&self, node: NodeId, read: &Read, reply: Reply<Entries>) {
        let (dir, lines) = match self.lines(node, read, ENTRY_BYTES) {
            Ok(found) => found,
            Err(error) => return reply.fail(error),
        };
        let mut list = reply.begin();
        for line in &lines {
            let found = line.entry().and_then(|entry| self.counted_entry(&dir, entry).ok());
            if !list.add(&line.shown(), &found.unwrap_or(Entry::absent(FOREVER))) {
                if let Some(found) = found {
                    drop(self.context.lookup_counts.remove(found.node, 1));
                }
                break;
            }
        }
        list.send();
    }

    fn counted_entry(&self, dir: &Dir, entry: &DirEntry) -> Result<Entry, Errno> {
        let metadata = dir.metadata_of(entry).map_err(errno)?;
        LookupOps { context: self.context }.entry_at(&metadata, || Ok(entry.target()))
    }

    /// Returns the end of a listing that is continued; `None` for one that begins.
    fn end(&self, node: NodeId, read: &Read) -> Option<u64> {
        let is_continued = read.offset >= AFTER_DOTS;
        if is_continued { self.context.listing_ends.find(node) } else { None }
    }

    /// Returns whether a listing has reached its end, without reading the directory: a program that
    /// lists all entries asks once more.
    fn is_listed(&self, node: NodeId, read: &Read) -> bool {
        let is_listed = self.end(node, read).is_some_and(|end| read.offset >= end);
        if is_listed {
            self.context.listing_ends.forget(node);
        }
        is_listed
    }

    /// Returns the directory and as many lines as may fit, if each takes `least` bytes.
    fn lines(&self, node: NodeId, read: &Read, least: u32) -> Result<(Dir, Vec<Line>), Errno> {
        let dir = self.context.dir(node)?;
        let max = usize::try_from(read.size / least).map_or(1, |max| max.max(1));
        let mut lines = self.dots(&dir, read.offset);
        let end = self.end(node, read);
        let is_before = |place: u64| end.is_none_or(|end| place < end);
        let mut after = AFTER_DOTS;
        let mut next = Some(read.offset.max(AFTER_DOTS));
        while let Some(place) = next.filter(|place| lines.len() < max && is_before(*place)) {
            let (mut entries, following) = dir.list(place, max - lines.len()).map_err(errno)?;
            entries.retain(|entry| entry.position() <= end.unwrap_or(u64::MAX));
            after = entries.last().map_or(place, DirEntry::position);
            entries.retain(|entry| Name::new(entry.name()).is_some());
            lines.extend(entries.into_iter().map(|entry| self.line(entry)));
            next = following;
        }
        match next {
            _ if !self.context.is_writable => {}
            _ if lines.is_empty() => self.context.listing_ends.forget(node),
            _ if end.is_some() => {}
            None => self.context.listing_ends.note(node, after),
            Some(_) => self.context.listing_ends.note(node, dir.end().map_err(errno)?),
        }
        Ok((dir, lines))
    }

    fn line(&self, entry: DirEntry) -> Line {
        Line::Entry(self.shown(entry.target()), entry)
    }

    fn dots(&self, dir: &Dir, offset: u64) -> Vec<Line> {
        if offset >= AFTER_DOTS {
            return Vec::new();
        }
        let own = dir.inode().id();
        let parent = dir.parent().ok().flatten().unwrap_or(own);
        let dots = [(1, own, "."), (AFTER_DOTS, parent, "..")].into_iter();
        let line = |(next, id, name)| Line::Dots(next, self.shown(id), name);
        dots.filter(|(next, ..)| *next > offset).map(line).collect()
    }

    fn shown(&self, id: InodeId) -> u64 {
        self.context.ids.shown(id).unwrap_or(u64::MAX)
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}
