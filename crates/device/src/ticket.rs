//! The handle of a submitted batch, held between `submit` and `wait`.
//!
//! 1. A ticket belongs to the thread that submitted: it is not `Send`.
//! 2. Dropping it drops the results, and waits for the requests. A request in flight keeps its file
//!    open and locked; since a drop waits, an image without a device or ticket has no requests. A
//!    thread that closed an image could otherwise open it again and wait for its own request.

use std::fmt;

use crate::batch::{Admitted, SharedBatch};
use crate::pread_pwrite;
use crate::request::Completion;
use crate::ring;

/// The claim on the completions of one submitted batch.
#[must_use = "the results of a batch come from waiting for its ticket"]
pub struct Ticket {
    state: State,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

enum State {
    Completed(Vec<Completion>),
    Deferred(Vec<Admitted>),
    InFlight(SharedBatch),
}

impl Ticket {
    /// Creates the ticket of a batch that is already complete, for synchronous devices.
    pub fn completed(completions: Vec<Completion>) -> Ticket {
        Ticket { state: State::Completed(completions) }
    }

    pub(crate) fn deferred(batch: Vec<Admitted>) -> Ticket {
        Ticket { state: State::Deferred(batch) }
    }

    pub(crate) fn in_flight(batch: SharedBatch) -> Ticket {
        Ticket { state: State::InFlight(batch) }
    }

    /// Waits for the whole batch; the completions are in the order of its requests.
    pub fn wait(mut self) -> Vec<Completion> {
        match std::mem::replace(&mut self.state, State::Completed(Vec::new())) {
            State::Completed(completions) => completions,
            State::Deferred(batch) => batch.into_iter().map(pread_pwrite::finish).collect(),
            State::InFlight(batch) => {
                ring::wait(&batch);
                batch.take().into_completions()
            }
        }
    }

    /// Returns whether waiting would not block for I/O in flight. Costs at most one system call.
    pub fn is_ready(&self) -> bool {
        match &self.state {
            State::Completed(_) | State::Deferred(_) => true,
            State::InFlight(batch) => ring::is_ready(batch),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let State::InFlight(batch) = &self.state {
            ring::wait(batch);
        }
    }
}
