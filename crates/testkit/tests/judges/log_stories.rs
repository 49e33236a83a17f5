//! The stories of docs/log-stories.md, each in a test of its name: executed and checked by both
//! userbtrfs and Linux.
//!
//! 1. Each side shows a state that meets the expectations of the story, and both states are the
//!    same, except for times set by replay.
//! 2. For our executions, Linux checks the image without any writes that no flush covers.

use std::sync::OnceLock;

use userbtrfs::mkfs::Options;
use userbtrfs::{Extent, ExtentKind, FullCommitReason};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::stories::golden::Kept;
use userbtrfs_testkit::stories::{
    Acted, Seen, Step, Story, act_by_linux, act_by_us, all, differences_of_replays, judge_by_linux,
    judge_by_us, named, read,
};
use userbtrfs_testkit::target::Target;

use super::assert_none;
use super::made::{MIB, Made};

/// Large enough for Linux, small enough to be written often.
const IMAGE: u64 = 128 * MIB;

/// Defines a test for each name.
macro_rules! stories {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                tell(stringify!($name));
            }
        )*
    };
}

#[test]
fn every_story_of_the_document_is_a_test() {
    let told: Vec<_> = all().keys().map(String::as_str).collect();
    let mut tests = NAMES.to_vec();
    tests.sort_unstable();
    assert_eq!(told, tests);
}

#[test]
fn unmet_expectation_after_missing_fsync_is_detected() {
    skip_unless_linux!();
    for done in ["file a 8k", "file a 8k; sync; append a 4k", "create a; sync; rename a b"] {
        let text = format!("- **lost** Done: `{done}`. There: `all is now`.");
        let story = &read(&text).unwrap()[0];
        let acted = act_by_us(plain(), &story.ways[0]).unwrap();
        let seen = judge_by_us(&acted.image).unwrap();
        assert_ne!(story.check(&acted, &seen), [""; 0], "{done}");
    }
}

#[test]
fn stored_logs_of_linux_are_replayed_with_the_same_result() {
    let all = Kept::all().unwrap();
    assert!(all.len() >= 100, "only {} images", all.len());
    for kept in all {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        kept.unpack(&file).unwrap();
        let target = EngineTarget::on_image(&file);
        let mut target = target.unwrap_or_else(|error| panic!("{}: {error:#}", kept.name()));
        let linux = kept.manifest().unwrap();
        let found = differences_of_replays(&linux, &target.manifest(), kept.cut());
        assert_none(kept.name(), &found);
    }
}

/// An item of names or of an xattr that grows to more than half of a leaf: during a replay by Linux
/// the leaf may lack space, which stops the kernel. So Linux does not execute this one.
#[test]
fn items_that_grow_in_small_nodes_are_replayed() {
    skip_unless_linux!();
    let long = "x".repeat(230);
    let names = |count: u32| {
        format!(
            "`create a; times {count} link a old{long}#; sync; times 2 link a new{long}#; fsync a`"
        )
    };
    let value = |length: usize| {
        let [old, new] = [length, length + 100].map(|length| "v".repeat(length));
        format!("`create a; setxattr a user.a {old}; sync; setxattr a user.a {new}; fsync a`")
    };
    let ways: Vec<_> = (1..14).map(names).chain((1200..2600).step_by(200).map(value)).collect();
    let text = format!("- **growing** Done: {}. There: `all is now`.", ways.join(", "));
    let nodes = Options { nodesize: 4096, ..Options::default() };
    let base = Made::new("4k nodes", IMAGE, nodes).image();
    let logs = tell_of_us(&text, &base);
    assert!((1..ways.len()).contains(&logs), "{logs} of {} were logged", ways.len());
}

