//! Filling files.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use userbtrfs_engine::api::FileReader;

use super::target::failed;
use super::{ExtractError, Progress};

/// Writes the content that `reader` gives into an empty file, holes as holes.
pub(super) fn fill(
    progress: &Progress,
    mut reader: FileReader,
    source: &str,
    file: &impl AsFd,
    path: &Path,
) -> Result<(), ExtractError> {
    let read_failed =
        |error| ExtractError::Source { path: source.to_owned(), error: Box::new(error) };
    let mut hole_at_end = None;
    while let Some(chunk) = reader.next_chunk().map_err(read_failed)? {
        if progress.is_stopped() {
            return Err(ExtractError::Stopped);
        }
        match chunk.bytes() {
            Some(bytes) => {
                write_all(file.as_fd(), bytes, chunk.offset(), path)?;
                Progress::add(&progress.bytes, bytes.len() as u64);
                hole_at_end = None;
            }
            None => hole_at_end = Some(chunk.offset() + chunk.len()),
        }
    }
    match hole_at_end {
        None => Ok(()),
        Some(size) => {
            rustix::fs::ftruncate(file, size).map_err(|error| failed(path, "set size", error))
        }
    }
}

fn write_all(
    file: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut offset: u64,
    path: &Path,
) -> Result<(), ExtractError> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))
            .map_err(|error| failed(path, "write", error))?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}
