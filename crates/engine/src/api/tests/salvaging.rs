//! Logs of which a part cannot be read.

use userbtrfs_format::TreeId;

use super::*;

/// Bytes of a tree block.
const NODE: usize = 4096;
/// The number of files created after the inodes under test, so that they are in other log blocks.
const OTHERS: usize = 150;

/// The kind of items of extents of files.
const EXTENT_DATA: u8 = 108;
/// The kind of items of checksums.
const CSUM: u8 = 128;

fn lab() -> Lab {
    Lab::of(128 << 20, &Options { nodesize: 4096, ..Options::default() }, 32 << 20)
}

fn make_others(dir: &Dir) -> Vec<u64> {
    let make = |number: usize| dir.create(format!("other {number}").as_bytes(), 0o644).unwrap();
    (0..OTHERS).map(|number| make(number).id().number).collect()
}

/// Returns the numbers of the inodes with items in a block, if that is a leaf of a tree.
fn inodes_in(block: &[u8], tree: TreeId) -> Vec<u64> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let count = u32::from_le_bytes(block[0x60..0x64].try_into().unwrap());
    let is_leaf = word(0x58) == tree.0 && block[0x64] == 0;
    let slots = 0..if is_leaf { count as usize } else { 0 };
    slots.map(|slot| word(0x65 + 25 * slot)).collect()
}

/// Returns the image of a crash in which the leaves of a tree that have items of an inode are
/// damaged.
fn crashed_without(lab: Lab, tree: TreeId, inode: u64) -> Arc<MemoryDevice> {
    lab.fs.abandon();
    let mut image = lab.device.snapshot();
    let blocks = image.chunks_exact_mut(NODE);
    for block in blocks.filter(|block| inodes_in(block, tree).contains(&inode)) {
        block[NODE / 2] ^= 1;
    }
    Arc::new(MemoryDevice::from_bytes(image))
}

fn opened(device: &Arc<MemoryDevice>, what: PendingLog) -> Result<Filesystem> {
    let mut options = OpenOptions::new();
    options.write(true).commit_seconds(0).memory(32 << 20).pending_log(what);
    options.open_devices(vec![Arc::clone(device) as Arc<dyn Device>])
}

/// Salvages the log, and passes the filesystem, which is sound, to `look`. Some items were skipped,
/// and some were not.
fn salvaged(device: &Arc<MemoryDevice>, look: impl FnOnce(&Filesystem)) {
    let refused = opened(device, PendingLog::Replay).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Replay(why) if matches!(*why, Error::Read(_))));
    let fs = opened(device, PendingLog::Salvage).unwrap();
    let replayed = fs.replayed().unwrap();
    assert!(!replayed.left_out.is_empty() && replayed.names_added > 0, "{replayed:?}");
    look(&fs);
    fs.close().unwrap();
    check(device);
}

#[test]
fn replaced_file_stays_if_its_replacement_is_unreadable() {
    let lab = lab();
    lab.create("file").write_at(b"old", 0).unwrap();
    lab.fs.commit().unwrap();
    let new = lab.create("new");
    new.write_at(b"new", 0).unwrap();
    new.sync_all().unwrap();
    lab.fs.rename("new", "file").unwrap();
    let others = make_others(&lab.fs.root());
    lab.fs.root().sync_all().unwrap();
    let number = new.inode().id().number;
    drop(new);
    assert!(number < others[0]);
    salvaged(&crashed_without(lab, TreeId::TREE_LOG, number), |fs| {
        assert_eq!(fs.read("file").unwrap(), b"old");
    });
}

#[test]
fn renamed_file_stays_if_its_names_are_unreadable() {
    let lab = lab();
    let file = lab.create("file");
    file.write_at(b"old", 0).unwrap();
    lab.fs.commit().unwrap();
    let number = file.inode().id().number;
    drop(file);
    lab.fs.rename("file", "renamed").unwrap();
    make_others(&lab.fs.root());
    lab.fs.root().sync_all().unwrap();
    salvaged(&crashed_without(lab, TreeId::TREE_LOG, number), |fs| {
        assert_eq!(fs.read("renamed").unwrap(), b"old");
    });
}

