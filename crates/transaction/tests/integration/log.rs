//! Tree logs on images in memory: the image on the device leads to all that is synced.

mod crowd;
mod faults;
mod read;

use std::collections::BTreeMap;
use std::ops::Range;

use userbtrfs_btree::{Edit, ItemEdit, ReadAhead};
use userbtrfs_device::Device;
use userbtrfs_format::{ItemKind, Key, Logical, SUPERBLOCK_OFFSETS, Superblock, TreeId};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::cut::{Choice, states};
use userbtrfs_testkit::devices::{Event, RecordingDevice, SparseImage};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::random::Random;
use userbtrfs_transaction::{
    FullCommitReason, HandleKind, LogFailure, LogSyncer, LogTransId, LogWriter, SpaceKind,
    TransactionManager, TransactionOptions,
};

use self::read::{Items, read_log, shows};
use super::{apply, attribute, key, open_on};

const OTHER: TreeId = TreeId(256);

/// A golden image.
fn image(name: &str) -> SparseImage {
    let folder = tempfile::TempDir::new().unwrap();
    let image = folder.path().join("image");
    Golden::named(name).unpack(&image).unwrap();
    SparseImage::from_file(&image).unwrap()
}

fn recorded(name: &str) -> (Arc<RecordingDevice>, Arc<TransactionManager>) {
    let device = Arc::new(RecordingDevice::on(&image(name)));
    let transactions = open_on(Arc::clone(&device) as _, TransactionOptions::default()).unwrap();
    (device, transactions)
}

fn attributes(numbers: impl IntoIterator<Item = u64>, len: usize) -> Vec<ItemEdit> {
    let mut edits: Vec<_> = numbers.into_iter().map(|number| attribute(number, len)).collect();
    edits.sort_unstable_by_key(key);
    edits
}

/// Puts items into a log, and syncs it.
fn log(
    transactions: &TransactionManager,
    subvolume: TreeId,
    edits: &mut [ItemEdit],
) -> Result<(), LogFailure> {
    log_as(transactions, subvolume, edits, &mut ())
}

fn log_as(
    transactions: &TransactionManager,
    subvolume: TreeId,
    edits: &mut [ItemEdit],
    member: &mut dyn LogSyncer,
) -> Result<(), LogFailure> {
    let handle = transactions.start(HandleKind::Operation).unwrap();
    let log_transid = put(transactions.logs(&handle)?, subvolume, edits)?;
    transactions.sync_log(&handle, log_transid, None, member)
}

fn put(
    mut writer: LogWriter<'_>,
    subvolume: TreeId,
    edits: &mut [ItemEdit],
) -> Result<LogTransId, FullCommitReason> {
    writer.apply(subvolume, edits)?;
    Ok(writer.log_transid())
}

/// Applies changes to the expected items.
fn change(items: &mut Items, subvolume: TreeId, edits: &[ItemEdit]) {
    for edit in edits {
        match edit {
            ItemEdit::Put(key, data) => items.insert((subvolume, *key), data.clone()),
            ItemEdit::Remove(key) => items.remove(&(subvolume, *key)),
        };
    }
}

#[test]
fn logged_items_are_read_back() {
    for name in ["fresh", "mixed", "single", "nodesize-4k", "nodesize-64k", "sha256"] {
        println!("{name}");
        let (device, transactions) = recorded(name);
        let mut items = Items::new();
        let mut random = Random::new(1);
        let mut nodes = 0;
        for (round, len) in (0..8).zip((50..).step_by(20)) {
            let both = [TreeId::FS, OTHER];
            for &subvolume in if random.one_in(2) { &both[..] } else { &both[..1] } {
                let numbers = (0..300).filter(|number| (number + round) % 3 != 0);
                let mut edits = attributes(numbers, len);
                for edit in edits.iter_mut().skip(2).step_by(7) {
                    *edit = ItemEdit::Remove(edit.key());
                }
                log(&transactions, subvolume, &mut edits).unwrap();
                change(&mut items, subvolume, &edits);
            }
            let log = read_log(&device.recording().end()).unwrap();
            assert_eq!(log.generation, transactions.generation());
            assert_eq!(log.items, items);
            nodes = nodes.max(log.nodes.len());
        }
        assert!(nodes >= 3, "{nodes} nodes");
        let stats = transactions.log_stats();
        assert!(stats.log_commits >= 8 && stats.nodes > nodes as u64, "{stats:?}");
        let nodesize = u64::from(transactions.volume().geometry().nodesize);
        assert_eq!(stats.bytes, stats.nodes * nodesize);
        let waits = [stats.shared, stats.waits_for_log_commit, stats.waits_for_commit];
        assert_eq!(waits, [0, 0, 0]);
        transactions.close().unwrap();
        assert!(read_log(&device.recording().end()).is_none(), "the commit is newer");
    }
}

