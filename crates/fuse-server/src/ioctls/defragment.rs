//! Defragments a file: `BTRFS_IOC_DEFRAG_RANGE` and `BTRFS_IOC_DEFRAG`.
//!
//! `struct btrfs_ioctl_defrag_range_args` of `linux/btrfs.h`.
//!
//! 1. A descriptor for reading is enough, as in Linux. A caller without all rights needs the
//!    permission to write.
//! 2. As in Linux, dirty data is not defragmented: what only the kernel has is sent later.
//! 3. On a directory Linux rewrites the leaves of the tree of its subvolume. Here that is not done,
//!    and the call succeeds.

use userbtrfs_engine::api::{
    Compression, CompressionMethod, Defragment, FileKind, Inode, Recompress,
};
use userbtrfs_fuse::{Caller, Errno};

use super::record::Reader;
use crate::context::Context;
use crate::errno;
use crate::permissions::{self, WRITE};
use crate::rights;

/// `BTRFS_DEFRAG_RANGE_COMPRESS`, `_START_IO`, `_COMPRESS_LEVEL` and `_NOCOMPRESS`.
const COMPRESS: u64 = 1 << 0;
const START_IO: u64 = 1 << 1;
const COMPRESS_LEVEL: u64 = 1 << 2;
const NOCOMPRESS: u64 = 1 << 3;

/// Defragments a file: a range of it, or all of it without arguments.
pub(super) fn defragment(
    context: &Context,
    caller: &Caller,
    inode: &Inode,
    input: Option<&[u8]>,
) -> Result<Vec<u8>, Errno> {
    let filesystem = &context.filesystem;
    let subvolume = filesystem.subvolume(inode.id().subvolume).map_err(errno)?;
    if !filesystem.is_writable() || subvolume.is_read_only() {
        return Err(Errno::ROFS);
    }
    match inode.metadata().map_err(errno)?.kind {
        FileKind::Directory => rights::admit(caller)?,
        FileKind::Regular => {
            if !rights::has_all(caller) {
                permissions::check(caller, inode, WRITE).map_err(|_| Errno::PERM)?;
            }
            let arguments = input.map(Arguments::parse).transpose()?;
            let request = arguments.map_or(Ok(Defragment::default()), Arguments::request)?;
            inode.open().and_then(|file| file.defragment(&request)).map_err(errno)?;
        }
        _ => return Err(Errno::INVAL),
    }
    Ok(Vec::new())
}

/// The arguments of a request.
struct Arguments {
    start: u64,
    len: u64,
    flags: u64,
    threshold: u32,
    compression: u32,
}

impl Arguments {
    fn parse(input: &[u8]) -> Result<Self, Errno> {
        let mut reader = Reader(input);
        let arguments = Self {
            start: reader.u64()?,
            len: reader.u64()?,
            flags: reader.u64()?,
            threshold: reader.u32()?,
            compression: reader.u32()?,
        };
        if arguments.flags & !(COMPRESS | START_IO | COMPRESS_LEVEL | NOCOMPRESS) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(arguments)
    }

    fn request(self) -> Result<Defragment, Errno> {
        let compression = match (self.flags & COMPRESS != 0, self.flags & NOCOMPRESS != 0) {
            (true, true) => return Err(Errno::INVAL),
            (true, false) => Recompress::With(self.method()?),
            (false, true) => Recompress::Never,
            (false, false) => Recompress::Usual,
        };
        let threshold = u64::from(self.threshold);
        // As in Linux, no length means all the rest.
        let len = if self.len == 0 { u64::MAX } else { self.len };
        Ok(Defragment { start: self.start, len, threshold, compression })
    }

    fn method(&self) -> Result<CompressionMethod, Errno> {
        let [kind, level, ..] = self.compression.to_le_bytes();
        let has_level = self.flags & COMPRESS_LEVEL != 0;
        let kind = if has_level { u32::from(kind) } else { self.compression };
        let algorithm = match kind {
            0 | 1 => Compression::Zlib,
            2 => Compression::Lzo,
            3 => Compression::Zstd,
            _ => return Err(Errno::INVAL),
        };
        let level = i32::from(i8::from_le_bytes([level]));
        // As in Linux: of zlib, 0 is not the default here.
        if has_level && level == 0 && algorithm == Compression::Zlib {
            return Err(Errno::INVAL);
        }
        // LZO has one level, which Linux calls 1.
        let is_usual = level == 0 || (algorithm == Compression::Lzo && level == 1);
        let level = Some(level).filter(|_| has_level && !is_usual);
        let method = CompressionMethod { algorithm, level };
        method.check_level().map_err(|_| Errno::INVAL)?;
        Ok(method)
    }
}
