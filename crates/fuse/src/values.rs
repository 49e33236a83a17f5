//! Small types that requests and answers consist of.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::AtFlags;

/// The flag of statx(2) for attributes that the kernel has, without a request to the server. Not
/// all C libraries define it.
pub const STATX_DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);

/// The node ID that server and kernel use for an inode: a number that the server chooses.
///
/// The kernel counts its references to a node: each answer with an entry adds one, FORGET drops
/// them. Zero is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root, which the kernel knows from the start and never forgets.
    pub const ROOT: Self = Self(1);
}

/// The server's handle of an open file or directory; zero if OPEN was not served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// The owner of locks: an opaque number chosen by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// The name of a directory entry: not empty, no slash, no NUL. Only LOOKUP sends `.` and `..`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Returns the name, if these bytes are a valid one.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_name = !bytes.is_empty() && !bytes.iter().any(|byte| matches!(byte, 0 | b'/'));
        is_name.then_some(Self(bytes))
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the name as an `OsStr`.
    pub fn as_os_str(self) -> &'a OsStr {
        OsStr::from_bytes(self.0)
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_os_str().fmt(f)
    }
}

/// A time: seconds since 1970, and nanoseconds after that, below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

impl Timestamp {
    /// Returns the time, if `nanoseconds` is below 10^9.
    pub fn new(seconds: i64, nanoseconds: u32) -> Option<Self> {
        (nanoseconds < 1_000_000_000).then_some(Self { seconds, nanoseconds })
    }

    /// Returns the seconds since 1970; negative before.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds after the second.
    pub fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }
}

/// The caller of a request. `pid` is zero if the process is unknown in the server's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user ID for file access.
    pub uid: u32,
    /// The group ID for file access.
    pub gid: u32,
    /// The ID of the calling thread.
    pub pid: u32,
    /// The group of the parent directory, if a file is made there by a supplementary member of it.
    pub group_of_parent: Option<u32>,
}

/// The number of a device node: 12 bits of major, 20 bits of minor.
///
/// Encoded in 32 bits: the low eight bits of the minor, then the major, then the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl DeviceNumber {
    /// Returns the 32-bit encoding; bits that do not fit are lost.
    pub fn to_bits(self) -> u32 {
        (self.minor & 0xff) | ((self.major & 0xfff) << 8) | ((self.minor & 0xfff00) << 12)
    }

    /// Decodes the 32-bit encoding.
    pub fn from_bits(bits: u32) -> Self {
        Self { major: (bits >> 8) & 0xfff, minor: (bits & 0xff) | ((bits >> 12) & 0xfff00) }
    }
}

/// A validity without end: the kernel may cache the answer for ever.
pub const FOREVER: Duration = Duration::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_slash_and_no_nul() {
        assert_eq!(Name::new(b"a.b").unwrap().as_bytes(), b"a.b");
        for bad in [&b""[..], b"a/b", b"a\0b"] {
            assert!(Name::new(bad).is_none());
        }
    }

    #[test]
    fn times_before_1970_count_backwards() {
        assert_eq!(Timestamp::new(-1, 999_999_999).unwrap().seconds(), -1);
        assert!(Timestamp::new(0, 1_000_000_000).is_none());
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor) in [(8, 1), (0xfff, 0xf_ffff), (259, 256)] {
            let number = DeviceNumber { major, minor };
            assert_eq!(DeviceNumber::from_bits(number.to_bits()), number);
        }
        assert_eq!(DeviceNumber { major: 1, minor: 0x123 }.to_bits(), 0x0010_0123);
    }
}
