//! An open filesystem.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use userbtrfs_device::Device;
use userbtrfs_format::{LABEL_LEN_MAX, Quoted, Superblock, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::AtomicBool;
use userbtrfs_transaction::{HandleKind, TransactionManager};
use userbtrfs_volume::{Volume, Warning};

use super::options::RootSubvolume;
use super::path::{self, FinalSymlink};
use super::{Dir, ImagePath, Inode, Metadata, OpenOptions, PendingLog, SyncRecord};
use crate::compression::Compress;
use crate::data::{FileOps, PageCache};
use crate::error::{Error, InodeId, PathResult, Result};
use crate::inode::ops;
use crate::inode::{
    DelayedItemsFlusher, EMPTY_DIR, InodeRef, Inodes, Namespace, ROOT_DIR, TreeRoots,
};
use crate::log::{self, Log, Replayed};
use crate::share::{self, Cleaner, CleanerParts};

/// An open filesystem. Clones share it; every call may be made from any thread.
///
/// A writable one should be closed by [`Filesystem::close`], which returns an error if a change is
/// not durable. If the last handle is dropped without that, it is closed as well, and errors are
/// lost.
#[derive(Clone)]
pub struct Filesystem {
    pub(crate) inner: Arc<Inner>,
    /// The directory at which paths start.
    pub(super) root: InodeId,
    /// The path at which paths without a leading slash start; `None` for the root, so that a clone
    /// is cheap.
    pub(super) working_dir: Option<Box<[u8]>>,
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filesystem")
            .field("root", &self.root)
            .field("is_writable", &self.is_writable())
            .finish_non_exhaustive()
    }
}

/// Fields are dropped in this order: each may need those after it.
pub(crate) struct Inner {
    /// `None` if the filesystem is open read-only.
    pub(crate) cleaner: Option<Cleaner>,
    /// `None` if the filesystem is open read-only.
    pub(crate) log: Option<Log>,
    /// `None` if the filesystem is open read-only.
    pub(crate) writer: Option<Arc<FileOps>>,
    pub(crate) files: Arc<PageCache>,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) nodes: Arc<Inodes>,
    pub(crate) window: u64,
    /// The root directory of the subvolume that was opened.
    root: InodeId,
    /// Whether opening has completed.
    is_open: bool,
    /// `None` if the filesystem is open read-only.
    pub(super) transactions: Option<Arc<TransactionManager>>,
    replayed: Option<Replayed>,
    /// Whether a resize is running.
    pub(super) resizing: AtomicBool,
}

impl Inner {
    pub(crate) fn tree_roots(&self) -> &Arc<TreeRoots> {
        self.nodes.tree_roots()
    }

    /// Returns true if an inode may be deleted while a handle refers to it, unless it is held.
    pub(crate) fn may_lose(&self, id: InodeId) -> bool {
        self.transactions.is_some() && id.number != EMPTY_DIR
    }

    /// Holds an inode, which keeps it from being deleted; `None` if it cannot be deleted.
    pub(crate) fn hold(&self, id: InodeId) -> Option<Arc<InodeRef>> {
        if !self.may_lose(id) {
            return None;
        }
        // If it does not exist, the first use reports that.
        ops::open(&self.namespace, id).ok().map(Arc::new)
    }

    /// Returns the attributes of an inode.
    pub(crate) fn metadata(&self, id: InodeId) -> Result<Metadata> {
        match id.number {
            EMPTY_DIR => Ok(Metadata::empty_dir(id)),
            _ => Ok(Metadata::of(&*self.nodes.inode(id)?)),
        }
    }

    /// Returns the operations that change file data; fails if the filesystem is read-only.
    pub(crate) fn writer(&self) -> Result<&Arc<FileOps>> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// Writes all data, and commits.
    fn commit(&self) -> Result<()> {
        let written = self.writer.as_ref().map_or(Ok(()), |writer| writer.settle());
        self.transactions.as_ref().map_or(Ok(()), |transactions| transactions.commit())?;
        written
    }