#[test]
fn xattrs_stay_if_their_removal_is_uncertain() {
    let lab = lab();
    let file = lab.create("file");
    file.inode().set_xattr(b"user.old", b"value", XattrMode::Create).unwrap();
    lab.fs.commit().unwrap();
    for number in 0..10 {
        let name = format!("user.{number}");
        file.inode().set_xattr(name.as_bytes(), &[b'x'; 1000], XattrMode::Create).unwrap();
    }
    file.inode().remove_xattr(b"user.old").unwrap();
    let others = make_others(&lab.fs.root());
    file.sync_all().unwrap();
    lab.fs.root().sync_all().unwrap();
    drop(file);
    salvaged(&crashed_without(lab, TreeId::TREE_LOG, others[OTHERS / 2]), |fs| {
        let file = fs.open_file("file").unwrap();
        assert_eq!(file.inode().xattr(b"user.old").unwrap(), b"value");
        assert_eq!(file.inode().xattr(b"user.9").unwrap(), [b'x'; 1000]);
    });
}

/// Another part of the log cannot be read: the old name of the directory is removed.
#[test]
fn renamed_directory_has_one_name() {
    let lab = lab();
    let dir = lab.fs.create_dir("/dir", 0o755).unwrap();
    dir.create_dir(b"before", 0o755).unwrap().create(b"file", 0o644).unwrap();
    lab.fs.commit().unwrap();
    // After a move to another directory a sync would be a full commit.
    lab.fs.rename("/dir/before", "/dir/after").unwrap();
    let others = make_others(&dir);
    dir.sync_all().unwrap();
    drop(dir);
    salvaged(&crashed_without(lab, TreeId::TREE_LOG, others[OTHERS / 2]), |fs| {
        assert_eq!(fs.metadata("/dir/after/file").unwrap().size, 0);
        assert!(matches!(
            fs.metadata("/dir/before"),
            Err(PathError { error: Error::NotFound, .. })
        ));
    });
}

