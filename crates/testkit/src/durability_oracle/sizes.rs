//! Resizes, and the size that a crash leaves.

use anyhow::{Result, ensure};

use crate::model::Model;

use super::{Cut, Durable, SyncJournal};

impl SyncJournal {
    /// Records that a resize made everything durable, if it succeeded: the content of files, too,
    /// if it shrank the filesystem. `model` is the state after it.
    pub(super) fn note_resize(&mut self, model: &Model, bytes: u64) {
        if model.resized(bytes).is_err() {
            return;
        }
        let now = self.moments.len();
        let has_shrunk = self.sizes.at(now).is_some_and(|before| *before > model.size());
        self.durable.push((now, if has_shrunk { Durable::All } else { Durable::Metadata }));
        self.losses.retain(|_, loss| loss.is_told || !has_shrunk);
    }

    /// Checks the size of the filesystem that a crash left.
    pub(super) fn check_size(&self, cut: &Cut, size: u64) -> Result<()> {
        let span = (cut.all, cut.last);
        let was: Vec<_> = self.sizes.within(span).flatten().collect();
        ensure!(was.is_empty() || was.contains(&&size), "a size of {size}, in {span:?} {was:?}");
        Ok(())
    }
}
