//! The log commits under loom: every interleaving of two to four threads, up to some preemptions. A
//! thread that is never woken fails the model, and so does a change that is not on the device.

use loom::thread;
use userbtrfs_sync::Arc;
use userbtrfs_sync::atomic::Ordering;

use super::world::{Why, World};

/// The part of a thread, which gets a bit of its own.
type Part = fn(&World, u64);

fn explore(preemptions: usize, parts: &'static [Part], least: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let world = Arc::new(World::new());
        let start = |(index, part): (usize, &Part)| {
            let world = Arc::clone(&world);
            let part = *part;
            thread::spawn(move || part(&world, 1 << index))
        };
        let (here, others) = parts.split_last().expect("there are some");
        let threads: Vec<_> = others.iter().enumerate().map(start).collect();
        here(&world, 1 << others.len());
        threads.into_iter().for_each(|thread| thread.join().expect("loom fails the model itself"));
        assert!(world.led.load(Ordering::Relaxed) >= least);
        world.renew();
        world.sync(1 << parts.len(), World::write).expect("all begins anew");
    });
}

fn sync(world: &World, bit: u64) {
    world.sync(bit, World::write).expect("nothing fails in this model");
}

fn sync_twice(world: &World, bit: u64) {
    sync(world, bit);
    sync(world, bit << 8);
}

/// Fails if it leads, at once or while others wait.
fn fail(world: &World, bit: u64) {
    let _ended = world.sync(bit, World::fail);
}

fn abandon(world: &World, bit: u64) {
    let _ended = world.sync(bit, |_, lead| drop(lead));
}

/// Syncs, which may fail.
fn try_to_sync(world: &World, bit: u64) {
    let _ended = world.sync(bit, World::write);
}

/// Syncs with pending I/O that completes.
fn keep(world: &World, bit: u64) {
    world.sync_with_io(bit, Ok(())).expect("nothing fails in this model");
}

/// Syncs with pending I/O that completes, in a log commit that may fail.
fn try_to_keep(world: &World, bit: u64) {
    let _ended = world.sync_with_io(bit, Ok(()));
}

fn break_it(world: &World, bit: u64) {
    world.sync_with_io(bit, Err(Why::Device)).expect_err("the pending I/O fails");
}

#[test]
fn pending_io_completes_before_its_log_commit_is_durable() {
    explore(4, &[keep, keep], 1);
    explore(3, &[keep, keep, sync], 1);
}

#[test]
fn failed_pending_io_fails_its_log_commit_and_wakes_all() {
    explore(4, &[try_to_keep, break_it], 0);
    explore(3, &[try_to_sync, try_to_keep, break_it], 0);
}

#[test]
fn synced_change_is_durable() {
    explore(4, &[sync, sync], 1);
    explore(3, &[sync, sync, sync], 1);
    explore(3, &[sync_twice, sync_twice], 2);
    explore(2, &[sync_twice, sync, sync], 2);
}

#[test]
fn a_failure_wakes_all() {
    explore(4, &[try_to_sync, fail], 0);
    explore(3, &[try_to_sync, try_to_sync, fail], 0);
    explore(3, &[try_to_sync, try_to_sync, abandon], 0);
}
