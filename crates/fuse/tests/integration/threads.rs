//! Tests of many programs at once: threads, requests that wait, and signals.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use rustix::fs::{XattrFlags, fsetxattr};
use rustix::process::{Pid, Signal, kill_process};
use userbtrfs_fuse::Config;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::test_env::{fuse_or_skip, is_apart, until};

use crate::harness::{Mounted, config, options};
use crate::memory::Behavior;

/// Starts sync(1) on this file.
fn sync_program(mounted: &Mounted, name: &str) -> Child {
    Command::new("sync").arg(mounted.path(name)).spawn().unwrap()
}

#[test]
fn threads_do_not_disturb_each_other() {
    let Some(mounted) = Mounted::new() else { return };
    thread::scope(|scope| {
        for worker in 0..8_u8 {
            let root = mounted.path(&worker.to_string());
            scope.spawn(move || {
                fs::create_dir(&root).unwrap();
                for round in 0..100 {
                    let path = root.join(round.to_string());
                    fs::write(&path, vec![worker; 5000]).unwrap();
                    File::open(&path).unwrap().sync_all().unwrap();
                    fs::rename(&path, root.join("now")).unwrap();
                    assert!(fs::read(root.join("now")).unwrap() == vec![worker; 5000]);
                }
                assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
            });
        }
    });
}

#[test]
fn a_request_that_waits_is_interrupted_by_a_signal() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("held"), "x").unwrap();
    let mut program = sync_program(&mounted, "held");
    let seen = &mounted.memory.seen;
    seen.until(|state| state.held.is_some());
    assert!(program.try_wait().unwrap().is_none());
    kill_process(Pid::from_child(&program), Signal::TERM).unwrap();
    assert!(!program.wait().unwrap().success());
    seen.until(|state| state.interrupts == 1 && state.held.is_none());
    fs::write(mounted.path("other"), "the mount lives on").unwrap();
}

#[test]
fn a_request_is_answered_later_by_another_thread() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("held"), "x").unwrap();
    let mut program = sync_program(&mounted, "held");
    mounted.memory.seen.until(|state| state.held.is_some());
    // More requests than threads, while that one waits.
    for number in 0..10 {
        fs::write(mounted.path(&number.to_string()), "x").unwrap();
    }
    let reply = mounted.memory.seen.change(|state| state.held.take()).unwrap();
    thread::spawn(move || reply.succeed(&())).join().unwrap();
    assert!(program.wait().unwrap().success());
}

#[test]
fn a_mount_is_served_while_more_requests_sleep_than_there_are_threads() {
    const SLEEPERS: usize = 20;
    let Some(mounted) = Mounted::new() else { return };
    assert_eq!(mounted.session.threads(), 2);
    // The kernel runs one fsync of a file at a time.
    let sleeper = |number| {
        let path = mounted.path(&format!("slow-{number}"));
        thread::spawn(move || File::create_new(path).unwrap().sync_all().unwrap())
    };
    let sleepers: Vec<_> = (0..SLEEPERS).map(sleeper).collect();
    let seen = &mounted.memory.seen;
    seen.until(|state| state.sleepers == SLEEPERS);
    assert_eq!(mounted.session.threads(), SLEEPERS + 2);
    fs::write(mounted.path("other"), "served meanwhile").unwrap();
    seen.change(|state| state.sleepers_may_go = true);
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
    for number in 0..50 {
        fs::write(mounted.path(&number.to_string()), "served after").unwrap();
    }
    assert_eq!(mounted.session.threads(), SLEEPERS + 2);
}

