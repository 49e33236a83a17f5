//! Fills one file after the other with data that a thread reads ahead.
//!
//! An image is filled in this way: its files get their space in order, and if one does not fit, it
//! is this one that fails.

use super::error::CopyError;
use super::prefetch::{Cancelled, Step, each_step};
use super::sink::Sink;
use super::source::{Content, Event, Source};
use super::tree::{NewFile, Tree};

/// Copies a source.
pub(super) fn copy<S: Sink>(source: impl Source<Content: Content> + Send, tree: Tree<'_, S>) {
    let context = tree.context;
    let cancelled = Cancelled::default();
    let mut copy = InOrder { tree, file: None, begun: 0, cancelled: &cancelled };
    let read = each_step(source, &cancelled, |step, bytes| {
        copy.take(step, bytes);
        context.continues()
    });
    copy.discard();
    if let Err(error) = read {
        context.report(CopyError::NoThread(error));
    }
    copy.tree.end();
}

struct InOrder<'a, S: Sink> {
    tree: Tree<'a, S>,
    /// The file that is being filled.
    file: Option<NewFile<S>>,
    /// The number of files that have begun so far.
    begun: u64,
    cancelled: &'a Cancelled,
}

impl<S: Sink> InOrder<'_, S> {
    fn take(&mut self, step: Step, bytes: &[u8]) {
        let context = self.tree.context;
        match step {
            Step::Event(event) => {
                let is_file = matches!(event, Event::File(..));
                self.file = self.tree.take(event).map(|(file, ())| file);
                if is_file {
                    self.begun += 1;
                    self.share();
                    if self.file.is_none() {
                        self.cancelled.cancel(self.begun);
                    }
                }
            }
            Step::Data { offset, bytes: range } => {
                let Some(file) = &self.file else { return };
                if let Err(error) = context.write(file, &bytes[range], offset) {
                    self.fail(error);
                }
            }
            Step::Shared(data) => {
                let Some(file) = &self.file else { return };
                if let Err(error) = context.write_shared(file, &data) {
                    self.fail(error);
                }
            }
            Step::End { size, shares } => {
                let Some(file) = self.file.take() else { return };
                if shares {
                    context.add_shared(&file);
                }
                context.close(file, size);
            }
            Step::Failed(error) => self.fail(error),
        }
    }

    /// Completes the file that has begun if it can share the data of its source, which is not read
    /// then.
    fn share(&mut self) {
        let context = self.tree.context;
        let Some(file) = self.file.take() else { return };
        match context.share(&file) {
            Ok(Some(size)) => context.close(file, size),
            Ok(None) => self.file = Some(file),
            Err(error) => {
                self.file = Some(file);
                self.fail(error);
            }
        }
    }

    /// Reports an error of the file that is being filled, if there is one, and removes it.
    fn fail(&mut self, error: CopyError) {
        if self.file.is_some() {
            self.tree.context.report(error);
            self.discard();
        }
    }

    /// Removes the file that is being filled, and cancels reading it.
    fn discard(&mut self) {
        let Some(NewFile { file, item, .. }) = self.file.take() else { return };
        drop(file);
        self.tree.context.discard(&item);
        self.cancelled.cancel(self.begun);
    }
}
