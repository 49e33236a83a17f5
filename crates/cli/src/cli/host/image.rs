//! The arguments for an image: the part of it that is the filesystem, the options for opening it,
//! and hints in the errors of opening it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Error, anyhow};
use rustix::fs::{major, minor};
use userbtrfs::device::{
    Device as _, DeviceError, FileDevice, FileOptions, Region, mount_of_holder, partitions,
};
use userbtrfs::mkfs::{BTRFS, content};
use userbtrfs::mount::control::mount_point;
use userbtrfs::{OpenError, OpenOptions, SuperblockError, SuperblockMirrorError};
use userbtrfs_format::SUPERBLOCK_OFFSETS;
use userbtrfs_volume::read_superblock_copy;

use crate::cli::sizes::size;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ImageArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
    /// Offset of the filesystem in the image
    #[arg(long = "offset", value_name = "BYTES", value_parser = size)]
    pub(crate) image_offset: Option<u64>,
    /// Partition number (GPT or MBR)
    #[arg(long, value_name = "N", conflicts_with = "image_offset")]
    pub(crate) partition: Option<u32>,
    /// Do not lock the image (for filesystems without locks; two writers destroy it)
    #[arg(long)]
    pub(crate) no_lock: bool,
}

impl ImageArgs {
    /// Returns the image as messages name it.
    pub(crate) fn name(&self) -> String {
        self.image.display().to_string()
    }

    /// Returns the options that open its device for reading.
    pub(crate) fn file_options(&self) -> FileOptions {
        FileOptions { region: self.region(), lock: !self.no_lock, ..FileOptions::default() }
    }

    /// Sets the options of a filesystem that is opened on it.
    pub(crate) fn apply(&self, options: &mut OpenOptions) {
        options.region(self.region()).lock(!self.no_lock);
    }

    /// Returns the option of these that was given, if one was.
    pub(crate) fn given_option(&self) -> Option<&'static str> {
        match self {
            Self { image_offset: Some(_), .. } => Some("--offset"),
            Self { partition: Some(_), .. } => Some("--partition"),
            Self { no_lock: true, .. } => Some("--no-lock"),
            _ => None,
        }
    }

    /// Returns the words of a command line that mean the same, without the image.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let offset = self.image_offset.map(|bytes| format!("--offset={bytes}"));
        let partition = self.partition.map(|number| format!("--partition={number}"));
        let no_lock = self.no_lock.then(|| "--no-lock".to_owned());
        offset.into_iter().chain(partition).chain(no_lock).map(OsString::from).collect()
    }

    /// Returns an error of opening the image with its name, and with a hint if an option would
    /// help.
    pub(crate) fn explain(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        if is_without_superblock(&error)
            && self.region() == Region::Whole
            && let Some(text) = self.partition_hint()
        {
            return anyhow!("{}: {text}", self.name());
        }
        if is_without_superblock(&error)
            && let Some(content) = self.foreign_content(&error)
        {
            return anyhow!("{}: not a btrfs filesystem{content}", self.name());
        }
        if is_of_replay(&error) {
            let hint = "\"log salvage\" skips what is damaged, and --no-log-replay, or the mount \
                        options ro,nologreplay, read without the log";
            return anyhow!("{error:#} ({hint})").context(self.name());
        }
        let error = match find_device_error(&error) {
            Some(DeviceError::NoLocks { .. }) => {
                anyhow!("{error} (--no-lock opens it without a lock)")
            }
            Some(DeviceError::Locked { .. }) => {
                let point = mount_of_holder(&self.image).and_then(mount_point);
                let holder = point.map_or_else(
                    || "open for writing or mounted".to_owned(),
                    |point| format!("a mount at {}", point.display()),
                );
                anyhow!("in use by another userbtrfs ({holder})")
            }
            _ => error,
        };
        error.context(self.name())
    }

    fn region(&self) -> Region {
        match (self.image_offset, self.partition) {
            (Some(start), _) => Region::From(start),
            (None, Some(number)) => Region::Partition(number),
            (None, None) => Region::Whole,
        }
    }

    /// Returns which partitions hold btrfs, if there is a partition table.
    fn partition_hint(&self) -> Option<String> {
        let partitions = partitions(&self.image).ok()??;
        let numbers = partitions.iter().map(|partition| partition.number);
        let found: Vec<String> =
            numbers.filter(|number| self.holds_btrfs(*number)).map(|it| it.to_string()).collect();
        Some(match found.as_slice() {
            [] => "has a partition table, and no partition holds btrfs".to_owned(),
            [one] => {
                format!("has a partition table; partition {one} holds btrfs (--partition {one})")
            }
            many => {
                let list = many.join(", ");
                format!("has a partition table; partitions {list} hold btrfs (--partition N)")
            }
        })
    }

    /// Returns what is known of the content of an image that is no btrfs filesystem, as the rest of
    /// a message; `None` if it is one, damaged as `error` says.
    fn foreign_content(&self, error: &Error) -> Option<String> {
        let device = FileDevice::open(&self.image, self.file_options()).ok()?;
        match content(&device).ok()? {
            Some(BTRFS) => None,
            Some(found) => Some(format!(" (it holds {found})")),
            None if !is_without_magic(error) => None,
            None if is_blank(&device) => Some(" (it is blank)".to_owned()),
            None => Some(String::new()),
        }
    }

    fn holds_btrfs(&self, number: u32) -> bool {
        let options = FileOptions { region: Region::Partition(number), ..FileOptions::default() };
        let device = FileDevice::open(&self.image, options);
        device.is_ok_and(|device| {
            device.len() > SUPERBLOCK_OFFSETS[0].0
                && read_superblock_copy(&device, SUPERBLOCK_OFFSETS[0]).is_some_and(|it| it.is_ok())
        })
    }
}

