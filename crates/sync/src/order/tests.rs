//! Tests of the order check: the orders it accepts, and the messages for those it does not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::{Held, Identity, set_wait_limit};
use crate::{BlockLabel, Class, Condvar, Mutex, Nesting, RwLock, TreeLock};

/// Returns the message `action` panics with.
fn complaint(action: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(action)).expect_err("it must panic");
    *panic.downcast::<String>().expect("messages are formatted")
}

fn block(owner: u64, level: u8) -> TreeLock<()> {
    TreeLock::new(BlockLabel { owner, level }, ())
}

#[test]
fn declared_order_passes_and_its_reverse_names_both() {
    let shard = Mutex::new(Class::CacheShard, ());
    let queue = RwLock::new(Class::DeviceQueue, ());
    drop((shard.lock(), queue.write()));
    let held = queue.read();
    let message = complaint(|| drop(shard.lock()));
    assert!(message.contains("cache shard taken at"), "{message}");
    assert!(message.contains("device queue taken at"), "{message}");
    assert!(message.contains(file!()), "{message}");
    drop(held);
    drop(shard.lock());
}

#[test]
fn the_check_is_against_all_held_not_the_last() {
    let first = Mutex::new(Class::InodeState, ());
    let second = Mutex::new(Class::DelayedRefs, ());
    let third = Mutex::new(Class::ChunkMap, ());
    let first = first.lock();
    let third = third.lock();
    drop(first);
    assert!(complaint(|| drop(second.lock())).contains("chunk map"));
    drop(third);
    drop(second.lock());
}

#[test]
fn one_class_is_held_once() {
    let one = Mutex::new(Class::CacheShard, 1);
    let other = Mutex::new(Class::CacheShard, 2);
    let held = one.lock();
    assert!(complaint(|| drop(other.lock())).contains("only one lock of this class"));
    drop(other.try_lock().expect("an attempt does not wait, so it is not checked"));
    drop(held);
}

#[test]
fn sets_are_taken_sorted() {
    let directory = |number| {
        let identity = Identity::of_inode(Class::ParentDirectory, 5, number);
        Mutex::with_identity(identity, ())
    };
    let low = directory(256);
    let high = directory(257);
    drop((low.lock(), high.lock()));
    let held = high.lock();
    let message = complaint(|| drop(low.lock()));
    assert!(message.contains("parent directory (subvolume 5, inode 256)"), "{message}");
    assert!(message.contains("parent directory (subvolume 5, inode 257)"), "{message}");
    assert!(message.contains("sorted set"), "{message}");
    assert!(complaint(|| drop(high.lock())).contains("sorted set"));
    drop(held);
}

#[test]
fn held_entries_of_other_protocols_are_checked() {
    let rename = Mutex::new(Class::RenameMutex, ());
    let handle = Held::acquire(Identity::of(Class::TransactionHandle));
    assert!(complaint(|| drop(rename.lock())).contains("transaction handle"));
    drop(handle);
    drop(rename.lock());
}

#[test]
fn threads_have_lists_of_their_own() {
    let queue = Mutex::new(Class::DeviceQueue, ());
    let shard = Mutex::new(Class::CacheShard, ());
    let _held = queue.lock();
    thread::scope(|scope| scope.spawn(|| drop(shard.lock())).join()).expect("it holds nothing");
}

#[test]
fn tree_blocks_couple_by_tokens() {
    let root = block(5, 2);
    let node = block(5, 1);
    let leaf = block(5, 0);
    let right = block(7, 0);
    let root = root.write(Nesting::Root);
    let held_node = node.write(Nesting::Child);
    let held_leaf = leaf.write(Nesting::Child);
    drop(right.write(Nesting::Left));
    let held_node = held_node.downgrade();
    let message = complaint(|| drop(right.write(Nesting::Left)));
    assert!(message.contains("tree block (tree 7, level 0)"), "{message}");
    assert!(message.contains("parent held for writing"), "{message}");
    drop(right.write(Nesting::Right));
    drop(held_node);
    assert!(complaint(|| drop(right.write(Nesting::Right))).contains("parent held"));
    assert!(complaint(|| drop(node.read(Nesting::Child))).contains("below every held"));
    assert!(complaint(|| drop(right.write(Nesting::Root))).contains("(tree 5, level 0)"));
    drop((root, held_leaf));
    drop(right.read(Nesting::Root));
}

#[test]
fn tree_blocks_are_checked_in_the_order_of_classes() {
    let leaf = block(5, 0);
    let queue = Mutex::new(Class::DeviceQueue, ());
    drop((leaf.read(Nesting::Root), queue.lock()));
    let _held = queue.lock();
    assert!(complaint(|| drop(leaf.read(Nesting::Root))).contains("device queue"));
}

/// Returns the message of a wait with a short limit, while another thread runs `hold` and keeps
/// its result.
fn late<G>(hold: impl FnOnce() -> G + Send, wait: impl FnOnce()) -> String {
    let (holding, is_held) = channel();
    let (release, released) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let guard = hold();
            holding.send(()).expect("both threads stay");
            released.recv().expect("both threads stay");
            drop(guard);
        });
        is_held.recv().expect("both threads stay");
        set_wait_limit(Duration::from_millis(20));
        let message = complaint(wait);
        set_wait_limit(super::WAIT_LIMIT);
        release.send(()).expect("both threads stay");
        message
    })
}

#[test]
fn long_waits_name_the_lock() {
    let mutex = Mutex::new(Class::LogRoot, ());
    let message = late(|| mutex.lock(), || drop(mutex.lock()));
    assert!(message.contains("waited 20ms for log root"), "{message}");
    let rwlock = RwLock::new(Class::ChunkMap, ());
    assert!(late(|| rwlock.write(), || drop(rwlock.read())).contains("for chunk map"));
    assert!(late(|| rwlock.read(), || drop(rwlock.write())).contains("for chunk map"));
    let leaf = block(5, 0);
    let message = late(|| leaf.read(Nesting::Root), || drop(leaf.write(Nesting::Root)));
    assert!(message.contains("for tree block (tree 5, level 0)"), "{message}");
}

#[test]
fn long_waits_for_a_condition_name_its_mutex() {
    let mutex = Mutex::new(Class::DeviceQueue, 0);
    let condition = Condvar::new();
    let message = late(|| (), || condition.wait_while(&mut mutex.lock(), |count| *count == 0));
    assert!(message.contains("for device queue"), "{message}");
    let came = late(
        || (),
        || {
            assert!(!condition.wait_for(&mut mutex.lock(), Duration::from_millis(60)));
            panic!("{}", "a wait with its own limit has no other");
        },
    );
    assert!(came.contains("its own limit"), "{came}");
}

#[test]
fn a_condition_wakes_its_waiter() {
    let mutex = Mutex::new(Class::DeviceQueue, 0);
    let condition = Condvar::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut count = mutex.lock();
            condition.wait_while(&mut count, |count| *count < 2);
            *count
        });
        for _ in 0..2 {
            *mutex.lock() += 1;
            condition.notify_all();
        }
        assert_eq!(waiter.join().unwrap(), 2);
    });
}

/// Takes its lock when it is dropped.
struct Last(Mutex<()>);

impl Drop for Last {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

thread_local! {
    /// Created before the thread's list, and so dropped after it.
    static LAST: Last = Last(Mutex::new(Class::CacheShard, ()));
}

#[test]
fn destructor_of_a_thread_local_may_take_locks() {
    let ended = thread::spawn(|| LAST.with(|last| drop(last.0.lock()))).join();
    assert!(ended.is_ok());
}
