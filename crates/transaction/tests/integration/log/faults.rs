//! Logs on devices that fail, and without space: what is not logged is committed.

use std::sync::Barrier;
use std::thread;

use userbtrfs_device::Operation;
use userbtrfs_testkit::devices::{Fault, FaultyDevice, How};
use userbtrfs_transaction::Error;
use userbtrfs_volume::WriteError;

use super::*;

fn faulty() -> (Arc<FaultyDevice>, Arc<TransactionManager>) {
    let device = Arc::new(FaultyDevice::new(Arc::new(image("fresh").to_device())));
    let transactions = open_on(Arc::clone(&device) as _, TransactionOptions::default()).unwrap();
    (device, transactions)
}

fn fault(operation: Operation, after: u64) -> Fault {
    Fault { operation, after, how: How::Eio, lasting: false }
}

/// Checks that nothing is logged any more until the commit, and that all is well after it.
fn recovers(device: &FaultyDevice, transactions: &TransactionManager) {
    let again = log(transactions, TreeId::FS, &mut attributes(0..3, 10)).unwrap_err();
    assert!(matches!(again, LogFailure::Commit(FullCommitReason::Failed)), "{again}");
    assert_eq!(transactions.log_stats().commits(FullCommitReason::Failed), 1);
    transactions.commit().unwrap();
    let edits = attributes(10..20, 100);
    log(transactions, TreeId::FS, &mut edits.clone()).unwrap();
    let image = end_of(device);
    assert_eq!(read_log(&image).unwrap().items.len(), 10);
    shows(&image, TreeId::FS, &edits);
    shows(&image, TreeId::FS, &attributes(100..150, 50));
    transactions.close().unwrap();
}

#[test]
fn failed_log_write_is_reported_and_commit_works_unless_flush_failed() {
    for operation in [Operation::Write, Operation::Flush] {
        let mut after = 0;
        loop {
            let (device, transactions) = faulty();
            apply(&transactions, attributes(100..150, 50));
            log(&transactions, TreeId::FS, &mut attributes(0..100, 100)).unwrap();
            device.arm(fault(operation, after));
            let ended = log(&transactions, TreeId::FS, &mut attributes(50..200, 100));
            if device.failed() == 0 {
                ended.unwrap();
                break;
            }
            let failed = ended.unwrap_err();
            let LogFailure::Failed(error) = &failed else { panic!("{failed}") };
            // Items that were durable before still are.
            shows(&end_of(&*device), TreeId::FS, &attributes(0..100, 100));
            match &**error {
                Error::Write(WriteError::Range { .. }) => recovers(&device, &transactions),
                Error::Write(WriteError::Flush(_) | WriteError::Superblock { .. }) => {
                    is_read_only(&transactions, &error.to_string());
                }
                other => panic!("{other}"),
            }
            after += 1;
        }
        let least = if operation == Operation::Write { 3 } else { 1 };
        assert!(after >= least, "{after} of {operation:?}: nodes, and the superblock");
    }
}

#[test]
fn blocks_left_by_failed_log_commit_are_not_overwritten() {
    let recording = Arc::new(RecordingDevice::on(&image("fresh")));
    let device = Arc::new(FaultyDevice::new(Arc::clone(&recording) as _));
    let transactions = open_on(Arc::clone(&device) as _, TransactionOptions::default()).unwrap();
    log(&transactions, TreeId::FS, &mut attributes(0..400, 300)).unwrap();
    let kept = places(&transactions, &read_log(&end_of(&*device)).unwrap().nodes);
    // All nodes are replaced now, and no superblock leads to the new ones.
    device.arm(fault(Operation::Write, 0));
    log(&transactions, TreeId::FS, &mut attributes(0..400, 200)).unwrap_err();
    drop(recording.take());
    let all_free = || transactions.space().allocate_block(SpaceKind::Metadata, Logical(0)).ok();
    let taken: Vec<_> = std::iter::from_fn(all_free).collect();
    let len = u64::from(transactions.volume().geometry().nodesize);
    // Enough for the commit, but behind the blocks that logs had.
    for logical in taken.iter().rev().take(64) {
        transactions.space().give_back(*logical, len).unwrap();
    }
    transactions.commit().unwrap();
    let written = written_before_superblock(&recording);
    assert!(!written.is_empty());
    assert_eq!(overlaps(&written, &kept), 0);
}

#[test]
fn all_syncs_of_failed_log_commit_return_error() {
    let (device, transactions) = faulty();
    apply(&transactions, attributes(100..150, 50));
    let all_have_logged = Barrier::new(8);
    device.arm(Fault { lasting: true, ..fault(Operation::Flush, 0) });
    thread::scope(|scope| {
        for thread in 0..8 {
            let transactions = &transactions;
            let all_have_logged = &all_have_logged;
            scope.spawn(move || {
                let handle = transactions.start(HandleKind::Operation).unwrap();
                let mut edits = attributes([thread], 100);
                let log_transid =
                    put(transactions.logs(&handle).unwrap(), TreeId::FS, &mut edits).unwrap();
                all_have_logged.wait();
                let failed =
                    transactions.sync_log(&handle, log_transid, None, &mut ()).unwrap_err();
                assert!(matches!(failed, LogFailure::Failed(_)), "{failed}");
            });
        }
    });
    assert_eq!(device.failed(), 1, "nothing is tried again");
    device.disarm();
    let Err(Error::ReadOnly(_)) = transactions.start(HandleKind::Operation) else {
        panic!("a flush that failed ends all writing")
    };
}