    /// Deletes orphans of earlier runs, and inodes whose deletion failed before.
    fn clean(&self) {
        let writes =
            self.transactions.as_ref().is_some_and(|transactions| transactions.check().is_ok());
        if writes && self.is_open {
            for subvolume in BTreeSet::from([TreeId::FS, self.root.subvolume]) {
                // Failed deletions are left to the next opener, as is a subvolume that may not be
                // changed now.
                let _left = ops::clean(&self.namespace, subvolume);
            }
            ops::delete_at_last(&self.namespace);
        }
    }

    fn close(&mut self) -> Result<()> {
        if let Some(cleaner) = self.cleaner.take() {
            cleaner.stop();
        }
        self.clean();
        self.log = None;
        let writer = self.writer.take().inspect(|writer| writer.stop());
        let written = writer.as_ref().map_or(Ok(()), |writer| writer.settle());
        self.transactions.take().map_or(Ok(()), |transactions| transactions.close())?;
        // Also mirrors that the closing itself found bad.
        writer.inspect(|writer| writer.repair());
        written
    }

    /// Drops a reference, and closes if it is the last one. If several threads drop theirs at once,
    /// exactly one of them closes, and gets the error.
    pub(super) fn release(inner: Arc<Self>) -> Result<()> {
        Arc::into_inner(inner).map_or(Ok(()), |mut inner| inner.close())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Callers that need the result use `Filesystem::close` or `File::close`.
        let _ = self.close();
    }
}

/// The changes that are made durable before a filesystem is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// All changes.
    Sync,
    /// Names and attributes, but no dirty data: of a file, only the data that is in the commit.
    Metadata,
    /// No changes: only what is durable already stays.
    Nothing,
}

impl Filesystem {
    /// Opens the filesystem in an image file or on a block device with the default options.
    pub fn open(path: impl AsRef<Path>) -> PathResult<Self> {
        OpenOptions::new().open(path)
    }

