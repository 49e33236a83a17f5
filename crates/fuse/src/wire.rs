//! The layouts of messages, as the kernel writes and reads them.
//!
//! 1. Source: `linux/fuse.h` of the kernel's user interface, protocol 7.45, which its author also
//!    gives under the BSD licence. Names of structures follow it without their `fuse_`.
//! 2. Numbers are in the byte order of the machine; every structure is a multiple of eight bytes,
//!    without gaps, and its size is asserted where it is declared.
//! 3. Nothing here is judged: `parse` turns what comes into types that cannot be wrong.

mod notices;
mod replies;
mod requests;

pub(crate) use notices::{EXPIRE_ONLY, Notice, NoticeDelete, NoticeEntry, NoticeInode, NoticePoll};
pub(crate) use replies::*;
pub(crate) use requests::*;

/// The major version of the protocol spoken here.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version known here.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that is spoken: that of Linux 5.4.
pub(crate) const MINOR_MIN: u32 = 31;
/// The least size of a buffer for requests, in bytes.
pub(crate) const READ_BUFFER_MIN: usize = 8192;
/// Entries of directories are aligned to this many bytes.
pub(crate) const DIRENT_ALIGN: usize = 8;
/// The longest name that fits into a directory listing, in bytes.
pub(crate) const NAME_LEN_MAX: usize = 1024;

/// Declares structures with their sizes in bytes.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident[$size:literal] { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type),*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}
use layouts;
