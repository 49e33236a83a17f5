//! A queue of threads that are short of space.
//!
//! 1. Space is freed for one thread at a time; the others wait in the order of their arrival.
//! 2. A thread that arrives while another waits queues behind it: otherwise it would take the space
//!    that is freed for the others, until these give up with an error after many attempts.
//! 3. The thread with the ticket waits for no thread in the queue: those hold no lock that a merge,
//!    writeback or a commit takes.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::order::{Held, Identity};
use userbtrfs_sync::{Class, Condvar, Mutex};

/// The queue of threads that are short of space.
pub(crate) struct ReserveTickets {
    /// The number of threads that have a ticket, or wait for one.
    asking: AtomicU64,
    queue: Mutex<TicketQueue>,
    next: Condvar,
}

#[derive(Default)]
struct TicketQueue {
    /// The number of threads that arrived.
    arrived: u64,
    /// The number of them that are served.
    served: u64,
}

/// The right to have space freed; the next thread gets it when this is dropped.
pub(crate) struct ReserveTicket<'a> {
    tickets: &'a ReserveTickets,
    _held: Held,
}

impl ReserveTickets {
    /// Returns an empty queue.
    pub(crate) fn new() -> Self {
        let queue = Mutex::new(Class::SpaceCounters, TicketQueue::default());
        Self { asking: AtomicU64::new(0), queue, next: Condvar::new() }
    }

    /// Returns true if no thread has a ticket, or waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.asking.load(Ordering::Relaxed) == 0
    }

    /// Waits for the threads that arrived before. The caller is in no transaction.
    #[track_caller]
    pub(crate) fn take(&self) -> ReserveTicket<'_> {
        let held = Held::acquire(Identity::of(Class::ReserveTickets));
        let mut queue = self.queue.lock();
        self.asking.fetch_add(1, Ordering::Relaxed);
        let before = queue.arrived;
        queue.arrived += 1;
        while queue.served < before {
            // This takes as long as the commits of other threads.
            self.next.wait_idle(&mut queue);
        }
        ReserveTicket { tickets: self, _held: held }
    }
}

impl Drop for ReserveTicket<'_> {
    fn drop(&mut self) {
        self.tickets.queue.lock().served += 1;
        self.tickets.asking.fetch_sub(1, Ordering::Relaxed);
        self.tickets.next.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn turns_are_granted_in_order_of_arrival() {
        let tickets = ReserveTickets::new();
        assert!(tickets.is_idle());
        let first = tickets.take();
        assert!(!tickets.is_idle());
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            for number in 1..=3_u64 {
                let tickets = &tickets;
                let say = say.clone();
                scope.spawn(move || {
                    let ticket = tickets.take();
                    say.send(number).unwrap();
                    drop(ticket);
                });
                while tickets.asking.load(Ordering::Relaxed) <= number {
                    thread::yield_now();
                }
            }
            assert!(heard.try_recv().is_err() && !tickets.is_idle());
            drop(first);
        });
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(tickets.is_idle());
    }
}