/// On replay of an inode that is only logged as existing, as for a renamed or unlinked file, Linux
/// frees committed preallocation past its end: the log has no extents for it.
#[test]
fn preallocation_past_end_of_inode_logged_as_existing_is_kept() {
    skip_unless_linux!();
    let ways = [
        "mkdir d; file a 64k; prealloc a 256k at 64k; sync; rename a d/a; fsync d",
        "mkdir d; file a 64k; prealloc a 256k at 64k; sync; evict; rename a d/a; fsync d",
        "file a 5000; prealloc a 256k at 1m; sync; rename a b; create a; fsync a",
        "file a 64k; prealloc a 256k at 64k; sync; rename a b; create a; fsync a; write b 4k at \
         100k; fsync b",
        "file a 64k; prealloc a 256k at 64k; sync; rename a b; create a; fsync a; truncate b 1m; \
         punch b 8k at 128k; write b 4k at 200k; fsync b; prealloc b 64k at 2m; fsync b",
    ];
    let ways = ways.map(|way| format!("`{way}`")).join(", ");
    let text = format!("- **space** Done: {ways}. There: `all is now`.");
    for base in [plain(), hole_items()] {
        assert_eq!(tell_of_us(&text, base), 5);
    }
}

/// So the stories of compressed extents have several of them.
#[test]
fn story_that_sets_compression_leaves_compressed_extents() {
    skip_unless_linux!();
    let done = "create a; setxattr a btrfs.compression zlib; write a 512k; fsync a";
    let text = format!("- **compressed** Done: `{done}`. There: `all is now`.");
    let steps = &read(&text).unwrap()[0].ways[0];
    let ours = act_by_us(plain(), steps).unwrap();
    let linux = Linux::lock().unwrap();
    let theirs = act_by_linux(&linux, plain(), steps).unwrap();
    drop(linux);
    for (who, acted) in [("us", ours), ("Linux", theirs)] {
        let target = EngineTarget::on_device(Arc::new(acted.image.to_device())).unwrap();
        let extents = target.filesystem().open_file("/a").unwrap().extents().unwrap();
        let is_compressed = |extent: &Extent| {
            matches!(extent.kind, ExtentKind::Data { compression: Some(_), .. })
                && extent.len == 128 << 10
        };
        assert_eq!(extents.len(), 4, "by {who}: {extents:?}");
        assert!(extents.iter().all(is_compressed), "by {who}: {extents:?}");
        target.close().unwrap();
    }
}

