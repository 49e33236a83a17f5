//! Logs of which a part cannot be read.

use userbtrfs_format::TreeId;

use super::*;

/// Bytes of a tree block.
const NODE: usize = 4096;
/// The number of files created after the inodes under test, so that they are in other log blocks.
const OTHERS: usize = 150;

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
    assert!(matches!(opened(device, PendingLog::Replay), Err(Error::Read(_))));
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
        assert!(matches!(fs.metadata("/dir/before"), Err(Error::NotFound)));
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
        assert!(matches!(ended, Err(Error::Read(_))), "{what:?}: {ended:?}");
        assert!(device.snapshot() == before, "{what:?}: it was written to");
    }
}
