//! Messages of btrfs in the kernel log about our devices.
//!
//! 1. A line that names devices counts if one of them is watched ([`KernelLog::hold`]) when the
//!    line is read: other users of the machine have mounts of their own. A line without a device
//!    counts.
//! 2. Lines written before a device is watched, or released, are read before that.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::Errno;
use userbtrfs_sync::{Class, Mutex};

/// The maximum length of a record of `/dev/kmsg`, in bytes.
const RECORD: usize = 8192;
/// The least severe level that counts: warning. The level is the lowest three bits of a priority;
/// lower is more severe.
const WARNING: u32 = 4;
/// The text before the name of a device.
const BEFORE_DEVICE: [&str; 2] = ["(device ", "/dev/"];

/// The end of a line about an access to the 53 bytes of an extent item.
const LEN_OF_EXTENT: &str = " len 53";

/// A reader of the kernel log that starts at the end of the log.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The names of the watched devices, without `/dev/`.
    held: BTreeSet<String>,
    /// Messages that were read but not returned yet.
    complaints: Vec<String>,
}

impl KernelLog {
    /// Starts at the end of the log.
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

    /// Starts counting lines about this device.
    pub fn hold(&self, device: &Path) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        self.read(&mut state)?;
        state.held.insert(name(device));
        Ok(())
    }

    /// Stops counting lines about this device.
    pub fn let_go(&self, device: &Path) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        self.read(&mut state)?;
        state.held.remove(&name(device));
        Ok(())
    }

    /// Returns the lines about btrfs of level warning or worse since the last call, or since the
    /// start.
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

/// Returns the text of a record `priority,...;text` if it is a complaint of btrfs that names one of
/// the `held` devices or no device.
///
/// Not complaints: "callbacks suppressed", since each level has its own limit, so if the suppressed
/// lines were complaints, a hundred others precede them; a mount that was killed before its threads
/// were started, which the kernel reports for work queues; and a message from log replay by Linux
/// about an inline file that has grown: Linux reads its inline item with the length of an extent
/// item, past the end of the block, finds that they differ, and continues.
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

/// Returns the names of the devices in a line; `<unknown>` is not one.
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
    fn messages_about_devices_of_others_are_not_complaints() {
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