    pub(crate) fn new(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Self> {
        let (devices, replayed) = settle_log(devices, options)?;
        let mut inner =
            if options.write { writable(devices, options)? } else { read_only(devices, options)? };
        inner.replayed = replayed;
        inner.root.subvolume = root_subvolume(&inner, &options.root)?;
        inner.is_open = true;
        if let Some(cleaner) = &inner.cleaner {
            cleaner.queue_left()?;
        }
        let root = inner.root;
        Ok(Self { inner: Arc::new(inner), root, working_dir: None })
    }

    /// Returns a handle of the same open filesystem whose paths start at the subvolume that
    /// `options` name. They have no other effect. Fails if there is no such subvolume.
    pub fn reopened(&self, options: &OpenOptions) -> Result<Self> {
        let subvolume = root_subvolume(&self.inner, &options.root)?;
        let root = InodeId { subvolume, ..self.root };
        Ok(Self { inner: Arc::clone(&self.inner), root, working_dir: None })
    }

    /// Returns a handle of the same open filesystem for which paths without a leading slash start
    /// at `dir`, which is resolved with each of them.
    #[must_use]
    pub fn in_working_dir(&self, dir: impl ImagePath) -> Self {
        let working_dir = Some(self.absolute(dir.path_bytes()).into());
        Self { inner: Arc::clone(&self.inner), root: self.root, working_dir }
    }

    /// Returns true if changes were made that no commit contains yet. An fsync may have made some
    /// of them durable.
    pub fn has_uncommitted(&self) -> bool {
        self.inner.transactions.as_ref().is_some_and(|transactions| transactions.has_changes())
    }

    /// Returns true if it was opened for writing, and still accepts changes.
    pub fn is_writable(&self) -> bool {
        self.inner.transactions.as_ref().is_some_and(|transactions| transactions.check().is_ok())
    }

    /// Makes all changes before the call durable, including data, and waits for that. Does nothing
    /// if the filesystem is open read-only.
    ///
    /// Returns [`Error::Unwritten`] if data of a file could not be written, and that was not
    /// reported yet: all else is durable, and the next sync of the file reports it, too. After any
    /// other error nothing is written any more: every later change fails with it.
    pub fn commit(&self) -> Result<()> {
        self.inner.commit()
    }

    /// Like [`Filesystem::commit`], but also deletes what [`Filesystem::close`] would, and waits
    /// until all space that this frees is discarded, if that is enabled. Closing it afterwards,
    /// without a change in between, does not touch the device any more.
    pub fn finish(&self) -> Result<()> {
        if let Some(cleaner) = &self.inner.cleaner {
            cleaner.stop();
        }
        self.inner.clean();
        let committed = self.inner.commit();
        self.inner.writer.iter().for_each(|writer| writer.repair());
        let completed = self
            .inner
            .transactions
            .as_ref()
            .map_or(Ok(()), |transactions| transactions.wait_completed());
        committed.and(completed.map_err(Error::from))
    }

    /// Announces that the filesystem is about to be closed: openers of the image wait for that from
    /// now on, instead of being refused.
    pub fn mark_closing(&self) {
        self.volume().mark_closing();
    }

    /// Sets how data is compressed that is written back from now on, as
    /// [`OpenOptions::compress`] does for all data. Does nothing if the filesystem is open
    /// read-only.
    pub fn set_compress(&self, compress: Option<Compress>) {
        if let Some(writer) = &self.inner.writer {
            writer.set_compress(compress);
        }
    }

    /// Makes all changes durable, and closes, like close(2) of one of several descriptors.
    ///
    /// A clone is a handle of the same open filesystem, and so is each [`Inode`], [`Dir`] and
    /// [`File`](super::File), each iterator over entries, and each mount:
    ///
    /// - All that any handle has changed before the call is durable when it returns `Ok`, and no
    ///   other handle has to be closed for that.
    /// - If it is the last handle, the image is closed and unlocked, whatever is returned; its
    ///   threads have ended. Inodes without a name are deleted, also those that an earlier run left
    ///   in the top level, or in the subvolume that was opened.
    /// - Otherwise the image stays open and locked. All other handles can be used as before, also
    ///   for changes, and calls that run meanwhile are not disturbed. The last handle closes the
    ///   image: by this call or by [`File::close`](super::File::close), which return an error if a
    ///   change is not durable, or when it is dropped, which loses the error.
    ///
    /// To end the changes of other handles as well, call [`Filesystem::shutdown`] with
    /// [`Shutdown::Sync`] instead: then each later change fails. A handle that the listener of
    /// [`Filesystem::trace_syncs`] owns keeps the image open until [`Filesystem::stop_trace`].
    ///
    /// Returns [`Error::Unwritten`] if data of a file could not be written, and that was not
    /// reported yet: all else is durable. After any other error, changes since the last commit may
    /// be lost.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.inner) {
            Ok(mut inner) => inner.close(),
            Err(inner) => {
                let committed = inner.commit();
                // The others may have been dropped meanwhile.
                committed.and(Inner::release(inner))
            }
        }
    }

    /// Drops all changes that are not durable yet, as in a crash; every later change fails.
    pub fn abandon(self) {
        if let Some(transactions) = &self.inner.transactions {
            transactions.fail("it was abandoned");
        }
    }

    /// Discards free space on the device, as fstrim(8) requests it: the free ranges of at least
    /// `len_min` bytes between two logical addresses, and the space that no chunk takes. An image
    /// file gets holes. Returns the number of bytes. Changes before the call are committed first,
    /// so that the space they free is included.
    pub fn trim(&self, range: std::ops::Range<u64>, len_min: u64) -> Result<u64> {
        let transactions = self.inner.transactions.as_ref().ok_or(Error::ReadOnly)?;
        self.commit()?;
        Ok(transactions.trim(&range, len_min)?)
    }

    /// Sets the label, which is durable when this returns. Fails with [`Error::Invalid`] if it has
    /// more than 255 bytes, or a NUL or a newline.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let transactions = self.inner.transactions.as_ref().ok_or(Error::ReadOnly)?;
        if label.len() > LABEL_LEN_MAX || label.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            return Err(Error::Invalid("a label has at most 255 bytes, and no NUL or newline"));
        }
        // Any change makes a commit write the superblock.
        let handle = transactions.start(HandleKind::Operation)?;
        transactions.volume().set_label(label);
        handle.subvolume_changed(TreeId::FS);
        drop(handle);
        Ok(transactions.commit()?)
    }

    /// Ends all writing, as in a power failure, except for what `first` makes durable; concurrent
    /// changes may be durable or not. Every later change and every sync fails with EIO, including
    /// that of closing; reads still work.
    ///
    /// If making changes durable fails, returns that error, and writing continues. Does nothing if
    /// the filesystem is open read-only, or was shut down before.
    pub fn shutdown(&self, first: Shutdown) -> Result<()> {
        let Some(transactions) = self.inner.transactions.as_ref().filter(|_| !self.is_shut_down())
        else {
            return Ok(());
        };
        match first {
            Shutdown::Sync => self.commit()?,
            Shutdown::Metadata => transactions.commit()?,
            Shutdown::Nothing => {}
        }
        transactions.shut_down();
        Ok(())
    }

    /// Returns true if it was shut down.
    pub fn is_shut_down(&self) -> bool {
        matches!(self.failure(), Some(Error::Transaction(userbtrfs_transaction::Error::ShutDown)))
    }

    /// Returns why nothing is written any more; `None` if writing works, or it was opened
    /// read-only.
    pub fn failure(&self) -> Option<Error> {
        self.inner.transactions.as_ref()?.check().err().map(Error::from)
    }

    /// Registers a callback that runs once if a failure after this call ends all writing (not for a
    /// shutdown). It may run with locks held, so it must only forward the error. Panics if called
    /// twice. No effect if the filesystem is open read-only.
    pub fn on_failure(&self, report: impl Fn(Error) + Send + Sync + 'static) {
        if let Some(transactions) = &self.inner.transactions {
            transactions.on_failure(move |error| report(error.into()));
        }
    }

    /// Returns the warnings of opening: a damaged superblock, a pending log.
    pub fn warnings(&self) -> &[Warning] {
        self.volume().warnings()
    }

    /// Returns the result of replaying the log that was pending when it was opened; `None` if there
    /// was none, or it was left alone.
    pub fn replayed(&self) -> Option<&Replayed> {
        self.inner.replayed.as_ref()
    }

    /// Takes the result of [`Filesystem::replayed`]; `None` if there are other clones or handles.
    pub fn take_replayed(&mut self) -> Option<Replayed> {
        Arc::get_mut(&mut self.inner)?.replayed.take()
    }

    /// Returns the superblock of the last commit.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.volume().superblock()
    }

    /// Returns the volume, for callers that look at the disk itself.
    pub fn volume(&self) -> &Arc<Volume> {
        self.inner.tree_roots().store().volume()
    }

    /// Returns the directory at which paths start.
    pub fn root(&self) -> Dir {
        Dir::new(self.inode(self.root))
    }

    /// Returns the handle on an inode. If it does not exist, the first use reports that.
    pub fn inode(&self, id: InodeId) -> Inode {
        Inode::new(self.clone(), id)
    }

    /// Returns the attributes of an inode if they are in memory and not being changed: never waits
    /// for a device or another thread.
    pub fn metadata_at_once(&self, id: InodeId) -> Option<Metadata> {
        Metadata::at_once(&*self.inner.nodes.in_table(id)?)
    }

    /// Calls `listener` from now on for each sync, before the call of the sync returns; replaces an
    /// earlier listener. It may be called by several threads at once.
    pub fn trace_syncs(&self, listener: impl Fn(&SyncRecord) + Send + Sync + 'static) {
        if let Some(log) = &self.inner.log {
            log.listen(Some(Arc::new(listener)));
        }
    }

    /// Removes the listener of syncs.
    pub fn stop_trace(&self) {
        if let Some(log) = &self.inner.log {
            log.listen(None);
        }
    }
}

