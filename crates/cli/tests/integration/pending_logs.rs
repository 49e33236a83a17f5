//! Damaged logs: a replay refuses them by name, or leaves out the damaged items.
//!
//! 1. Whatever a log contains, with right checksums: no panic, no hang, and the filesystem that is
//!    written opens.
//! 2. Damage is reported with its subvolume and item.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use userbtrfs::device::{Device, MemoryDevice};
use userbtrfs::{
    Error, Filesystem, ItemKind, Key, Logical, OpenOptions, PendingLog, ReplayProgress, TreeId,
};
use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{Expectation, RootItem, dir_entries};
use userbtrfs_image_builder::{ImageEditor, RawBlock, field, put_u64};
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::btrfs_check;
use userbtrfs_testkit::random::Random;
use userbtrfs_volume::{Volume, walk};

use super::support::command::verb;
use super::support::forging::edit_leaf_at;
use super::support::golden::Unpacked;
use super::support::shown::shown;
use super::support::{assert_says, refusal};

/// Numbers at or near the limits of checks.
const TURNS: [u64; 12] = [
    0,
    1,
    2,
    255,
    256,
    257,
    4096,
    1 << 20,
    i64::MAX as u64,
    u64::MAX - 4095,
    u64::MAX - 1,
    u64::MAX,
];

/// The images that are damaged, and the number of times.
const DAMAGED: [(&str, usize); 2] = [("log", 250), ("log-4k", 30)];

/// A golden image with a log, in memory.
fn golden(name: &str) -> ImageEditor {
    let unpacked = Unpacked::of(&Golden::named(name));
    ImageEditor::from_bytes(std::fs::read(unpacked.path()).unwrap()).unwrap()
}

fn open(editor: &ImageEditor, what: PendingLog) -> Result<Filesystem, Error> {
    let mut options = OpenOptions::new();
    options.pending_log(what).memory(16 << 20).open_devices(vec![Arc::clone(editor.device())])
}

/// Opens a copy for writing, closes it, and opens it again; `btrfs check`, if it is installed, must
/// find no errors.
fn write_and_reopen(editor: &ImageEditor, what: PendingLog) -> Result<Filesystem, Error> {
    let copy = Arc::new(MemoryDevice::from_bytes(editor.image().unwrap()));
    let device: Arc<dyn Device> = copy.clone();
    let mut options = OpenOptions::new();
    options.pending_log(what).memory(16 << 20);
    options.clone().write(true).open_devices(vec![Arc::clone(&device)])?.close()?;
    if Command::new("btrfs").arg("--version").output().is_ok() {
        let file = tempfile::NamedTempFile::new().unwrap();
        SparseImage::from_bytes(&copy.snapshot()).write_to(file.path()).unwrap();
        btrfs_check(file.path()).unwrap();
    }
    options.pending_log(PendingLog::Leave).open_devices(vec![device])
}

/// Returns the leaves of a log tree.
fn leaves(volume: &Volume, logical: Logical, level: u8, generation: u64) -> Vec<Logical> {
    let owner = TreeId::TREE_LOG;
    let expected = Expectation { owner, level, generation, first_key: None, end: None };
    let mut walk = walk(volume, logical, expected, 10_000);
    let mut leaves = Vec::new();
    while let Some(leaf) = walk.next_leaf().unwrap() {
        leaves.push(leaf.header().logical);
    }
    leaves
}

/// Returns the leaves of the log root tree, and those of the log trees.
fn log_leaves(editor: &ImageEditor) -> (Vec<Logical>, Vec<Logical>) {
    let filesystem = open(editor, PendingLog::Leave).unwrap();
    let volume = filesystem.volume();
    let superblock = filesystem.superblock();
    let root = superblock.log_root.unwrap();
    let generation = superblock.generation + 1;
    let roots = leaves(volume, root, superblock.log_root_level, generation);
    let mut logs = Vec::new();
    for at in &roots {
        let block = editor.block(*at).unwrap();
        for slot in 0..RawBlock(&block).slots() {
            let item = RootItem::parse(&block[RawBlock(&block).item(slot).unwrap()]).unwrap();
            logs.extend(leaves(volume, item.logical, item.level, item.generation));
        }
    }
    (roots, logs)
}

