//! Folders for temporary images.

use std::path::Path;

use tempfile::TempDir;

/// Creates a folder for temporary images: in memory, if there is a tmpfs.
pub(super) fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }
}