#[test]
fn log_blocks_have_no_extent_and_stay_free_in_free_space_tree() {
    let (device, transactions) = recorded("fresh");
    log(&transactions, TreeId::FS, &mut attributes(0..2000, 100)).unwrap();
    let log = read_log(&device.recording().end()).unwrap();
    assert!(log.nodes.len() > 10);
    apply(&transactions, attributes(0..10, 10));
    transactions.commit().unwrap();
    let tree_roots = transactions.tree_roots();
    let nodesize = u64::from(transactions.volume().geometry().nodesize);
    let at_most = |tree: TreeId, at: Key| {
        let tree = tree_roots.tree(tree).unwrap();
        let store = tree_roots.store();
        let off = ReadAhead::Off;
        let cursor = userbtrfs_btree::Cursor::seek_back(store, &tree, &at, off).unwrap();
        cursor.item().unwrap().key
    };
    for &node in &log.nodes {
        let last = Key::new(node.0, ItemKind(u8::MAX), u64::MAX);
        assert_ne!(at_most(TreeId::EXTENT, last).objectid, node.0, "{node} has no extent");
        let free = at_most(TreeId::FREE_SPACE, last);
        assert_eq!(free.kind, ItemKind::FREE_SPACE_EXTENT);
        assert!(free.objectid + free.offset >= node.0 + nodesize, "{node} is free");
    }
    transactions.close().unwrap();
}

/// Returns the ranges of the device that the nodes of the log are on.
fn places(transactions: &TransactionManager, nodes: &[Logical]) -> Vec<Range<u64>> {
    let len = u64::from(transactions.volume().geometry().nodesize);
    let copies = |&node: &Logical| transactions.volume().map(node, len).unwrap().copies();
    nodes.iter().flat_map(copies).map(|at| at.0..at.0 + len).collect()
}

/// Returns the superblock that an event writes, if it is the primary copy.
fn superblock(event: &Event) -> Option<Superblock> {
    let Event::Write { offset, bytes, .. } = event else { return None };
    let primary = SUPERBLOCK_OFFSETS[0];
    (*offset == primary.0).then(|| Superblock::parse(bytes, primary).unwrap())
}

/// Allocates all but `bytes` bytes of what metadata has beyond the global reserve.
fn take_all_but(transactions: &TransactionManager, bytes: u64) -> Vec<Logical> {
    let space = transactions.space();
    let left = || {
        let usage = space.usage(SpaceKind::Metadata);
        usage.total - usage.allocated - usage.pinned - usage.global
    };
    let allocate = || space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    std::iter::from_fn(|| (left() > bytes).then(allocate)).collect()
}

#[test]
fn blocks_that_superblock_leads_to_are_not_overwritten() {
    for name in ["fresh", "nodesize-4k"] {
        let (device, transactions) = recorded(name);
        let taken = take_all_but(&transactions, 3 << 20);
        assert!(!taken.is_empty());
        let mut kept = Vec::new();
        let mut left = Vec::new();
        let mut rounds = 0;
        let mut used_again = 0;
        // Until nothing is free but what the superblock leads to.
        while log(&transactions, TreeId::FS, &mut attributes(rounds * 50..rounds * 50 + 400, 300))
            .is_ok()
        {
            let written = written_before_superblock(&device);
            assert!(!written.is_empty());
            assert_eq!(overlaps(&written, &kept), 0, "{name}: round {rounds}");
            used_again += overlaps(&written, &left);
            let log = read_log(&device.recording().end()).unwrap();
            left.append(&mut kept);
            kept = places(&transactions, &log.nodes);
            rounds += 1;
        }
        // The log that failed did not overwrite it either.
        assert_eq!(overlaps(&written_before_superblock(&device), &kept), 0, "{name}: the last");
        assert!(rounds > 5, "{name}: {rounds} rounds");
        assert!(used_again > 0, "{name}: what logs left is theirs again");
        let len = u64::from(transactions.volume().geometry().nodesize);
        for logical in taken {
            transactions.space().give_back(logical, len).unwrap();
        }
        apply(&transactions, attributes(0..1000, 100));
        transactions.commit().unwrap();
        assert_eq!(overlaps(&written_before_superblock(&device), &kept), 0, "{name}: the commit");
        transactions.close().unwrap();
    }
}

