//! A batch on its way through an engine.
//!
//! 1. A batch has one completion per request, in the order of the batch; each is set once.

use std::cell::RefCell;
use std::rc::Rc;

use crate::request::Completion;
use crate::transfer::Transfer;

/// A request an engine gets: to be done, or decided before it reached the engine.
pub(crate) enum Admitted {
    Completed(Completion),
    Pending(Transfer),
    /// A write that another of the batch does, too; and completes.
    Followed,
}

impl Admitted {
    /// What an engine has to do.
    pub(crate) fn pending(&self) -> Option<&Transfer> {
        match self {
            Self::Pending(transfer) => Some(transfer),
            Self::Completed(_) | Self::Followed => None,
        }
    }
}

/// A batch that its ticket and its requests in flight hold together.
pub(crate) type SharedBatch = Rc<RefCell<Batch>>;

/// The completions of a batch in flight, as they come in.
#[derive(Default)]
pub(crate) struct Batch {
    completions: Vec<Option<Completion>>,
    pending: usize,
    /// Those of the pending that another of them does, too.
    followed: usize,
}

impl Batch {
    /// One for these requests. Who follows is counted before any of them can end: the one that
    /// does it may have ended before the batch is started to its last request.
    pub(crate) fn new(admitted: &[Admitted]) -> Batch {
        let followed = admitted.iter().filter(|it| matches!(it, Admitted::Followed)).count();
        let completions = admitted.iter().map(|_| None).collect();
        Batch { completions, pending: admitted.len(), followed }
    }

    /// Requests not completed yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Requests not completed yet that are done each on its own.
    pub(crate) fn calls(&self) -> usize {
        self.pending - self.followed
    }

    /// Records how a request ended that was done with another.
    pub(crate) fn complete_follower(&mut self, index: usize, completion: Completion) {
        self.followed -= 1;
        self.complete(index, completion);
    }

    /// Records how the request at `index` of the batch ended.
    pub(crate) fn complete(&mut self, index: usize, completion: Completion) {
        let earlier = self.completions[index].replace(completion);
        assert!(earlier.is_none(), "request {index} of a batch completed twice");
        self.pending -= 1;
    }

    /// All completions, once none is pending.
    pub(crate) fn into_completions(self) -> Vec<Completion> {
        assert_eq!(self.pending, 0, "a batch was taken before it was complete");
        self.completions.into_iter().flatten().collect()
    }
}
