//! Filesystems that are shut down.

use super::*;

/// Returns a filesystem with files of each state: committed, synced, and only written.
fn lab() -> Lab {
    let lab = Lab::new();
    lab.create("committed").write_at(&[1; 10_000], 0).unwrap();
    lab.fs.commit().unwrap();
    let synced = lab.create("synced");
    synced.write_at(&[2; 10_000], 0).unwrap();
    synced.sync_all().unwrap();
    lab.create("written").write_at(&[3; 10_000], 0).unwrap();
    lab
}

/// Shuts it down; then no change is written, whatever is tried. Returns what is left.
fn shut_down(lab: Lab, first: Shutdown) -> Lab {
    lab.fs.shutdown(first).unwrap();
    let left = lab.device.snapshot();
    assert!(lab.fs.is_shut_down());
    every_change_fails(&lab);
    lab.fs.shutdown(Shutdown::Sync).unwrap();
    assert!(lab.fs.read("synced").unwrap() == [2; 10_000]);
    let Lab { device, memory, fs } = lab;
    assert_eq!(fs.close().unwrap_err().errno(), 5);
    assert!(device.snapshot() == left, "something was written");
    check(&device);
    Lab::open(device, memory)
}

#[track_caller]
fn fails<T>(done: Result<T>) {
    assert_eq!(done.err().expect("nothing may be changed").errno(), 5);
}

fn every_change_fails(lab: &Lab) {
    let root = lab.fs.root();
    let file = lab.file("written");
    fails(file.write_at(b"x", 0));
    fails(file.write_at(&vec![4; 100_000], 1 << 20));
    fails(file.append(b"x"));
    fails(file.set_len(0));
    fails(file.allocate(0, 1 << 20, Allocate::Reserve { keep_size: false }));
    fails(file.sync_all());
    fails(lab.file("committed").sync_all());
    fails(root.create(b"new", 0o644));
    fails(root.create_dir(b"new", 0o755));
    fails(root.remove_file(b"written"));
    fails(root.inode().sync_all());
    fails(file.inode().set_xattr(b"user.x", b"y", XattrMode::Either));
    fails(file.inode().set_attributes(&Attributes { mode: Some(0o600), ..Attributes::default() }));
    fails(lab.fs.rename("/written", "/other").map_err(Error::from));
    fails(lab.fs.commit());
}

#[test]
fn shutdown_with_sync_keeps_everything() {
    let lab = shut_down(lab(), Shutdown::Sync);
    assert!(lab.fs.replayed().is_none());
    for (name, byte) in [("committed", 1), ("synced", 2), ("written", 3)] {
        assert!(lab.fs.read(name).unwrap() == [byte; 10_000], "{name}");
    }
    lab.close();
}

#[test]
fn shutdown_with_metadata_keeps_names_and_synced_data() {
    let lab = shut_down(lab(), Shutdown::Metadata);
    assert!(lab.fs.replayed().is_none());
    assert!(lab.fs.read("committed").unwrap() == [1; 10_000]);
    assert!(lab.fs.read("synced").unwrap() == [2; 10_000]);
    assert_eq!(lab.fs.metadata("written").unwrap().size, 0);
    lab.close();
}

#[test]
fn shutdown_without_sync_keeps_synced_data() {
    let lab = shut_down(lab(), Shutdown::Nothing);
    assert!(lab.fs.replayed().is_some());
    assert!(lab.fs.read("committed").unwrap() == [1; 10_000]);
    assert!(lab.fs.read("synced").unwrap() == [2; 10_000]);
    assert_eq!(lab.fs.metadata("written").unwrap_err().errno(), 2);
    lab.close();
}

/// Data written in place, or into preallocated space, would be visible to the next opener.
#[test]
fn shutdown_prevents_writes_in_place() {
    let lab = Lab::new();
    let file = lab.fs.root().create(b"file", 0o644).unwrap();
    file.set_flags(InodeFlags::NODATACOW).unwrap();
    let file = file.open().unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    lab.fs.commit().unwrap();
    file.write_at(&[2; 10_000], 0).unwrap();
    lab.fs.shutdown(Shutdown::Nothing).unwrap();
    let left = lab.device.snapshot();
    fails(file.sync_all());
    drop(file);
    let Lab { device, memory, fs } = lab;
    fails(fs.close());
    assert!(device.snapshot() == left);
    let lab = Lab::open(device, memory);
    assert!(lab.fs.read("file").unwrap() == [1; 10_000]);
    lab.close();
}

#[test]
fn shutdown_of_read_only_filesystem_does_nothing() {
    let Lab { device, fs, .. } = lab();
    fs.close().unwrap();
    let fs = OpenOptions::new().open_devices(vec![device]).unwrap();
    fs.shutdown(Shutdown::Sync).unwrap();
    assert!(!fs.is_shut_down() && fs.failure().is_none());
    assert!(fs.read("synced").unwrap() == [2; 10_000]);
}
