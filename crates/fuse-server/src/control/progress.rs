//! The progress of work whose outcome a client waits for.
//!
//! 1. A client gets a line at the start and one at the end of the work. Between them it gets one at
//!    intervals, if it has confirmed a line since the last one: so the lines that a client does not
//!    read are few, and the answer after them does not block.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use userbtrfs_sync::{Class, Condvar, Mutex, thread};

use super::send::send_part;

/// The first word of a line of progress.
pub(super) const PROGRESS: &str = "progress";

/// The time between two lines.
const INTERVAL: Duration = Duration::from_millis(100);

/// The bytes of a piece of work that are done, and those that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// The bytes that are done; 0 if only the rest is known.
    pub done: u64,
    /// The bytes that are left.
    pub left: u64,
}

/// Returns how much of a piece of work is left now.
pub type Progress = Box<dyn Fn() -> Remaining + Send + Sync>;

impl Remaining {
    /// Parses the rest of a line of progress.
    pub(super) fn parse(words: &str) -> Option<Self> {
        let (done, left) = words.split_once(' ')?;
        Some(Self { done: done.parse().ok()?, left: left.parse().ok()? })
    }
}

impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.done, self.left)
    }
}

/// Does `work`, and sends its progress to clients.
pub(super) fn report<T>(
    clients: &[&UnixStream],
    progress: &(dyn Fn() -> Remaining + Sync),
    work: impl FnOnce() -> T,
) -> T {
    if clients.is_empty() {
        return work();
    }
    let send_line = |client: &&UnixStream| {
        // A client that is gone wants no line.
        let _ = send_part(client, format!("{PROGRESS} {}\n", progress()).as_bytes());
    };
    clients.iter().for_each(send_line);
    let end = End::new();
    let result = thread::scope(|scope| {
        // Without this thread only the first line and the last one are sent.
        let _reporting =
            thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, || {
                while !end.wait(INTERVAL) {
                    clients.iter().filter(|client| has_confirmed(client)).for_each(send_line);
                }
            });
        let _set = SetOnDrop(&end);
        work()
    });
    clients.iter().for_each(send_line);
    result
}

/// Returns whether a client has confirmed a line since this was last called.
fn has_confirmed(client: &UnixStream) -> bool {
    let mut bytes = [0; 16];
    let mut read = || recv(client, &mut bytes, RecvFlags::DONTWAIT);
    let mut confirmed = false;
    while read().is_ok_and(|(count, _)| count > 0) {
        confirmed = true;
    }
    confirmed
}

/// The end of work, which another thread waits for.
struct End {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl End {
    fn new() -> Self {
        Self { has_ended: Mutex::new(Class::FuseSession, false), changed: Condvar::new() }
    }

    /// Waits for the end, for a time; returns whether the work has ended.
    fn wait(&self, limit: Duration) -> bool {
        let mut has_ended = self.has_ended.lock();
        if !*has_ended {
            self.changed.wait_for(&mut has_ended, limit);
        }
        *has_ended
    }
}

/// Sets the end when it is dropped, also by a panic of the work.
struct SetOnDrop<'a>(&'a End);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        *self.0.has_ended.lock() = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn numbers_of_a_line_are_those_that_were_sent() {
        let sent = Remaining { done: 3, left: u64::MAX };
        assert_eq!(Remaining::parse(&sent.to_string()), Some(sent));
        for wrong in ["", "1", "1 ", "1 2 3", "-1 2", "1 x"] {
            assert_eq!(Remaining::parse(wrong), None, "{wrong:?}");
        }
    }

    /// The work ends when the client has read as many lines as it wants.
    #[test]
    fn client_that_confirms_gets_lines_until_the_work_ends() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_mins(5))).unwrap();
        let left = AtomicU64::new(9);
        let progress = || {
            let left = left.fetch_sub(1, Ordering::Relaxed);
            Remaining { done: 0, left }
        };
        let mut lines = BufReader::new(&theirs).lines();
        report(&[&ours], &progress, || {
            for left in (6..=9).rev() {
                assert_eq!(lines.next().unwrap().unwrap(), format!("progress 0 {left}"));
                (&theirs).write_all(&[0]).unwrap();
            }
        });
        drop(ours);
        // The last confirmation may have been seen before the end; otherwise the stream ends with
        // an error, since it was not read.
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        assert!((1..=2).contains(&rest.len()), "{rest:?}");
    }

    #[test]
    fn lines_are_confirmed_once() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(!has_confirmed(&ours), "it was not read");
        theirs.write_all(&[0; 40]).unwrap();
        assert!(has_confirmed(&ours));
        assert!(!has_confirmed(&ours), "nothing was read since");
        drop(theirs);
        assert!(!has_confirmed(&ours), "the client is gone");
    }

    #[test]
    fn work_that_panics_ends_the_reports() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let fails = || report::<()>(&[&ours], &Remaining::default, || panic!("as the test wants"));
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails));
        assert!(failed.is_err());
    }
}