/// Returns the ranges that were written since the last call, up to a superblock.
fn written_before_superblock(device: &RecordingDevice) -> Vec<Range<u64>> {
    let events = device.take().events.into_iter().map(|recorded| recorded.event);
    let before = events.take_while(|event| superblock(event).is_none());
    let range = |event| match event {
        Event::Write { offset, bytes, .. } => Some(offset..offset + bytes.len() as u64),
        _ => None,
    };
    before.filter_map(range).collect()
}

/// Returns how many of the ranges overlap others.
fn overlaps(ranges: &[Range<u64>], others: &[Range<u64>]) -> usize {
    let shared = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
    ranges.iter().filter(|range| others.iter().any(|other| shared(range, other))).count()
}

#[test]
fn logs_of_transaction_reuse_few_blocks() {
    let (device, transactions) = recorded("fresh");
    let sync = |round: u64| {
        log(&transactions, TreeId::FS, &mut attributes(round..round + 40, 300)).unwrap();
        log(&transactions, OTHER, &mut attributes([round], 100)).unwrap();
        transactions.space().usage(SpaceKind::Metadata).allocated
    };
    let allocated = (0..10).map(|round| sync(round % 2)).max().unwrap();
    drop(device.take());
    for round in 0..100 {
        assert!(sync(round % 2) <= allocated, "round {round}");
    }
    let written = device.take().events.into_iter().filter_map(|recorded| match recorded.event {
        Event::Write { offset, bytes, .. } => Some((offset, bytes.len())),
        _ => None,
    });
    let places: BTreeMap<_, _> = written.collect();
    let nodes = read_log(&device.recording().end()).unwrap().nodes;
    // One of two logs is written at a time, each node twice; and the superblock.
    assert!(places.len() <= 4 * nodes.len() + 1, "{} for {}", places.len(), nodes.len());
    let stats = transactions.log_stats();
    assert!(stats.nodes > 400, "{stats:?}");
    transactions.close().unwrap();
}

#[test]
fn commit_frees_space_of_logs() {
    for name in ["fresh", "mixed"] {
        let (_device, transactions) = recorded(name);
        let used = |transactions: &TransactionManager| {
            apply(transactions, attributes(0..1000, 100));
            transactions.commit().unwrap();
            let usage = transactions.space().usage(SpaceKind::Metadata);
            assert_eq!((usage.pinned, usage.reserved), (0, 0));
            (usage.allocated, transactions.space().bytes_used())
        };
        used(&transactions);
        let before = used(&transactions);
        for round in 0..5 {
            for part in 0..4 {
                log(&transactions, TreeId::FS, &mut attributes(part..part + 500, 200)).unwrap();
                log(&transactions, OTHER, &mut attributes(part..part + 200, 100)).unwrap();
            }
            // A part of it is not synced.
            let handle = transactions.start(HandleKind::Operation).unwrap();
            put(transactions.logs(&handle).unwrap(), OTHER, &mut attributes(0..900, 300)).unwrap();
            drop(handle);
            let during = transactions.space().usage(SpaceKind::Metadata);
            assert!(during.allocated > before.0 + (100 << 10), "{during:?}");
            assert_eq!(during.reserved, 0, "{during:?}");
            assert_eq!(used(&transactions), before, "round {round}");
        }
        transactions.close().unwrap();
    }
}

