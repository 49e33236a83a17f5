//! Options of a copy.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use userbtrfs_engine::api::Dir;

/// Options of a copy.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct CopyOptions {
    /// The owner of all new files; `None` leaves it to `keep`.
    pub uid: Option<u32>,
    /// The group of all new files; `None` leaves it to `keep`.
    pub gid: Option<u32>,
    /// The attributes of the source to keep.
    pub keep: Keep,
    /// Makes each file durable when it is complete.
    pub fsync: bool,
    /// Whether copies of files of the same filesystem share their extents.
    pub reflink: Reflink,
    /// Makes the copies of files of the host that share data, as FIEMAP reports, share it, too.
    pub keep_shared: bool,
    /// The device and inode number of the image file on the host, which is neither copied nor
    /// replaced by a copy, but skipped with an error.
    pub except: Option<(u64, u64)>,
    /// Leaves out subvolumes inside a source in an image, and other filesystems inside a source on
    /// the host; empty directories are made in their place.
    pub one_subvolume: bool,
    /// Leaves out entries below the sources; `None` copies all.
    pub filter: Option<Filter>,
    /// Writes into existing files of an image, which keep their attributes and their other names;
    /// otherwise they are replaced by new files. Files of the host are always replaced. Either way
    /// the old content stays until the new one is complete, which takes space for both.
    pub in_place: bool,
    /// Leaves existing files as they are, without an error.
    pub no_clobber: bool,
    /// Refuses to replace files that the same [`Copier`](super::Copier) made, so that sources with
    /// one name do not replace each other. It keeps the paths of all copies in memory.
    pub keep_made: bool,
    /// The number of files of the host that are filled at the same time.
    pub workers: usize,
}

/// A choice of the entries that are copied.
#[derive(Clone)]
pub struct Filter(Arc<Predicate>);

type Predicate = dyn Fn(&Path, bool) -> bool + Send + Sync;

impl Filter {
    /// Creates a filter that copies an entry if `is_copied` returns true for its path, relative to
    /// the source, and whether it is a directory. Nothing below a directory that is left out is
    /// copied.
    pub fn new(is_copied: impl Fn(&Path, bool) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_copied))
    }

    /// Returns true if an entry at a path below `top` is copied.
    pub(super) fn takes(&self, top: &Path, path: &Path, is_dir: bool) -> bool {
        (self.0)(path.strip_prefix(top).unwrap_or(path), is_dir)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

impl Default for CopyOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            uid: None,
            gid: None,
            keep: Keep::Everything,
            fsync: false,
            reflink: Reflink::Auto,
            keep_shared: false,
            except: None,
            one_subvolume: false,
            filter: None,
            in_place: false,
            no_clobber: false,
            keep_made: false,
            // More workers than processors, since workers wait for reads of small files.
            workers: (2 * cpus).max(4),
        }
    }
}

/// Whether a copy shares the extents of its source, as `cp --reflink` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// It does if that is possible; otherwise the data is copied.
    #[default]
    Auto,
    /// It does; a file for which that is not possible is not copied.
    Always,
    /// The data is copied.
    Never,
}

/// The attributes of a source that are kept, beside names and contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Permissions without the set-id and sticky bits, as `cp` does; all else is new.
    Mode,
    /// Permissions, owners and times, as `cp -p` does.
    Attributes,
    /// Everything, including hard links and extended attributes, as `cp -a` does.
    #[default]
    Everything,
}

impl Keep {
    /// Returns the directory with the treatment of its default ACL for new inodes in it, as cp(1)
    /// does: they inherit it unless the permissions of the source are kept.
    pub(super) fn acls_in(self, dir: Dir) -> Dir {
        match self {
            Self::Mode => dir,
            Self::Attributes | Self::Everything => dir.ignoring_default_acl(),
        }
    }
}

/// A callback for each complete file and each new directory, with the path in the source and that
/// of the copy; any thread of a copy calls it.
pub type Observer<'a> = dyn Fn(&Path, &Path) + Sync + 'a;
