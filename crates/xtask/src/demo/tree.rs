//! A real tree of limited size to make an image of: part of a folder that most machines have.
//!
//! 1. Unreadable files, devices, pipes and sockets are skipped.
//! 2. Files are copied in the order of names, up to the limit of files. A file that would exceed
//!    the limit of bytes is skipped.
//! 3. Modes of files and modification times are copied; the image is compared with the copy.
//! 4. Times are whole seconds, because some versions of `mkfs.btrfs --rootdir` copy only these.

use std::fmt;
use std::fs::{self, DirEntry, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

const FILES_MAX: u64 = 6000;
/// A folder with fewer bytes is skipped, unless it is the last.
const BYTES_WANTED: u64 = 8 << 20;

/// The folders to try, in this order.
const CANDIDATES: &[&str] = &["/usr/share/doc", "/usr/include", "/usr/share", "/usr/lib", "/etc"];

/// The number and size of the copied files.
#[derive(Default)]
pub(super) struct Copied {
    source: PathBuf,
    files: u64,
    bytes: u64,
    bytes_max: u64,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files;
        let mebibytes = self.bytes >> 20;
        let source = self.source.display();
        write!(f, "{files} files, {mebibytes} MiB, from {source}")
    }
}

/// Copies part of the first candidate that is large enough, at most `bytes_max` bytes, to the new
/// folder `dest`.
pub(super) fn copy_some(dest: &Path, bytes_max: u64) -> Result<Copied> {
    let source = choose().context("none of the usual folders is here")?;
    let mut copied = Copied { source: source.to_owned(), bytes_max, ..Copied::default() };
    copied.copy_folder(source, dest)?;
    Ok(copied)
}

fn choose() -> Option<&'static Path> {
    let candidates = CANDIDATES.iter().map(Path::new).filter(|path| path.is_dir());
    let mut last = None;
    for source in candidates {
        last = Some(source);
        let mut probe = Copied::default();
        probe.measure(source);
        if probe.bytes >= BYTES_WANTED {
            break;
        }
    }
    last
}

impl Copied {
    fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max || self.files >= FILES_MAX
    }

    /// Counts the bytes of a copy, up to `BYTES_WANTED`.
    fn measure(&mut self, folder: &Path) {
        for entry in sorted(folder) {
            let Ok(metadata) = entry.metadata() else { continue };
            if self.bytes >= BYTES_WANTED {
                return;
            }
            if metadata.is_dir() {
                self.measure(&entry.path());
            } else if metadata.is_file() {
                self.bytes += metadata.len();
            }
        }
    }

    fn copy_folder(&mut self, source: &Path, dest: &Path) -> io::Result<()> {
        fs::create_dir(dest)?;
        for entry in sorted(source) {
            if self.is_full() {
                break;
            }
            self.copy_entry(&entry, &dest.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn copy_entry(&mut self, entry: &DirEntry, dest: &Path) -> io::Result<()> {
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            self.copy_folder(&entry.path(), dest)?;
        } else if metadata.is_symlink() {
            symlink(fs::read_link(entry.path())?, dest)?;
        } else if !metadata.is_file() || !self.copy_file(entry, &metadata, dest)? {
            return Ok(());
        }
        set_modified(dest, metadata.mtime())
    }

    /// Copies a file; false if it was skipped.
    fn copy_file(
        &mut self,
        entry: &DirEntry,
        metadata: &Metadata,
        dest: &Path,
    ) -> io::Result<bool> {
        let Ok(mut source) = File::open(entry.path()) else { return Ok(false) };
        let len = metadata.len();
        if self.bytes + len > self.bytes_max {
            return Ok(false);
        }
        let mut copy = File::create_new(dest)?;
        self.bytes += io::copy(&mut source, &mut copy)?;
        self.files += 1;
        // A copy must not have set-id bits, and its owner must be able to remove it.
        copy.set_permissions(Permissions::from_mode(metadata.mode() & 0o777))?;
        Ok(true)
    }
}

/// Sets the modification time of a file, folder or symbolic link, in seconds since 1970.
fn set_modified(path: &Path, seconds: i64) -> io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Returns the entries of the folder, sorted by name; none if it cannot be read.
fn sorted(folder: &Path) -> Vec<DirEntry> {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(DirEntry::file_name);
    entries
}
