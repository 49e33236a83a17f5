//! The layouts of messages, as the kernel writes and reads them.
//!
//! 1. Source: `linux/fuse.h` of the kernel's user interface, protocol 7.45, which its author also
//!    licenses under the BSD licence. Structures have the names of that header without `fuse_`.
//! 2. Numbers are in native byte order; the size of every structure is a multiple of eight bytes,
//!    without padding, and is asserted at its declaration.
//! 3. Nothing is validated here: `parse` converts messages to types that are always valid.

mod notify;
mod replies;
mod requests;

pub(crate) use notify::{
    EXPIRE_ONLY, NotifyCode, NotifyDelete, NotifyInvalEntry, NotifyInvalInode, NotifyPollWakeup,
};
pub(crate) use replies::*;
pub(crate) use requests::*;

/// The major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest supported minor version.
pub(crate) const MINOR: u32 = 45;
/// The oldest supported minor version: that of Linux 5.4.
pub(crate) const MINOR_MIN: u32 = 31;
/// The minimum size of a buffer for requests, in bytes.
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