/// Changes some bytes of items of a leaf, or of its item headers.
fn damage(block: &mut [u8], random: &mut Random) {
    let raw = RawBlock(block);
    let slots = raw.slots();
    for _ in 0..=random.below(2) {
        let item = RawBlock(block).item(random.index(slots));
        let range = match item {
            Some(item) if !item.is_empty() && !random.one_in(8) => item,
            _ => 101..101 + 25 * slots,
        };
        let at = range.start + random.index(range.len());
        match random.below(3) {
            0 => block[at] = random.number().to_le_bytes()[0],
            1 => block[at] ^= 1 << random.below(8),
            _ => {
                let turn = TURNS[random.index(TURNS.len())].to_le_bytes();
                let len = turn.len().min(range.end - at);
                block[at..at + len].copy_from_slice(&turn[..len]);
            }
        }
    }
}

/// Until 5.17 Linux also logged entries by the hash of their name, and ranges of hashes.
#[test]
fn items_by_hash_of_older_kernels_are_ignored() {
    let mut added = BTreeSet::new();
    for name in DAMAGED.map(|(name, _)| name) {
        let mut editor = golden(name);
        let expected = shown(&open(&editor, PendingLog::Replay).unwrap()).unwrap();
        let nodesize = usize::try_from(editor.geometry().nodesize).unwrap();
        let (_, logs) = log_leaves(&editor);
        for leaf in logs {
            edit_leaf_at(&mut editor, leaf, |items| {
                let first = *items.keys().next().unwrap();
                let taken: usize = items.values().map(|item| 25 + item.len()).sum();
                let mut room = nodesize - 101 - taken;
                for (key, item) in items.clone() {
                    let Some(old) = by_hash(key, &item).filter(|old| *old > first) else {
                        continue;
                    };
                    if room >= 25 + item.len() && items.insert(old, item.clone()).is_none() {
                        room -= 25 + item.len();
                        added.insert(old.kind);
                    }
                }
            });
        }
        let replayed = open(&editor, PendingLog::Replay).unwrap();
        assert_eq!(shown(&replayed).unwrap(), expected, "{name}");
        let written = write_and_reopen(&editor, PendingLog::Replay).unwrap();
        assert_eq!(shown(&written).unwrap(), expected, "{name}, for good");
    }
    assert!(added.into_iter().eq([ItemKind::DIR_LOG_ITEM, ItemKind::DIR_ITEM]));
}

/// Returns the key by hash that older kernels logged beside an item by index.
fn by_hash(key: Key, item: &[u8]) -> Option<Key> {
    match key.kind {
        ItemKind::DIR_INDEX => {
            let hash = name_hash(dir_entries(item).next().unwrap().unwrap().name);
            Some(Key::new(key.objectid, ItemKind::DIR_ITEM, hash.into()))
        }
        ItemKind::DIR_LOG_INDEX => Some(Key::new(key.objectid, ItemKind::DIR_LOG_ITEM, 0)),
        _ => None,
    }
}

#[test]
fn log_with_random_damage_does_no_harm() {
    let mut counts = [0; 2];
    for (seed, (name, count)) in (11..).zip(DAMAGED) {
        let mut editor = golden(name);
        let without = shown(&open(&editor, PendingLog::Leave).unwrap()).unwrap();
        let (_, logs) = log_leaves(&editor);
        let mut random = Random::new(seed);
        for number in 0..count {
            let at = logs[random.index(logs.len())];
            let mut damaged = editor.block(at).unwrap();
            damage(&mut damaged, &mut random);
            editor.edit_block(at, |block| block.copy_from_slice(&damaged));
            let replayed = open(&editor, PendingLog::Replay);
            let opens = replayed.is_ok();
            match replayed {
                Ok(opened) => drop(shown(&opened)),
                Err(error) => drop(error.to_string()),
            }
            counts[usize::from(opens)] += 1;
            let salvaged = open(&editor, PendingLog::Salvage).unwrap();
            let left_out = &salvaged.replayed().unwrap().left_out;
            assert_eq!(left_out.is_empty(), opens, "{left_out:?}");
            drop(shown(&salvaged));
            if number % 10 == 0 {
                let opened = write_and_reopen(&editor, PendingLog::Salvage).unwrap();
                assert_eq!(opened.superblock().log_root, None);
                let paths = opened.walk("/").unwrap().map(|entry| entry.unwrap().path);
                assert!(paths.count() > 10);
                let discarded = write_and_reopen(&editor, PendingLog::Discard).unwrap();
                assert_eq!(shown(&discarded).unwrap(), without, "{name}");
            }
            editor.revert();
        }
    }
    println!("refused {}, replayed {}", counts[0], counts[1]);
    assert!(counts[0] > 40 && counts[1] > 40, "{counts:?}");
}

