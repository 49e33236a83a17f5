//! Tests of what is noted, dropped and returned.

use userbtrfs_format::TreeId;

use super::*;

const INODES_MAX: usize = 100;
const DIR: InodeId = InodeId { subvolume: TreeId::FS, number: 256 };
const FILE: InodeId = InodeId { subvolume: TreeId::FS, number: 300 };

fn other(number: u64) -> InodeId {
    InodeId { number, ..FILE }
}

fn log(log_tracker: &LogTracker, inode: InodeId, mode: LogMode) -> PreviousLogState {
    log_tracker.log(5, &[inode], mode).unwrap()[0].expect("it is not moving")
}

fn name_removal(index: u64, committed: bool, survives: bool) -> NameRemoval {
    let lost = RemovedName { dir: DIR.number, index, hash: 7, committed };
    NameRemoval { inode: FILE, lost, survives, follower: None, is_new: false, moved_away: None }
}

#[test]
fn lost_name_neither_committed_nor_logged_is_not_noted() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log_tracker.depart(5, &[name_removal(2, false, true)], &[]);
    assert!(log_tracker.lost(5, FILE).0.is_empty() && log_tracker.left(5, [(DIR, 7)]).is_empty());
    assert!(log_tracker.take_departed(5, DIR).gone.count() == 0);
}

#[test]
fn deleted_inode_leaves_gap_and_moved_inode_is_returned() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log_tracker.depart(5, &[name_removal(2, true, false), name_removal(3, true, true)], &[]);
    assert_eq!(log_tracker.lost(5, FILE).0.len(), 1);
    let removed_entries = log_tracker.take_departed(5, DIR);
    assert!(removed_entries.gone.iter().eq(std::iter::once(2..4)));
    assert_eq!((removed_entries.left, log_tracker.left(5, [(DIR, 7)])), (vec![300], vec![300]));
    assert!(log_tracker.take_departed(5, DIR).gone.count() == 0, "it is taken once");
}

#[test]
fn replaced_inode_opened_after_its_loss_was_noted_is_remembered() {
    for survived_before in [false, true] {
        let log_tracker = LogTracker::new(INODES_MAX);
        let next = InodeId { number: 301, ..FILE };
        let replaced = name_removal(2, true, survived_before).followed_by(next);
        log_tracker.depart(5, &[replaced], &[FILE, next]);
        log_tracker.survived(5, &replaced);
        log_tracker.arrived(5, &[replaced], &[FILE, next]);
        assert_eq!(log_tracker.lost(5, FILE).0, vec![replaced.lost]);
        assert_eq!(log_tracker.left(5, [(DIR, 7)]), [300, 301]);
    }
}

#[test]
fn logged_inode_that_changes_names_is_stale_once() {
    let log_tracker = LogTracker::new(INODES_MAX);
    assert_eq!(log(&log_tracker, FILE, LogMode::All).logged, None);
    log_tracker.depart(5, &[name_removal(9, false, true)], &[]);
    log_tracker.named(5, FILE);
    assert_eq!(log_tracker.take_stale(5, |_| true), Ok(vec![FILE]));
    assert_eq!(log_tracker.take_stale(5, |_| true), Ok(vec![]));
    let before = log(&log_tracker, FILE, LogMode::Exists);
    assert!(before.was_stale && before.lost_names);
    assert_eq!(log_tracker.logged(5, FILE).unwrap().mode, LogMode::All);
    log_tracker.named(5, FILE);
    assert_eq!(log_tracker.take_stale(5, |_| true), Ok(vec![FILE]), "stale anew");
}

#[test]
fn lost_any_stays_true_after_lost_names_are_forgotten() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log_tracker.log(5, &[FILE], LogMode::Exists).unwrap();
    log_tracker.depart(5, &[name_removal(2, true, true), name_removal(3, false, true)], &[]);
    let over = RemovedName { dir: DIR.number, index: 3, hash: 7, committed: false };
    log_tracker.forget_lost(5, FILE, &[over]);
    assert!(matches!(log_tracker.lost(5, FILE).0[..], [RemovedName { index: 2, .. }]));
    let (rest, _) = log_tracker.lost(5, FILE);
    log_tracker.forget_lost(5, FILE, &rest);
    assert!(log_tracker.lost(5, FILE).0.is_empty());
    assert_eq!(log_tracker.lost_any(5, FILE), Ok(true));
}

