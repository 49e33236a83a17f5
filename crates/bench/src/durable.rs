//! Files that grow durably: those of the library and those of the system.

use std::fs;
use std::os::unix::fs::FileExt as _;

use anyhow::{Result, ensure};
use userbtrfs::File;

/// A file that grows.
pub(crate) trait Durable: Send + Sync {
    /// Writes data and makes it durable.
    fn write_and_sync(&self, bytes: &[u8], offset: u64) -> Result<()>;
}

impl Durable for File {
    fn write_and_sync(&self, bytes: &[u8], offset: u64) -> Result<()> {
        ensure!(self.write_at(bytes, offset)? == bytes.len(), "no space at {offset}");
        Ok(self.sync_all()?)
    }
}

impl Durable for fs::File {
    fn write_and_sync(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_all_at(bytes, offset)?;
        Ok(self.sync_all()?)
    }
}