#[test]
fn log_root_with_random_damage_does_no_harm() {
    let mut editor = golden("log");
    let without = shown(&open(&editor, PendingLog::Leave).unwrap()).unwrap();
    let check_discarded = |discarded: Filesystem| {
        assert_eq!(discarded.superblock().log_root, None);
        assert_eq!(shown(&discarded).unwrap(), without);
    };
    let (roots, _) = log_leaves(&editor);
    let mut random = Random::new(5);
    for number in 0..300 {
        let at = roots[random.index(roots.len())];
        let mut damaged = editor.block(at).unwrap();
        damage(&mut damaged, &mut random);
        editor.edit_block(at, |block| block.copy_from_slice(&damaged));
        for what in [PendingLog::Replay, PendingLog::Salvage] {
            match open(&editor, what) {
                Ok(opened) => drop(shown(&opened)),
                Err(error) => drop(error.to_string()),
            }
        }
        if number % 20 == 0 {
            check_discarded(write_and_reopen(&editor, PendingLog::Discard).unwrap());
        }
        editor.revert();
    }
    let superblock = [field::LOG_ROOT, field::LOG_ROOT + 8, field::LOG_ROOT_LEVEL];
    for (at, turn) in superblock.iter().flat_map(|at| TURNS.map(|turn| (*at, turn))) {
        editor.edit_superblock(|bytes| match at {
            field::LOG_ROOT_LEVEL => bytes[at] = turn.to_le_bytes()[0],
            at => put_u64(bytes, at, turn),
        });
        for what in [PendingLog::Replay, PendingLog::Salvage] {
            drop(open(&editor, what).map(|opened| shown(&opened)));
        }
        match write_and_reopen(&editor, PendingLog::Discard) {
            Ok(discarded) => check_discarded(discarded),
            // The superblock itself is invalid with this change.
            Err(error) => assert_says(&error.to_string(), &["log root tree"]),
        }
        editor.revert();
    }
}

/// Returns the first item of a kind in a log, as its leaf and the range in it.
fn first(editor: &ImageEditor, kind: ItemKind) -> (Logical, std::ops::Range<usize>) {
    let (_, logs) = log_leaves(editor);
    let found = logs.iter().find_map(|at| {
        let block = editor.block(*at).unwrap();
        let raw = RawBlock(&block);
        let slot = (0..raw.slots()).find(|slot| raw.key(*slot).kind == kind)?;
        Some((*at, raw.item(slot).unwrap()))
    });
    found.unwrap()
}

#[test]
fn damaged_item_is_named_and_the_rest_is_salvaged() {
    let mut editor = golden("log");
    let sound = shown(&open(&editor, PendingLog::Replay).unwrap()).unwrap();
    let without = shown(&open(&editor, PendingLog::Leave).unwrap()).unwrap();
    let (at, item) = first(&editor, ItemKind::INODE_REF);
    editor.edit_block(at, |block| block[item.start + 10] = b'/');
    let error = refusal(open(&editor, PendingLog::Replay));
    assert_says(&error, &["the log of subvolume", "INODE_REF", "impossible name"]);
    let opened = open(&editor, PendingLog::Salvage).unwrap();
    let [left_out] = &opened.replayed().unwrap().left_out[..] else { panic!("one item") };
    assert_eq!(left_out.key.map(|key| key.kind), Some(ItemKind::INODE_REF));
    let salvaged = shown(&opened).unwrap();
    assert_ne!(salvaged, without);
    let lost: Vec<_> = sound.keys().filter(|path| !salvaged.contains_key(*path)).collect();
    assert!(lost.len() <= 1, "{lost:?}");
    assert!(salvaged.keys().all(|path| sound.contains_key(path) || without.contains_key(path)));
}

#[test]
fn unreadable_leaf_is_skipped() {
    let mut editor = golden("log-4k");
    let (_, logs) = log_leaves(&editor);
    let at = logs[logs.len() / 2];
    for copy in editor.copies(at) {
        editor.edit_raw(copy, 4096, |block| block[2000] ^= 1);
    }
    assert_says(&refusal(open(&editor, PendingLog::Replay)), &["checksum", &at.to_string()]);
    let opened = write_and_reopen(&editor, PendingLog::Salvage).unwrap();
    let names = shown(&opened).unwrap().keys().filter(|path| path.starts_with(b"/logged/")).count();
    assert!((350..400).contains(&names), "{names} of 400 files");
}