#[test]
fn new_owner_of_lost_name_is_returned_with_previous_owner() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log_tracker.depart(5, &[name_removal(9, false, true).followed_by(other(301))], &[]);
    assert_eq!(log_tracker.left(5, [(DIR, 7)]), [0; 0], "nobody takes it away");
    log_tracker.depart(5, &[name_removal(2, true, true).followed_by(other(302))], &[]);
    let next = NameRemoval { inode: other(302), ..name_removal(9, false, true) };
    log_tracker.depart(5, &[next.followed_by(other(303))], &[]);
    assert_eq!(log_tracker.left(5, [(DIR, 7)]), [300, 302, 303]);
}

#[test]
fn new_owner_in_fully_logged_directory_is_returned() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log(&log_tracker, DIR, LogMode::All);
    let next = InodeId { number: 301, ..FILE };
    log_tracker.depart(5, &[name_removal(2, true, false).followed_by(next)], &[]);
    assert_eq!(log_tracker.take_departed(5, DIR).left, [301]);
}

/// The list does not grow, however often a name is created and removed.
#[test]
fn inode_removed_from_log_is_not_returned_again() {
    let log_tracker = LogTracker::new(INODES_MAX);
    for number in 300..350 {
        log_tracker.log(5, &[other(number)], LogMode::All).unwrap();
        let name_removal =
            NameRemoval { inode: other(number), ..name_removal(number, false, false) };
        log_tracker.depart(5, &[name_removal], &[]);
        assert_eq!(log_tracker.left(5, [(DIR, 7)]), [number]);
        log_tracker.unlog(5, other(number));
    }
    assert!(log_tracker.left(5, [(DIR, 7)]).is_empty());
}

/// The log holds each previous owner of the name once.
#[test]
fn previous_owner_is_returned_until_logged() {
    let log_tracker = LogTracker::new(INODES_MAX);
    let left = || log_tracker.left(5, [(DIR, 7)]);
    log(&log_tracker, FILE, LogMode::All);
    log_tracker.depart(5, &[name_removal(9, false, true)], &[FILE]);
    assert_eq!(left(), [300]);
    log_tracker.arrived(5, &[name_removal(9, false, true)], &[FILE]);
    assert_eq!(left(), [300], "the log has it with the old name");
    log(&log_tracker, FILE, LogMode::Exists);
    assert_eq!(left(), [0; 0]);
    log_tracker.depart(5, &[], &[FILE]);
    assert_eq!(left(), [300], "it is waited for");
    log_tracker.arrived(5, &[], &[FILE]);
    log_tracker.named(5, FILE);
    assert_eq!(left(), [300]);
}

#[test]
fn xattrs_are_changed_until_logged() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log(&log_tracker, FILE, LogMode::All);
    log_tracker.xattrs_changed(5, FILE);
    assert!(log(&log_tracker, FILE, LogMode::Exists).xattrs_changed, "only names are logged");
    assert!(log(&log_tracker, FILE, LogMode::All).xattrs_changed);
    assert!(!log(&log_tracker, FILE, LogMode::All).xattrs_changed);
}

#[test]
fn next_transaction_starts_empty() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log_tracker.depart(5, &[name_removal(2, true, true)], &[FILE]);
    assert!(log_tracker.log(5, &[FILE], LogMode::Exists).unwrap()[0].is_none());
    assert_eq!(log_tracker.logged(5, FILE), None, "it is not in the log without a name");
    log_tracker.arrived(5, &[], &[FILE]);
    assert!(log(&log_tracker, FILE, LogMode::Exists).logged.is_none());
    assert!(log_tracker.lost(6, FILE).0.is_empty());
    log_tracker.depart(6, &[name_removal(3, true, true)], &[]);
    assert_eq!(log_tracker.lost(6, FILE).0.len(), 1);
    assert!(log_tracker.lost(5, FILE).0.is_empty());
}

