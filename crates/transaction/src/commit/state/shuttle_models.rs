//! The transaction state under shuttle: random schedules of more threads than loom can exhaust.

use shuttle::thread;
use userbtrfs_sync::Arc;

use super::world::World;
use super::{Failed, JoinKind};

/// Why a thread can be joined.
const JOINED: &str = "shuttle fails the model itself";
/// Why a call fails.
const FAILED: &str = "the model made it fail";

/// The part of the thread `number`; returns the number of commits it led.
fn part(world: &World, number: usize) -> u64 {
    let kind = [JoinKind::Finish, JoinKind::Operation, JoinKind::Writing][number % 3];
    let mut led = 0;
    for round in 0..4 {
        let Ok(generation) = world.change(kind) else { break };
        thread::yield_now();
        if (number + round).is_multiple_of(2) {
            let Ok(leads) = world.sync_up_to(generation) else { break };
            led += u64::from(leads);
        }
    }
    led
}

/// Runs eight threads on one world, and `here` in this one; returns the number of commits, too.
fn crowd(here: fn(&World)) -> (Arc<World>, u64) {
    let world = Arc::new(World::new());
    let start = |number: usize| {
        let world = Arc::clone(&world);
        thread::spawn(move || part(&world, number))
    };
    let threads: Vec<_> = (0..8).map(start).collect();
    here(&world);
    let led = threads.into_iter().map(|thread| thread.join().expect(JOINED)).sum();
    (world, led)
}

fn all_goes_well() {
    let (world, led) = crowd(|_| ());
    assert!(led > 0);
    world.verify(led);
}

fn it_fails() {
    let (world, _) = crowd(|world| {
        thread::yield_now();
        world.transaction_state.fail("the test says so");
    });
    assert_eq!(
        world.transaction_state.check().expect_err(FAILED),
        Failed::Error("the test says so".into())
    );
}

#[test]
fn a_crowd_by_random_schedules() {
    shuttle::check_random(all_goes_well, 3_000);
}

#[test]
fn a_crowd_by_few_preemptions() {
    shuttle::check_pct(all_goes_well, 3_000, 3);
}

#[test]
fn a_failure_among_a_crowd() {
    shuttle::check_random(it_fails, 3_000);
}
