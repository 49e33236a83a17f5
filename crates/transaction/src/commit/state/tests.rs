//! The transaction state with real threads: each rule alone, panics, and many threads at once.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, Scope};
use std::time::Duration;

use super::commit::CommitStart;
use super::world::{FIRST, World};
use super::{Commit, CommitRole, Failed, JoinKind, Open, TransactionState};

/// The time to wait for something that must not happen.
const NEVER: Duration = Duration::from_millis(20);

fn lead(transaction_state: &TransactionState, generation: u64) -> Commit<'_, Open> {
    match transaction_state.begin_commit(generation).expect("nothing has failed") {
        CommitRole::Lead(commit) => commit,
        CommitRole::Joined => panic!("no other thread leads transaction {generation}"),
    }
}

fn lead_to_closed(
    transaction_state: &TransactionState,
    generation: u64,
) -> Commit<'_, CommitStart> {
    let prepared =
        lead(transaction_state, generation).exclude_writing().expect("nothing has failed");
    prepared.exclude_operations().expect("nothing has failed")
}

/// Runs `action` in a thread of its own; returns a receiver of its result.
fn later<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    action: impl FnOnce() -> T + Send + 's,
) -> Receiver<T> {
    let (done, answer) = channel();
    scope.spawn(move || done.send(action()));
    answer
}

/// Checks that `answer` waits. That it would wait for ever is left to the models.
fn waits<T>(answer: &Receiver<T>) {
    let answer = answer.recv_timeout(NEVER).map(drop);
    assert_eq!(answer, Err(RecvTimeoutError::Timeout));
}

/// Returns the message that `action` panics with.
fn complaint(action: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(action)).expect_err("it must panic");
    *panic.downcast::<String>().expect("messages are formatted")
}

fn joined(transaction_state: &TransactionState, kind: JoinKind) -> Result<u64, Failed> {
    transaction_state.join(kind).map(|transaction_guard| transaction_guard.generation())
}

#[test]
fn stages_shut_out_writing_then_operations_and_then_finishes() {
    let transaction_state = TransactionState::new(FIRST);
    thread::scope(|scope| {
        let commit = lead(&transaction_state, FIRST);
        assert_eq!(
            later(scope, || joined(&transaction_state, JoinKind::Writing)).recv().unwrap(),
            Ok(FIRST)
        );

        let commit = commit.exclude_writing().unwrap();
        let sync = later(scope, || joined(&transaction_state, JoinKind::Writing));
        waits(&sync);
        let operation = later(scope, || joined(&transaction_state, JoinKind::Operation));
        let finish = later(scope, || joined(&transaction_state, JoinKind::Finish));
        assert_eq!(operation.recv().unwrap(), Ok(FIRST));
        assert_eq!(finish.recv().unwrap(), Ok(FIRST));

        let commit = commit.exclude_operations().unwrap();
        let operation = later(scope, || joined(&transaction_state, JoinKind::Operation));
        let finish = later(scope, || joined(&transaction_state, JoinKind::Finish));
        assert_eq!(finish.recv().unwrap(), Ok(FIRST));
        waits(&operation);

        let commit = commit.exclude_finish().unwrap();
        let finish = later(scope, || joined(&transaction_state, JoinKind::Finish));
        waits(&finish);
        waits(&operation);
        assert_eq!(
            (commit.transaction_guard().generation(), commit.transaction_guard().kind),
            (FIRST, JoinKind::Commit)
        );

        let commit = commit.unblock().unwrap();
        for next in [sync, operation, finish] {
            assert_eq!(next.recv().unwrap(), Ok(FIRST + 1));
        }
        commit.durable().unwrap().complete();
    });
}

#[test]
fn exclude_operations_waits_for_last_operation() {
    let transaction_state = TransactionState::new(FIRST);
    thread::scope(|scope| {
        let guards = [transaction_state.join(JoinKind::Operation).unwrap()];
        let closed = later(scope, || {
            let commit = lead_to_closed(&transaction_state, FIRST);
            commit.exclude_finish().unwrap().unblock().unwrap().durable().unwrap().complete();
        });
        waits(&closed);
        assert_eq!(transaction_state.generation(), FIRST);
        drop(guards);
        closed.recv().unwrap();
        assert_eq!(transaction_state.generation(), FIRST + 1);
    });
}

#[test]
fn operations_join_while_commit_waits_for_writing() {
    let transaction_state = TransactionState::new(FIRST);
    thread::scope(|scope| {
        let guards = [transaction_state.join(JoinKind::Writing).unwrap()];
        let closed = later(scope, || lead_to_closed(&transaction_state, FIRST).generation());
        waits(&closed);
        let operation = later(scope, || joined(&transaction_state, JoinKind::Operation));
        assert_eq!(operation.recv().unwrap(), Ok(FIRST));
        drop(guards);
        assert_eq!(closed.recv().unwrap(), FIRST);
    });
}