/// The root directory of the top level.
const TOP: InodeId = InodeId { subvolume: TreeId::FS, number: ROOT_DIR };

type Devices = Vec<Arc<dyn Device>>;

/// Returns the subvolume at which paths start.
fn root_subvolume(inner: &Inner, asked: &RootSubvolume) -> Result<TreeId> {
    let subvolume = |id| Ok(share::subvolume(inner.tree_roots(), id)?.id);
    let (wanted, found) = match asked {
        RootSubvolume::Default => {
            return share::default_subvolume(inner.tree_roots()).and_then(subvolume);
        }
        RootSubvolume::Id(id) => (id.0.to_string(), subvolume(*id)),
        RootSubvolume::Path(path) => {
            let found = path::resolve(&inner.nodes, TOP, path, FinalSymlink::Follow);
            let root = found.and_then(|found| match found.number {
                ROOT_DIR => subvolume(found.subvolume),
                _ => Err(Error::NoSubvolume),
            });
            (format!("\"{}\"", Quoted(path)), root)
        }
    };
    found.map_err(|error| Error::RootSubvolume { wanted, source: Box::new(error) })
}

/// Replays or discards a pending log. Returns the devices to use: the given ones or, if they are
/// open read-only, overlays over them.
fn settle_log(devices: Devices, options: &OpenOptions) -> Result<(Devices, Option<Replayed>)> {
    let wanted = options.pending().filter(|_| {
        let [device] = &devices[..] else { return false };
        let salvages = options.replaying().salvage;
        log::is_pending(&**device) || salvages && log::may_be_hidden(&**device)
    });
    let Some(what) = wanted else { return Ok((devices, None)) };
    let targets: Vec<_> = if options.write {
        devices.clone()
    } else {
        devices.iter().map(|device| options.overlay(Arc::clone(device))).collect()
    };
    let settle = if what == PendingLog::Discard { log::discard } else { log::replay };
    match settle(targets.clone(), &options.replaying()) {
        Ok(replayed) => Ok((targets, Some(replayed))),
        Err(error) if !options.write && is_unwritable(&error) => Ok((devices, None)),
        Err(error @ (Error::Open(_) | Error::Device(_))) => Err(error),
        Err(error) => Err(Error::Replay(Box::new(error))),
    }
}

