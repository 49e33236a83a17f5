//! What is noted, forgotten and told.

use userbtrfs_format::TreeId;

use super::*;

const INODES_MAX: usize = 100;
const DIR: InodeId = InodeId { subvolume: TreeId::FS, number: 256 };
const FILE: InodeId = InodeId { subvolume: TreeId::FS, number: 300 };

fn log(traces: &LogTracker, inode: InodeId, mode: LogMode) -> PreviousLogState {
    traces.log(5, &[inode], mode).unwrap()[0].expect("it is not moving")
}

fn parting(index: u64, committed: bool, survives: bool) -> NameRemoval {
    let lost = RemovedName { dir: DIR.number, index, hash: 7, committed };
    NameRemoval { inode: FILE, lost, survives, follower: None }
}

#[test]
fn what_neither_a_commit_nor_the_log_knows_leaves_nothing() {
    let traces = LogTracker::new(INODES_MAX);
    traces.depart(5, &[parting(2, false, true)], &[]);
    assert!(traces.lost(5, FILE).0.is_empty() && traces.left(5, [(DIR, 7)]).is_empty());
    assert!(traces.take_departed(5, DIR).gone.len() == 0);
}

#[test]
fn who_goes_for_good_leaves_a_gap_and_who_moves_is_remembered() {
    let traces = LogTracker::new(INODES_MAX);
    traces.depart(5, &[parting(2, true, false), parting(3, true, true)], &[]);
    assert_eq!(traces.lost(5, FILE).0.len(), 1);
    let departed = traces.take_departed(5, DIR);
    assert!(departed.gone.iter().eq(std::iter::once(2..4)));
    assert_eq!((departed.left, traces.left(5, [(DIR, 7)])), (vec![300], vec![300]));
    assert!(traces.take_departed(5, DIR).gone.len() == 0, "it is taken once");
}

#[test]
fn who_is_in_the_log_and_changes_names_is_stale_once() {
    let traces = LogTracker::new(INODES_MAX);
    assert_eq!(log(&traces, FILE, LogMode::All).logged, None);
    traces.depart(5, &[parting(9, false, true)], &[]);
    traces.named(5, FILE);
    assert_eq!(traces.take_stale(5, |_| true), Ok(vec![FILE]));
    assert_eq!(traces.take_stale(5, |_| true), Ok(vec![]));
    let before = log(&traces, FILE, LogMode::Exists);
    assert!(before.was_stale && before.lost_names);
    assert_eq!(traces.logged(5, FILE).unwrap().mode, LogMode::All);
    traces.named(5, FILE);
    assert_eq!(traces.take_stale(5, |_| true), Ok(vec![FILE]), "stale anew");
}

#[test]
fn that_names_were_lost_outlasts_which() {
    let traces = LogTracker::new(INODES_MAX);
    traces.log(5, &[FILE], LogMode::Exists).unwrap();
    traces.depart(5, &[parting(2, true, true), parting(3, false, true)], &[]);
    let over = RemovedName { dir: DIR.number, index: 3, hash: 7, committed: false };
    traces.forget_lost(5, FILE, &[over]);
    assert!(matches!(traces.lost(5, FILE).0[..], [RemovedName { index: 2, .. }]));
    let (rest, _) = traces.lost(5, FILE);
    traces.forget_lost(5, FILE, &rest);
    assert!(traces.lost(5, FILE).0.is_empty());
    assert_eq!(traces.lost_any(5, FILE), Ok(true));
}

#[test]
fn who_follows_in_a_name_that_was_lost_is_remembered_with_who_lost_it() {
    let traces = LogTracker::new(INODES_MAX);
    let other = |number| InodeId { number, ..FILE };
    traces.depart(5, &[parting(9, false, true).followed_by(other(301))], &[]);
    assert_eq!(traces.left(5, [(DIR, 7)]), [0; 0], "nobody takes it away");
    traces.depart(5, &[parting(2, true, true).followed_by(other(302))], &[]);
    let next = NameRemoval { inode: other(302), ..parting(9, false, true) };
    traces.depart(5, &[next.followed_by(other(303))], &[]);
    assert_eq!(traces.left(5, [(DIR, 7)]), [300, 302, 303]);
}

