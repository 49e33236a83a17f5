//! Writes the content of files.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use userbtrfs_engine::api::FileReader;

use super::job::Filling;
use super::target::failed;
use super::{ExportError, Progress};

/// Writes the part that `reader` reads into a file that is still empty there; holes stay holes.
pub(super) fn fill(
    progress: &Progress,
    mut reader: FileReader,
    into: &Filling,
) -> Result<(), ExportError> {
    while let Some(chunk) = reader.next_chunk().map_err(|error| source_error(into, error))? {
        if progress.is_stopped() || into.is_failed() {
            return Err(ExportError::Stopped);
        }
        let Some(bytes) = chunk.bytes() else { continue };
        write_all(into.new.file.as_fd(), bytes, chunk.offset(), &into.new.path)?;
        into.written(chunk.offset() + chunk.len());
        Progress::add(&progress.bytes, bytes.len() as u64);
    }
    Ok(())
}

/// Sets the size of a file that ends in a hole.
pub(super) fn set_size(file: &Filling) -> Result<(), ExportError> {
    if file.end() >= file.new.metadata.size {
        return Ok(());
    }
    rustix::fs::ftruncate(&file.new.file, file.new.metadata.size)
        .map_err(|error| failed(&file.new.path, "set size", error))
}

/// Returns an error of reading the source of a file.
pub(super) fn source_error(file: &Filling, error: userbtrfs_engine::Error) -> ExportError {
    ExportError::Source { path: file.new.source.clone(), error: Box::new(error) }
}

fn write_all(
    file: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut offset: u64,
    path: &Path,
) -> Result<(), ExportError> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, bytes, offset))
            .map_err(|error| failed(path, "write", error))?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}
