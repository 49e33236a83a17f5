//! What btrfs writes to the kernel log.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Longest record of `/dev/kmsg`, in bytes.
const RECORD: usize = 8192;
/// The least urgent level that counts: warning. Levels are the lowest three bits of a priority;
/// lower is worse.
const WARNING: u32 = 4;

/// A reader of the kernel log that starts where the log ended when it was made.
#[derive(Debug)]
pub struct KernelLog(File);

impl KernelLog {
    /// Starts at the log's end.
    pub fn from_now() -> anyhow::Result<Self> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits())?;
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open("/dev/kmsg")
            .context("opening the kernel log")?;
        log.seek(SeekFrom::End(0))?;
        Ok(Self(log))
    }

    /// The lines about btrfs of level warning or worse that were written since this was last
    /// called, or since the start.
    pub fn complaints(&self) -> anyhow::Result<Vec<String>> {
        let mut complaints = Vec::new();
        let mut record = vec![0; RECORD];
        loop {
            match (&self.0).read(&mut record) {
                Ok(length) => complaints.extend(complaint(&record[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(complaints),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {
                    complaints.push("the kernel log was overwritten before it was read".into());
                }
                Err(error) => return Err(error).context("reading the kernel log"),
            }
        }
    }
}

/// The text of a record `priority,...;text` if it is a complaint of btrfs.
///
/// That lines were left out for their number is none: each level has its own limit, so if they were
/// complaints, a hundred others came before them.
fn complaint(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let line = text.lines().next()?;
    let ours = line.to_ascii_lowercase().contains("btrfs");
    let left_out = line.ends_with("callbacks suppressed");
    (priority & 7 <= WARNING && ours && !left_out).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_btrfs_is_a_complaint() {
        let warning = b"4,812,5140900,-;BTRFS warning (device loop0): checksum failed\n KEY=1\n";
        let text = "BTRFS warning (device loop0): checksum failed";
        assert_eq!(complaint(warning).as_deref(), Some(text));
        assert!(complaint(b"12,1,2,-;WARNING: CPU: 0 at fs/btrfs/inode.c:1\n").is_some());
    }

    #[test]
    fn information_and_other_warnings_are_none() {
        assert_eq!(complaint(b"6,812,5140900,-;BTRFS info (device loop0): first mount\n"), None);
        assert_eq!(complaint(b"4,812,5140900,-;EXT4-fs warning\n"), None);
        assert_eq!(complaint(b"4,8,5,-;_btrfs_printk: 20 callbacks suppressed\n"), None);
    }
}