#[test]
fn commit_frees_log_blocks_for_reservation() {
    let (_device, transactions) = recorded("fresh");
    // No space is left for another chunk.
    let data: Vec<_> = std::iter::from_fn(|| transactions.reserve_data(8 << 20).ok()).collect();
    for _ in 0..2 {
        log(&transactions, TreeId::FS, &mut attributes(0..30_000, 300)).unwrap();
    }
    let taken = take_all_but(&transactions, 64 << 10);
    assert_eq!(
        transactions.space().usage(SpaceKind::Metadata).pinned,
        0,
        "what a log left is still its own"
    );
    let generation = transactions.generation();
    drop(transactions.reserve(10).unwrap());
    assert_eq!(transactions.generation(), generation + 1);
    let len = u64::from(transactions.volume().geometry().nodesize);
    for logical in taken {
        transactions.space().give_back(logical, len).unwrap();
    }
    drop(data);
    transactions.close().unwrap();
}

#[test]
fn commit_discards_all_written_log_blocks() {
    let device = Arc::new(RecordingDevice::on(&image("fresh")));
    let options = TransactionOptions { discard: true, ..TransactionOptions::default() };
    let transactions = open_on(Arc::clone(&device) as _, options).unwrap();
    let mut written = Vec::new();
    for round in 0..20 {
        log(&transactions, TreeId::FS, &mut attributes(round..round + 400, 300)).unwrap();
        written.extend(written_before_superblock(&device));
    }
    // Some of these blocks reuse the place of written ones, and are never written themselves.
    let handle = transactions.start(HandleKind::Operation).unwrap();
    put(transactions.logs(&handle).unwrap(), TreeId::FS, &mut attributes(0..400, 100)).unwrap();
    let remove = |edit: ItemEdit| ItemEdit::Remove(edit.key());
    let mut fewer: Vec<_> = attributes(0..420, 0).into_iter().map(remove).collect();
    put(transactions.logs(&handle).unwrap(), TreeId::FS, &mut fewer).unwrap();
    drop(handle);
    drop(device.take());
    transactions.commit().unwrap();
    // Blocks that the commit itself wrote there are in use.
    let events: Vec<_> = device.take().events.into_iter().map(|recorded| recorded.event).collect();
    let since: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Write { offset, bytes, .. } => Some(*offset..*offset + bytes.len() as u64),
            Event::Discard { offset, len } => Some(*offset..*offset + len),
            Event::Flush { .. } => None,
        })
        .collect();
    let kept: Vec<_> = written.iter().filter(|place| !is_covered(place, &since)).collect();
    assert!(kept.is_empty() && written.len() > 40, "{kept:?} of {}", written.len());
    transactions.close().unwrap();
}

/// Returns true if every block of a range is in others.
fn is_covered(range: &Range<u64>, others: &[Range<u64>]) -> bool {
    let has = |at: u64| others.iter().any(|other| other.contains(&at));
    range.clone().step_by(4096).all(has)
}

#[test]
fn a_log_alone_is_committed_too() {
    let (device, transactions) = recorded("fresh");
    let generation = transactions.generation();
    log(&transactions, TreeId::FS, &mut attributes(0..3, 10)).unwrap();
    assert_eq!(read_log(&device.recording().end()).unwrap().generation, generation);
    transactions.commit().unwrap();
    assert_eq!(transactions.generation(), generation + 1);
    assert!(read_log(&device.recording().end()).is_none());
    transactions.commit().unwrap();
    assert_eq!(transactions.generation(), generation + 1, "there is nothing to commit");
}

#[test]
fn log_commit_without_changes_writes_no_superblock() {
    let (device, transactions) = recorded("fresh");
    log(&transactions, TreeId::FS, &mut attributes(0..3, 10)).unwrap();
    drop(device.take());
    for _ in 0..2 {
        log(&transactions, TreeId::FS, &mut []).unwrap();
    }
    let events = device.take().events;
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().all(|recorded| matches!(recorded.event, Event::Flush { .. })));
}

#[test]
fn checksums_do_not_overlap_whatever_is_added() {
    // Space that is freed is not allocated again: so a sector has the same checksum each time.
    add_checksums(&TransactionOptions::default(), |_| 0);
}

