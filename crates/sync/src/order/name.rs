//! The names of locks.

use std::fmt;

use crate::class::Class;
use crate::nesting::BlockLabel;

/// A lock's name, as the check compares and prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Its class.
    pub(super) class: Class,
    /// Its key in the class.
    pub(super) key: Key,
}

/// The key of a lock in its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// No key.
    None,
    /// An inode, by subvolume and number: the order of sorted sets.
    Inode(u64, u64),
    /// A tree block.
    Block(BlockLabel),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Key::None => write!(f, "{}", self.class),
            Key::Inode(subvolume, number) => {
                write!(f, "{} (subvolume {subvolume}, inode {number})", self.class)
            }
            Key::Block(label) => write!(f, "{} ({label})", self.class),
        }
    }
}
