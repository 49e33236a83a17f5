//! Logs of which a part cannot be read.

use userbtrfs_format::TreeId;

use super::*;

/// Bytes of a tree block.
const NODE: usize = 4096;
/// Files that are made after what is looked at: they are in other blocks of the log.
const OTHERS: usize = 150;

fn lab() -> Lab {
    Lab::of(128 << 20, &Options { nodesize: 4096, ..Options::default() }, 32 << 20)
}

fn make_others(dir: &Dir) -> Vec<u64> {
    let make = |number: usize| dir.create(format!("other {number}").as_bytes(), 0o644).unwrap();
    (0..OTHERS).map(|number| make(number).id().number).collect()
}

/// The numbers of the inodes whose items are in a block, where that is a leaf of a tree.
fn inodes_in(block: &[u8], tree: TreeId) -> Vec<u64> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let count = u32::from_le_bytes(block[0x60..0x64].try_into().unwrap());
    let is_leaf = word(0x58) == tree.0 && block[0x64] == 0;
    let slots = 0..if is_leaf { count as usize } else { 0 };
    slots.map(|slot| word(0x65 + 25 * slot)).collect()
}

/// What a crash leaves, but that no leaf of a tree can be read that has items of an inode.
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

/// Salvages; shows the filesystem, which is sound. Something was left out, and something was not.
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
fn what_was_replaced_stays_where_its_successor_cannot_be_read() {
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
fn what_was_renamed_stays_where_its_names_cannot_be_read() {
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
fn attributes_stay_that_may_be_in_what_cannot_be_read() {
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

/// What is elsewhere in the log cannot be read: the name is taken from where the directory was.
#[test]
fn a_directory_that_was_renamed_is_in_one_place() {
    let lab = lab();
    let dir = lab.fs.create_dir("/dir", 0o755).unwrap();
    dir.create_dir(b"before", 0o755).unwrap().create(b"file", 0o644).unwrap();
    lab.fs.commit().unwrap();
    // After a move to another directory a sync would be a commit.
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
fn damage_that_is_not_of_the_log_ends_a_replay() {
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