#[test]
fn transaction_being_committed_is_not_left_alone() {
    let transaction_state = TransactionState::new(FIRST);
    assert!(transaction_state.has_no_leader(FIRST));
    thread::scope(|scope| {
        let commit = lead(&transaction_state, FIRST);
        let seen = later(scope, || transaction_state.has_no_leader(FIRST));
        assert!(!seen.recv().unwrap());
        drop(commit);
    });
}

#[test]
fn durable_and_completed_are_waited_for_apart() {
    let transaction_state = TransactionState::new(FIRST);
    thread::scope(|scope| {
        let durable = later(scope, || transaction_state.wait_durable(FIRST));
        let completed = later(scope, || transaction_state.wait_completed(FIRST));
        let commit =
            lead_to_closed(&transaction_state, FIRST).exclude_finish().unwrap().unblock().unwrap();
        waits(&durable);
        let commit = commit.durable().unwrap();
        assert_eq!(durable.recv().unwrap(), Ok(()));
        waits(&completed);
        commit.complete();
        assert_eq!(completed.recv().unwrap(), Ok(()));
    });
}

#[test]
fn a_second_transaction_takes_all_until_the_first_is_completed() {
    let transaction_state = &TransactionState::new(FIRST);
    thread::scope(|scope| {
        let first =
            lead_to_closed(transaction_state, FIRST).exclude_finish().unwrap().unblock().unwrap();
        let second = later(scope, move || {
            let commit = lead_to_closed(transaction_state, FIRST + 1).exclude_finish().unwrap();
            commit.unblock().unwrap().durable().unwrap().complete();
        });
        let all_join = || {
            let kinds = [JoinKind::Writing, JoinKind::Operation, JoinKind::Finish];
            let joined = kinds.map(|kind| later(scope, move || joined(transaction_state, kind)));
            joined.into_iter().all(|joined| joined.recv().unwrap() == Ok(FIRST + 1))
        };
        waits(&second);
        assert!(all_join());
        let first = first.durable().unwrap();
        waits(&second);
        assert!(all_join());
        first.complete();
        second.recv().unwrap();
        assert_eq!(transaction_state.generation(), FIRST + 2);
    });
}

#[test]
fn commit_request_for_led_or_durable_transaction_joins() {
    let transaction_state = TransactionState::new(FIRST);
    let ask =
        |generation| matches!(transaction_state.begin_commit(generation), Ok(CommitRole::Joined));
    assert!(ask(FIRST - 1));
    thread::scope(|scope| {
        let commit = lead_to_closed(&transaction_state, FIRST);
        assert!(later(scope, || ask(FIRST)).recv().unwrap());
        let commit = commit.exclude_finish().unwrap().unblock().unwrap();
        assert!(later(scope, || ask(FIRST)).recv().unwrap());
        commit.durable().unwrap().complete();
        assert!(ask(FIRST));
        assert!(!ask(FIRST + 1));
    });
}

#[test]
fn a_failure_wakes_all_and_the_first_reason_stays() {
    let transaction_state = &TransactionState::new(FIRST);
    thread::scope(|scope| {
        let first =
            lead_to_closed(transaction_state, FIRST).exclude_finish().unwrap().unblock().unwrap();
        let (leads, begun) = channel();
        let second = later(scope, move || {
            let CommitRole::Lead(commit) = transaction_state.begin_commit(FIRST + 1).unwrap()
            else {
                panic!("no other thread leads it")
            };
            leads.send(()).unwrap();
            commit.exclude_writing().map(drop)
        });
        begun.recv().unwrap();
        let durable = later(scope, || transaction_state.wait_durable(FIRST));
        let completed = later(scope, || transaction_state.wait_completed(FIRST));
        waits(&second);
        transaction_state.fail("the disk is gone");
        drop(first);
        let failed = Failed::Error("the disk is gone".into());
        for waiter in [second, durable, completed] {
            assert_eq!(waiter.recv().unwrap(), Err(failed.clone()));
        }
        assert_eq!(joined(transaction_state, JoinKind::Operation), Err(failed.clone()));
        assert_eq!(transaction_state.begin_commit(FIRST + 1).map(drop), Err(failed.clone()));
        assert_eq!(transaction_state.check(), Err(failed));
    });
}