/// Returns the anonymous memory of this process in bytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// A thread in `may_sleep` depends on no other request, so requests beyond the maximum wait for it.
#[test]
fn no_more_requests_sleep_than_there_may_be_threads() {
    const MOST: usize = 4;
    let config = Config { threads: 2, threads_max: MOST, ..config() };
    let Some(mounted) = Mounted::with(Behavior::default(), &config, &options()) else { return };
    let seen = &mounted.memory.seen;
    let create = |number| File::create_new(mounted.path(&format!("slow-{number}"))).unwrap();
    let files: Vec<_> = (0..3 * MOST).map(create).collect();
    let sleeper = |file: File| thread::spawn(move || file.sync_all().unwrap());
    let sleepers: Vec<_> = files.into_iter().map(sleeper).collect();
    seen.until(|state| state.sleepers == MOST);
    thread::sleep(Duration::from_millis(200));
    seen.until(|state| state.sleepers == MOST);
    assert_eq!(mounted.session.threads(), MOST);
    seen.change(|state| state.sleepers_may_go = true);
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
    fs::write(mounted.path("other"), "served after").unwrap();
    assert_eq!(mounted.session.threads(), MOST);
}

/// Each thread has a buffer for the largest message. Of many that slept, few need it again.
#[test]
fn threads_that_are_not_needed_any_more_have_no_buffers() {
    const SLEEPERS: usize = 200;
    const LEN: usize = 1 << 16;
    let this = "threads::threads_that_are_not_needed_any_more_have_no_buffers";
    if !fuse_or_skip() || !is_apart(this, "") {
        return;
    }
    let Some(mounted) = Mounted::new() else { return };
    let sleeper = |number| {
        let file = File::create_new(mounted.path(&format!("slow-{number}"))).unwrap();
        thread::spawn(move || {
            fsetxattr(&file, "user.x", &vec![1; LEN], XattrFlags::empty()).unwrap();
        })
    };
    let sleepers: Vec<_> = (0..SLEEPERS).map(sleeper).collect();
    let seen = &mounted.memory.seen;
    seen.until(|state| state.sleepers == SLEEPERS);
    let before = memory();
    seen.change(|state| state.sleepers_may_go = true);
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
    // Each buffer has held the value that was set.
    let less = u64::try_from(SLEEPERS * LEN).unwrap() / 2;
    until("buffers to go", || memory() + less < before);
    fs::write(mounted.path("other"), vec![1; 8 << 20]).unwrap();
    assert!(mounted.session.threads() > SLEEPERS);
}

#[test]
fn threads_that_nobody_needs_end_after_a_while() {
    const SLEEPERS: usize = 20;
    let config = Config { idle: Duration::from_millis(200), ..config() };
    let Some(mounted) = Mounted::with(Behavior::default(), &config, &options()) else { return };
    let seen = &mounted.memory.seen;
    for round in 0..3 {
        seen.change(|state| (state.sleepers, state.sleepers_may_go) = (0, false));
        let sleeper = |number| {
            let path = mounted.path(&format!("slow-{round}-{number}"));
            thread::spawn(move || File::create_new(path).unwrap().sync_all().unwrap())
        };
        let sleepers: Vec<_> = (0..SLEEPERS).map(sleeper).collect();
        seen.until(|state| state.sleepers == SLEEPERS);
        assert_eq!(mounted.session.threads(), SLEEPERS + 2);
        seen.change(|state| state.sleepers_may_go = true);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        // Twice as many as wanted may be awake, and as many as wanted spare.
        until("threads to end", || mounted.session.threads() <= 6);
        fs::write(mounted.path("other"), "served after").unwrap();
    }
}

/// Returns how often each serving thread has gone to sleep so far; `None` if one does not sleep.
fn sleeps_of_sleepers() -> Option<BTreeMap<PathBuf, u64>> {
    let mut all = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // The thread may have ended since.
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        if value("Name:") != Some("fuse") {
            continue;
        }
        if !value("State:").unwrap().starts_with('S') {
            return None;
        }
        all.insert(task, value("voluntary_ctxt_switches:").unwrap().parse().unwrap());
    }
    Some(all)
}

/// Returns how often each serving thread has gone to sleep when all of them sleep: there are no
/// requests now, and one that is about to sleep would be counted later otherwise.
fn sleeps_of_each() -> BTreeMap<PathBuf, u64> {
    let mut found = None;
    until("the threads to sleep", || {
        found = sleeps_of_sleepers();
        found.is_some()
    });
    found.unwrap()
}

/// Returns how often all serving threads have gone to sleep so far.
fn sleeps() -> u64 {
    sleeps_of_each().values().sum()
}