#[test]
fn too_many_notes_overflow_the_tracker() {
    let log_tracker = LogTracker::new(INODES_MAX);
    for index in 0..NOTES_MAX as u64 {
        log_tracker.depart(5, &[name_removal(2 * index, true, true)], &[]);
    }
    assert_eq!(log_tracker.take_stale(5, |_| true), Err(TrackerOverflow));
    assert_eq!(log_tracker.lost_any(5, FILE), Err(TrackerOverflow));
    log_tracker.depart(6, &[name_removal(3, true, true)], &[]);
    assert_eq!(log_tracker.take_stale(6, |_| true), Ok(vec![]));
    assert_eq!(log_tracker.lost_any(6, FILE), Ok(true));
}

#[test]
fn too_many_logged_inodes_overflow_the_tracker() {
    let log_tracker = LogTracker::new(INODES_MAX);
    let log = |number| {
        let inode = InodeId { number, ..FILE };
        log_tracker.log(5, &[inode], LogMode::Exists)
    };
    let known = (300..1000).take_while(|number| log(*number).is_ok()).count();
    assert_eq!(known, INODES_MAX + 1);
    assert!(log(300).is_err(), "until the next transaction");
    assert!(log_tracker.log(6, &[FILE], LogMode::Exists).is_ok());
}

#[test]
fn directory_that_an_inode_left_needs_a_commit() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log_tracker.depart(5, &[name_removal(2, true, true).moved()], &[]);
    assert!(!log_tracker.needs_commit(5, DIR));
    log_tracker.depart(5, &[name_removal(3, true, true).moved_away(FileKind::Regular)], &[]);
    assert!(log_tracker.needs_commit(5, DIR) && !log_tracker.needs_commit(5, FILE));
    assert!(!log_tracker.needs_commit(6, DIR));
}

#[test]
fn directory_that_a_logged_inode_left_needs_no_commit() {
    for (logged, mode) in [(FILE, LogMode::Exists), (DIR, LogMode::All)] {
        let log_tracker = LogTracker::new(INODES_MAX);
        log(&log_tracker, logged, mode);
        log_tracker.depart(5, &[name_removal(3, true, true).moved_away(FileKind::Regular)], &[]);
        assert!(!log_tracker.needs_commit(5, DIR));
    }
}

#[test]
fn directory_that_moved_away_needs_a_commit() {
    let log_tracker = LogTracker::new(INODES_MAX);
    log(&log_tracker, FILE, LogMode::All);
    log_tracker.depart(5, &[name_removal(3, false, true).moved_away(FileKind::Directory)], &[]);
    assert!(log_tracker.needs_commit(5, FILE));
}

#[test]
fn committed_inode_that_lost_a_new_name_is_known_to_have_lost_one() {
    let log_tracker = LogTracker::new(INODES_MAX);
    let new = NameRemoval { inode: other(301), is_new: true, ..name_removal(2, false, true) };
    log_tracker.depart(5, &[name_removal(2, false, true), new], &[]);
    assert_eq!(log_tracker.lost_any(5, FILE), Ok(true));
    assert_eq!(log_tracker.lost_any(5, other(301)), Ok(false));
}

#[test]
fn names_exchanged_by_inodes_that_are_not_logged_are_a_circle() {
    let log_tracker = LogTracker::new(INODES_MAX);
    let lost = |index, hash| RemovedName { dir: DIR.number, index, hash, committed: true };
    let losing = |number, hash| NameRemoval {
        inode: other(number),
        lost: lost(number, hash),
        ..name_removal(0, true, true)
    };
    log_tracker.depart(5, &[losing(301, 1), losing(302, 2), losing(303, 3)], &[]);
    assert!(log_tracker.is_circle(5, DIR, &[(2, 301), (1, 302)]));
    assert!(log_tracker.is_circle(5, DIR, &[(2, 301), (3, 302), (1, 303)]));
    assert!(!log_tracker.is_circle(5, DIR, &[(1, 301), (2, 302)]), "they have them again");
    assert!(!log_tracker.is_circle(5, DIR, &[(2, 301), (4, 302), (1, 304)]));
    log(&log_tracker, other(302), LogMode::Exists);
    assert!(!log_tracker.is_circle(5, DIR, &[(2, 301), (1, 302)]));
}
