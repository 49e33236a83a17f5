//! Roots of trees, and the references between subvolumes.
//!
//! 1. A [`RootItem`] has no UUIDs and no times if it has the short, old structure, or if it was
//!    last written by a kernel that knew only that one (`generation_v2` differs).

use bitflags::bitflags;
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::device::prefix;
use crate::inode::{RawInodeItem, RawTimestamp, name_len, split_name};
use crate::key::RawKey;
use crate::{ItemError, Key, Logical, MAX_LEVEL, SECTOR_SIZE, Timestamp};

bitflags! {
    /// Flags of a root.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RootFlags: u64 {
        /// The subvolume is read-only.
        const READ_ONLY = 1 << 0;
        /// The subvolume is being deleted.
        const DEAD = 1 << 48;
    }
}

/// The root of a tree: ROOT_ITEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootItem {
    /// The transaction that last changed it.
    pub generation: u64,
    /// The root directory's inode; 256 in subvolumes, 0 elsewhere.
    pub root_dirid: u64,
    /// The root block.
    pub logical: Logical,
    /// The root block's level.
    pub level: u8,
    /// Obsolete: limit of bytes.
    pub byte_limit: u64,
    /// Bytes of the tree's blocks.
    pub bytes_used: u64,
    /// The transaction of the last snapshot of it.
    pub last_snapshot: u64,
    /// Its flags.
    pub flags: RootFlags,
    /// References to it; 0 after deletion.
    pub refs: u32,
    /// The key that its deletion has reached.
    pub drop_progress: Key,
    /// The level at which its deletion continues.
    pub drop_level: u8,
    /// The generation in the long structure, which is valid only if it is [`Self::generation`].
    pub generation_v2: Option<u64>,
    /// The inode structure embedded in the item.
    pub inode: RootInode,
    /// The additional fields of the long structure, if they are valid.
    pub extended: Option<RootExtension>,
}

/// The inode structure in a ROOT_ITEM: fields as in an INODE_ITEM, which are not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootInode {
    /// Its generation.
    pub generation: u64,
    /// The transaction of its last change.
    pub transid: u64,
    /// Its size.
    pub size: u64,
    /// Bytes that its extents hold.
    pub nbytes: u64,
    /// Obsolete: where to allocate.
    pub block_group: u64,
    /// Its links.
    pub nlink: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode.
    pub mode: u32,
    /// Its device.
    pub rdev: u64,
    /// Its flags.
    pub flags: u64,
    /// Counts changes (the NFS change attribute).
    pub sequence: u64,
    /// atime, ctime, mtime and otime.
    pub times: [Timestamp; 4],
}

