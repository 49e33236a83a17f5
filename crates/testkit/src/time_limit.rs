//! A time limit for tests that start processes, and the signals of these processes.
//!
//! 1. The limit of a test begins with its first call of [`limit_time`], and ends with its thread.
//! 2. The processes that a test has started are killed when it exceeds the limit: the test then
//!    fails where it waited for them. If it still runs a minute later, the whole process ends.
//! 3. Both are reported with the name of the test.
//! 4. If all tests run on the main thread (`--test-threads=1`), there is no limit: the end of one
//!    cannot be seen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// The time after which the processes of a test are killed.
const LIMIT: Duration = Duration::from_mins(30);
/// The same with full counts.
const LIMIT_OF_TORTURE: Duration = Duration::from_hours(24);
/// The time that a test then has to fail.
const GRACE: Duration = Duration::from_mins(1);

/// The tests that have begun and not ended.
static RUNNING: Mutex<BTreeMap<u64, Running>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static START: Once = Once::new();

/// A test, and the time limit of it.
struct Running {
    name: String,
    /// The thread of the test.
    thread: u32,
    until: Instant,
    has_been_killed: bool,
}

/// The entry of a thread in [`RUNNING`].
struct Entry(u64);

impl Drop for Entry {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

thread_local! {
    static ENTRY: Option<Entry> = enter(limit());
}

/// Limits the time of this test, and gives the processes that are started from now on the default
/// actions of signals, also if the caller of the tests ignores them.
///
/// # Panics
///
/// Panics if no thread can be started.
pub fn limit_time() {
    START.call_once(|| {
        default_signals();
        let watch = || loop {
            thread::sleep(Duration::from_secs(1));
            watch_all();
        };
        thread::Builder::new().name("time limit".to_owned()).spawn(watch).expect("a thread more");
    });
    ENTRY.with(|_| ());
}

/// Returns the time limit of a test; this file is below the one that has `is_torture`.
fn limit() -> Duration {
    let is_torture = std::env::var("USERBTRFS_TORTURE").as_deref() == Ok("1");
    if is_torture { LIMIT_OF_TORTURE } else { LIMIT }
}

/// Adds this thread to those that are watched.
fn enter(limit: Duration) -> Option<Entry> {
    let name = thread::current().name().filter(|name| *name != "main")?.to_owned();
    let thread = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok()?;
    let until = Instant::now() + limit;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let running = Running { name, thread, until, has_been_killed: false };
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).insert(number, running);
    Some(Entry(number))
}

/// Makes signals have their default actions. A new program gets the default action of a signal that
/// was handled, but inherits that it is ignored.
fn default_signals() {
    for signal in [SIGINT, SIGQUIT, SIGHUP, SIGTERM] {
        let always = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_default(signal, always).expect("a valid signal");
    }
}

/// Ends the tests that exceed their limit.
fn watch_all() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    for test in running.values_mut().filter(|test| test.until <= now) {
        if test.has_been_killed {
            eprintln!("{}: does not end without its processes, so all tests end", test.name);
            std::process::exit(101);
        }
        test.has_been_killed = true;
        test.until = now + GRACE;
        let killed = kill_processes_of(test.thread);
        eprintln!("{}: exceeds its time limit; killed: {killed:?}", test.name);
    }
}

/// Kills the processes that a thread has started, and those below them; returns their names.
fn kill_processes_of(thread: u32) -> Vec<String> {
    let own = std::process::id();
    let mut left = children(&format!("/proc/{own}/task/{thread}"));
    let mut killed = Vec::new();
    while let Some(process) = left.pop() {
        let tasks = fs::read_dir(format!("/proc/{process}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        left.extend(tasks.flat_map(|task| children(&task.path().to_string_lossy())));
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        // It may have ended by itself meanwhile.
        if Pid::from_raw(process).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()) {
            killed.push(format!("{} {process}", name.trim_end()));
        }
    }
    killed
}

/// Returns the processes that a thread has started and that have not ended.
fn children(task: &str) -> Vec<i32> {
    let list = fs::read_to_string(Path::new(task).join("children")).unwrap_or_default();
    list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_of_a_test_that_exceeds_its_limit_are_killed() {
        limit_time();
        let test = thread::Builder::new().name("a test".to_owned()).spawn(|| {
            let _entry = enter(Duration::ZERO);
            let begun = Instant::now();
            let status = Command::new("sh").args(["-c", "sleep 300; exit 0"]).status();
            (status.expect("sh is there"), begun.elapsed())
        });
        let (status, time) = test.expect("a thread more").join().expect("it ends");
        assert!(!status.success());
        assert!(time < Duration::from_secs(200), "{time:?}");
    }

    #[test]
    fn a_test_that_ended_is_not_watched() {
        let test = thread::Builder::new().name("ends".to_owned()).spawn(|| {
            limit_time();
            RUNNING.lock().expect("no panic").values().any(|test| test.name == "ends")
        });
        assert!(test.expect("a thread more").join().expect("it ends"));
        assert!(!RUNNING.lock().expect("no panic").values().any(|test| test.name == "ends"));
    }

    #[test]
    fn processes_do_not_ignore_what_the_caller_ignores() {
        // The shell ignores SIGINT, as for a command in the background, and runs this test again.
        if std::env::var_os("SIGNALS_IGNORED").is_none() {
            let this = std::env::current_exe().expect("a test is a program");
            let name = "time_limit::tests::processes_do_not_ignore_what_the_caller_ignores";
            let mut again = Command::new("sh");
            again.args(["-c", "trap '' INT; exec \"$0\" --exact \"$1\""]).arg(this).arg(name);
            let output = again.env("SIGNALS_IGNORED", "1").output().expect("sh is there");
            assert!(output.status.success(), "{output:?}");
            return;
        }
        limit_time();
        let status = Command::new("sh").args(["-c", "kill -INT $$; exit 0"]).status();
        assert!(!status.expect("sh is there").success());
    }
}
