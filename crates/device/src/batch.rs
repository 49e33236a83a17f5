//! A batch in flight in an engine.
//!
//! 1. A batch has one completion per request, in the order of the batch; each is set once.

use std::cell::RefCell;
use std::rc::Rc;

use crate::request::Completion;
use crate::transfer::Transfer;

/// A request for an engine: pending, or completed before it reached the engine.
pub(crate) enum Admitted {
    Completed(Completion),
    Pending(Transfer),
    /// A write that was merged into another of the batch, which also completes it.
    Followed,
}

impl Admitted {
    /// Returns the transfer that an engine has to do, if there is one.
    pub(crate) fn pending(&self) -> Option<&Transfer> {
        match self {
            Self::Pending(transfer) => Some(transfer),
            Self::Completed(_) | Self::Followed => None,
        }
    }
}

/// A batch, shared by its ticket and its requests in flight.
pub(crate) type SharedBatch = Rc<RefCell<Batch>>;

/// The completions of a batch in flight.
#[derive(Default)]
pub(crate) struct Batch {
    completions: Vec<Option<Completion>>,
    pending: usize,
    /// The number of pending requests that were merged into another.
    followed: usize,
}

impl Batch {
    /// Creates the batch of these requests. Merged writes are counted before any request can
    /// complete: the write that does them may complete before the last request is started.
    pub(crate) fn new(admitted: &[Admitted]) -> Batch {
        let followed = admitted.iter().filter(|it| matches!(it, Admitted::Followed)).count();
        let completions = admitted.iter().map(|_| None).collect();
        Batch { completions, pending: admitted.len(), followed }
    }

    /// Returns the number of requests that are not completed yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the number of calls that are not completed yet: pending requests, except those that
    /// were merged into another.
    pub(crate) fn calls(&self) -> usize {
        self.pending - self.followed
    }

    /// Records the completion of a request that was merged into another.
    pub(crate) fn complete_follower(&mut self, index: usize, completion: Completion) {
        self.followed -= 1;
        self.complete(index, completion);
    }

    /// Records the completion of the request at `index` of the batch.
    pub(crate) fn complete(&mut self, index: usize, completion: Completion) {
        let earlier = self.completions[index].replace(completion);
        assert!(earlier.is_none(), "request {index} of a batch completed twice");
        self.pending -= 1;
    }

    /// Returns all completions; none may be pending.
    pub(crate) fn into_completions(self) -> Vec<Completion> {
        assert_eq!(self.pending, 0, "a batch was taken before it was complete");
        self.completions.into_iter().flatten().collect()
    }
}
