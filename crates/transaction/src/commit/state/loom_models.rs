//! The transaction state under loom: every interleaving of two or three threads, up to three
//! preemptions. A thread that is never woken fails the model, and so does a change the leader did
//! not see.

use loom::thread;
use userbtrfs_sync::{Arc, Class, Condvar, Mutex};

use super::commit::Unblocked;
use super::world::{FIRST, World};
use super::{Commit, CommitRole, JoinKind};

/// Why a thread can be joined.
const JOINED: &str = "loom fails the model itself";
/// Why a call succeeds.
const SOUND: &str = "nothing fails in this model";
/// Why a call fails.
const FAILED: &str = "the model made it fail";

/// The part of one thread; returns the number of commits it led.
type Part = fn(&World) -> u64;

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs each of `others` in a thread of its own on one world, and `here` in this one.
fn play(others: &[Part], here: Part) -> (Arc<World>, u64) {
    let world = Arc::new(World::new());
    let start = |other: &Part| {
        let world = Arc::clone(&world);
        let other = *other;
        thread::spawn(move || other(&world))
    };
    let threads: Vec<_> = others.iter().map(start).collect();
    let led = here(&world);
    let led_by_others: u64 = threads.into_iter().map(|thread| thread.join().expect(JOINED)).sum();
    (world, led + led_by_others)
}

/// Like `play`, if nothing fails.
fn succeed(others: &[Part], here: Part) -> u64 {
    let (world, led) = play(others, here);
    world.verify(led);
    led
}

fn operate(world: &World) -> u64 {
    world.change(JoinKind::Operation).expect(SOUND);
    0
}

fn operate_and_sync(world: &World) -> u64 {
    let generation = world.change(JoinKind::Operation).expect(SOUND);
    u64::from(world.sync_up_to(generation).expect(SOUND))
}

fn log(world: &World) -> u64 {
    world.change(JoinKind::Writing).expect(SOUND);
    0
}

fn finish(world: &World) -> u64 {
    world.change(JoinKind::Finish).expect(SOUND);
    0
}

fn sync(world: &World) -> u64 {
    u64::from(world.sync().expect(SOUND))
}

fn sync_first(world: &World) -> u64 {
    u64::from(world.sync_up_to(FIRST).expect(SOUND))
}

/// Leads the first transaction's commit through `unblock`.
fn hand_over_first(world: &World) -> Commit<'_, Unblocked> {
    let Ok(CommitRole::Lead(commit)) = world.transaction_state.begin_commit(FIRST) else {
        panic!("no other thread asked, and nothing failed");
    };
    let commit = commit.exclude_writing().expect(SOUND).exclude_operations().expect(SOUND);
    world.shut(commit).expect(SOUND).unblock().expect(SOUND)
}

/// Gives up the first transaction's commit after operations are shut out.
fn give_up(world: &World) -> u64 {
    if let Ok(CommitRole::Lead(commit)) = world.transaction_state.begin_commit(FIRST) {
        commit.exclude_writing().and_then(Commit::exclude_operations).map(drop).unwrap_or_default();
    }
    world.transaction_state.check().expect_err(FAILED);
    0
}

/// Fails from inside the transaction.
fn fail_inside(world: &World) -> u64 {
    let _guard = world.transaction_state.join(JoinKind::Operation);
    world.transaction_state.fail("the test says so");
    0
}

fn try_to_operate(world: &World) -> u64 {
    drop(world.change(JoinKind::Operation));
    0
}

fn try_to_finish(world: &World) -> u64 {
    drop(world.change(JoinKind::Finish));
    0
}

fn try_to_sync(world: &World) -> u64 {
    drop(world.sync_up_to(FIRST));
    0
}

fn try_to_wait(world: &World) -> u64 {
    world.transaction_state.wait_durable(FIRST).expect_err(FAILED);
    0
}

#[test]
fn a_change_is_seen_by_its_commit_or_belongs_to_the_next() {
    explore(4, || assert_eq!(succeed(&[operate], sync), 1));
    explore(3, || assert_eq!(succeed(&[operate, operate], sync), 1));
    explore(3, || assert_eq!(succeed(&[operate, finish], sync), 1));
    explore(3, || assert_eq!(succeed(&[operate, log], sync), 1));
}

#[test]
fn one_of_several_requests_leads_commit() {
    explore(4, || assert_eq!(succeed(&[sync_first], sync_first), 1));
    explore(3, || assert_eq!(succeed(&[sync_first, sync_first], sync_first), 1));
    explore(2, || assert_eq!(succeed(&[sync_first, operate], sync_first), 1));
}

#[test]
fn commits_follow_each_other() {
    explore(4, || assert!((1..=2).contains(&succeed(&[sync], sync))));
    explore(3, || assert!((1..=2).contains(&succeed(&[operate_and_sync], operate_and_sync))));
    explore(2, || assert!((1..=2).contains(&succeed(&[operate, sync], operate_and_sync))));
}

