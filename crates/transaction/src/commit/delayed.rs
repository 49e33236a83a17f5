//! Merging delayed changes into trees between commits, to bound memory.
//!
//! 1. A merge frees the memory of delayed changes, and what is reserved for them; the blocks and
//!    references that it makes instead are freed by a commit.

use userbtrfs_sync::Arc;

use super::handle::{Handle, HandleKind};
use super::hooks::{FlushScope, Hooks};
use super::run::Committer;
use super::trigger::CommitTrigger;
use super::worker::WorkerRequests;
use crate::context::TransactionContext;
use crate::error::Result;

/// Merges delayed changes.
pub(crate) struct DelayedFlusher {
    pub(crate) context: Arc<TransactionContext>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) requests: Arc<WorkerRequests>,
}

impl DelayedFlusher {
    /// Merges delayed changes; then requests a commit, or commits, if too much memory is still
    /// used.
    pub(crate) fn merge(&self, what: FlushScope) -> Result<()> {
        let handle = Handle::join(&self.context, HandleKind::Writing)?;
        self.hooks.merge(&handle, what)?;
        drop(handle);
        if self.context.options.only_asked {
            return Ok(());
        }
        let dirty = self.context.tree_roots.store().dirty_bytes();
        let max = self.context.options.dirty_max;
        if dirty > 2 * max {
            return self.committer.commit(CommitTrigger::Memory);
        }
        if self.context.refs.bytes() > max / 2 {
            self.requests.request_commit();
        }
        Ok(())
    }
}
