//! The API for servers of a filesystem.

use super::*;

#[test]
fn new_inode_belongs_to_the_given_owner() {
    let lab = Lab::new();
    let dir = lab.fs.root().for_owner(7, 8);
    let owner = |inode: &Inode| {
        let metadata = inode.metadata().unwrap();
        (metadata.uid, metadata.gid)
    };
    assert_eq!(owner(&dir.create(b"file", 0o600).unwrap()), (7, 8));
    assert_eq!(owner(dir.create_dir(b"dir", 0o700).unwrap().inode()), (7, 8));
    assert_eq!(owner(&dir.create_unnamed(0o600).unwrap()), (7, 8));
    assert_eq!(owner(&lab.fs.root().create(b"other", 0o600).unwrap()), (0, 0));
    lab.close();
}

#[test]
fn a_directory_is_listed_in_parts() {
    let lab = Lab::new();
    let root = lab.fs.root();
    let names: Vec<Vec<u8>> = (0..50).map(|n| format!("file{n}").into_bytes()).collect();
    for name in &names {
        root.create(name, 0o600).unwrap();
    }
    let lab = lab.reopened();
    let root = lab.fs.root();
    let mut found = Vec::new();
    let mut next = Some(0);
    while let Some(position) = next {
        let (entries, after) = root.list(position, 7).unwrap();
        assert!(entries.len() <= 8, "{}", entries.len());
        for entry in &entries {
            assert_eq!(entry.target(), root.follow(entry).unwrap().id());
            found.push(entry.name().to_vec());
        }
        next = after;
        // An entry added meanwhile is listed at most once.
        if found.len() == 49 {
            root.create(b"late", 0o600).unwrap();
        }
    }
    let late = found.iter().filter(|name| *name == b"late").count();
    assert!(late <= 1);
    found.retain(|name| name != b"late");
    assert_eq!(found, names);
    lab.close();
}

/// Lists the entries that exist at first, although each is renamed as it is listed: with all names
/// in memory, or with none.
#[test]
fn entries_come_to_an_end_while_they_are_renamed() {
    const COUNT: usize = 5000;
    let mut lab = Lab::new();
    for number in 0..COUNT {
        lab.fs.root().create(format!("file{number}").as_bytes(), 0o600).unwrap();
    }
    for _ in 0..2 {
        let root = lab.fs.root();
        for (before, entry) in root.entries().enumerate() {
            assert!(before < COUNT, "it goes on and on");
            let entry = entry.unwrap();
            let new = [entry.name(), b"x"].concat();
            root.rename(entry.name(), &root, &new, RenameMode::Replace).unwrap();
        }
        assert_eq!(root.entries().count(), COUNT);
        lab = lab.reopened();
    }
    lab.close();
}

#[test]
fn ranges_are_copied_as_far_as_they_go() {
    let lab = Lab::new();
    let from = lab.create("from");
    let to = lab.create("to");
    let bytes = pattern(3, (2 << 20) + 100);
    from.write_all_at(&bytes, 0).unwrap();
    let length = bytes.len() as u64;
    assert_eq!(to.copy_from(&from, 10, 5, u64::MAX).unwrap(), length - 10);
    let found = to.read_all().unwrap();
    assert!(found[..5] == [0; 5] && found[5..] == bytes[10..]);
    assert_eq!(to.copy_from(&from, length, 0, 1).unwrap(), 0);
    assert_eq!(from.copy_from(&from, 0, 1 << 20, 100).unwrap(), 100);
    assert!(from.read_all().unwrap()[1 << 20..][..100] == bytes[..100]);
    lab.close();
}

#[test]
fn copy_of_overlapping_ranges_is_invalid_and_changes_nothing() {
    let lab = Lab::new();
    let file = lab.create("file");
    let other = lab.create("other");
    let bytes = pattern(3, 10_000);
    file.write_all_at(&bytes, 0).unwrap();
    let again = lab.file("file");
    for (from, to, len) in [(0, 0, 1), (0, 9, 10), (9, 0, 10), (5_000, 9_999, u64::MAX)] {
        let copied = file.copy_from(&again, from, to, len);
        assert!(matches!(copied, Err(Error::Invalid(_))), "{from} {to} {len}: {copied:?}");
    }
    assert!(file.read_all().unwrap() == bytes);
    // Within the size of the file they do not overlap.
    assert_eq!(file.copy_from(&again, 5_000, 10_000, u64::MAX).unwrap(), 5_000);
    assert_eq!(file.copy_from(&again, 15_000, 15_000, 1).unwrap(), 0);
    assert_eq!(other.copy_from(&file, 0, 0, u64::MAX).unwrap(), 15_000);
    lab.close();
}