#[test]
fn the_next_commit_begins_while_this_one_is_written() {
    explore(3, || {
        let world = Arc::new(World::new());
        let commit = hand_over_first(&world);
        let next = Arc::clone(&world);
        let next = thread::spawn(move || assert!(next.sync_up_to(FIRST + 1).expect(SOUND)));
        commit.durable().expect(SOUND).complete();
        next.join().expect(JOINED);
        world.verify(2);
    });
}

#[test]
fn an_operation_may_wait_for_the_finish_of_an_extent() {
    explore(3, || {
        let world = Arc::new(World::new());
        let extent = Arc::new((Mutex::new(Class::InodeState, false), Condvar::new()));
        let transaction_guard = world.transaction_state.join(JoinKind::Operation).expect(SOUND);
        let worker = Arc::clone(&world);
        let done = Arc::clone(&extent);
        let worker = thread::spawn(move || {
            assert_eq!(worker.change(JoinKind::Finish).expect(SOUND), FIRST);
            *done.0.lock() = true;
            done.1.notify_one();
        });
        let committer = Arc::clone(&world);
        let committer = thread::spawn(move || sync_first(&committer));
        extent.1.wait_while(&mut extent.0.lock(), |done| !*done);
        drop(transaction_guard);
        worker.join().expect(JOINED);
        world.verify(committer.join().expect(JOINED));
    });
}

/// A sync that waits for the device ends only after an operation that begins when a commit may have
/// begun already.
#[test]
fn an_operation_does_not_wait_for_a_sync() {
    explore(3, || {
        let world = Arc::new(World::new());
        let transaction_guard = world.transaction_state.join(JoinKind::Writing).expect(SOUND);
        let committer = Arc::clone(&world);
        let committer = thread::spawn(move || sync_first(&committer));
        assert_eq!(world.change(JoinKind::Operation).expect(SOUND), FIRST);
        drop(transaction_guard);
        world.verify(committer.join().expect(JOINED));
    });
}

/// An operation does not wait for the previous transaction to be written either, when the next
/// commit may have begun already.
#[test]
fn an_operation_does_not_wait_for_two_commits() {
    explore(3, || {
        let world = Arc::new(World::new());
        let commit = hand_over_first(&world);
        let next = Arc::clone(&world);
        let next = thread::spawn(move || assert!(next.sync_up_to(FIRST + 1).expect(SOUND)));
        // No other thread completes the first.
        assert_eq!(world.change(JoinKind::Operation).expect(SOUND), FIRST + 1);
        commit.durable().expect(SOUND).complete();
        next.join().expect(JOINED);
        world.verify(2);
    });
}

#[test]
fn thread_in_running_transaction_may_wait_for_previous_one() {
    explore(3, || {
        let world = Arc::new(World::new());
        let committer = Arc::clone(&world);
        let committer = thread::spawn(move || sync_first(&committer));
        let transaction_guard = world.transaction_state.join(JoinKind::Operation).expect(SOUND);
        if transaction_guard.generation() > FIRST {
            world.transaction_state.wait_durable(FIRST).expect(SOUND);
        }
        drop(transaction_guard);
        world.transaction_state.wait_completed(FIRST).expect(SOUND);
        world.verify(committer.join().expect(JOINED));
    });
}

/// Like `play`, if the transaction state fails in the end.
fn fail(others: &[Part], here: Part) {
    let (world, _) = play(others, here);
    world.transaction_state.check().expect_err(FAILED);
}

#[test]
fn a_leader_that_gives_up_wakes_all() {
    explore(3, || fail(&[try_to_operate, try_to_finish], give_up));
    explore(3, || fail(&[try_to_wait, try_to_wait], give_up));
}

#[test]
fn a_failure_from_inside_wakes_all() {
    explore(3, || fail(&[try_to_sync], fail_inside));
    explore(3, || fail(&[try_to_sync, try_to_operate], fail_inside));
    explore(2, || fail(&[try_to_sync, try_to_sync], fail_inside));
}

#[test]
fn failure_wakes_leader_that_waits_for_guard() {
    explore(4, || {
        let world = Arc::new(World::new());
        let transaction_guard = world.transaction_state.join(JoinKind::Operation).expect(SOUND);
        let committer = Arc::clone(&world);
        let committer = thread::spawn(move || committer.sync_up_to(FIRST).expect_err(FAILED));
        world.transaction_state.fail("the test says so");
        committer.join().expect(JOINED);
        drop(transaction_guard);
    });
}

#[test]
fn a_failure_of_one_transaction_fails_the_next() {
    explore(4, || {
        let world = Arc::new(World::new());
        let commit = hand_over_first(&world);
        let next = Arc::clone(&world);
        let next = thread::spawn(move || next.sync_up_to(FIRST + 1).expect_err(FAILED));
        world.transaction_state.fail("the test says so");
        drop(commit);
        next.join().expect(JOINED);
        assert_eq!(world.transaction_state.generation(), FIRST + 1);
    });
}