/// Threads that wait for requests are woken in turn, so the next request finds cold caches.
#[test]
fn a_program_alone_is_served_by_two_threads_and_many_by_all() {
    let this = "threads::a_program_alone_is_served_by_two_threads_and_many_by_all";
    if !fuse_or_skip() || !is_apart(this, "") {
        return;
    }
    let config = Config { threads: 8, ..config() };
    let Some(mounted) = Mounted::with(Behavior::default(), &config, &options()) else { return };
    let slow = File::create_new(mounted.path("slow-0")).unwrap();
    let make_dirs = |name: &str| {
        for number in 0..300 {
            fs::create_dir(mounted.path(&format!("{name}-{number}"))).unwrap();
        }
    };
    let who_serves = |name: &str| {
        let before = sleeps_of_each();
        make_dirs(name);
        let serves = |(task, sleeps): (&PathBuf, &u64)| before.get(task) != Some(sleeps);
        sleeps_of_each().iter().filter(|each| serves(*each)).count()
    };
    make_dirs("first");
    let few = who_serves("alone");
    assert!(few <= 2, "{few} serve one");
    let sleeper = thread::spawn(move || slow.sync_all().unwrap());
    let seen = &mounted.memory.seen;
    seen.until(|state| state.sleepers == 1);
    make_dirs("beside");
    let all = who_serves("beside-again");
    assert!(all >= 8, "{all} serve many");
    seen.change(|state| state.sleepers_may_go = true);
    sleeper.join().unwrap();
    make_dirs("later");
    let few = who_serves("alone-again");
    assert!(few <= 2, "{few} serve one again");
}

/// Each request that sleeps wakes only one of many spare threads.
#[test]
fn a_call_for_a_thread_wakes_one() {
    const SLEEPERS: usize = 100;
    let this = "threads::a_call_for_a_thread_wakes_one";
    if !fuse_or_skip() || !is_apart(this, "") {
        return;
    }
    let Some(mounted) = Mounted::new() else { return };
    let seen = &mounted.memory.seen;
    let files: Vec<_> = (0..SLEEPERS)
        .map(|number| Arc::new(File::create_new(mounted.path(&format!("slow-{number}"))).unwrap()))
        .collect();
    let fall_asleep = || {
        seen.change(|state| (state.sleepers, state.sleepers_may_go) = (0, false));
        let sleeper = |(number, file): (usize, &Arc<File>)| {
            let file = file.clone();
            let sleeper = thread::spawn(move || file.sync_all().unwrap());
            seen.until(|state| state.sleepers == number + 1);
            sleeper
        };
        files.iter().enumerate().map(sleeper).collect::<Vec<_>>()
    };
    let wake = |sleepers: Vec<thread::JoinHandle<()>>| {
        seen.change(|state| state.sleepers_may_go = true);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    };
    wake(fall_asleep());
    let before = sleeps();
    let sleepers = fall_asleep();
    let slept = sleeps() - before;
    assert_eq!(mounted.session.threads(), SLEEPERS + 2);
    wake(sleepers);
    // If all were woken each time, it would be half the square of the calls.
    let most = u64::try_from(SLEEPERS * 10).unwrap();
    assert!(slept < most, "{slept} times for {SLEEPERS} calls");
}

#[test]
fn a_thread_receives_requests_even_if_the_maximum_sleep() {
    let config = Config { threads: 1, threads_max: 2, ..config() };
    let Some(mounted) = Mounted::with(Behavior::default(), &config, &options()) else { return };
    // Each seek has dirty data written back before it is answered, by a request that another
    // thread has to serve.
    let seeker = |number: usize| {
        let path = mounted.path(&number.to_string());
        thread::spawn(move || {
            let file = File::create_new(path).unwrap();
            for round in 0..20 {
                file.write_all_at(&[1; 4096], round * 8192).unwrap();
                let data = rustix::fs::SeekFrom::Data(round * 8192);
                assert_eq!(rustix::fs::seek(&file, data), Ok(round * 8192));
            }
        })
    };
    let seekers: Vec<_> = (0..8).map(seeker).collect();
    for seeker in seekers {
        seeker.join().unwrap();
    }
}