#[test]
fn write_back_of_cached_data_keeps_times() {
    let lab = Lab::new();
    let file = lab.create("file");
    let times = Timestamp { sec: -5, nsec: 7 };
    let modified = Some(times);
    let changed = Some(times);
    let attributes = Attributes { modified, changed, ..Attributes::default() };
    file.inode().set_attributes(&attributes).unwrap();
    let shown = |file: &File| {
        let metadata = file.inode().metadata().unwrap();
        (metadata.modified, metadata.changed)
    };
    // Also if it extends the file.
    assert_eq!(file.write_back_at(b"kept", 0).unwrap(), 4);
    file.sync_all().unwrap();
    assert_eq!(file.write_back_at(&[1; 10_000], 4).unwrap(), 10_000);
    assert_eq!(shown(&file), (times, times));
    let file = file.keeping_times();
    for (offset, len, what) in [
        (100, 5000, Allocate::ZeroRange { keep_size: true }),
        (10, 20, Allocate::PunchHole),
        (0, 9000, Allocate::PunchHole),
        (0, 10_004, Allocate::Reserve { keep_size: false }),
        (10_000, 1 << 20, Allocate::Reserve { keep_size: true }),
    ] {
        file.allocate(offset, len, what).unwrap();
        assert_eq!(shown(&file), (times, times), "{what:?}");
    }
    let other = lab.create("other");
    other.write_at(b"copied", 0).unwrap();
    assert_eq!(file.copy_from(&other, 0, 9998, 6).unwrap(), 6);
    assert_eq!(shown(&file), (times, times));
    drop((file, other));
    let lab = lab.reopened();
    assert_eq!(shown(&lab.file("file")), (times, times));
    assert_eq!(lab.fs.metadata("/file").unwrap().size, 10_004);
    lab.file("file").write_at(b"now", 0).unwrap();
    assert!(shown(&lab.file("file")).0 > times);
    lab.close();
}

#[test]
fn cached_data_is_held_without_reading() {
    let lab = Lab::new();
    let file = lab.create("file");
    let bytes = pattern(4, 200_000);
    file.write_all_at(&bytes, 0).unwrap();
    assert!(*file.held(5000).unwrap() == bytes[5000..][..file.held(5000).unwrap().len()]);
    assert_eq!(&*file.held(199_999).unwrap(), &bytes[199_999..]);
    assert!(file.held(200_000).is_none() && file.held(u64::MAX).is_none());
    drop(file);
    let lab = lab.reopened();
    let file = lab.file("file");
    assert!(file.held(0).is_none());
    file.read_all().unwrap();
    file.read_at(&mut [0; 10], 0).unwrap();
    assert!(file.held(0).is_some());
    lab.close();
}

#[test]
fn dirty_bytes_are_reported_as_unfinished() {
    let lab = Lab::new();
    let file = lab.create("file");
    let told = || {
        let metadata = file.inode().metadata().unwrap();
        (metadata.allocated, metadata.unfinished)
    };
    assert_eq!(told(), (0, 0));
    file.write_all_at(&[1; 10_000], 0).unwrap();
    assert_eq!(told(), (0, 12_288));
    file.write_all_at(&[1; 10_000], 12_288).unwrap();
    file.sync_all().unwrap();
    assert_eq!(told(), (24_576, 0));
    file.write_all_at(&[1; 10_000], 0).unwrap();
    assert_eq!(told(), (24_576, 12_288));
    lab.close();
}

#[test]
fn space_that_is_left_is_what_can_be_written() {
    for options in [Options::default(), Options::mixed()] {
        let lab = Lab::of(256 << 20, &options, 32 << 20);
        let before = lab.fs.space_left().unwrap();
        assert!(before.available <= before.free && before.free < before.total);
        let file = lab.create("file");
        file.write_all_at(&vec![1; 16 << 20], 0).unwrap();
        let promised = lab.fs.space_left().unwrap();
        assert!(promised.available <= before.available - (16 << 20));
        lab.fs.commit().unwrap();
        let written = lab.fs.space_left().unwrap();
        let taken = before.available - written.available;
        assert!((16 << 20..24 << 20).contains(&taken), "{taken}");
        drop(file);
        let Lab { device, fs, .. } = lab;
        fs.close().unwrap();
        let reader = OpenOptions::new().open_devices(vec![device]).unwrap();
        let read = reader.space_left().unwrap();
        assert!(read.available.abs_diff(written.available) < 4 << 20, "{read:?} {written:?}");
        assert_eq!(read.total, written.total);
    }
}

