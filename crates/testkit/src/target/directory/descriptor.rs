//! Objects by their descriptors.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rustix::fs::{self, FileType};

use crate::model::Outcome;

/// Returns the type of an object.
pub(super) fn kind(object: impl AsFd) -> Outcome<FileType> {
    Ok(FileType::from_raw_mode(fs::fstat(object)?.st_mode))
}

/// Returns a path that refers to the object of a descriptor, of any type.
pub(super) fn by_itself(object: impl AsFd) -> String {
    format!("/proc/self/fd/{}", object.as_fd().as_raw_fd())
}

/// Returns a path by which other processes open a file.
pub(super) fn path(file: impl AsFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_fd().as_raw_fd()).into()
}
