//! The types of answers.

use std::time::Duration;

use zerocopy::IntoBytes;

use crate::flags::OpenedFlags;
use crate::opcode::Opcode;
use crate::operation::{Lock, LockKind};
use crate::values::{DeviceNumber, Handle, NodeId, Timestamp};
use crate::wire;

/// An answer that a [`Reply`](crate::Reply) sends as a whole.
pub trait Answer: sealed::Encode {}

impl<T: sealed::Encode> Answer for T {}

pub(crate) mod sealed {
    use crate::opcode::Opcode;

    /// Encodes an answer to a request of this kind.
    pub trait Encode {
        fn encode(&self, opcode: Opcode, put: &mut dyn FnMut(&[u8]));
    }
}

/// The attributes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number that stat(2) returns.
    pub ino: u64,
    /// The length in bytes.
    pub size: u64,
    /// The allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// The time of access.
    pub atime: Timestamp,
    /// The time of change of contents.
    pub mtime: Timestamp,
    /// The time of change of attributes.
    pub ctime: Timestamp,
    /// The kind and the permission bits.
    pub mode: u32,
    /// The number of links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number, for a device.
    pub rdev: DeviceNumber,
    /// The preferred size of I/O in bytes; zero leaves it to the kernel.
    pub block_size: u32,
}

/// Answers GETATTR and SETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The attributes.
    pub attributes: Attributes,
    /// How long the kernel may cache them.
    pub valid: Duration,
}

/// Answers STATX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedStat {
    /// The attributes, and how long the kernel may cache them.
    pub stat: Stat,
    /// The time of birth, if known.
    pub born: Option<Timestamp>,
}

/// Answers requests that find or make a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node, to which the answer adds a reference; zero for [`Entry::absent`].
    pub node: NodeId,
    /// The generation: with the node ID it is unique for the lifetime of the filesystem.
    pub generation: u64,
    /// The attributes.
    pub attributes: Attributes,
    /// How long the kernel may cache the attributes.
    pub attributes_valid: Duration,
    /// How long the kernel may cache the name.
    pub entry_valid: Duration,
}

impl Entry {
    /// A negative entry: there is no such name, and the kernel may cache that for `valid`.
    ///
    /// In a listing with entries it leaves the node unknown.
    pub fn absent(valid: Duration) -> Self {
        Self {
            node: NodeId(0),
            generation: 0,
            attributes: Attributes::default(),
            attributes_valid: Duration::ZERO,
            entry_valid: valid,
        }
    }
}

/// Answers OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handle that later requests use.
    pub handle: Handle,
    /// The flags of the open file.
    pub flags: OpenedFlags,
}

/// Answers CREATE and TMPFILE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// The file.
    pub entry: Entry,
    /// The open file.
    pub opened: Opened,
}

/// Answers WRITE: the number of bytes written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written(pub u32);

/// Answers COPY_FILE_RANGE: the number of bytes copied, at most as many as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied(pub u64);

/// Answers LSEEK: the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub u64);

/// Answers BMAP: the block of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(pub u64);

/// Answers POLL: the events of poll(2) that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(pub u32);

/// Answers STATFS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The number of blocks, in units of `fragment_size`.
    pub blocks: u64,
    /// The number of free blocks.
    pub blocks_free: u64,
    /// The number of blocks available to unprivileged users.
    pub blocks_available: u64,
    /// The number of inodes; zero if there is no limit.
    pub files: u64,
    /// The number of free inodes.
    pub files_free: u64,
    /// The preferred size of I/O in bytes.
    pub block_size: u32,
    /// The longest name, in bytes.
    pub name_max: u32,
    /// The size of a block, in bytes.
    pub fragment_size: u32,
}

impl From<&Attributes> for wire::Attr {
    fn from(from: &Attributes) -> Self {
        Self {
            ino: from.ino,
            size: from.size,
            blocks: from.blocks,
            atime: from.atime.seconds().cast_unsigned(),
            mtime: from.mtime.seconds().cast_unsigned(),
            ctime: from.ctime.seconds().cast_unsigned(),
            atimensec: from.atime.nanoseconds(),
            mtimensec: from.mtime.nanoseconds(),
            ctimensec: from.ctime.nanoseconds(),
            mode: from.mode,
            nlink: from.nlink,
            uid: from.uid,
            gid: from.gid,
            rdev: from.rdev.to_bits(),
            blksize: from.block_size,
            flags: 0,
        }
    }
}