/// Here a sector has another checksum each time, and the last one counts.
#[cfg(feature = "experiments")]
#[test]
fn checksums_are_replaced_in_s2() {
    let experiment = Some(userbtrfs_transaction::Experiment::S2);
    let options = TransactionOptions { experiment, ..TransactionOptions::default() };
    add_checksums(&options, |round| round);
}

/// Adds checksums of random ranges, which depend on the result of `change` in each round.
fn add_checksums(options: &TransactionOptions, change: impl Fn(u64) -> u64) {
    for name in ["fresh", "sha256", "nodesize-4k"] {
        let device = Arc::new(RecordingDevice::on(&image(name)));
        let transactions = open_on(Arc::clone(&device) as _, options.clone()).unwrap();
        let size = transactions.volume().geometry().checksum_kind.size();
        let mut random = Random::new(3);
        let mut sums = BTreeMap::new();
        for round in 0..200 {
            let changed = change(round);
            let start = 1000 + random.below(3000);
            let most = if random.one_in(10) { 1500 } else { 40 };
            let sectors = 1 + random.below(most);
            let sum = |sector: u64| -> Vec<u8> {
                (0..size as u64).map(|n| (sector * 7 + n + changed).to_le_bytes()[0]).collect()
            };
            let stored: Vec<u8> = (start..start + sectors).flat_map(sum).collect();
            let handle = transactions.start(HandleKind::Operation).unwrap();
            let mut writer = transactions.logs(&handle).unwrap();
            writer.add_checksums(TreeId::FS, Logical(start * 4096), &stored).unwrap();
            sums.extend((start..start + sectors).map(|sector| (sector, sum(sector))));
            let log_transid = writer.log_transid();
            drop(writer);
            if random.one_in(20) {
                transactions.sync_log(&handle, log_transid, None, &mut ()).unwrap();
            }
        }
        log(&transactions, TreeId::FS, &mut []).unwrap();
        let mut found = BTreeMap::new();
        for ((_, key), data) in read_log(&device.recording().end()).unwrap().items {
            assert_eq!(key.kind, ItemKind::EXTENT_CSUM);
            for (sector, sum) in (key.offset / 4096..).zip(data.chunks(size)) {
                assert_eq!(found.insert(sector, sum.to_vec()), None, "sector {sector} is twice");
            }
        }
        assert_eq!(found, sums);
    }
}

#[test]
fn without_logs_everything_is_committed() {
    let device = Arc::new(RecordingDevice::on(&image("fresh")));
    let options = TransactionOptions { log: false, ..TransactionOptions::default() };
    let transactions = open_on(device, options).unwrap();
    for _ in 0..3 {
        let failed = log(&transactions, TreeId::FS, &mut attributes(0..3, 10)).unwrap_err();
        assert!(matches!(failed, LogFailure::Commit(FullCommitReason::Disabled)), "{failed}");
    }
    assert_eq!(
        transactions.log_stats().commits(FullCommitReason::Disabled),
        1,
        "once a transaction"
    );
}

#[test]
fn a_crash_at_any_time_keeps_what_was_synced() {
    let (device, transactions) = recorded("fresh");
    let mut random = Random::new(11);
    let mut synced = Vec::new();
    for number in 0..60 {
        let edits = attributes([number], 300);
        apply(&transactions, edits.clone());
        if log(&transactions, TreeId::FS, &mut edits.clone()).is_ok() {
            synced.push((device.log().len(), edits));
        }
        if random.one_in(15) {
            transactions.commit().unwrap();
        }
    }
    assert!(synced.len() > 50, "{} were logged", synced.len());
    let recording = device.recording();
    let choices =
        [Choice::Sample { seed: 5, count: 60 }, Choice::Reordered { seed: 5, count: 120 }];
    for state in choices.into_iter().flat_map(|choice| states(&recording, choice)) {
        let before = synced.iter().take_while(|(events, _)| *events <= state.completed);
        let edits: Vec<_> = before.flat_map(|(_, edits)| edits.clone()).collect();
        shows(&state.image, TreeId::FS, &edits);
    }
}

/// Returns the final content of a device.
fn end_of(device: &dyn Device) -> SparseImage {
    SparseImage::copy_of(device).unwrap()
}
