//! An open filesystem.

use std::path::Path;

use userbtrfs_btree::CacheStats;
use userbtrfs_device::Device;
use userbtrfs_format::{Superblock, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_volume::{Notice, Volume};

use super::options::RootSubvolume;
use super::path::{self, Last};
use super::{Dir, File, Inode, Metadata, OpenOptions, Walk};
use crate::data::FileCache;
use crate::error::{Error, InodeId, Result};
use crate::node::{Forest, ROOT_DIR};
use crate::share;

/// An open filesystem. Clones share it; every call may be made from any thread.
#[derive(Clone)]
pub struct Filesystem {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) forest: Arc<Forest>,
    pub(crate) files: FileCache,
    pub(crate) window: u64,
    root: InodeId,
}

/// Counters of an open filesystem.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The cache of tree nodes.
    pub nodes: CacheStats,
}

impl Filesystem {
    /// Opens the filesystem in an image file or on a block device with the default options.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    pub(crate) fn new(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self> {
        let volume = Arc::new(Volume::open(devices)?);
        let forest = Arc::new(Forest::new(volume, options.node_cache_bytes()));
        let top = InodeId { subvolume: TreeId::FS, number: ROOT_DIR };
        let mut inner = Inner {
            forest,
            files: FileCache::new(options.file_cache_bytes()),
            window: options.window_bytes(),
            root: top,
        };
        let subvolume = match &options.root {
            RootSubvolume::Default => share::default_subvolume(&inner.forest)?,
            RootSubvolume::Id(id) => *id,
            RootSubvolume::Path(path) => {
                let found = path::resolve(&inner.forest, top, path, Last::Follow)?;
                let is_root = found.number == ROOT_DIR;
                if is_root { found.subvolume } else { return Err(Error::NoSubvolume) }
            }
        };
        inner.root.subvolume = share::subvolume(&inner.forest, subvolume)?.id;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What the one who opened it must be told: a damaged superblock, a pending log.
    pub fn notices(&self) -> &[Notice] {
        self.volume().notices()
    }

    /// The superblock it was opened with.
    pub fn superblock(&self) -> &Superblock {
        self.volume().superblock()
    }

    /// The volume below, for those who look at the disk itself.
    pub fn volume(&self) -> &Arc<Volume> {
        self.inner.forest.store().volume()
    }

    /// The directory at which paths start.
    pub fn root(&self) -> Dir {
        Dir::new(self.inode(self.inner.root))
    }

    /// The handle on an inode. Nothing is read: that it exists shows with the first use.
    pub fn inode(&self, id: InodeId) -> Inode {
        Inode::new(self.clone(), id)
    }

    /// What is at a path; a symbolic link at its end is followed.
    pub fn lookup(&self, path: impl AsRef<[u8]>) -> Result<Inode> {
        self.resolve(path.as_ref(), Last::Follow)
    }

    /// What is at a path; a symbolic link at its end is not followed.
    pub fn lookup_no_follow(&self, path: impl AsRef<[u8]>) -> Result<Inode> {
        self.resolve(path.as_ref(), Last::Keep)
    }

    fn resolve(&self, path: &[u8], last: Last) -> Result<Inode> {
        let id = path::resolve(&self.inner.forest, self.inner.root, path, last)?;
        Ok(self.inode(id))
    }

    /// Opens the regular file at a path.
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<File> {
        self.lookup(path)?.open()
    }

    /// Opens the directory at a path.
    pub fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<Dir> {
        self.lookup(path)?.open_dir()
    }

    /// The attributes of what is at a path; a symbolic link at its end is followed.
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        self.lookup(path)?.metadata()
    }

    /// The attributes of what is at a path; a symbolic link at its end is not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<[u8]>) -> Result<Metadata> {
        self.lookup_no_follow(path)?.metadata()
    }

    /// The target of the symbolic link at a path.
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.lookup_no_follow(path)?.read_link()
    }

    /// The whole content of the regular file at a path.
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.open_file(path)?.read_all()
    }

    /// Everything at and below a path, parents before children. Symbolic links are not followed.
    pub fn walk(&self, path: impl AsRef<[u8]>) -> Result<Walk> {
        let path = path.as_ref();
        Ok(Walk::new(self.lookup_no_follow(path)?, path))
    }

    /// Counters since it was opened.
    pub fn stats(&self) -> Stats {
        Stats { nodes: self.inner.forest.store().stats() }
    }
}
