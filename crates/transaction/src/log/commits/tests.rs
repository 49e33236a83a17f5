//! The log commits with real threads: each rule alone, and many threads at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use userbtrfs_sync::atomic::Ordering;

use super::world::{Why, World};
use super::{JoinOutcome, LogCommitLeader};

fn lead(world: &World, log_transid: u64) -> LogCommitLeader<'_, Why> {
    match world.commits.join(log_transid) {
        JoinOutcome::Lead(lead) => lead,
        JoinOutcome::Ended(end) => panic!("log commit {log_transid} ended: {end:?}"),
    }
}

#[test]
fn change_while_log_commit_is_written_belongs_to_next_log_commit() {
    let world = World::new();
    let first = world.change(1);
    let leader = lead(&world, first);
    assert_eq!(world.change(2), first, "no leader closed it");
    leader.close();
    let second = world.change(4);
    assert_eq!(second, first + 1);
    let (done, ends) = channel();
    thread::scope(|scope| {
        let world = &world;
        let of_first = done.clone();
        scope.spawn(move || {
            let ended = matches!(world.commits.join(first), JoinOutcome::Ended(Ok(())));
            of_first.send((first, ended)).unwrap();
        });
        scope.spawn(move || {
            let JoinOutcome::Lead(leader) = world.commits.join(second) else {
                panic!("no other thread asks")
            };
            leader.close();
            done.send((second, leader.has_waited())).unwrap();
            leader.end(Ok(()));
        });
        let is_any_missing = || world.commits.state.lock().waiting.iter().any(Vec::is_empty);
        while is_any_missing() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ends.try_recv(), Err(TryRecvError::Empty));
        assert!(!leader.has_waited());
        leader.end(Ok(()));
    });
    let mut ends: Vec<_> = ends.iter().collect();
    ends.sort_unstable();
    assert_eq!(ends, [(first, true), (second, true)]);
}

#[test]
fn log_commit_failure_fails_later_log_commits_until_renew() {
    let world = World::new();
    assert_eq!(world.sync(1, World::write), Ok(()));
    assert_eq!(world.sync(2, World::fail), Err(Why::Device));
    assert_eq!(world.sync(4, World::write), Err(Why::Device));
    assert!(matches!(world.commits.join(1), JoinOutcome::Ended(Ok(()))), "it was durable before");
    world.renew();
    assert_eq!(world.sync(8, World::write), Ok(()));
    assert_eq!(world.led.load(Ordering::Relaxed), 2);
}

#[test]
fn leader_waits_for_pending_io_of_its_log_commit() {
    let world = World::new();
    let log_transid = world.change(1);
    let pending_io = world.commits.pending_io();
    let leader = world.commits.try_lead(log_transid).unwrap();
    assert!(world.commits.try_lead(log_transid).is_none(), "there is one leader");
    leader.close();
    let of_next = world.commits.pending_io();
    let (done, ends) = channel();
    thread::scope(|scope| {
        let leader = &leader;
        scope.spawn(move || done.send(leader.gather()).unwrap());
        let waits = ends.recv_timeout(Duration::from_millis(20));
        assert_eq!(waits, Err(RecvTimeoutError::Timeout));
        pending_io.end(Ok(()));
        assert_eq!(ends.recv(), Ok(Ok(())));
    });
    drop(of_next);
    assert_eq!(leader.gather(), Ok(()), "the next log commit is not its own");
    leader.end(Ok(()));
    assert!(matches!(world.commits.join(log_transid + 1), JoinOutcome::Ended(Err(Why::Abandoned))));
}

#[test]
fn earlier_log_commit_that_fails_later_wakes_its_waiters() {
    let world = World::new();
    let log_transid = world.change(1);
    let leader = lead(&world, log_transid);
    leader.close();
    world.commits.pending_io().end(Err(Why::Device));
    thread::scope(|scope| {
        let waits =
            scope.spawn(|| matches!(world.commits.join(log_transid), JoinOutcome::Ended(Err(_))));
        leader.end(Err(Why::Device));
        assert!(waits.join().unwrap());
    });
    assert!(matches!(world.commits.join(log_transid + 1), JoinOutcome::Ended(Err(Why::Device))));
    world.renew();
    assert_eq!(world.sync_with_io(2, Ok(())), Ok(()));
    assert_eq!(world.sync_with_io(4, Err(Why::Device)), Err(Why::Device));
}

#[test]
fn panicking_leader_fails_its_log_commit() {
    let world = World::new();
    let log_transid = world.change(1);
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _leader = lead(&world, log_transid);
        panic!("as it is");
    }));
    panics.unwrap_err();
    assert!(matches!(world.commits.join(log_transid), JoinOutcome::Ended(Err(Why::Abandoned))));
}

#[test]
fn concurrent_syncs_share_log_commits() {
    const EACH: u64 = 500;
    let world = World::new();
    thread::scope(|scope| {
        for index in 0..8 {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..EACH {
                    let bit = 1 << (index * 8 + turn % 8);
                    match turn % 2 {
                        0 => world.sync(bit, World::write).unwrap(),
                        _ => world.sync_with_io(bit, Ok(())).unwrap(),
                    }
                }
            });
        }
    });
    assert!((1..=8 * EACH).contains(&world.led.load(Ordering::Relaxed)));
}