/// The start of the device is reserved, so that no space is left when files find none.
#[test]
fn full_filesystem_has_no_space_left() {
    let lab = Lab::of(256 << 20, &Options::default(), 32 << 20);
    let file = lab.create("file");
    let mut size = 0;
    while file.write_all_at(&vec![1; 4096], size).is_ok() {
        size += 4096;
    }
    lab.fs.commit().unwrap();
    assert_eq!(lab.fs.space_left().unwrap().available, 0);
    drop(file);
    let Lab { device, fs, .. } = lab;
    fs.close().unwrap();
    let reader = OpenOptions::new().open_devices(vec![device]).unwrap();
    // A read-only filesystem ignores the space that copies of the superblock take.
    assert!(reader.space_left().unwrap().available <= 64 << 10);
}

/// The kernel writes back its cache page by page, in any order, and repeats earlier data.
#[test]
fn write_back_to_append_only_file_keeps_existing_bytes() {
    let lab = Lab::new();
    let file = lab.create("log");
    file.write_at(b"there", 0).unwrap();
    let inode = file.inode().clone();
    inode.set_flags(InodeFlags::APPEND).unwrap();
    let file = inode.open().unwrap();
    assert_eq!(file.write_back_at(b"there, and more", 0).unwrap(), 15);
    assert_eq!(file.write_back_at(&[1; 9000], 12_288).unwrap(), 9000);
    let late = [b"there, and more", &[2; 12_273][..]].concat();
    assert_eq!(file.write_back_at(&late, 0).unwrap(), 12_288);
    let found = file.read_all().unwrap();
    assert!(found == [&late[..], &[1; 9000]].concat());
    for (other, offset) in [(&b"these"[..], 0), (&b"x"[..], 12_287), (&[1; 9999], 12_287)] {
        let refused = file.write_back_at(other, offset);
        assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
    }
    assert!(file.read_all().unwrap() == found);
    inode.set_flags(InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(file.write_back_at(b"there", 0), Err(Error::NotPermitted)));
    drop((file, inode));
    lab.close();
}

#[test]
fn attribute_that_no_kernel_reads_is_refused() {
    let lab = Lab::new();
    let inode = lab.create("file").inode().clone();
    for name in ["foo", "user", "system.foo"] {
        let set = inode.set_xattr(name.as_bytes(), b"1", XattrMode::Either);
        assert!(matches!(set, Err(Error::Unsupported(_))), "{name}");
    }
    for name in ["user.", "security.", "trusted.", "system.posix_acl_access"] {
        let set = inode.set_xattr(name.as_bytes(), b"1", XattrMode::Either);
        assert!(matches!(set, Err(Error::Invalid(_))), "{name}");
    }
    assert!(inode.xattrs().unwrap().is_empty());
    inode.set_xattr(b"security.any", b"1", XattrMode::Either).unwrap();
    drop(inode);
    lab.close();
}

#[test]
fn touch_of_append_only_inode_succeeds_and_of_immutable_one_fails() {
    let lab = Lab::new();
    let inode = lab.create("file").inode().clone();
    let before = inode.metadata().unwrap().changed;
    let at = Timestamp { sec: before.sec + 1000, nsec: 7 };
    let late = Timestamp { sec: before.sec + 2000, nsec: 0 };
    inode.set_flags(InodeFlags::APPEND).unwrap();
    inode.touch(at, late).unwrap();
    let after = inode.metadata().unwrap();
    assert_eq!((after.accessed, after.modified), (at, late));
    assert!(after.changed >= before);
    inode.set_flags(InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(inode.touch(before, before), Err(Error::NotPermitted)));
    assert_eq!(inode.metadata().unwrap().modified, late);
    drop(inode);
    lab.close();
}

/// A caller that caches the times of a change sets them after flags may have forbidden later
/// changes.
#[test]
fn times_of_earlier_allowed_changes_can_be_set_despite_flags() {
    let lab = Lab::new();
    let inode = lab.create("file").inode().clone();
    let early = inode.metadata().unwrap().changed;
    let late = Timestamp { sec: early.sec + 1000, nsec: 0 };
    let of_content =
        |at| Attributes { modified: Some(at), changed: Some(at), ..Attributes::default() };
    let is_refused = |set: &Attributes| match inode.set_attributes(set) {
        Err(Error::NotPermitted) => true,
        done => done.map(|()| false).unwrap(),
    };
    inode.set_flags(InodeFlags::IMMUTABLE).unwrap();
    assert!(is_refused(&of_content(late)));
    assert!(!is_refused(&of_content(early)));
    inode.set_flags(InodeFlags::APPEND).unwrap();
    assert!(!is_refused(&of_content(late)));
    assert_eq!(inode.metadata().unwrap().modified, late);
    for other in [
        Attributes { changed: None, ..of_content(late) },
        Attributes { accessed: Some(late), ..of_content(late) },
        Attributes { mode: Some(0o600), ..of_content(late) },
    ] {
        assert!(is_refused(&other), "{other:?}");
    }
    drop(inode);
    lab.close();
}
