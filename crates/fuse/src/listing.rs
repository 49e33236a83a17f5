//! Listings of directories.
//!
//! 1. A listing contains only whole entries, which are aligned to eight bytes.
//! 2. An empty listing means the end of the directory.

use rustix::fs::FileType;
use zerocopy::IntoBytes;

use crate::answer::Entry;
use crate::reply::{Reply, listing_size, send_listing};
use crate::values::Name;
use crate::wire::{self, DIRENT_ALIGN};

/// The type of a [`Reply`] to READDIR: names.
#[derive(Debug)]
pub enum Names {}

/// The type of a [`Reply`] to READDIRPLUS: names, each with the answer of LOOKUP.
#[derive(Debug)]
pub enum Entries {}

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The number that readdir(3) shows; not zero.
    pub ino: u64,
    /// The offset of a listing that continues after this entry: at most 2^63 - 1, and not zero,
    /// which is the offset of the beginning.
    pub next: u64,
    /// The type of the file.
    pub kind: FileType,
    /// The name, of at most 1024 bytes.
    pub name: Name<'a>,
}

/// A listing of names under construction.
#[derive(Debug)]
pub struct NameList {
    page: Page,
    reply: Reply<Names>,
}

/// A listing with entries under construction.
#[derive(Debug)]
pub struct EntryList {
    page: Page,
    reply: Reply<Entries>,
}

#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    limit: usize,
}

impl Reply<Names> {
    /// Begins a listing.
    pub fn begin(self) -> NameList {
        NameList { page: Page::new(listing_size(&self)), reply: self }
    }
}

impl Reply<Entries> {
    /// Begins a listing.
    pub fn begin(self) -> EntryList {
        EntryList { page: Page::new(listing_size(&self)), reply: self }
    }
}

impl NameList {
    /// Adds an entry; false if there is no room for it.
    #[must_use = "an entry that did not fit is not in the listing"]
    pub fn add(&mut self, entry: &DirectoryEntry<'_>) -> bool {
        self.page.add(&[], entry)
    }

    /// Answers with the added entries.
    pub fn send(self) {
        send_listing(self.reply, &self.page.bytes);
    }

    /// Answers with an error.
    pub fn fail(self, error: rustix::io::Errno) {
        self.reply.fail(error);
    }
}

impl EntryList {
    /// Adds an entry; false if there is no room for it.
    ///
    /// An added entry adds a reference to its node, unless it is [`Entry::absent`], as those of
    /// `.` and `..` should be.
    #[must_use = "an entry that did not fit is not in the listing, nor is its node referred to"]
    pub fn add(&mut self, entry: &DirectoryEntry<'_>, found: &Entry) -> bool {
        self.page.add(wire::EntryOut::from(found).as_bytes(), entry)
    }

    /// Answers with the added entries.
    pub fn send(self) {
        send_listing(self.reply, &self.page.bytes);
    }

    /// Answers with an error.
    pub fn fail(self, error: rustix::io::Errno) {
        self.reply.fail(error);
    }
}

impl Page {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::with_capacity(limit), limit }
    }

    fn add(&mut self, before: &[u8], entry: &DirectoryEntry<'_>) -> bool {
        let name = entry.name.as_bytes();
        assert!(name.len() <= wire::NAME_LEN_MAX, "the kernel takes no longer name");
        let length = before.len() + size_of::<wire::Dirent>() + name.len();
        let end = self.bytes.len() + length.next_multiple_of(DIRENT_ALIGN);
        if end > self.limit {
            return false;
        }
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent(entry).as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

fn dirent(entry: &DirectoryEntry<'_>) -> wire::Dirent {
    let namelen = u32::try_from(entry.name.as_bytes().len()).expect("the length was checked");
    wire::Dirent { ino: entry.ino, off: entry.next, namelen, kind: kind_number(entry.kind) }
}

/// Returns `d_type` of readdir(3): the file type bits of the mode.
fn kind_number(kind: FileType) -> u32 {
    match kind {
        FileType::Unknown => 0,
        known => known.as_raw_mode() >> 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> DirectoryEntry<'_> {
        let name = Name::new(name.as_bytes()).unwrap();
        DirectoryEntry { ino: 7, next: 9, kind: FileType::Directory, name }
    }

    #[test]
    fn entries_are_aligned_and_padded_with_zeros() {
        let mut page = Page::new(4096);
        assert!(page.add(&[], &entry("abc")));
        assert!(page.add(&[], &entry("12345678")));
        assert_eq!(page.bytes.len(), 32 + 32);
        let head: Vec<u8> =
            [7_u64.as_bytes(), 9_u64.as_bytes(), 3_u32.as_bytes(), 4_u32.as_bytes()].concat();
        assert_eq!(page.bytes[..24], head);
        assert_eq!(&page.bytes[24..32], b"abc\0\0\0\0\0");
        assert_eq!(&page.bytes[56..], b"12345678");
    }

    #[test]
    fn entry_that_does_not_fit_is_not_added() {
        let mut page = Page::new(63);
        assert!(page.add(&[], &entry("abc")));
        assert!(!page.add(&[], &entry("12345678")));
        assert_eq!(page.bytes.len(), 32);
    }

    #[test]
    fn entry_out_precedes_the_dirent() {
        let mut page = Page::new(4096);
        let found = wire::EntryOut::from(&Entry::absent(std::time::Duration::ZERO));
        assert!(page.add(found.as_bytes(), &entry("a")));
        assert_eq!(page.bytes.len(), 128 + 32);
        assert_eq!(page.bytes[128], 7);
    }

    #[test]
    fn kinds_are_numbered_as_in_readdir() {
        for (kind, number) in [
            (FileType::RegularFile, 8),
            (FileType::Directory, 4),
            (FileType::Symlink, 10),
            (FileType::Fifo, 1),
            (FileType::Socket, 12),
            (FileType::CharacterDevice, 2),
            (FileType::BlockDevice, 6),
            (FileType::Unknown, 0),
        ] {
            assert_eq!(kind_number(kind), number);
        }
    }
}