/// Returns true if a file or block device has a sound superblock of a filesystem on one device.
pub(crate) fn holds_one_btrfs(path: &Path) -> bool {
    let device = FileDevice::open(path, FileOptions::default());
    device.is_ok_and(|device| {
        device.len() > SUPERBLOCK_OFFSETS[0].0
            && read_superblock_copy(&device, SUPERBLOCK_OFFSETS[0])
                .is_some_and(|it| it.is_ok_and(|superblock| superblock.num_devices == 1))
    })
}

fn is_without_superblock(error: &Error) -> bool {
    let open = find_open_error(error);
    find_mirror_error(error).is_some()
        || matches!(open, Some(OpenError::Superblock { .. } | OpenError::TooSmall { .. }))
}

/// Returns true if the error is that no copy of the superblock has the magic.
fn is_without_magic(error: &Error) -> bool {
    let is_it = |copy: &SuperblockMirrorError| {
        matches!(copy, SuperblockMirrorError::Content(SuperblockError::Magic(_)))
    };
    match find_open_error(error) {
        Some(OpenError::Superblock { primary, mirrors }) => {
            is_it(primary) && mirrors.iter().all(|(_, mirror)| is_it(mirror))
        }
        _ => find_mirror_error(error).is_some_and(is_it),
    }
}

/// Returns true if a device begins with zeros alone.
fn is_blank(device: &FileDevice) -> bool {
    let len = usize::try_from(device.len()).unwrap_or(usize::MAX).min(BLANK);
    device.read(0, len).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// The number of bytes at the start of an image that tell whether it is blank.
const BLANK: usize = 1 << 20;

fn find_open_error(error: &Error) -> Option<&OpenError> {
    error.chain().find_map(|cause| match cause.downcast_ref::<userbtrfs::Error>() {
        Some(userbtrfs::Error::Open(open)) => Some(open),
        _ => cause.downcast_ref::<OpenError>(),
    })
}

fn find_mirror_error(error: &Error) -> Option<&SuperblockMirrorError> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

fn is_of_replay(error: &Error) -> bool {
    let is_it = |cause: &userbtrfs::Error| matches!(cause, userbtrfs::Error::Replay(_));
    error.chain().any(|cause| cause.downcast_ref().is_some_and(is_it))
}

fn find_device_error(error: &Error) -> Option<&DeviceError> {
    error.chain().find_map(|cause| match cause.downcast_ref::<userbtrfs::Error>() {
        Some(userbtrfs::Error::Device(device)) => Some(device),
        _ => cause.downcast_ref::<DeviceError>(),
    })
}

/// Returns the device and inode number of an image file, also if it is given by a loop device.
pub(crate) fn image_file(image: &Path) -> Option<(u64, u64)> {
    let mut metadata = fs::metadata(image).ok()?;
    if metadata.file_type().is_block_device() {
        let major = major(metadata.rdev());
        let minor = minor(metadata.rdev());
        let path = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
        let backing = fs::read_to_string(path).ok()?;
        metadata = fs::metadata(backing.trim_end_matches('\n')).ok()?;
    }
    Some((metadata.dev(), metadata.ino()))
}