/// UUIDs, transactions and times of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootExtension {
    /// Its own UUID.
    pub uuid: Uuid,
    /// The UUID of the subvolume that it is a snapshot of; nil if it is not a snapshot.
    pub parent_uuid: Uuid,
    /// The UUID of the subvolume that it was received from; nil if it was not received.
    pub received_uuid: Uuid,
    /// Transaction of the last change.
    pub ctransid: u64,
    /// Transaction of its creation.
    pub otransid: u64,
    /// Transaction in which it was sent.
    pub stransid: u64,
    /// Transaction in which it was received.
    pub rtransid: u64,
    /// Time of the last change.
    pub ctime: Timestamp,
    /// Time of its creation.
    pub otime: Timestamp,
    /// Time at which it was sent.
    pub stime: Timestamp,
    /// Time at which it was received.
    pub rtime: Timestamp,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRootItem {
    inode: RawInodeItem,
    generation: U64,
    root_dirid: U64,
    bytenr: U64,
    byte_limit: U64,
    bytes_used: U64,
    last_snapshot: U64,
    flags: U64,
    refs: U32,
    drop_progress: RawKey,
    drop_level: u8,
    level: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRootExtension {
    generation_v2: U64,
    uuids: [[u8; 16]; 3],
    transids: [U64; 4],
    times: [RawTimestamp; 4],
    reserved: [U64; 8],
}

const _: () = assert!(size_of::<RawRootItem>() == 239);
const _: () = assert!(size_of::<RawRootExtension>() == 200);

impl RootItem {
    /// Reads the content of a ROOT_ITEM, of either size.
    pub fn parse(bytes: &[u8]) -> Result<Self, ItemError> {
        let (raw, rest) = prefix::<RawRootItem>(bytes)?;
        let extension = match rest.len() {
            0 => None,
            len if len == size_of::<RawRootExtension>() => {
                Some(prefix::<RawRootExtension>(rest)?.0)
            }
            _ => return Err(ItemError::Size(bytes.len())),
        };
        let logical = Logical(raw.bytenr.get());
        if logical.0 == 0 {
            return Err(ItemError::Zero("root address"));
        }
        if !logical.is_aligned(SECTOR_SIZE) {
            return Err(ItemError::Unaligned { field: "root address", value: logical.0 });
        }
        for (field, level) in [("root level", raw.level), ("drop level", raw.drop_level)] {
            if level > MAX_LEVEL {
                return Err(ItemError::Range { field, value: u64::from(level) });
            }
        }
        Ok(raw.validated(logical, extension))
    }

    /// Writes the content of a ROOT_ITEM.
    ///
    /// If the item has an extension, `generation_v2` is set to the root's generation, so that the
    /// extension is valid. Otherwise the item keeps the size it was read with.
    pub fn encode(&self) -> Vec<u8> {
        let mut item = RawRootItem::from(self).as_bytes().to_vec();
        if let Some(extension) = RawRootExtension::of(self) {
            item.extend_from_slice(extension.as_bytes());
        }
        item
    }
}

impl From<&RootItem> for RawRootItem {
    fn from(item: &RootItem) -> Self {
        Self {
            inode: (&item.inode).into(),
            generation: item.generation.into(),
            root_dirid: item.root_dirid.into(),
            bytenr: item.logical.0.into(),
            byte_limit: item.byte_limit.into(),
            bytes_used: item.bytes_used.into(),
            last_snapshot: item.last_snapshot.into(),
            flags: item.flags.bits().into(),
            refs: item.refs.into(),
            drop_progress: RawKey::new(item.drop_progress),
            drop_level: item.drop_level,
            level: item.level,
        }
    }
}

impl From<&RootInode> for RawInodeItem {
    fn from(inode: &RootInode) -> Self {
        Self {
            generation: inode.generation.into(),
            transid: inode.transid.into(),
            size: inode.size.into(),
            nbytes: inode.nbytes.into(),
            block_group: inode.block_group.into(),
            nlink: inode.nlink.into(),
            uid: inode.uid.into(),
            gid: inode.gid.into(),
            mode: inode.mode.into(),
            rdev: inode.rdev.into(),
            flags: inode.flags.into(),
            sequence: inode.sequence.into(),
            reserved: [U64::ZERO; 4],
            times: inode.times.map(RawTimestamp::new),
        }
    }
}

impl From<&RawInodeItem> for RootInode {
    fn from(raw: &RawInodeItem) -> Self {
        Self {
            generation: raw.generation.get(),
            transid: raw.transid.get(),
            size: raw.size.get(),
            nbytes: raw.nbytes.get(),
            block_group: raw.block_group.get(),
            nlink: raw.nlink.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            mode: raw.mode.get(),
            rdev: raw.rdev.get(),
            flags: raw.flags.get(),
            sequence: raw.sequence.get(),
            times: raw.times.each_ref().map(RawTimestamp::get),
        }
    }
}

impl RawRootItem {
    fn validated(&self, logical: Logical, extension: Option<&RawRootExtension>) -> RootItem {
        let generation = self.generation.get();
        let extended = extension
            .filter(|extension| extension.generation_v2.get() == generation)
            .map(RawRootExtension::get);
        RootItem {
            generation,
            root_dirid: self.root_dirid.get(),
            logical,
            level: self.level,
            byte_limit: self.byte_limit.get(),
            bytes_used: self.bytes_used.get(),
            last_snapshot: self.last_snapshot.get(),
            flags: RootFlags::from_bits_retain(self.flags.get()),
            refs: self.refs.get(),
            drop_progress: self.drop_progress.get(),
            drop_level: self.drop_level,
            generation_v2: extension.map(|extension| extension.generation_v2.get()),
            inode: (&self.inode).into(),
            extended,
        }
    }
}

impl RawRootExtension {
    fn of(item: &RootItem) -> Option<Self> {
        match &item.extended {
            Some(extended) => Some(Self::new(item.generation, extended)),
            None => item
                .generation_v2
                .map(|stale| Self { generation_v2: stale.into(), ..Self::new_zeroed() }),
        }
    }

    fn new(generation: u64, extended: &RootExtension) -> Self {
        let RootExtension { uuid, parent_uuid, received_uuid, .. } = *extended;
        let RootExtension { ctransid, otransid, stransid, rtransid, .. } = *extended;
        let RootExtension { ctime, otime, stime, rtime, .. } = *extended;
        Self {
            generation_v2: generation.into(),
            uuids: [uuid, parent_uuid, received_uuid].map(Uuid::into_bytes),
            transids: [ctransid, otransid, stransid, rtransid].map(U64::from),
            times: [ctime, otime, stime, rtime].map(RawTimestamp::new),
            reserved: [U64::ZERO; 8],
        }
    }

    fn get(&self) -> RootExtension {
        let [uuid, parent_uuid, received_uuid] = self.uuids.map(Uuid::from_bytes);
        let [ctransid, otransid, stransid, rtransid] = self.transids.map(U64::get);
        let [ctime, otime, stime, rtime] = self.times.each_ref().map(RawTimestamp::get);
        RootExtension {
            uuid,
            parent_uuid,
            received_uuid,
            ctransid,
            otransid,
            stransid,
            rtransid,
            ctime,
            otime,
            stime,
            rtime,
        }
    }
}

/// The directory entry of a subvolume: the content of ROOT_REF and ROOT_BACKREF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootRef<'a> {
    /// The directory that holds the name, in the containing subvolume.
    pub dirid: u64,
    /// The index of the name in the directory: the offset of its DIR_INDEX.
    pub sequence: u64,
    /// The name.
    pub name: &'a [u8],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRootRef {
    dirid: U64,
    sequence: U64,
    name_len: U16,
}

impl<'a> RootRef<'a> {
    /// Reads the content of a ROOT_REF or ROOT_BACKREF.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ItemError> {
        let (raw, rest) = prefix::<RawRootRef>(bytes)?;
        let (name, rest) = split_name(rest, raw.name_len.get())?;
        if !rest.is_empty() {
            return Err(ItemError::Trailing(rest.len()));
        }
        Ok(Self { dirid: raw.dirid.get(), sequence: raw.sequence.get(), name })
    }
    /// Writes the content of a ROOT_REF or ROOT_BACKREF.
    pub fn encode(&self) -> Vec<u8> {
        let raw = RawRootRef {
            dirid: self.dirid.into(),
            sequence: self.sequence.into(),
            name_len: name_len(self.name),
        };
        [raw.as_bytes(), self.name].concat()
    }
}