/// Returns true if the filesystem itself cannot be written, regardless of its log.
fn is_unwritable(error: &Error) -> bool {
    use userbtrfs_transaction::Error as TransactionError;
    let Error::Transaction(error) = error else { return matches!(error, Error::Open(_)) };
    matches!(
        error,
        TransactionError::Unwritable(_)
            | TransactionError::Root { .. }
            | TransactionError::NoOwner { .. }
            | TransactionError::RootFlags { .. }
            | TransactionError::InodeFlags { .. }
            | TransactionError::NoTree(_)
            | TransactionError::Space(_)
    )
}

fn read_only(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Inner> {
    let volume = Arc::new(Volume::open(devices)?);
    let tree_roots = Arc::new(options.tree_roots(volume));
    let nodes = Arc::new(Inodes::read_only(tree_roots, options.nodes()));
    let namespace = Arc::new(Namespace::new(Arc::clone(&nodes)));
    let files = Arc::new(PageCache::new(options.file_cache_bytes(), None));
    Ok(Inner {
        cleaner: None,
        log: None,
        writer: None,
        files,
        namespace,
        nodes,
        window: options.window_bytes(),
        root: TOP,
        is_open: false,
        transactions: None,
        replayed: None,
        resizing: AtomicBool::new(false),
    })
}

fn writable(devices: Vec<Arc<dyn Device>>, options: &OpenOptions) -> Result<Inner> {
    let volume = Arc::new(Volume::open_for_writing(devices)?);
    let tree_roots = Arc::new(options.tree_roots(volume));
    let transactions = TransactionManager::open(tree_roots, options.transactions())?;
    let nodes = Arc::new(Inodes::writable(Arc::clone(&transactions), options.nodes()));
    let namespace = Arc::new(Namespace::new(Arc::clone(&nodes)));
    let cache_bytes = options.file_cache_bytes();
    let files = Arc::new(PageCache::new(cache_bytes, Some(Arc::clone(&transactions))));
    let cache = Arc::clone(&files);
    let writer = FileOps::new(cache, &namespace, Arc::clone(&transactions), options.writer())?;
    let flusher = writer.writeback_handle();
    transactions
        .register(vec![Arc::new(flusher), Arc::new(DelayedItemsFlusher(Arc::downgrade(&nodes)))])?;
    let log = Log::new(&nodes, writer.writeback(), &transactions);
    let cleaner = Cleaner::new(CleanerParts {
        namespace: Arc::clone(&namespace),
        files: Arc::clone(&files),
        writer: Arc::clone(&writer),
        transactions: Arc::clone(&transactions),
    });
    Ok(Inner {
        cleaner: Some(cleaner),
        log: Some(log),
        writer: Some(writer),
        files,
        namespace,
        nodes,
        window: options.window_bytes(),
        root: TOP,
        is_open: false,
        transactions: Some(transactions),
        replayed: None,
        resizing: AtomicBool::new(false),
    })
}