#[test]
fn durable_transaction_stays_durable_after_failure() {
    let transaction_state = TransactionState::new(FIRST);
    let commit =
        lead_to_closed(&transaction_state, FIRST).exclude_finish().unwrap().unblock().unwrap();
    commit.durable().unwrap().complete();
    transaction_state.fail("too late");
    assert_eq!(transaction_state.wait_durable(FIRST), Ok(()));
    assert_eq!(transaction_state.wait_completed(FIRST), Ok(()));
    assert!(transaction_state.wait_durable(FIRST + 1).is_err());
}

#[test]
fn no_stage_is_entered_after_a_failure() {
    let fails = |when: u32| {
        let transaction_state = TransactionState::new(FIRST);
        let fail_at = |stage| (stage == when).then(|| transaction_state.fail("now"));
        let run = || {
            let commit = lead(&transaction_state, FIRST);
            fail_at(0);
            let commit = commit.exclude_writing()?.exclude_operations()?;
            fail_at(1);
            let commit = commit.exclude_finish()?;
            fail_at(2);
            let commit = commit.unblock()?;
            fail_at(3);
            commit.durable()?.complete();
            Ok::<_, Failed>(())
        };
        (run().is_err(), transaction_state.generation())
    };
    assert_eq!([0, 1, 2].map(fails), [(true, FIRST); 3]);
    assert_eq!(fails(3), (true, FIRST + 1));
    assert_eq!(fails(4), (false, FIRST + 1));
}

#[test]
fn a_commit_that_is_dropped_fails() {
    let transaction_state = TransactionState::new(FIRST);
    drop(lead_to_closed(&transaction_state, FIRST));
    let why = transaction_state.check().unwrap_err().to_string();
    assert!(why.contains("the commit of transaction 7 was given up"), "{why}");
}

#[test]
fn panic_with_guard_fails() {
    let transaction_state = TransactionState::new(FIRST);
    let message = complaint(|| {
        let transaction_guard = transaction_state.join(JoinKind::Operation).unwrap();
        panic!("{:?} dies", transaction_guard.kind);
    });
    assert_eq!(message, "Operation dies");
    assert!(
        transaction_state.check().unwrap_err().to_string().contains("transaction 7 half changed")
    );
}

/// A handle on something open may be dropped while its thread unwinds for another reason: its
/// changes are complete.
#[test]
fn guard_taken_while_unwinding_does_not_fail() {
    struct Later<'a>(&'a TransactionState);
    impl Drop for Later<'_> {
        fn drop(&mut self) {
            drop(self.0.join(JoinKind::Operation));
        }
    }
    let transaction_state = TransactionState::new(FIRST);
    let message = complaint(|| {
        let _later = Later(&transaction_state);
        let whose = "other";
        panic!("for {whose} reasons");
    });
    assert_eq!(message, "for other reasons");
    assert_eq!(transaction_state.check(), Ok(()));
}

#[test]
#[cfg(debug_assertions)]
fn thread_with_guard_neither_joins_nor_commits() {
    let transaction_state = TransactionState::new(FIRST);
    let _guard = transaction_state.join(JoinKind::Operation).unwrap();
    let refused: [&dyn Fn(); 4] = [
        &|| drop(transaction_state.join(JoinKind::Operation)),
        &|| drop(transaction_state.begin_commit(FIRST)),
        &|| drop(transaction_state.wait_durable(FIRST)),
        &|| drop(transaction_state.wait_completed(FIRST)),
    ];
    for refused in refused {
        let message = complaint(refused);
        assert!(message.contains("only one lock of this class"), "{message}");
    }
    transaction_state.wait_durable(FIRST - 1).unwrap();
    transaction_state.check().unwrap();
}

#[test]
#[cfg(debug_assertions)]
fn leader_has_only_guards_of_its_own() {
    let transaction_state = TransactionState::new(FIRST);
    let commit = lead_to_closed(&transaction_state, FIRST);
    drop((commit.transaction_guard(), commit.transaction_guard()));
    let message = complaint(|| drop(transaction_state.join(JoinKind::Finish)));
    assert!(message.contains("transaction handle"), "{message}");
    drop(commit);
}

/// Returns the number of rounds of a stress test: `many` if `USERBTRFS_TORTURE` is set.
fn rounds(few: usize, many: usize) -> usize {
    if env::var_os("USERBTRFS_TORTURE").is_some() { many } else { few }
}

#[test]
fn many_threads_change_and_commit() {
    for _ in 0..rounds(20, 1000) {
        let world = World::new();
        let part = |number: usize| {
            let kind = [JoinKind::Finish, JoinKind::Operation, JoinKind::Writing][number % 3];
            let turn = |round: usize| {
                let generation = world.change(kind).unwrap();
                let asks = (number + round).is_multiple_of(8);
                u64::from(asks && world.sync_up_to(generation).unwrap())
            };
            (0..200).map(turn).sum::<u64>()
        };
        let led = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || part(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        world.verify(led);
    }
}
