//! Inodes, their names, and directory entries.

use userbtrfs_format::Key;

use crate::GENERATION;
use crate::bytes::Bytes;

/// The fields of an INODE_ITEM.
#[derive(Clone, Copy, Debug)]
pub struct InodeSpec {
    /// The transaction that created it, and the last that changed it.
    pub generation: u64,
    /// Its size.
    pub size: u64,
    /// Bytes of its extents.
    pub nbytes: u64,
    /// The number of links.
    pub nlink: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Its flags.
    pub flags: u64,
    /// Seconds and nanoseconds of all four times.
    pub time: (i64, u32),
}

impl InodeSpec {
    /// An inode with one name.
    pub fn new(mode: u32, size: u64) -> Self {
        let generation = GENERATION;
        Self { generation, size, nbytes: size, nlink: 1, mode, flags: 0, time: (1_700_000_000, 5) }
    }

    /// A directory whose names have a total length of `name_bytes`.
    pub fn directory(name_bytes: u64) -> Self {
        Self { nbytes: 0, ..Self::new(0o40_755, 2 * name_bytes) }
    }

    /// A regular file.
    pub fn file(size: u64) -> Self {
        Self::new(0o100_644, size)
    }

    /// The content of the INODE_ITEM.
    pub fn build(&self) -> Vec<u8> {
        let head = Bytes::new()
            .u64(self.generation)
            .u64(self.generation)
            .u64(self.size)
            .u64(self.nbytes)
            .u64(0)
            .u32(self.nlink)
            .u32(1000)
            .u32(100)
            .u32(self.mode)
            .u64(0)
            .u64(self.flags)
            .u64(3)
            .zeros(32);
        let (sec, nsec) = self.time;
        (0..4).fold(head, |bytes, _| bytes.raw(&sec.to_le_bytes()).u32(nsec)).build()
    }
}

/// An INODE_REF with one name.
pub fn inode_ref(index: u64, name: &[u8]) -> Vec<u8> {
    Bytes::new().u64(index).len16(name).raw(name).build()
}

/// An INODE_EXTREF with names, each given as parent, index and name.
pub fn extrefs(names: &[(u64, u64, &[u8])]) -> Vec<u8> {
    let entry = |bytes: Bytes, (parent, index, name): &(u64, u64, &[u8])| {
        bytes.u64(*parent).u64(*index).len16(name).raw(name)
    };
    names.iter().fold(Bytes::new(), entry).build()
}

/// An entry of a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
pub fn dir_entry(target: Key, kind: u8, name: &[u8], data: &[u8]) -> Vec<u8> {
    let head = Bytes::new().key(target).u64(GENERATION).len16(data).len16(name).u8(kind);
    head.raw(name).raw(data).build()
}