#[test]
fn who_follows_where_all_entries_are_logged_is_remembered() {
    let traces = LogTracker::new(INODES_MAX);
    log(&traces, DIR, LogMode::All);
    let next = InodeId { number: 301, ..FILE };
    traces.depart(5, &[parting(2, true, false).followed_by(next)], &[]);
    assert_eq!(traces.take_departed(5, DIR).left, [301]);
}

/// However often a name is made and removed.
#[test]
fn who_is_over_is_not_told_of_any_more() {
    let traces = LogTracker::new(INODES_MAX);
    let other = |number| InodeId { number, ..FILE };
    for number in 300..350 {
        traces.log(5, &[other(number)], LogMode::All).unwrap();
        let parting = NameRemoval { inode: other(number), ..parting(number, false, false) };
        traces.depart(5, &[parting], &[]);
        assert_eq!(traces.left(5, [(DIR, 7)]), [number]);
        traces.unlog(5, other(number));
    }
    assert!(traces.left(5, [(DIR, 7)]).is_empty());
}

/// However many had the name of what is synced, and moved on: the log has each of them once.
#[test]
fn who_left_a_name_is_told_of_until_the_log_has_that() {
    let traces = LogTracker::new(INODES_MAX);
    let left = || traces.left(5, [(DIR, 7)]);
    log(&traces, FILE, LogMode::All);
    traces.depart(5, &[parting(9, false, true)], &[FILE]);
    assert_eq!(left(), [300]);
    traces.arrived(5, &[parting(9, false, true)], &[FILE]);
    assert_eq!(left(), [300], "the log has it with the old name");
    log(&traces, FILE, LogMode::Exists);
    assert_eq!(left(), [0; 0]);
    traces.depart(5, &[], &[FILE]);
    assert_eq!(left(), [300], "it is waited for");
    traces.arrived(5, &[], &[FILE]);
    traces.named(5, FILE);
    assert_eq!(left(), [300]);
}

#[test]
fn attributes_changed_until_they_are_logged() {
    let traces = LogTracker::new(INODES_MAX);
    log(&traces, FILE, LogMode::All);
    traces.xattrs_changed(5, FILE);
    assert!(log(&traces, FILE, LogMode::Exists).xattrs_changed, "only names are logged");
    assert!(log(&traces, FILE, LogMode::All).xattrs_changed);
    assert!(!log(&traces, FILE, LogMode::All).xattrs_changed);
}

#[test]
fn the_next_transaction_begins_with_nothing() {
    let traces = LogTracker::new(INODES_MAX);
    traces.depart(5, &[parting(2, true, true)], &[FILE]);
    assert!(traces.log(5, &[FILE], LogMode::Exists).unwrap()[0].is_none());
    assert_eq!(traces.logged(5, FILE), None, "it is not in the log without a name");
    traces.arrived(5, &[], &[FILE]);
    assert!(log(&traces, FILE, LogMode::Exists).logged.is_none());
    assert!(traces.lost(6, FILE).0.is_empty());
    traces.depart(6, &[parting(3, true, true)], &[]);
    assert_eq!(traces.lost(6, FILE).0.len(), 1);
    assert!(traces.lost(5, FILE).0.is_empty());
}

#[test]
fn too_much_is_forgotten_and_that_is_said() {
    let traces = LogTracker::new(INODES_MAX);
    for index in 0..NOTES_MAX as u64 {
        traces.depart(5, &[parting(2 * index, true, true)], &[]);
    }
    assert_eq!(traces.take_stale(5, |_| true), Err(TrackerOverflow));
    assert_eq!(traces.lost_any(5, FILE), Err(TrackerOverflow));
    traces.depart(6, &[parting(3, true, true)], &[]);
    assert_eq!(traces.take_stale(6, |_| true), Ok(vec![]));
    assert_eq!(traces.lost_any(6, FILE), Ok(true));
}

#[test]
fn so_many_in_the_log_are_forgotten_that_a_commit_is_less() {
    let traces = LogTracker::new(INODES_MAX);
    let log = |number| {
        let inode = InodeId { number, ..FILE };
        traces.log(5, &[inode], LogMode::Exists)
    };
    let known = (300..1000).take_while(|number| log(*number).is_ok()).count();
    assert_eq!(known, INODES_MAX + 1);
    assert!(log(300).is_err(), "until the next transaction");
    assert!(traces.log(6, &[FILE], LogMode::Exists).is_ok());
}
