//! Hooks: the trait by which a commit calls the crates above, and flushes what they delay.

use userbtrfs_sync::{Arc, OnceLock};

use super::handle::Handle;
use crate::error::Result;

/// Which delayed changes a flush merges into trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// Those that are best merged at once. The rest stays delayed, within the bounds of memory,
    /// until there is more of it.
    Most,
    /// All.
    All,
}

/// A module of the crates above that delays changes in memory until they are merged into trees.
///
/// The calls come from threads that hold no lock except a transaction handle, unless a method says
/// otherwise.
pub trait TransactionHooks: Send + Sync {
    /// Returns true if no changes are delayed.
    fn is_clean(&self) -> bool;

    /// Merges delayed changes into trees. Other threads may add more meanwhile, but not while a
    /// commit merges.
    fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()>;

    /// Writes cached data to the device and waits for it, if that releases reserved space. The
    /// caller has no handle, but may hold operation locks of inodes: the call may only wait for
    /// locks further down the lock order.
    fn write_back(&self) -> Result<()> {
        Ok(())
    }

    /// Reports that the filesystem has turned read-only: delayed changes will never be merged.
    fn aborted(&self);
}

/// The hooks that are registered; none before that.
#[derive(Default)]
pub(crate) struct Hooks(OnceLock<Vec<Arc<dyn TransactionHooks>>>);

impl Hooks {
    /// Registers the hooks. Panics if called twice.
    pub(crate) fn register(&self, hooks: Vec<Arc<dyn TransactionHooks>>) {
        assert!(self.0.set(hooks).is_ok(), "hooks are registered once");
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn TransactionHooks>> {
        self.0.get().into_iter().flatten()
    }

    /// Returns true if no changes are delayed.
    pub(crate) fn is_clean(&self) -> bool {
        self.all().all(|hooks| hooks.is_clean())
    }

    /// Merges delayed changes: checksums, and those of the crates above. A failure half-way cannot
    /// be undone, and fails the filesystem.
    pub(crate) fn merge(&self, handle: &Handle<'_>, what: FlushScope) -> Result<()> {
        let context = handle.context();
        context.fail_on_error(|| {
            // The hooks, which hold the reservations for these, are called after them.
            context.checksums.merge(&context.editor(handle.generation()))?;
            self.all().try_for_each(|hooks| hooks.merge(handle, what))?;
            handle.finish_writeout()
        })
    }

    /// Writes cached data to the device, to release reserved space.
    pub(crate) fn write_back(&self) -> Result<()> {
        self.all().try_for_each(|hooks| hooks.write_back())
    }

    /// Reports that the filesystem has turned read-only.
    pub(crate) fn aborted(&self) {
        self.all().for_each(|hooks| hooks.aborted());
    }
}
