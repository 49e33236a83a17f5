//! What btrfs writes to the kernel log about devices that are ours.
//!
//! 1. A line that names a device counts where that one is held ([`KernelLog::hold`]) when the line
//!    is read: others on the machine have mounts of their own. A line that names none counts.
//! 2. What was written before a device is held, or let go, is read before.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::Errno;
use userbtrfs_sync::{Class, Mutex};

/// Longest record of `/dev/kmsg`, in bytes.
const RECORD: usize = 8192;
/// The least urgent level that counts: warning. Levels are the lowest three bits of a priority;
/// lower is worse.
const WARNING: u32 = 4;
/// What stands before the name of a device.
const BEFORE_DEVICE: [&str; 2] = ["(device ", "/dev/"];

/// How a line ends that tells of an access to the 53 bytes of an extent's item.
const LEN_OF_EXTENT: &str = " len 53";

/// A reader of the kernel log that starts where the log ended when it was made.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The names of the devices, without `/dev/`.
    held: BTreeSet<String>,
    /// What was read and nobody was told.
    complaints: Vec<String>,
}

impl KernelLog {
    /// Starts at the log's end.
    pub fn from_now() -> anyhow::Result<Self> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits())?;
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open("/dev/kmsg")
            .context("opening the kernel log")?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, state: Mutex::new(Class::DeviceQueue, State::default()) })
    }

    /// From now on lines about this device count.
    pub fn hold(&self, device: &Path) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        self.read(&mut state)?;
        state.held.insert(name(device));
        Ok(())
    }

    /// From now on lines about this device count no more.
    pub fn let_go(&self, device: &Path) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        self.read(&mut state)?;
        state.held.remove(&name(device));
        Ok(())
    }

    /// The lines about btrfs of level warning or worse that were written since this was last
    /// called, or since the start.
    pub fn complaints(&self) -> anyhow::Result<Vec<String>> {
        let mut state = self.state.lock();
        self.read(&mut state)?;
        Ok(std::mem::take(&mut state.complaints))
    }

    fn read(&self, state: &mut State) -> anyhow::Result<()> {
        let mut record = vec![0; RECORD];
        loop {
            match (&self.file).read(&mut record) {
                Ok(length) => {
                    let complaint = complaint(&record[..length], &state.held);
                    state.complaints.extend(complaint);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {
                    let said = "the kernel log was overwritten before it was read";
                    state.complaints.push(said.into());
                }
                Err(error) => return Err(error).context("reading the kernel log"),
            }
        }
    }
}

fn name(device: &Path) -> String {
    device.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The text of a record `priority,...;text` if it is a complaint of btrfs, and names no device but
/// these.
///
/// That lines were left out for their number is none: each level has its own limit, so if they were
/// complaints, a hundred others came before them. Nor is that a mount was killed before it had its
/// threads, which the kernel says of work queues. Nor is what a replay by Linux says where a file
/// of a few bytes has grown: it reads its inline item, where the item of an extent would be, with
/// the length of one, behind the end of the block; it finds that they differ, and goes on.
fn complaint(record: &[u8], held: &BTreeSet<String>) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let line = text.lines().next()?;
    let of_btrfs = line.to_ascii_lowercase().contains("btrfs");
    let of_growth = line.contains("access to eb bytenr") && line.ends_with(LEN_OF_EXTENT);
    let of_none = line.ends_with("callbacks suppressed") || line.starts_with("workqueue: ");
    let mut named = devices(line).peekable();
    let ours = named.peek().is_none() || named.any(|name| held.contains(name));
    (priority & 7 <= WARNING && of_btrfs && !of_none && !of_growth && ours).then(|| line.to_owned())
}

/// The names of the devices in a line. `<unknown>` is none.
fn devices(line: &str) -> impl Iterator<Item = &str> {
    let is_end = |letter: char| !letter.is_alphanumeric() && !"-_!".contains(letter);
    let names = BEFORE_DEVICE.into_iter().flat_map(|before| line.split(before).skip(1));
    names.map(move |rest| rest.split(is_end).next().unwrap_or(rest)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(record: &str) -> Option<String> {
        let held = ["loop0", "loop12"].map(str::to_owned);
        complaint(record.as_bytes(), &BTreeSet::from(held))
    }

    #[test]
    fn a_warning_of_btrfs_is_a_complaint() {
        let text = "BTRFS warning (device loop0): checksum failed";
        let warning = format!("4,812,5140900,-;{text}\n KEY=1\n");
        assert_eq!(judged(&warning).as_deref(), Some(text));
        assert!(judged("12,1,2,-;WARNING: CPU: 0 at fs/btrfs/inode.c:1\n").is_some());
    }

    #[test]
    fn information_and_other_warnings_are_none() {
        assert_eq!(judged("6,812,5140900,-;BTRFS info (device loop0): first mount\n"), None);
        assert_eq!(judged("4,812,5140900,-;EXT4-fs warning\n"), None);
        assert_eq!(judged("4,8,5,-;_btrfs_printk: 20 callbacks suppressed\n"), None);
        let access = "BTRFS warning (device loop0): access to eb bytenr 9449472 len 4096";
        let judged_of = |range| judged(&format!("4,8,5,-;{access} out of range {range}\n"));
        assert_eq!(judged_of("start 4050 len 53"), None);
        assert!(judged_of("start 4050 len 160").is_some());
        let killed = "workqueue: Failed to create a rescuer kthread for wq \"btrfs-cache\": -EINTR";
        assert_eq!(judged(&format!("3,8,5,-;{killed}\n")), None);
    }

    #[test]
    fn what_is_said_of_the_devices_of_others_is_none() {
        for ours in [
            "BTRFS error (device loop12 state EA): errno=-5",
            "BTRFS: error (device loop0 state A) in cleanup_transaction:2023: errno=-28",
            "BTRFS warning: duplicate device /dev/loop1 devid 1 scanned beside /dev/loop12 (99)",
            "BTRFS error (device <unknown>): no such thing",
            "BTRFS critical: out of memory",
        ] {
            assert_eq!(judged(&format!("3,8,5,-;{ours}\n")).as_deref(), Some(ours));
        }
        for other in [
            "BTRFS error (device loop1): bad tree block start",
            "BTRFS error (device loop120 state EA): errno=-5",
            "BTRFS: error (device dm-0) in cleanup_transaction:2023: errno=-28",
            "BTRFS warning: duplicate device /dev/sda1 devid 1",
        ] {
            assert_eq!(judged(&format!("3,8,5,-;{other}\n")), None, "{other}");
        }
    }
}
