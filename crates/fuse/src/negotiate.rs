//! The negotiation of abilities and limits: INIT.
//!
//! 1. The agreed flags are those that the server wants and the kernel offers.
//! 2. OPEN answered with ENOSYS and OPEN that truncates exclude each other: a kernel that no longer
//!    sends OPEN would truncate only in its cache. A server that wants both gets the first.
//! 3. The largest message is bounded by the pages that the kernel accepts, 256 unless its
//!    administrator allows more; the kernel clamps larger values, and so do we.

use std::io::IoSlice;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;
use zerocopy::IntoBytes;

use crate::channel::{Channel, End};
use crate::flags::InitFlags;
use crate::operation::{InitOffer, Operation};
use crate::parse::{Malformed, parse};
use crate::wire;

/// The abilities and limits that a server wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The wanted abilities; those that the kernel also offers are agreed on.
    pub flags: InitFlags,
    /// The maximum size of a read or write in bytes: whole pages, at least one.
    pub max_write: u32,
    /// The maximum readahead in bytes; unless root serves, at most what the kernel offers.
    pub max_readahead: u32,
    /// The maximum number of background requests (readahead, writeback) in flight.
    pub max_background: u16,
    /// The number of background requests from which the kernel treats the server as congested.
    pub congestion_threshold: u16,
    /// The granularity of timestamps in nanoseconds.
    pub time_granularity: u32,
    /// The number of threads that receive requests under high load.
    pub threads: usize,
    /// The maximum number of threads, including those in [`may_sleep`](crate::may_sleep). One more
    /// is started if all of them sleep and one is in [`may_wait`](crate::may_wait).
    pub threads_max: usize,
    /// How long a thread beyond `threads` stays idle before it ends.
    pub idle: Duration,
}

impl Default for Config {
    /// Suits a filesystem on a local disk: all caches, few requests, locks kept by the kernel.
    fn default() -> Self {
        Self {
            flags: InitFlags::LOCAL_DISK,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity: 1,
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            threads_max: 256,
            idle: Duration::from_secs(10),
        }
    }
}

impl InitFlags {
    /// The flags for a filesystem on a disk that only this server changes.
    ///
    /// Without `ASYNC_DIO`: if a file is read through the page cache during an asynchronous direct
    /// write, the kernel leaves stale pages in the cache for good.
    pub const LOCAL_DISK: Self = Self::ASYNC_READ
        .union(Self::ATOMIC_O_TRUNC)
        .union(Self::EXPORT_SUPPORT)
        .union(Self::DONT_MASK)
        .union(Self::HAS_IOCTL_DIR)
        .union(Self::DO_READDIRPLUS)
        .union(Self::READDIRPLUS_AUTO)
        .union(Self::WRITEBACK_CACHE)
        .union(Self::NO_OPEN_SUPPORT)
        .union(Self::PARALLEL_DIROPS)
        .union(Self::POSIX_ACL)
        .union(Self::CACHE_SYMLINKS)
        .union(Self::NO_OPENDIR_SUPPORT)
        .union(Self::EXPLICIT_INVAL_DATA)
        .union(Self::HANDLE_KILLPRIV_V2)
        .union(Self::SETXATTR_EXT)
        .union(Self::CREATE_SUPP_GROUP)
        .union(Self::HAS_EXPIRE_ONLY)
        .union(Self::DIRECT_IO_ALLOW_MMAP);

    /// The flags that this crate itself needs.
    const ALWAYS: Self =
        Self::BIG_WRITES.union(Self::MAX_PAGES).union(Self::INIT_EXT).union(Self::ABORT_ERROR);

    /// The flags that this crate does not support; never agreed on.
    const NEVER: Self = Self::SPLICE_WRITE
        .union(Self::SPLICE_MOVE)
        .union(Self::SPLICE_READ)
        .union(Self::MAP_ALIGNMENT)
        .union(Self::SUBMOUNTS)
        .union(Self::HAS_INODE_DAX)
        .union(Self::SECURITY_CTX)
        .union(Self::PASSTHROUGH)
        .union(Self::HAS_RESEND)
        .union(Self::ALLOW_IDMAP)
        .union(Self::OVER_IO_URING)
        .union(Self::REQUEST_TIMEOUT);

    fn agreed(wanted: Self, offered: Self) -> Self {
        let agreed = (wanted | Self::ALWAYS) & offered & !Self::NEVER;
        let excluded = if agreed.contains(Self::NO_OPEN_SUPPORT) {
            Self::ATOMIC_O_TRUNC
        } else {
            Self::empty()
        };
        agreed & !excluded
    }
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version of the protocol that both support.
    pub minor: u32,
    /// The agreed abilities.
    pub flags: InitFlags,
    /// The abilities that the kernel offered.
    pub offered: InitFlags,
    /// The maximum size of a read or write in bytes.
    pub max_write: u32,
    /// The maximum readahead in bytes, unless root raises it.
    pub max_readahead: u32,
}