/// Like the story `link_and_fsync_of_either_name`, with all directories of two levels.
#[test]
fn a_link_from_any_directory_to_any_and_fsync_of_either() {
    skip_unless_linux!();
    let dirs = ["", "d/", "d/e/", "f/"];
    let mut stories = Vec::new();
    for (from, to) in dirs.iter().flat_map(|from| dirs.iter().map(move |to| (from, to))) {
        for (synced, sync) in [("a", ""), ("b", ""), ("a", "sync; "), ("b", "sync; ")] {
            let dir = if synced == "a" { from } else { to };
            let made = format!("mkdir d; mkdir d/e; mkdir f; file {from}a 4k; {sync}");
            let linked = format!("link {from}a {to}b; fsync {dir}{synced}");
            let there = format!("{from}a, {to}b are now");
            stories.push(format!("- **linked** Done: `{made}{linked}`. There: `{there}`."));
        }
    }
    let failures: Vec<_> = stories
        .iter()
        .flat_map(|text| {
            let story = &read(text).unwrap()[0];
            tell_way(story, text, plain(), &story.ways[0])
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Executes a story only with userbtrfs, and checks it with both; returns the number of logs.
fn tell_of_us(text: &str, base: &SparseImage) -> usize {
    let story = &read(text).unwrap()[0];
    let mut failures = Vec::new();
    let mut logs = 0;
    for (number, steps) in story.ways.iter().enumerate() {
        let acted = act_by_us(base, steps).unwrap();
        logs += usize::from(acted.has_log());
        failures.extend(judge(story, &format!("way {number}"), &acted));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    logs
}

/// Returns the initial filesystem of a story.
pub(super) fn plain() -> &'static SparseImage {
    static IMAGE_OF: OnceLock<SparseImage> = OnceLock::new();
    IMAGE_OF.get_or_init(|| Made::new("plain", IMAGE, Options::default()).image())
}

/// Returns the initial filesystem without `NO_HOLES`.
pub(super) fn hole_items() -> &'static SparseImage {
    static IMAGE_OF: OnceLock<SparseImage> = OnceLock::new();
    let make = || Made::by_progs("hole items", IMAGE, Options::default(), &["-O", "^no-holes"]);
    IMAGE_OF.get_or_init(|| make().image())
}

fn tell(name: &str) {
    skip_unless_linux!();
    let story = named(name);
    let mut failures = Vec::new();
    let bases = [Some(plain()), story.hole_items.then(hole_items)];
    for (base, features) in bases.into_iter().flatten().zip(["", ", with hole items"]) {
        for (number, steps) in story.ways.iter().enumerate() {
            let what = format!("{name}, way {number}{features}");
            failures.extend(tell_way(story, &what, base, steps));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Stories that may end with a commit: an explicit one, because an item with very many names would
/// replace another one, because a subvolume was made, renamed or deleted, or because of a feature.
const COMMITTED: &[&str] = &[
    "a_commit_takes_the_log_along",
    "a_file_of_a_new_subvolume_is_fsynced",
    "a_file_of_many_names_in_new_directories",
    "a_name_removed_and_made_again",
    "a_snapshot_in_a_directory_that_is_fsynced",
    "a_subvolume_changes_places",
    "a_subvolume_is_deleted_and_its_directory_fsynced",
    "a_subvolume_is_deleted_and_its_name_taken",
    "a_subvolume_is_renamed_and_its_directory_fsynced",
    "a_subvolume_with_a_log_is_deleted",
    "one_of_many_names_is_removed_and_one_added",
    "the_first_data_with_lzo_or_zstd_is_fsynced",
];

/// Executes a story with both sides; returns the unmet expectations.
fn tell_way(story: &Story, what: &str, base: &SparseImage, steps: &[Step]) -> Vec<String> {
    let mut failures = Vec::new();
    let ours = act_by_us(base, steps);
    let ours = ours.unwrap_or_else(|error| panic!("{what}, by us: {error:#}"));
    failures.extend(judge(story, &format!("{what}, by us"), &ours));
    let linux = Linux::lock().unwrap();
    let theirs = act_by_linux(&linux, base, steps);
    let theirs = theirs.unwrap_or_else(|error| panic!("{what}, by Linux: {error:#}"));
    drop(linux);
    let may_commit = COMMITTED.contains(&&*story.name);
    // Linux commits instead of some logs, and so do we, but not if Linux writes a log.
    let is_as_linux =
        !theirs.has_log() && ours.commits.iter().all(|why| *why == FullCommitReason::NameMoved);
    if !may_commit && !is_as_linux && !ours.has_log() {
        let why = &ours.commits;
        failures.push(format!("{what}, by us: committed, not logged; syncs for {why:?}"));
    }
    failures.extend(judge(story, &format!("{what}, by Linux"), &theirs));
    failures
}

/// Checks an execution with both sides.
pub(super) fn judge(story: &Story, what: &str, acted: &Acted) -> Vec<String> {
    let pending = if acted.has_log() { "a log" } else { "no log" };
    println!("{what}: {pending}");
    let image = acted.durable.as_ref().unwrap_or(&acted.image);
    let linux = Linux::lock().unwrap();
    let by_linux = judge_by_linux(&linux, image);
    drop(linux);
    let mut failures = Vec::new();
    let mut check = |judge: &str, seen: &anyhow::Result<Seen>| {
        let found = match seen {
            Ok(seen) => story.check(acted, seen),
            Err(error) => vec![format!("{error:#}")],
        };
        failures.extend(found.into_iter().map(|found| format!("{what}, to {judge}: {found}")));
    };
    check("Linux", &by_linux);
    let by_us = judge_by_us(image);
    check("us", &by_us);
    if let (Ok(linux), Ok(us)) = (by_linux, by_us) {
        let found = linux.differences_of_judges(&us, acted.cut).into_iter();
        failures.extend(found.map(|found| format!("{what}, Linux's first: {found}")));
    }
    failures
}

stories! {
    a_new_file_is_whole
    data_is_written_again
    data_is_appended
    a_file_in_the_tree_grows_out_of_it
    overlapping_writes_are_logged_in_turn
    the_second_fsync_of_a_transaction_counts
    an_fsync_without_a_change_loses_nothing
    a_ranged_fsync_keeps_the_rest_for_the_next
    fdatasync_keeps_data_and_size
    what_is_not_fsynced_is_old_or_new
    attributes_are_logged
    data_survives_eviction_rename_and_fsync
    data_of_one_file_survives_the_fsync_of_another
    data_appended_after_a_link_is_kept
    a_file_of_many_extents
    many_files_share_a_log
    shrunk_and_grown_again_reads_zeros
    truncated_to_nothing_stays_empty
    truncated_to_nothing_fsynced_and_linked
    truncated_fsynced_linked_and_another_fsynced
    truncated_to_nothing_and_written_again
    shrunk_renamed_and_fsynced
    shrunk_and_a_link_fsynced_elsewhere
    grown_by_truncation
    a_hole_within_a_sector_reads_zeros
    a_punched_hole_stays_a_hole
    a_hole_punched_in_what_was_logged
    a_hole_next_to_a_hole
    a_gap_before_new_data
    zeroed_ranges_read_zeros
    a_hole_over_several_leaves
    a_hole_at_the_end_of_a_full_log
    space_behind_the_end_survives
    space_far_behind_the_end_survives_a_full_fsync
    allocated_space_is_written_in_part
    allocated_space_is_written_when_all_is_full
    allocated_space_is_written_beside_what_is_shared
    space_behind_the_end_goes_by_truncation
    xattrs_added_changed_and_removed
    the_last_xattr_is_removed
    xattrs_survive_fsync_commit_and_fsync
    xattrs_of_a_directory
    how_something_is_compressed
    xattrs_stay_with_a_linked_or_renamed_file
    an_xattr_set_before_another_is_fsynced
    a_new_link_comes_with_its_file
    a_new_link_in_a_new_directory
    link_and_fsync_of_either_name
    links_of_two_files_and_fsync_of_one
    a_removed_name_stays_away
    a_name_removed_in_another_directory
    a_name_removed_and_made_again
    one_of_many_names_is_removed_and_one_added
    a_name_is_moved_between_links
    a_renamed_file_has_its_new_name
    a_rename_that_replaces
    written_aside_and_renamed_over
    moved_and_the_old_directory_fsynced
    moved_from_a_logged_directory_that_is_fsynced_again
    moved_and_the_new_directory_fsynced
    logged_moved_and_the_new_directory_fsynced
    moved_and_another_file_of_the_old_directory_fsynced
    moved_the_old_directory_and_another_file_fsynced
    a_directory_fsynced_evicted_and_left
    moved_up_and_the_new_directory_fsynced
    moved_twice
    a_file_renamed_and_its_name_taken
    a_file_renamed_and_its_name_taken_and_the_first_fsynced
    a_directory_renamed_and_its_name_taken
    a_removed_name_of_two_is_taken
    a_removed_file_and_its_name_taken
    names_go_round
    names_of_links_go_round
    two_files_change_names
    many_names_are_taken_again
    a_chain_of_names_taken_again
    a_name_of_many_that_are_gone
    a_directory_moved_and_a_file_takes_its_name
    a_directory_moved_away_leaves_one_name
    a_directory_takes_the_place_of_its_parent
    exchanged_files
    exchanged_files_and_fsync_of_a_directory
    a_file_exchanged_with_a_directory
    exchanged_directories
    exchanged_directories_and_fsync_of_a_file_in_one
    exchanged_and_another_file_fsynced
    a_whiteout_takes_the_old_name
    a_whiteout_and_fsync_of_the_file
    a_new_directory_is_kept
    new_names_in_an_old_directory
    names_of_old_and_new_inodes
    a_name_in_the_tree_and_in_the_log
    removed_names_stay_away
    names_removed_and_made_again
    many_names
    moved_in_and_out
    a_directory_moved_into_one_that_is_fsynced
    a_moved_directory_that_is_fsynced
    a_moved_directory_and_fsync_of_a_file_in_it
    new_directories_moved_before_the_fsync
    an_unsynced_removal_is_done_or_not
    the_root_directory_is_fsynced
    below_a_new_directory_all_directories_come_whole
    unwritten_data_of_files_that_come_along
    a_link_to_a_logged_file_waits_for_the_next_fsync
    a_link_in_a_new_directory_and_its_fsync
    an_unsynced_link_of_a_logged_file
    a_logged_file_renamed_and_another_fsynced
    renamed_in_a_logged_directory_and_another_fsynced
    new_entries_after_a_new_name
    new_directories_below_a_renamed_one
    a_file_linked_renamed_and_written
    a_renamed_file_that_was_never_logged
    a_directory_created_again_under_its_old_name
    the_last_name_removed_and_its_directory_fsynced
    an_open_file_without_a_name_is_fsynced
    an_open_file_without_a_name_whose_name_is_taken
    a_removed_directory_is_fsynced
    a_removed_directory_and_a_file_in_its_place
    who_left_a_removed_directory_stays
    a_directory_leaves_others_that_are_removed
    removed_by_a_rename_and_fsynced
    a_logged_file_is_removed_and_another_fsynced
    a_new_logged_file_is_removed_and_another_fsynced
    a_logged_file_is_replaced_and_another_fsynced
    a_name_replaced_in_a_logged_directory_and_another_fsynced
    a_file_without_a_name_is_fsynced
    a_file_is_fsynced_before_it_gets_its_first_name
    a_file_gets_its_first_name
    a_file_gets_its_first_name_and_the_directory_is_fsynced
    a_new_symbolic_link_has_its_target
    a_renamed_symbolic_link_has_its_target
    a_linked_symbolic_link_has_its_target
    the_name_of_a_symbolic_link_is_taken
    devices_and_pipes_keep_what_they_are
    logged_before_and_after_a_commit
    removed_before_a_commit_and_fsynced_after
    created_before_a_commit_and_fsynced_after
    a_log_of_an_older_mount_is_not_taken_for_new
    a_commit_takes_the_log_along
    an_unlogged_change_before_an_fsync_of_something_else
    a_part_of_a_new_extent_is_shared_and_written_again
    cloned_over_after_an_fsync
    two_files_share_new_extents
    a_clone_evicted_and_fsynced
    a_clone_makes_a_hole
    overwritten_and_fsynced_in_turn_with_another
    a_compressed_file_is_fsynced
    the_first_data_with_lzo_or_zstd_is_fsynced
    a_compressed_extent_is_overwritten_in_part
    a_compressed_extent_is_truncated_in_part
    a_hole_is_punched_in_a_compressed_extent
    a_part_of_a_compressed_extent_is_cloned
    compression_is_turned_off_between_two_fsyncs
    files_of_two_subvolumes_are_fsynced
    a_file_of_a_new_subvolume_is_fsynced
    a_subvolume_is_deleted_and_its_directory_fsynced
    a_subvolume_is_deleted_and_its_name_taken
    a_snapshot_in_a_directory_that_is_fsynced
    a_subvolume_changes_places
    a_subvolume_is_renamed_and_its_directory_fsynced
    a_subvolume_with_a_log_is_deleted
    search_1_a_logged_file_is_replaced_from_elsewhere
    search_2_a_file_is_in_one_directory
    search_3_the_directory_of_a_new_link
    search_4_a_renamed_directory_and_its_old_name
    search_5_both_names_of_a_link_are_fsynced
    search_6_a_directory_above_one_that_was_logged
    search_7_a_link_in_another_directory
    search_8_space_behind_the_end_after_an_fsync
    space_grows_between_fsyncs
    a_directory_left_by_a_file_that_was_not_logged
    a_parent_removed_after_a_move
    a_file_of_many_names_in_new_directories
    a_link_beside_a_new_link_is_kept
    a_rename_beside_a_removed_link_is_kept
    renames_into_the_directory_of_a_new_link_are_kept
    a_new_file_under_the_old_name_is_kept
    a_new_name_comes_with_the_xattrs_of_its_moment
    a_directory_moved_in_before_another_is_kept
    new_inodes_beside_a_removed_link_are_kept
    changes_beside_a_link_made_and_removed_are_kept
    changes_before_an_exchange_are_kept
}
