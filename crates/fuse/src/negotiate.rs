//! What kernel and server agree on: INIT.
//!
//! 1. Agreed is what the server wants and the kernel offers.
//! 2. OPEN that is answered ENOSYS and OPEN that truncates exclude each other: a kernel that no
//!    longer sends OPEN would truncate in its cache alone. Who wants both gets the first.
//! 3. The largest message is bounded by the pages that the kernel takes, 256 unless its
//!    administrator allows more; the kernel cuts down what is too much, and so do we.

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

/// What a server wants of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The abilities, of which those that the kernel offers are agreed on.
    pub flags: InitFlags,
    /// The most bytes of one read or write: whole pages, at least one.
    pub max_write: u32,
    /// The most bytes that the kernel reads ahead: where root serves, and otherwise no more than
    /// what the kernel offers.
    pub max_readahead: u32,
    /// How many requests that nobody waits for (reading ahead, writing back) may be under way.
    pub max_background: u16,
    /// From how many on the kernel thinks the server congested.
    pub congestion_threshold: u16,
    /// The step of times in nanoseconds.
    pub time_granularity: u32,
    /// How many threads receive requests.
    pub threads: usize,
    /// How many threads there may be, with those that sleep in
    /// [`may_sleep`](crate::may_sleep); one more is made where all of them sleep, and one is in
    /// [`may_wait`](crate::may_wait).
    pub threads_max: usize,
    /// How long a thread stays that is more than may be wanted at once.
    pub idle: Duration,
}

impl Default for Config {
    /// What a filesystem on a local disk wants: all caches, few requests, locks kept by the kernel.
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
    /// What suits a filesystem on a disk that nobody else changes.
    ///
    /// Not `ASYNC_DIO`: of an asynchronous direct write the kernel leaves stale pages in its cache,
    /// for good, if the file is read through it meanwhile.
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

    /// What this crate itself lives by.
    const ALWAYS: Self =
        Self::BIG_WRITES.union(Self::MAX_PAGES).union(Self::INIT_EXT).union(Self::ABORT_ERROR);

    /// What this crate cannot do, whoever wants it.
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

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version of the protocol that both know.
    pub minor: u32,
    /// The abilities.
    pub flags: InitFlags,
    /// What the kernel offered.
    pub offered: InitFlags,
    /// The most bytes of one read or write.
    pub max_write: u32,
    /// The most bytes that the kernel reads ahead, unless root raises that.
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
    /// The first request is another one.
    #[error("the kernel began with something else than INIT")]
    NotInit,
    /// The first request is none.
    #[error("the kernel began with a {0}")]
    Malformed(#[from] Malformed),
    /// It was unmounted before it began.
    #[error("unmounted before it began")]
    Gone,
    /// The device fails.
    #[error("reading from /dev/fuse: {0}")]
    Device(Errno),
}

/// Answers INIT, waiting for it.
pub(crate) fn handshake(channel: &Channel, config: &Config) -> Result<Negotiated, HandshakeError> {
    let mut buffer = Vec::with_capacity(buffer_size(0));
    loop {
        let message = channel.receive(&mut buffer).map_err(|end| match end {
            End::Gone => HandshakeError::Gone,
            End::Failed(error) => HandshakeError::Device(error),
        })?;
        let (request, operation) = parse(message, InitFlags::empty())?;
        let Operation::Init(offer) = operation else { return Err(HandshakeError::NotInit) };
        // A kernel of a later major version asks again, in ours.
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

/// The size of a buffer for requests, in bytes.
pub(crate) fn buffer_size(max_write: u32) -> usize {
    /// More than any request has beside the data of a WRITE, or the value of a SETXATTR.
    const BESIDE: usize = 4096;
    /// The longest value that the system takes for an extended attribute.
    const VALUE_MAX: usize = 64 << 10;
    let data = usize::try_from(max_write).expect("a size in memory");
    (data.max(VALUE_MAX) + 2 * BESIDE).max(wire::READ_BUFFER_MIN)
}

fn agree(offer: &InitOffer, config: &Config) -> Result<Negotiated, HandshakeError> {
    let (major, minor) = (offer.major, offer.minor);
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
    fn only_what_is_offered_is_agreed_on() {
        let offered = InitFlags::WRITEBACK_CACHE | InitFlags::MAX_PAGES | InitFlags::SPLICE_READ;
        let config = Config { flags: InitFlags::all(), ..Config::default() };
        let agreement = agree(&offer(40, offered), &config).unwrap();
        assert_eq!(agreement.flags, InitFlags::WRITEBACK_CACHE | InitFlags::MAX_PAGES);
        assert_eq!((agreement.minor, agreement.max_readahead), (40, 128 << 10));
        assert_eq!(agree(&offer(99, offered), &config).unwrap().minor, wire::MINOR);
    }

    #[test]
    fn open_that_truncates_gives_way_to_no_open() {
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