#[test]
fn failed_commit_after_failed_log_ends_all_writing() {
    let (device, transactions) = faulty();
    apply(&transactions, attributes(0..10, 10));
    device.arm(Fault { lasting: true, ..fault(Operation::Write, 0) });
    let failed = log(&transactions, TreeId::FS, &mut attributes(0..100, 100)).unwrap_err();
    assert!(matches!(failed, LogFailure::Failed(_)), "{failed}");
    let why = transactions.commit().unwrap_err().to_string();
    device.disarm();
    is_read_only(&transactions, &why);
}

/// Checks that a change fails with the reason of the failure.
#[track_caller]
fn is_read_only(transactions: &TransactionManager, why: &str) {
    let Err(Error::ReadOnly(told)) = transactions.start(HandleKind::Operation) else {
        panic!("it is not read-only")
    };
    assert_eq!(told, why);
}

#[test]
fn reason_of_failed_commit_is_returned_to_later_changes() {
    for operation in [Operation::Write, Operation::Flush] {
        let (device, transactions) = faulty();
        apply(&transactions, attributes(0..10, 10));
        device.arm(fault(operation, 0));
        let why = transactions.commit().unwrap_err().to_string();
        is_read_only(&transactions, &why);
    }
}

#[test]
fn a_mark_is_for_one_transaction_and_its_first_reason_stays() {
    let (_device, transactions) = recorded("fresh");
    let handle = transactions.start(HandleKind::Operation).unwrap();
    let log_transid =
        put(transactions.logs(&handle).unwrap(), TreeId::FS, &mut attributes(0..9, 9)).unwrap();
    transactions.require_commit(&handle, FullCommitReason::Forgotten);
    transactions.require_commit(&handle, FullCommitReason::NewBlockGroup);
    assert_eq!(transactions.logs(&handle).err(), Some(FullCommitReason::Forgotten));
    let failed = transactions.sync_log(&handle, log_transid, None, &mut ()).unwrap_err();
    assert!(matches!(failed, LogFailure::Commit(FullCommitReason::Forgotten)), "{failed}");
    drop(handle);
    transactions.commit().unwrap();
    // Its commit made the logged items durable.
    let handle = transactions.start(HandleKind::Operation).unwrap();
    transactions.sync_log(&handle, log_transid, None, &mut ()).unwrap();
    drop(handle);
    log(&transactions, TreeId::FS, &mut attributes(0..9, 9)).unwrap();
    let stats = transactions.log_stats();
    let counts = FullCommitReason::ALL.map(|reason| stats.commits(reason));
    assert_eq!(counts.iter().sum::<u64>(), 1);
    assert_eq!(stats.commits(FullCommitReason::Forgotten), 1);
}

#[test]
fn without_space_nothing_is_logged() {
    let (_device, transactions) = recorded("fresh");
    apply(&transactions, attributes(0..10, 10));
    let all: Vec<_> = (10..=20)
        .rev()
        .flat_map(|bits| std::iter::from_fn(move || Some(1 << bits)).take(10_000))
        .filter_map(|bytes| transactions.space().reserve(bytes).ok())
        .collect();
    let failed = log(&transactions, TreeId::FS, &mut attributes(0..100, 100)).unwrap_err();
    assert!(matches!(failed, LogFailure::Commit(FullCommitReason::NoSpace)), "{failed}");
    drop(all);
    transactions.commit().unwrap();
    log(&transactions, TreeId::FS, &mut attributes(0..100, 100)).unwrap();
}

#[test]
fn allocation_in_new_block_group_requires_commit() {
    let (device, transactions) = recorded("fresh");
    apply(&transactions, attributes(0..10, 10));
    let mut taken = Vec::new();
    while !transactions.space().draws_on_new_groups() {
        let _reserved = transactions.reserve_data(1 << 20).unwrap();
        taken.push(transactions.allocate_data(1 << 20, 4096).unwrap());
    }
    let failed = log(&transactions, TreeId::FS, &mut attributes(0..100, 100)).unwrap_err();
    assert!(matches!(failed, LogFailure::Commit(FullCommitReason::NewBlockGroup)), "{failed}");
    transactions.commit().unwrap();
    log(&transactions, TreeId::FS, &mut attributes(0..100, 100)).unwrap();
    assert!(read_log(&device.recording().end()).is_some());
    for (logical, len) in taken {
        transactions.give_back_data(logical, len);
    }
    transactions.close().unwrap();
}

#[test]
fn log_root_tree_in_new_block_group_requires_commit() {
    for left in 0..4 {
        let (device, transactions) = recorded("fresh");
        apply(&transactions, attributes(0..10, 10));
        let space = transactions.space();
        let node = u64::from(transactions.volume().geometry().nodesize);
        let free = || {
            let usage = space.usage(SpaceKind::Metadata);
            usage.total - usage.allocated - usage.pinned
        };
        let mut taken = Vec::new();
        while free() > left * node {
            taken.push(space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap());
        }
        assert!(!space.draws_on_new_groups());
        let logged = log(&transactions, TreeId::FS, &mut attributes(0..1, 10));
        // A leaf of the log, and one that leads to it.
        match logged {
            Ok(()) => assert!(left >= 2 && !space.draws_on_new_groups(), "{left}"),
            Err(LogFailure::Commit(FullCommitReason::NewBlockGroup)) => assert!(left < 2, "{left}"),
            Err(other) => panic!("{left}: {other}"),
        }
        assert_eq!(read_log(&device.recording().end()).is_some(), left >= 2);
        for block in taken {
            space.give_back(block, node).unwrap();
        }
        transactions.close().unwrap();
    }
}
