//! The kinds of requests.

use std::fmt;

/// Declares the kinds with their numbers.
macro_rules! opcodes {
    ($(#[doc = $doc:literal] $name:ident = $number:literal,)*) => {
        /// The kind of a request; the numbers are those of `linux/fuse.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Opcode {
            $(#[doc = $doc] $name,)*
            /// An unknown kind.
            Unknown(u32),
        }

        impl Opcode {
            /// All known kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the kind with this number.
            pub fn new(number: u32) -> Self {
                match number {
                    $($number => Self::$name,)*
                    _ => Self::Unknown(number),
                }
            }

            /// Returns a sentence about the kind.
            pub fn explanation(self) -> &'static str {
                match self {
                    $(Self::$name => $doc.trim_ascii(),)*
                    Self::Unknown(_) => "A kind that the server does not know.",
                }
            }

            /// Returns the number of the kind.
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Unknown(number) => number,
                }
            }
        }
    };
}

opcodes! {
    /// Finds a name.
    Lookup = 1,
    /// Drops references to a node; not answered.
    Forget = 2,
    /// Reads attributes.
    Getattr = 3,
    /// Changes attributes.
    Setattr = 4,
    /// Reads a symbolic link.
    Readlink = 5,
    /// Makes a symbolic link.
    Symlink = 6,
    /// Makes a node of any type except directory.
    Mknod = 8,
    /// Makes a directory.
    Mkdir = 9,
    /// Removes a name.
    Unlink = 10,
    /// Removes a directory.
    Rmdir = 11,
    /// Renames, without flags.
    Rename = 12,
    /// Adds a name to a node.
    Link = 13,
    /// Opens a file.
    Open = 14,
    /// Reads from a file.
    Read = 15,
    /// Writes to a file.
    Write = 16,
    /// Returns the space that is used and free.
    Statfs = 17,
    /// Closes a handle.
    Release = 18,
    /// Makes a file durable.
    Fsync = 20,
    /// Sets an extended attribute.
    Setxattr = 21,
    /// Reads an extended attribute.
    Getxattr = 22,
    /// Lists extended attributes.
    Listxattr = 23,
    /// Removes an extended attribute.
    Removexattr = 24,
    /// A descriptor was closed.
    Flush = 25,
    /// The first request.
    Init = 26,
    /// Opens a directory.
    Opendir = 27,
    /// Lists a directory.
    Readdir = 28,
    /// Closes a handle of a directory.
    Releasedir = 29,
    /// Makes a directory durable.
    Fsyncdir = 30,
    /// Finds a conflicting lock.
    Getlk = 31,
    /// Takes or releases a lock.
    Setlk = 32,
    /// Takes a lock, waiting for it.
    Setlkw = 33,
    /// Checks permission.
    Access = 34,
    /// Makes and opens a file.
    Create = 35,
    /// Interrupts another request, whose caller no longer wants to wait; not answered.
    Interrupt = 36,
    /// Finds a block of a file on its device.
    Bmap = 37,
    /// The last request of a block device's mount.
    Destroy = 38,
    /// Handles ioctl(2).
    Ioctl = 39,
    /// Returns the readiness of a file.
    Poll = 40,
    /// Answers a notification.
    NotifyReply = 41,
    /// Drops references to many nodes; not answered.
    BatchForget = 42,
    /// Allocates, punches or zeroes a range.
    Fallocate = 43,
    /// Lists a directory, each name with the answer of LOOKUP.
    Readdirplus = 44,
    /// Renames, with flags.
    Rename2 = 45,
    /// Finds data and holes.
    Lseek = 46,
    /// Copies between files; the answer has 32 bits.
    CopyFileRange = 47,
    /// Makes everything durable.
    Syncfs = 50,
    /// Makes and opens a file without a name.
    Tmpfile = 51,
    /// Reads attributes, with the time of birth.
    Statx = 52,
    /// Copies between files; the answer has 64 bits.
    CopyFileRange64 = 53,
}

impl Opcode {
    /// The maximum size of an answer to READLINK: the longest path, without its NUL.
    pub(crate) const READLINK_SIZE: u32 = 4095;

    /// Returns true if the kernel expects an answer.
    pub fn is_answered(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }
}

/// The kind in capitals, with an underscore between words; UNKNOWN for all unknown kinds.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Unknown(_) = self {
            return f.write_str("UNKNOWN");
        }
        let name = format!("{self:?}");
        name.char_indices().try_for_each(|(at, letter)| {
            let separator = if at > 0 && letter.is_uppercase() { "_" } else { "" };
            write!(f, "{separator}{}", letter.to_ascii_uppercase())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_shown_in_capitals() {
        let shown = |opcode: Opcode| opcode.to_string();
        assert_eq!(shown(Opcode::Readdirplus), "READDIRPLUS");
        assert_eq!(shown(Opcode::CopyFileRange64), "COPY_FILE_RANGE64");
        assert_eq!(shown(Opcode::Unknown(7)), "UNKNOWN");
    }

    #[test]
    fn explanations_are_sentences() {
        assert_eq!(Opcode::Lookup.explanation(), "Finds a name.");
        for kind in Opcode::ALL.iter().chain([&Opcode::Unknown(0)]) {
            let text = kind.explanation();
            assert!(text.ends_with('.') && text.len() > 1 && !text.starts_with(' '), "{kind}");
        }
    }

    #[test]
    fn numbers_and_kinds_agree() {
        for number in 0..100 {
            assert_eq!(Opcode::new(number).number(), number);
        }
        assert_eq!(Opcode::ALL.len(), 49);
        assert_eq!(Opcode::new(48), Opcode::Unknown(48));
    }
}
