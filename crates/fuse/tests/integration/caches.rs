//! Tests of the kernel's caches and their invalidation.

use std::fs;
use std::io::Read;

use userbtrfs_fuse::{Caller, Entry, Invalidation, Name, NodeId};

use crate::harness::Mounted;
use crate::sparse::Sparse;
use crate::tree::Content;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// Returns the node of a name in the root.
fn node(mounted: &Mounted, text: &str) -> NodeId {
    let lines = mounted.memory.with(|tree| tree.list(NodeId::ROOT, 2)).unwrap();
    NodeId(lines.iter().find(|line| line.name == text.as_bytes()).unwrap().node)
}

/// Makes a file without the kernel's knowledge.
fn make_behind(mounted: &Mounted, text: &str) {
    let caller = Caller { uid: 0, gid: 0, pid: 0, group_of_parent: None };
    let content = Content::File(Sparse::default());
    let make = |tree: &mut crate::tree::Tree| {
        tree.make(NodeId::ROOT, name(text), 0o100_644, &caller, content).unwrap()
    };
    mounted.memory.with(make);
}

#[test]
fn contents_are_cached_until_invalidated() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, "old").unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let file = node(&mounted, "file");
    mounted.memory.with(|tree| tree.file_mut(file).unwrap().write(0, b"new"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    let stale = Invalidation::Contents { offset: 0, length: None };
    assert!(mounted.memory.notifier().invalidate_inode(file, stale).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert!(!mounted.session.notifier().invalidate_inode(NodeId(999), stale).unwrap());
}

#[test]
fn files_are_read_ahead_further_than_by_default() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![7; 8 << 20]).unwrap();
    let all = Invalidation::Contents { offset: 0, length: None };
    mounted.session.notifier().invalidate_inode(node(&mounted, "file"), all).unwrap();
    // The program reads small pieces: any larger request is readahead.
    let mut file = fs::File::open(&path).unwrap();
    let mut piece = vec![0; 16 << 10];
    while file.read(&mut piece).unwrap() > 0 {
        assert!(piece == vec![7; 16 << 10]);
    }
    let largest = mounted.memory.seen.change(|state| state.largest_read);
    assert!(largest > 128 << 10, "{largest}");
}

#[test]
fn attributes_are_cached_until_invalidated() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("directory");
    fs::create_dir(&path).unwrap();
    let directory = node(&mounted, "directory");
    let is_private = || fs::metadata(&path).unwrap().permissions().readonly();
    assert!(!is_private());
    mounted.memory.with(|tree| tree.node_mut(directory).unwrap().attributes.mode = 0o040_555);
    assert!(!is_private());
    assert!(
        mounted.session.notifier().invalidate_inode(directory, Invalidation::Attributes).unwrap()
    );
    assert!(is_private());
}

#[test]
fn absent_name_is_cached_until_invalidated() {
    let Some(mounted) = Mounted::new() else { return };
    for (text, expire) in [("one", false), ("two", true)] {
        assert!(!mounted.path(text).exists());
        make_behind(&mounted, text);
        assert!(!mounted.path(text).exists());
        let notifier = mounted.session.notifier();
        assert!(notifier.invalidate_entry(NodeId::ROOT, name(text), expire).unwrap());
        assert!(mounted.path(text).exists());
    }
}

#[test]
fn deleted_name_is_absent_after_its_notification() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), "x").unwrap();
    let file = node(&mounted, "file");
    mounted.memory.with(|tree| tree.remove(NodeId::ROOT, name("file"), false).unwrap());
    assert!(mounted.path("file").exists());
    let notifier = mounted.session.notifier();
    assert!(notifier.delete(NodeId::ROOT, file, name("file")).unwrap());
    assert!(!mounted.path("file").exists());
    assert_eq!(Entry::absent(std::time::Duration::ZERO).node, NodeId(0));
}
