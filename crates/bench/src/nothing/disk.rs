//! A disk for synced data: the minimum work that makes it durable.
//!
//! 1. A sync writes as many bytes as were written to the file since its last sync to an area of
//!    their own, and one block in place of a log record, which overwrites an old one in a small
//!    ring. Then the disk is flushed. The data cannot be read back.
//! 2. One flush is in flight at a time, and the next one serves all threads that have written
//!    before it begins.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::io::Errno;
use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Class, Condvar, Mutex};

/// The block size, in bytes.
pub(super) const BLOCK: u32 = 4096;

/// The data that is written, as much as one call writes.
static BYTES: [u8; 1 << 20] = [0xb7; 1 << 20];

/// The size of the ring of blocks at the start of the file, which `open` writes.
const AROUND: u64 = BYTES.len() as u64;

/// A file that synced data is written to.
pub(super) struct Disk {
    file: File,
    length: u64,
    /// The offset of the next data, and the number of blocks written.
    next: AtomicU64,
    blocks: AtomicU64,
    flushes: Mutex<Flushes>,
    ended: Condvar,
}

/// The number of flushes begun and ended.
#[derive(Default)]
struct Flushes {
    begun: u64,
    ended: u64,
    /// A flush has failed, and all later ones do.
    failed: bool,
}

impl Disk {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::options().write(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        let length = file.metadata()?.len();
        ensure!(length > 2 * AROUND, "{} is too small", path.display());
        file.write_all_at(&BYTES, 0)?;
        file.sync_all()?;
        Ok(Self {
            file,
            length,
            next: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            flushes: Mutex::new(Class::FuseSession, Flushes::default()),
            ended: Condvar::new(),
        })
    }

    /// Writes this number of bytes and makes them durable.
    pub(super) fn sync(&self, bytes: u64) -> Result<(), Errno> {
        let block = u64::from(BLOCK);
        let mut left = bytes.next_multiple_of(block);
        while left > 0 {
            let piece = left.min(BYTES.len() as u64);
            let next = self.next.fetch_add(piece, Ordering::Relaxed);
            self.write(piece, AROUND + next % (self.length - 2 * AROUND))?;
            left -= piece;
        }
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed);
        self.write(block, blocks * block % AROUND)?;
        self.flush()
    }

    fn write(&self, count: u64, at: u64) -> Result<(), Errno> {
        let bytes = &BYTES[..usize::try_from(count).expect("no more than there are")];
        self.file.write_all_at(bytes, at).map_err(|_| Errno::IO)
    }

    fn flush(&self) -> Result<(), Errno> {
        let mut flushes = self.flushes.lock();
        let wanted = flushes.begun + 1;
        while flushes.ended < wanted && !flushes.failed {
            if flushes.begun > flushes.ended {
                self.ended.wait(&mut flushes);
                continue;
            }
            flushes.begun += 1;
            drop(flushes);
            let flushed = self.file.sync_data();
            flushes = self.flushes.lock();
            flushes.ended = flushes.begun;
            flushes.failed |= flushed.is_err();
            self.ended.notify_all();
        }
        if flushes.failed { Err(Errno::IO) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn concurrent_syncs_are_written_and_share_flushes() {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(4 << 20).unwrap();
        let disk = Disk::open(image.path()).unwrap();
        thread::scope(|scope| {
            for bytes in [0, 1, 4096, 300_000] {
                let disk = &disk;
                scope.spawn(move || (0..5).for_each(|_| disk.sync(bytes).unwrap()));
            }
        });
        let block = u64::from(BLOCK);
        let written = 5 * (1 + 1 + 74) * block;
        assert_eq!(disk.next.load(Ordering::Relaxed), written);
        assert_eq!(disk.blocks.load(Ordering::Relaxed), 20);
        let flushes = disk.flushes.lock();
        assert!(flushes.begun == flushes.ended && (5..=20).contains(&flushes.ended));
        let bytes = std::fs::read(image.path()).unwrap();
        let is_written = |byte: &&u8| **byte == BYTES[0];
        assert_eq!(bytes.iter().filter(is_written).count() as u64, AROUND + written);
    }
}
