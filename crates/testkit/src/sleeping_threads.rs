//! Threads that all sleep before a test continues.
//!
//! 1. A thread is asleep while it waits for another one in a futex: neither while it is ready to
//!    run and lacks a processor, nor while it waits for a disk.
//! 2. Threads are asleep together if each was asleep, and switched to as often, when they were
//!    looked at twice: then none ran in between.
//! 3. A thread that has ended counts as one that sleeps.

use std::fs;

use userbtrfs_sync::{Class, Mutex};

use crate::test_env::until;

/// Threads of a test that end up waiting for something that the test holds back. A test that waits
/// until they sleep, rather than for some time, does not depend on how fast they run.
#[derive(Debug)]
pub struct SleepingThreads {
    ids: Mutex<Vec<i32>>,
}

/// The number of context switches of a thread that sleeps; `None` if it has ended.
type Slept = Option<Vec<String>>;

impl Default for SleepingThreads {
    fn default() -> Self {
        Self { ids: Mutex::new(Class::DeviceQueue, Vec::new()) }
    }
}

impl SleepingThreads {
    /// Adds the calling thread, which does not wait on purpose for anything but what is held back.
    pub fn add(&self) {
        self.ids.lock().push(rustix::thread::gettid().as_raw_nonzero().get());
    }

    /// Waits until `count` threads were added and all of them are asleep together.
    ///
    /// # Panics
    ///
    /// Panics if that takes too long.
    pub fn wait(&self, count: usize) {
        let mut before = None;
        until("threads to sleep", || {
            let ids = self.ids.lock().clone();
            let now = ids.iter().map(|id| slept(*id)).collect::<Option<Vec<Slept>>>();
            let are_asleep = ids.len() == count && now.is_some() && now == before;
            before = now;
            are_asleep
        });
    }
}

/// Returns how often a thread of this process slept so far; `None` if it does not sleep now.
fn slept(id: i32) -> Option<Slept> {
    let Ok(status) = fs::read_to_string(format!("/proc/self/task/{id}/status")) else {
        return Some(None);
    };
    let is_asleep = status.lines().any(|line| line.starts_with("State:\tS"));
    let switches = status.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
    is_asleep.then(|| Some(switches.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn threads_sleep_once_each_waits_or_has_ended() {
        let threads = SleepingThreads::default();
        let (release, released) = channel::<()>();
        thread::scope(|scope| {
            let threads = &threads;
            scope.spawn(|| threads.add());
            scope.spawn(move || {
                threads.add();
                assert!(released.recv().is_err(), "nothing is sent");
            });
            threads.wait(2);
            let [ended, waits] = threads.ids.lock()[..] else { panic!("there are two") };
            let states = [ended, waits].map(slept);
            assert!(states.contains(&Some(None)), "{states:?}");
            assert!(states.iter().flatten().flatten().count() == 1, "{states:?}");
            drop(release);
        });
    }

    #[test]
    fn thread_that_runs_does_not_sleep() {
        assert_eq!(slept(rustix::thread::gettid().as_raw_nonzero().get()), None);
    }
}
