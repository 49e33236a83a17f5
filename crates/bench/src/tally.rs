//! Counts of the files in a tree.

use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The number and size of the files below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Regular files.
    pub(crate) files: u64,
    /// Everything else.
    pub(crate) others: u64,
    /// The total size of all regular files.
    pub(crate) bytes: u64,
}

impl Tally {
    /// Counts the files below `dir`; symbolic links are not followed.
    pub(crate) fn of(dir: &Path) -> Result<Self> {
        let mut tally = Self::default();
        for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                tally += Self { files: 1, bytes: metadata.len(), others: 0 };
                continue;
            }
            tally.others += 1;
            if metadata.is_dir() {
                tally += Self::of(&entry.path())?;
            }
        }
        Ok(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.others += other.others;
        self.bytes += other.bytes;
    }
}