#[test]
fn progress_of_a_replay_ends_at_the_size_of_the_logs() {
    for (name, _) in DAMAGED {
        let mut editor = golden(name);
        let (_, logs) = log_leaves(&editor);
        let size = logs.len() as u64 * u64::from(editor.geometry().nodesize);
        let progress = Arc::new(ReplayProgress::default());
        let counted = || (progress.replayed(), progress.total());
        let mut options = OpenOptions::new();
        options.replay_progress(Arc::clone(&progress));
        let mut open = |what| {
            options.pending_log(what).open_devices(vec![Arc::clone(editor.device())]).unwrap()
        };
        drop(open(PendingLog::Leave));
        assert_eq!(counted(), (0, 0), "{name}: nothing is replayed");
        drop(open(PendingLog::Replay));
        assert_eq!(counted(), (size, size), "{name}");
        // A skipped part of a log counts as done, too.
        let at = logs[logs.len() / 2];
        for copy in editor.copies(at) {
            editor.edit_raw(copy, 4096, |block| block[2000] ^= 1);
        }
        let salvaging = Arc::new(ReplayProgress::default());
        let mut options = OpenOptions::new();
        options.replay_progress(Arc::clone(&salvaging)).pending_log(PendingLog::Salvage);
        let opened = options.open_devices(vec![Arc::clone(editor.device())]).unwrap();
        assert!(!opened.replayed().unwrap().left_out.is_empty(), "{name}");
        assert_eq!((salvaging.replayed(), salvaging.total()), (size, size), "{name}");
    }
}

#[test]
fn command_dumps_replays_and_discards_logs() {
    let told = |image: &std::path::Path| verb("dump log", image, &[]).good();
    let unpacked = Unpacked::new("log");
    let image = unpacked.path();
    let words = told(&image);
    for part in [
        "log of what was fsynced after generation 8",
        "subvolume 5",
        "inode 278: regular, 20001 bytes, 1 name; with all its attributes",
        "has the name \"new\" in directory",
        "has the attribute user.new of 7 bytes",
        "hold what is listed, and no more",
        ": preallocated at",
        "checksums of",
    ] {
        assert!(words.contains(part), "{part:?} is not in\n{words}");
    }
    let json = |words: &str, name: &str| {
        let said = verb(&format!("--format json {words}"), &image, &[]).good();
        let mut document: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(document["__header"]["version"], "1");
        document.as_object_mut().unwrap().remove(name).unwrap_or_else(|| panic!("{said}"))
    };
    let dumped = json("dump log", "dump-log");
    assert!(dumped.as_array().unwrap().iter().any(|item| item["checksums"].is_u64()));
    assert!(verb("ls", &image, &["/d"]).good().contains("new inline"), "replayed in memory");
    assert!(!verb("ls -q --no-log-replay", &image, &["/d"]).good().contains("new inline"));
    let replayed = verb("log replay", &image, &[]).good();
    assert_says(&replayed, &["after generation 8:\nsubvolumes: 2, inodes: 10\n"]);
    assert!(verb("ls -q --no-log-replay", &image, &["/d"]).good().contains("new inline"));
    assert_says(&verb("log replay", &image, &[]).good(), &["no log is pending"]);
    assert_says(&told(&image), &["no log is pending"]);
    for (words, name) in [("dump log", "dump-log"), ("log discard", "log-discard")] {
        assert_eq!(json(words, name), Value::Null);
    }

    let unpacked = Unpacked::new("log");
    let image = unpacked.path();
    assert_eq!(verb("log discard", &image, &[]).good(), words);
    let unpacked = Unpacked::new("log");
    let image = unpacked.path();
    let said = verb("--format json log discard", &image, &[]).good();
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["log-discard"], dumped);
    assert!(!verb("ls", &image, &["/d"]).good().contains("new inline"));

    let unpacked = Unpacked::new("log");
    let mut editor = unpacked.editor();
    let (at, item) = first(&editor, ItemKind::INODE_REF);
    editor.edit_block(at, |block| block[item.start + 10] = b'/');
    drop(editor);
    let image = unpacked.path();
    assert_says(
        &verb("ls", &image, &["/d"]).bad(),
        &["cannot be replayed", "impossible name", "(\"log salvage\" skips", "--no-log-replay"],
    );
    assert_says(&verb("log replay", &image, &[]).bad(), &["INODE_REF"]);
    let salvaged = verb("log salvage", &image, &[]);
    assert_eq!(salvaged.code, Some(1), "{salvaged:?}");
    let said = String::from_utf8(salvaged.stdout).unwrap();
    assert_says(&said, &["left out: /d: ", "INODE_REF"]);
    assert!(verb("ls", &image, &["/d"]).good().contains("appended"));
}