/// Why a mount could not begin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The kernel is too old.
    #[error("the kernel speaks version {major}.{minor} of FUSE, at least 7.31 is needed")]
    Version {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The first request is not INIT.
    #[error("the kernel began with something else than INIT")]
    NotInit,
    /// The first message is not a valid request.
    #[error("the kernel began with a {0}")]
    Malformed(#[from] Malformed),
    /// The filesystem was unmounted before INIT.
    #[error("unmounted before it began")]
    Gone,
    /// The device fails.
    #[error("reading from /dev/fuse: {0}")]
    Device(Errno),
}

/// Waits for INIT and answers it.
pub(crate) fn handshake(channel: &Channel, config: &Config) -> Result<Negotiated, HandshakeError> {
    let mut buffer = Vec::with_capacity(buffer_size(0));
    loop {
        let message = channel.receive(&mut buffer).map_err(|end| match end {
            End::Gone => HandshakeError::Gone,
            End::Failed(error) => HandshakeError::Device(error),
        })?;
        let (request, operation) = parse(message, InitFlags::empty())?;
        let Operation::Init(offer) = operation else { return Err(HandshakeError::NotInit) };
        // A kernel of a later major version sends INIT again, with our version.
        let agreement = if offer.major > wire::MAJOR {
            None
        } else {
            let agreement = agree(&offer, config);
            Some(agreement.inspect_err(|_| channel.refuse(request.unique, Errno::PROTO))?)
        };
        let out = answer(agreement.as_ref(), config);
        channel.answer(request.unique, &[IoSlice::new(out.as_bytes())]);
        if let Some(agreement) = agreement {
            return Ok(agreement);
        }
    }
}

/// Returns the size of a buffer for requests, in bytes.
pub(crate) fn buffer_size(max_write: u32) -> usize {
    /// More than any request has besides the data of a WRITE or the value of a SETXATTR.
    const BESIDE: usize = 4096;
    /// The longest value of an extended attribute (`XATTR_SIZE_MAX`).
    const VALUE_MAX: usize = 64 << 10;
    let data = usize::try_from(max_write).expect("a size in memory");
    (data.max(VALUE_MAX) + 2 * BESIDE).max(wire::READ_BUFFER_MIN)
}

fn agree(offer: &InitOffer, config: &Config) -> Result<Negotiated, HandshakeError> {
    let major = offer.major;
    let minor = offer.minor;
    if major != wire::MAJOR || minor < wire::MINOR_MIN {
        return Err(HandshakeError::Version { major, minor });
    }
    Ok(Negotiated {
        minor: minor.min(wire::MINOR),
        flags: InitFlags::agreed(config.flags, offer.flags),
        offered: offer.flags,
        max_write: config.max_write.max(page_size()),
        max_readahead: config.max_readahead.min(offer.max_readahead),
    })
}

fn answer(agreement: Option<&Negotiated>, config: &Config) -> wire::InitOut {
    let minor = agreement.map_or(wire::MINOR, |agreed| agreed.minor);
    let flags = agreement.map_or(0, |agreed| agreed.flags.bits());
    let max_write = agreement.map_or(0, |agreed| agreed.max_write);
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits are left");
    wire::InitOut {
        major: wire::MAJOR,
        minor,
        max_readahead: agreement.map_or(0, |agreed| agreed.max_readahead),
        flags: half(flags),
        max_background: config.max_background,
        congestion_threshold: config.congestion_threshold,
        max_write,
        time_gran: config.time_granularity,
        max_pages: u16::try_from(max_write.div_ceil(page_size())).unwrap_or(u16::MAX),
        map_alignment: 0,
        flags2: half(flags >> 32),
        max_stack_depth: 0,
        request_timeout: 0,
        unused: [0; 11],
    }
}

fn page_size() -> u32 {
    u32::try_from(rustix::param::page_size()).expect("a page is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minor: u32, flags: InitFlags) -> InitOffer {
        InitOffer { major: 7, minor, max_readahead: 128 << 10, flags }
    }

    #[test]
    fn agreed_flags_are_limited_to_offered_flags() {
        let offered = InitFlags::WRITEBACK_CACHE | InitFlags::MAX_PAGES | InitFlags::SPLICE_READ;
        let config = Config { flags: InitFlags::all(), ..Config::default() };
        let agreement = agree(&offer(40, offered), &config).unwrap();
        assert_eq!(agreement.flags, InitFlags::WRITEBACK_CACHE | InitFlags::MAX_PAGES);
        assert_eq!((agreement.minor, agreement.max_readahead), (40, 128 << 10));
        assert_eq!(agree(&offer(99, offered), &config).unwrap().minor, wire::MINOR);
    }

    #[test]
    fn no_open_excludes_open_that_truncates() {
        let both = InitFlags::NO_OPEN_SUPPORT | InitFlags::ATOMIC_O_TRUNC;
        assert_eq!(InitFlags::agreed(both, both), InitFlags::NO_OPEN_SUPPORT);
        assert_eq!(InitFlags::agreed(both, InitFlags::ATOMIC_O_TRUNC), InitFlags::ATOMIC_O_TRUNC);
    }

    #[test]
    fn old_kernels_are_refused() {
        let old = agree(&offer(30, InitFlags::empty()), &Config::default());
        assert_eq!(old, Err(HandshakeError::Version { major: 7, minor: 30 }));
        let older = InitOffer { major: 6, ..offer(45, InitFlags::empty()) };
        assert!(agree(&older, &Config::default()).is_err());
    }

    #[test]
    fn the_answer_has_all_64_flags() {
        let all = InitFlags::INIT_EXT | InitFlags::CREATE_SUPP_GROUP | InitFlags::MAX_PAGES;
        let agreement = agree(&offer(45, all), &Config::default()).unwrap();
        let out = answer(Some(&agreement), &Config::default());
        assert_eq!(out.flags, 1 << 30 | 1 << 22);
        assert_eq!(out.flags2, 1 << 2);
        assert_eq!(u32::from(out.max_pages) * page_size(), 1 << 20);
        assert_eq!(out.as_bytes().len(), 64);
    }
}
