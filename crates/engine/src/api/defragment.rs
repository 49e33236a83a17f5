//! Defragmentation of files.

use super::File;
use crate::data::Defragment;
use crate::error::Result;
use crate::inode::ops;

impl File {
    /// Rewrites the small extents of a range together, so that the file has fewer, like
    /// BTRFS_IOC_DEFRAG_RANGE of Linux; returns the number of bytes rewritten.
    ///
    /// Content, size and times stay. Extents that are shared with other files or with snapshots are
    /// replaced by ones of this file alone, which takes space. An extent that is made here has at
    /// most 32 MiB, or a part of the memory bound if that is less. The data is on the device when
    /// the call returns, and the new extents are durable after a commit, or after
    /// [`File::sync_all`].
    ///
    /// # Errors
    /// - [`Error::Invalid`](crate::api::Error::Invalid), if the range starts at or beyond the end
    ///   of a file that is not empty;
    /// - [`Error::ReadOnly`](crate::api::Error::ReadOnly), if the subvolume or the filesystem is
    ///   read-only. An immutable or append-only file is defragmented.
    ///
    /// After [`Error::NoSpace`](crate::api::Error::NoSpace), or an error of the device, a part of
    /// the file is defragmented.
    pub fn defragment(&self, request: &Defragment) -> Result<u64> {
        let inner = self.inode().inner();
        ops::file_to_rewrite(&inner.namespace, self.inode().id())?;
        inner.writer()?.defragment(&self.pages, request)
    }
}
