//! The warnings of opening a volume.

use std::fmt;

use userbtrfs_format::Physical;

use crate::error::SuperblockMirrorError;

/// A condition to be reported after opening a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The primary superblock is damaged.
    Mirror {
        /// The error of the primary superblock.
        primary: SuperblockMirrorError,
        /// The copy that is used instead.
        used: Physical,
        /// The generation of that copy.
        generation: u64,
    },
    /// A log is pending.
    PendingLog {
        /// The generation of the commit it follows.
        generation: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mirror { primary, used, generation } => write!(
                f,
                "the primary superblock is damaged ({primary}); reading generation \
                 {generation} from the copy at {used}, read-only: a log that was pending is not \
                 replayed",
            ),
            Self::PendingLog { generation } => write!(
                f,
                "a log is pending after generation {generation} and is not replayed: \
                 what was fsynced since then is not shown",
            ),
        }
    }
}
