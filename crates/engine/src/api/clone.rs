//! Files that share extents: clone and dedupe.

use userbtrfs_sync::Arc;

use super::{Deduped, File, Filesystem, ImagePath};
use crate::data::{FileOps, ShareRange};
use crate::error::{Error, PathError, PathOperation, PathResult, Result};
use crate::units::SECTOR;

impl File {
    /// Makes `len` bytes of this file, from `to` on, share the extents of `source` from `from` on,
    /// like FICLONERANGE of Linux; 0 bytes mean up to the end of `source`. No data is copied,
    /// except that of a file that is stored inline in the tree.
    ///
    /// The file grows as needed. The clone shows the source as it was at one moment: writers of the
    /// source wait meanwhile. It is visible at once to every call, and durable after a commit, or
    /// after [`File::sync_all`] of this file. Set-id bits stay.
    ///
    /// # Errors
    /// Nothing is changed by
    /// - [`Error::Invalid`], if `from` or `to` is no sector boundary, the range ends beyond the end
    ///   of `source` or beyond 2^63 - 1, or within a sector but not at the end of `source` and at
    ///   or beyond that of this file, if the ranges overlap in one file, or if only one of the
    ///   files has checksums;
    /// - [`Error::OtherFilesystem`], if `source` is in another filesystem;
    /// - [`Error::NotPermitted`], if the file is immutable or append-only, and
    ///   [`Error::ReadOnly`], if its subvolume or the filesystem is read-only.
    ///
    /// [`Error::NoSpace`], or an error of the device, leaves the first part of the range cloned.
    pub fn clone_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<()> {
        let range = ShareRange { from, len, to };
        self.sharer(source)?.clone_range(&source.pages, &self.pages, range, self.times)
    }

    /// Makes `len` bytes of this file, from `to` on, share the extents of `source` from `from` on,
    /// if both hold the same bytes, like FIDEDUPERANGE of Linux. They are compared while both are
    /// locked. Neither content nor size nor times change, so that nothing is to be synced.
    ///
    /// # Errors
    /// Those of [`File::clone_range`]; [`Error::Invalid`] also if either range ends beyond the end
    /// of its file. A range that ends within a sector is shortened, unless both end with their
    /// files. After an error the first part of the range may be shared.
    pub fn dedupe_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<Deduped> {
        let range = ShareRange { from, len, to };
        self.sharer(source)?.dedupe_range(&source.pages, &self.pages, range)
    }

    /// Shares as much of a range as [`File::copy_from`] would copy and as can be shared, and
    /// returns how many bytes, from the start of the range: whole sectors, or all up to the end of
    /// `source` if this file ends there, too. Returns 0 if nothing can be shared: if an offset is
    /// no sector boundary, or only one of the files has checksums. The rest can be copied.
    pub fn share_from(&self, source: &Self, from: u64, to: u64, len: u64) -> Result<u64> {
        let left = source.len().saturating_sub(from);
        let len = len.min(left);
        let is_end = len == left && to.checked_add(len).is_some_and(|end| end >= self.len());
        let shared = if is_end { len } else { len / SECTOR * SECTOR };
        let is_aligned = from.is_multiple_of(SECTOR) && to.is_multiple_of(SECTOR);
        if shared == 0 || !is_aligned {
            return Ok(0);
        }
        match self.clone_range(source, from, shared, to) {
            Ok(()) => Ok(shared),
            // Also if a file changed meanwhile: the copy reports errors of the request.
            Err(Error::Invalid(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Returns the operations that change file data, if this file may share extents of `source`.
    fn sharer(&self, source: &Self) -> Result<&Arc<FileOps>> {
        if !Arc::ptr_eq(self.inode().inner(), source.inode().inner()) {
            return Err(Error::OtherFilesystem);
        }
        self.writer()
    }
}

impl Filesystem {
    /// Makes the file at `target` a clone of the file at `source`: its content is replaced by that,
    /// and shares its extents. A file that does not exist is created, with the permissions of
    /// `source`.
    ///
    /// # Errors
    /// Those of [`File::clone_range`]. A file that existed may be empty after an error.
    pub fn clone_file(&self, source: impl ImagePath, target: impl ImagePath) -> PathResult<()> {
        let source = source.path_bytes();
        let target = target.path_bytes();
        let cloned = self.clone_at(source, target);
        cloned.map_err(PathError::between(PathOperation::CloneFile, source, target))
    }

    fn clone_at(&self, source: &[u8], target: &[u8]) -> Result<()> {
        let from = self.find(source)?.open()?;
        let mode = || Ok(from.inode().metadata()?.mode & PERMISSIONS);
        let to = self.find_or_create(target, mode)?.open()?;
        if to.inode().id() == from.inode().id() {
            return Ok(());
        }
        to.set_len(0)?;
        to.clone_range(&from, 0, 0, 0)
    }
}

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;