impl From<&Entry> for wire::EntryOut {
    fn from(from: &Entry) -> Self {
        Self {
            nodeid: from.node.0,
            generation: from.generation,
            entry_valid: from.entry_valid.as_secs(),
            attr_valid: from.attributes_valid.as_secs(),
            entry_valid_nsec: from.entry_valid.subsec_nanos(),
            attr_valid_nsec: from.attributes_valid.subsec_nanos(),
            attr: (&from.attributes).into(),
        }
    }
}

impl From<&Opened> for wire::OpenOut {
    fn from(from: &Opened) -> Self {
        Self { fh: from.handle.0, open_flags: from.flags.bits(), backing_id: 0 }
    }
}

impl From<Timestamp> for wire::StatxTime {
    fn from(from: Timestamp) -> Self {
        Self { seconds: from.seconds(), nanoseconds: from.nanoseconds(), reserved: 0 }
    }
}

impl sealed::Encode for () {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(&[]);
    }
}

impl sealed::Encode for Entry {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(wire::EntryOut::from(self).as_bytes());
    }
}

impl sealed::Encode for Stat {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        let attr_valid = self.valid.as_secs();
        let attr_valid_nsec = self.valid.subsec_nanos();
        let attr = (&self.attributes).into();
        put(wire::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr }.as_bytes());
    }
}

impl sealed::Encode for ExtendedStat {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        let out = wire::StatxOut {
            attr_valid: self.stat.valid.as_secs(),
            attr_valid_nsec: self.stat.valid.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: statx_attr(&self.stat.attributes, self.born),
        };
        put(out.as_bytes());
    }
}

/// Encodes attributes for STATX; the masks are those of statx(2).
fn statx_attr(from: &Attributes, born: Option<Timestamp>) -> wire::StatxAttr {
    const BASIC: u32 = 0x7ff;
    const BORN: u32 = 0x800;
    wire::StatxAttr {
        mask: BASIC | if born.is_some() { BORN } else { 0 },
        blksize: from.block_size,
        attributes: 0,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        mode: u16::try_from(from.mode & 0xffff).expect("16 bits are left"),
        spare0: 0,
        ino: from.ino,
        size: from.size,
        blocks: from.blocks,
        attributes_mask: 0,
        atime: from.atime.into(),
        btime: born.unwrap_or_default().into(),
        ctime: from.ctime.into(),
        mtime: from.mtime.into(),
        rdev_major: from.rdev.major,
        rdev_minor: from.rdev.minor,
        dev_major: 0,
        dev_minor: 0,
        spare2: [0; 14],
    }
}

impl sealed::Encode for Opened {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(wire::OpenOut::from(self).as_bytes());
    }
}

impl sealed::Encode for Created {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        let entry = (&self.entry).into();
        let open = (&self.opened).into();
        put(wire::CreateOut { entry, open }.as_bytes());
    }
}

impl sealed::Encode for Written {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(wire::WriteOut { size: self.0, padding: 0 }.as_bytes());
    }
}

impl sealed::Encode for Copied {
    fn encode(&self, opcode: Opcode, put: &mut dyn FnMut(&[u8])) {
        if opcode == Opcode::CopyFileRange64 {
            return put(self.0.as_bytes());
        }
        let count = u32::try_from(self.0).expect("no more is copied than was asked for");
        Written(count).encode(opcode, put);
    }
}

impl sealed::Encode for Position {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(self.0.as_bytes());
    }
}

impl sealed::Encode for Block {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(self.0.as_bytes());
    }
}

impl sealed::Encode for Events {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        put(wire::PollOut { revents: self.0, padding: 0 }.as_bytes());
    }
}

impl sealed::Encode for Statistics {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        let out = wire::StatfsOut {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.name_max,
            frsize: self.fragment_size,
            padding: 0,
            spare: [0; 6],
        };
        put(out.as_bytes());
    }
}

impl sealed::Encode for Lock {
    fn encode(&self, _: Opcode, put: &mut dyn FnMut(&[u8])) {
        let kind = match self.kind {
            LockKind::Read => wire::LOCK_READ,
            LockKind::Write => wire::LOCK_WRITE,
            LockKind::None => wire::LOCK_NONE,
        };
        let out = wire::FileLock { start: self.start, end: self.end, kind, pid: self.pid };
        put(out.as_bytes());
    }
}
