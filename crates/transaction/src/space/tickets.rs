//! Turns of those who are short of space.
//!
//! 1. One at a time has space made for it; the others wait in the order in which they came.
//! 2. Who comes while somebody waits waits behind: else it would take what is made for others,
//!    who had asked in vain so often in the end that they were told there is none.
//! 3. Who has a turn waits for no one who waits for one: those hold no lock that a merge, writing
//!    back or a commit takes.

use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::order::{Held, Identity};
use userbtrfs_sync::{Class, Condvar, Mutex};

/// See the module's text.
pub(crate) struct ReserveTickets {
    /// How many have a turn, or wait for one.
    asking: AtomicU64,
    line: Mutex<TicketQueue>,
    next: Condvar,
}

#[derive(Default)]
struct TicketQueue {
    /// How many came.
    came: u64,
    /// How many of them are done.
    done: u64,
}

/// The right to have space made; it goes to the next one when it is dropped.
pub(crate) struct ReserveTicket<'a> {
    turns: &'a ReserveTickets,
    _held: Held,
}

impl ReserveTickets {
    /// Nobody waits.
    pub(crate) fn new() -> Self {
        let line = Mutex::new(Class::SpaceCounters, TicketQueue::default());
        Self { asking: AtomicU64::new(0), line, next: Condvar::new() }
    }

    /// Whether nobody has a turn, or waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.asking.load(Ordering::Relaxed) == 0
    }

    /// Waits for those who came before. The caller is in no transaction.
    #[track_caller]
    pub(crate) fn take(&self) -> ReserveTicket<'_> {
        let held = Held::acquire(Identity::of(Class::Shortage));
        let mut line = self.line.lock();
        self.asking.fetch_add(1, Ordering::Relaxed);
        let before = line.came;
        line.came += 1;
        while line.done < before {
            // As long as commits of others take.
            self.next.wait_idle(&mut line);
        }
        ReserveTicket { turns: self, _held: held }
    }
}

impl Drop for ReserveTicket<'_> {
    fn drop(&mut self) {
        self.turns.line.lock().done += 1;
        self.turns.asking.fetch_sub(1, Ordering::Relaxed);
        self.turns.next.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn turns_come_in_the_order_of_asking_and_who_comes_later_is_behind() {
        let turns = ReserveTickets::new();
        assert!(turns.is_idle());
        let first = turns.take();
        assert!(!turns.is_idle());
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            for number in 1..=3_u64 {
                let (turns, say) = (&turns, say.clone());
                scope.spawn(move || {
                    let turn = turns.take();
                    say.send(number).unwrap();
                    drop(turn);
                });
                while turns.asking.load(Ordering::Relaxed) <= number {
                    thread::yield_now();
                }
            }
            assert!(heard.try_recv().is_err() && !turns.is_idle());
            drop(first);
        });
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(turns.is_idle());
    }
}