#[test]
fn damage_outside_the_log_ends_the_replay() {
    let lab = lab();
    let others = make_others(&lab.fs.root());
    lab.fs.commit().unwrap();
    let file = lab.file(&format!("other {}", OTHERS / 2));
    file.write_at(b"new", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let device = crashed_without(lab, TreeId::FS, others[OTHERS / 2]);
    let before = device.snapshot();
    for what in [PendingLog::Replay, PendingLog::Salvage] {
        let ended = opened(&device, what).map(drop);
        let Err(Error::Replay(why)) = ended else { panic!("{what:?}: {ended:?}") };
        assert!(matches!(*why, Error::Read(_)), "{what:?}: {why}");
        assert!(device.snapshot() == before, "{what:?}: it was written to");
    }
}

/// Returns the image of a crash in which a leaf of the log is damaged: one that has only extents of
/// an inode, or one with checksums. There are older leaves that no log leads to any more.
fn crashed_without_a_leaf(lab: Lab, objectid: u64, kind: u8) -> Arc<MemoryDevice> {
    lab.fs.abandon();
    let image = lab.device.snapshot();
    let word = |block: &[u8], at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let is_it = |block: &[u8]| {
        let count = u32::from_le_bytes(block[0x60..0x64].try_into().unwrap()) as usize;
        let is_leaf = word(block, 0x58) == TreeId::TREE_LOG.0 && block[0x64] == 0;
        let slots = if is_leaf { 0..count } else { 0..0 };
        let is_of = |at: usize| word(block, at) == objectid && block[at + 8] == kind;
        let mut found = slots.map(|slot| is_of(0x65 + 25 * slot));
        is_leaf && if kind == CSUM { found.any(|is| is) } else { found.all(|is| is) }
    };
    let leaves = (0..image.len()).step_by(NODE).filter(|at| is_it(&image[*at..at + NODE]));
    let mut damaged = leaves.map(|at| {
        let leaf = &image[at..at + NODE];
        let mut image = image.clone();
        // Both copies.
        for block in image.chunks_exact_mut(NODE).filter(|block| *block == leaf) {
            block[NODE / 2] ^= 1;
        }
        image
    });
    let is_needed = |image: &Vec<u8>| {
        let device = Arc::new(MemoryDevice::from_bytes(image.clone()));
        opened(&device, PendingLog::Replay).is_err()
    };
    let found = damaged.find(is_needed).expect("the items fill a leaf");
    Arc::new(MemoryDevice::from_bytes(found))
}

/// Writes every other sector, so that each is an extent.
fn write_pieces(file: &File) -> Vec<u8> {
    let mut content = Vec::new();
    for number in 0..200_u8 {
        file.write_at(&[number + 1; 4096], u64::from(number) * 8192).unwrap();
        content.extend([[number + 1; 4096], [0; 4096]].concat());
    }
    content.truncate(content.len() - 4096);
    content
}

/// A committed file with other contents, and a new one, both with contents that were fsynced.
fn with_pieces() -> (Lab, [u64; 2], Vec<u8>) {
    let lab = lab();
    // With a data block group, or else a sync would be a full commit.
    lab.create("filler").write_at(&vec![1; 1 << 20], 0).unwrap();
    let old = lab.create("old");
    old.write_at(b"old", 0).unwrap();
    lab.fs.commit().unwrap();
    let new = lab.create("new");
    let content = write_pieces(&old);
    write_pieces(&new);
    old.sync_all().unwrap();
    new.sync_all().unwrap();
    let numbers = [&old, &new].map(|file| file.inode().id().number);
    (lab, numbers, content)
}

#[test]
fn damaged_contents_are_left_out_unless_partial_ones_are_wanted() {
    for (which, name, before) in [(0, "old", &b"old"[..]), (1, "new", b"")] {
        let (lab, numbers, content) = with_pieces();
        let device = crashed_without_a_leaf(lab, numbers[which], EXTENT_DATA);
        let image = device.snapshot();
        let missing = |what| {
            let fs = opened(&device, what).unwrap();
            let found = fs.read(name).unwrap();
            let other = fs.read(["new", "old"][which]).unwrap();
            assert!(other == content, "the other file is whole");
            let [file] = &fs.replayed().unwrap().incomplete[..] else { panic!("one file") };
            let file = file.clone();
            assert_eq!((file.inode.number, file.size), (numbers[which], content.len() as u64));
            fs.close().unwrap();
            check(&device);
            (found, file)
        };
        let (found, file) = missing(PendingLog::Salvage);
        assert!(found == before && !file.is_partial, "{name}");
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let fs = opened(&device, PendingLog::SalvagePartial).unwrap();
        let found = fs.read(name).unwrap();
        let mut expected = content.clone();
        for range in &file.missing {
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            assert!(range.len() > 100 * 1024, "{range:?}");
            expected[range].fill(0);
        }
        if file.missing[0].start == 0 {
            expected[..before.len()].copy_from_slice(before);
        }
        assert!(found == expected, "{name}");
        assert!(fs.replayed().unwrap().incomplete[0].is_partial);
        fs.close().unwrap();
        check(&device);
    }
}

/// Half a target leads somewhere else: a new symbolic link without its target is left out, also if
/// partial contents are wanted.
#[test]
fn symlink_whose_target_is_damaged_is_left_out() {
    // It fills a leaf.
    const TARGET: usize = 3900;
    for what in [PendingLog::Salvage, PendingLog::SalvagePartial] {
        let lab = lab();
        lab.create("old");
        lab.fs.commit().unwrap();
        let root = lab.fs.root();
        let link = root.symlink(b"link", &[b't'; TARGET]).unwrap().id();
        root.symlink(b"short", b"old").unwrap();
        make_others(&root);
        root.sync_all().unwrap();
        drop(root);
        let device = crashed_without_a_leaf(lab, link.number, EXTENT_DATA);
        let fs = opened(&device, what).unwrap();
        assert!(matches!(fs.root().lookup(b"link"), Err(Error::NotFound)), "{what:?}");
        assert_eq!(fs.root().lookup(b"short").unwrap().read_link().unwrap(), b"old");
        assert_eq!(fs.root().entries().count(), 2 + OTHERS);
        let replayed = fs.replayed().unwrap();
        let [file] = &replayed.incomplete[..] else { panic!("{replayed:?}") };
        assert_eq!((file.inode, file.size, file.is_partial), (link, TARGET as u64, false));
        let [missing] = &file.missing[..] else { panic!("{file:?}") };
        assert_eq!(*missing, 0..TARGET as u64);
        fs.close().unwrap();
        check(&device);
        let fs = opened(&device, PendingLog::Replay).unwrap();
        assert_eq!(fs.root().entries().count(), 2 + OTHERS);
    }
}

#[test]
fn contents_whose_checksums_are_unreadable_are_left_out() {
    let (lab, numbers, _) = with_pieces();
    let device = crashed_without_a_leaf(lab, u64::MAX - 9, CSUM);
    let fs = opened(&device, PendingLog::Salvage).unwrap();
    let incomplete = &fs.replayed().unwrap().incomplete;
    let numbers_found: Vec<_> = incomplete.iter().map(|file| file.inode.number).collect();
    // The extents of the first file are in other leaves.
    assert!(numbers_found.contains(&numbers[0]), "{incomplete:?}");
    for (number, name, before) in [(numbers[0], "old", &b"old"[..]), (numbers[1], "new", b"")] {
        let is_incomplete = incomplete.iter().any(|file| file.inode.number == number);
        assert_eq!(fs.read(name).unwrap() == before, is_incomplete, "{name}");
    }
    fs.close().unwrap();
    check(&device);
}

/// The image of a crash with a log, whose primary superblock is damaged at an offset.
fn crashed_with_superblock(at: usize) -> Arc<MemoryDevice> {
    let lab = lab();
    lab.fs.commit().unwrap();
    let file = lab.create("file");
    file.write_at(b"content", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    lab.fs.abandon();
    let mut image = lab.device.snapshot();
    image[0x1_0000 + at] ^= 1;
    Arc::new(MemoryDevice::from_bytes(image))
}

#[test]
fn log_in_a_damaged_superblock_is_found_by_a_salvage() {
    const LABEL: usize = 0x12b;
    let device = crashed_with_superblock(LABEL);
    let read =
        OpenOptions::new().open_devices(vec![Arc::clone(&device) as Arc<dyn Device>]).unwrap();
    assert!(matches!(read.metadata("file"), Err(PathError { error: Error::NotFound, .. })));
    let said = read.warnings()[0].to_string();
    assert!(said.contains("a log that was pending is not replayed"), "{said}");
    drop(read);
    let refused = opened(&device, PendingLog::Replay).map(drop).unwrap_err();
    assert!(refused.to_string().contains("a log that was pending may be lost"), "{refused}");
    let fs = opened(&device, PendingLog::Salvage).unwrap();
    assert_eq!(fs.read("file").unwrap(), b"content");
    fs.close().unwrap();
    assert_eq!(opened(&device, PendingLog::Replay).unwrap().warnings(), []);
    check(&device);
}

/// Each field that a log depends on, and the magic number, which it does not.
#[test]
fn log_in_a_damaged_superblock_is_not_guessed() {
    let fields = [("fsid", 0x20), ("generation", 0x48), ("root", 0x50), ("chunk root", 0x58)];
    let log = [("log root", 0x60), ("log root", 0x61), ("level", 0xc8)];
    for (field, at) in fields.into_iter().chain(log) {
        let device = crashed_with_superblock(at);
        let before = device.snapshot();
        let refused = opened(&device, PendingLog::Salvage).map(drop);
        assert!(matches!(refused, Err(Error::Open(_))), "{field}: {refused:?}");
        assert!(device.snapshot() == before, "{field}: it was written to");
    }
    let device = crashed_with_superblock(0x40);
    assert_eq!(opened(&device, PendingLog::Salvage).unwrap().read("file").unwrap(), b"content");
}
