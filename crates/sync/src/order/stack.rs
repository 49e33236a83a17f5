//! The list of locks one thread holds, and the rules by which a new one is checked.
//!
//! 1. A thread that is ending has no list any more: locks taken by the destructors of its last
//!    thread-local values are not checked.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::panic::Location;
use std::time::Duration;

use super::name::{Key, Name};
use crate::class::{Class, Together};
use crate::nesting::{Block, Mode, Nesting};
use crate::primitives::thread_local;

/// The time a thread waits for a lock or a condition before a debug build panics. A deadlock lasts
/// for ever, and a machine under load may stop a thread, or a disk, for many seconds.
pub const WAIT_LIMIT: Duration = Duration::from_mins(1);

/// The rules that an acquisition is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    /// The order of classes, and the rule of its class.
    Order,
    /// Those of `Order`, and the rule of this token.
    Coupling(Nesting),
    /// None: it did not wait, so it cannot be part of a deadlock.
    Nothing,
}

/// A lock the thread holds, or is about to wait for.
#[derive(Clone, Copy, Debug)]
struct Entry {
    serial: u64,
    name: Name,
    mode: Mode,
    at: &'static Location<'static>,
}

/// The locks that a thread holds.
#[derive(Debug)]
struct Stack {
    entries: Vec<Entry>,
    next_serial: u64,
    wait_limit: Duration,
}

thread_local! {
    static STACK: RefCell<Stack> = RefCell::default();
}

impl Default for Stack {
    fn default() -> Self {
        Self { entries: Vec::new(), next_serial: 0, wait_limit: WAIT_LIMIT }
    }
}

/// The serial of a lock that is on no list.
const UNLISTED: u64 = u64::MAX;

/// Checks a lock and adds it to the list; returns the serial of its entry.
pub(super) fn push(name: Name, mode: Mode, check: Check, at: &'static Location<'static>) -> u64 {
    let listed = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        let entry = Entry { serial: stack.next_serial, name, mode, at };
        if let Err(breach) = entry.check(check, &stack.entries) {
            drop(stack);
            panic!("{breach}");
        }
        stack.next_serial += 1;
        stack.entries.push(entry);
        entry.serial
    });
    listed.unwrap_or(UNLISTED)
}

/// Removes a lock from the list.
pub(super) fn pop(serial: u64) {
    let _ended = STACK.try_with(|stack| {
        stack.borrow_mut().entries.retain(|entry| entry.serial != serial);
    });
}

/// Marks a lock as held for reading.
pub(super) fn downgrade(serial: u64) {
    let _ended = STACK.try_with(|stack| {
        for entry in &mut stack.borrow_mut().entries {
            if entry.serial == serial {
                entry.mode = Mode::Read;
            }
        }
    });
}

/// Returns the wait limit of this thread.
pub(super) fn wait_limit() -> Duration {
    STACK.try_with(|stack| stack.borrow().wait_limit).unwrap_or(WAIT_LIMIT)
}

/// Sets the wait limit of this thread.
pub(super) fn set_wait_limit(limit: Duration) {
    STACK.with(|stack| stack.borrow_mut().wait_limit = limit);
}

/// Returns the message of a wait that exceeded its limit: the lock, and those held meanwhile.
pub(super) fn late(name: Name, limit: Duration) -> String {
    let mut message = format!("waited {limit:?} for {name}; this thread's list:");
    let _ended = STACK.try_with(|stack| {
        for entry in &stack.borrow().entries {
            write!(message, " {entry};").expect("a String takes all");
        }
    });
    message
}

impl Entry {
    /// Checks this lock against those held; the error names both locks and the rule.
    fn check(&self, check: Check, held: &[Entry]) -> Result<(), String> {
        let nesting = match check {
            Check::Nothing => return Ok(()),
            Check::Order => None,
            Check::Coupling(nesting) => Some(nesting),
        };
        for other in held {
            self.after(other).map_err(|rule| self.breach(other, rule))?;
        }
        nesting.map_or(Ok(()), |nesting| self.check_coupling(nesting, held))
    }

    /// Checks the order of classes, and of two locks of one class.
    fn after(&self, held: &Entry) -> Result<(), &'static str> {
        let new = self.name;
        let old = held.name;
        if new.class != old.class {
            let kept = old.class < new.class;
            return if kept { Ok(()) } else { Err("it comes first in the lock order") };
        }
        match (new.class.together(), old.key, new.key) {
            (Together::ByToken, ..) => Ok(()),
            (Together::Ascending, Key::Inode(a, b), Key::Inode(c, d)) if (a, b) < (c, d) => Ok(()),
            (Together::Ascending, ..) => Err("locks of this class are taken as a sorted set"),
            (Together::No, ..) => Err("only one lock of this class is held at a time"),
        }
    }

    /// Checks the rule of the token, against all tree blocks held.
    fn check_coupling(&self, nesting: Nesting, held: &[Entry]) -> Result<(), String> {
        let blocks: Vec<&Entry> =
            held.iter().filter(|held| held.name.class == Class::TreeBlock).collect();
        let held: Vec<Block> = blocks.iter().filter_map(|held| held.block()).collect();
        let block = self.block().expect("tokens are for tree blocks");
        let checked = nesting.check(block, &held);
        checked.map_err(|rule| match blocks.last() {
            Some(last) => self.breach(last, rule),
            None => format!("lock order: {self} by {nesting:?}: {rule}"),
        })
    }

    fn block(&self) -> Option<Block> {
        let Key::Block(label) = self.name.key else { return None };
        Some(Block { level: label.level, mode: self.mode })
    }

    fn breach(&self, held: &Entry, rule: &str) -> String {
        format!("lock order: {self} while {held} is held: {rule}")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} taken at {}", self.name, self.at)
    }
}
