//! Filesystems that are full.

use userbtrfs_mkfs::Profile;

use super::*;

/// Writes a file until nothing fits any more; returns its size.
pub(super) fn fill(lab: &Lab, name: &str) -> u64 {
    let file = lab.create(name);
    let bytes = pattern(1, 1 << 20);
    let mut end = 0;
    loop {
        match file.write_at(&bytes, end) {
            Ok(written) => end += written as u64,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error}");
                return end;
            }
        }
    }
}

#[test]
fn a_filesystem_is_filled_to_the_last_sector_deleted_and_filled_again() {
    let mut lab = Lab::of(128 << 20, &Options::default(), 32 << 20);
    let mut first = None;
    for _ in 0..3 {
        let written = fill(&lab, "large");
        let small = lab.create("small");
        assert!(matches!(small.write_at(&[1; 5000], 0), Err(Error::NoSpace)));
        drop(small);
        lab = lab.reopened();
        assert_eq!(lab.file("large").len(), written);
        let before = *first.get_or_insert(written);
        assert!(written.abs_diff(before) <= 1 << 20, "{written} and {before} bytes");
        let expected = pattern(1, 1 << 20);
        let mut reader = lab.file("large").reader();
        let mut at = 0_usize;
        while let Some(chunk) = reader.next_chunk().unwrap() {
            let bytes = chunk.bytes().unwrap();
            assert!(bytes.iter().zip(at..).all(|(byte, at)| *byte == expected[at % (1 << 20)]));
            at += bytes.len();
        }
        lab.fs.remove_file("large").unwrap();
        lab.fs.remove_file("small").unwrap();
    }
    lab.close();
}

#[test]
fn overwrite_in_place_succeeds_on_full_filesystem() {
    let lab = Lab::of(128 << 20, &Options::default(), 32 << 20);
    let in_place = lab.fs.root().create(b"in place", 0o644).unwrap();
    in_place.set_flags(InodeFlags::NODATACOW).unwrap();
    let in_place = in_place.open().unwrap();
    in_place.write_at(&vec![1; 100_000], 0).unwrap();
    let ahead = lab.create("ahead");
    ahead.allocate(0, 100_000, Allocate::Reserve { keep_size: true }).unwrap();
    lab.fs.commit().unwrap();
    fill(&lab, "large");
    assert_eq!(in_place.write_at(&vec![2; 50_000], 20_000).unwrap(), 50_000);
    assert_eq!(ahead.write_at(&vec![3; 100_000], 0).unwrap(), 100_000);
    assert!(matches!(ahead.write_at(&[3; 10], 200_000), Err(Error::NoSpace)));
    let large = lab.file("large");
    assert!(matches!(large.write_at(&vec![2; 50_000], 20_000), Err(Error::NoSpace)));
    large.set_len(1 << 20).unwrap();
    assert_eq!(large.write_at(&vec![2; 50_000], 20_000).unwrap(), 50_000);
    drop((in_place, ahead, large));
    let lab = lab.reopened();
    let expected = [vec![1; 20_000], vec![2; 50_000], vec![1; 30_000]].concat();
    assert!(lab.fs.read("in place").unwrap() == expected);
    assert!(lab.fs.read("ahead").unwrap() == vec![3; 100_000]);
    lab.close();
}

#[test]
fn write_is_short_and_append_fails_when_space_runs_out() {
    let lab = Lab::of(128 << 20, &Options::default(), 32 << 20);
    let filled = fill(&lab, "large");
    let large = lab.file("large");
    let size = filled - (300 << 10);
    large.set_len(size).unwrap();
    let appended = large.append(&pattern(2, 1 << 20));
    assert!(matches!(appended, Err(Error::NoSpace)), "{appended:?}");
    assert_eq!(large.len(), size);
    let written = large.write_at(&pattern(3, 1 << 20), size).unwrap();
    assert!(written > 0 && written < 1 << 20, "{written} bytes");
    assert_eq!(large.len(), size + written as u64);
    let mut read = vec![0; written];
    large.read_at(&mut read, size).unwrap();
    assert!(read == pattern(3, 1 << 20)[..written]);
    drop(large);
    lab.close();
}

#[test]
fn punch_of_less_than_a_sector_without_free_metadata_succeeds_or_changes_nothing() {
    let lab = Lab::of(128 << 20, &Options::default(), 32 << 20);
    let file = lab.create("file");
    file.write_at(&[1; 4000], 0).unwrap();
    lab.fs.commit().unwrap();
    file.write_at(&[2; 4000], 0).unwrap();
    let space = lab.fs.inner.transactions.as_ref().unwrap().space();
    let mut held = Vec::new();
    for bytes in [1 << 20, 1 << 17, 1 << 15, 1 << 12] {
        held.extend(std::iter::from_fn(|| space.reserve(bytes).ok()));
    }
    let punched = file.allocate(100, 200, Allocate::PunchHole);
    let mut expected = [2; 4000];
    match &punched {
        Ok(()) => expected[100..300].fill(0),
        Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
    }
    assert!(file.read_all().unwrap() == expected, "{punched:?}");
    drop((held, file));
    lab.close();
}

#[test]
fn allocating_more_than_there_is_changes_nothing() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_at(&vec![1; 10_000], 0).unwrap();
    for what in [
        Allocate::Reserve { keep_size: false },
        Allocate::ZeroRange { keep_size: false },
        Allocate::ZeroRange { keep_size: true },
    ] {
        assert!(matches!(file.allocate(0, 1 << 40, what), Err(Error::NoSpace)), "{what:?}");
        assert_eq!(file.len(), 10_000);
        assert!(lab.fs.read("file").unwrap() == [1; 10_000], "{what:?}");
    }
    drop(file);
    lab.close();
}

#[test]
fn preallocation_over_dirty_data_uses_its_reserved_space() {
    let lab = Lab::of(128 << 20, &Options::default(), 256 << 20);
    let reserve = Allocate::Reserve { keep_size: true };
    lab.create("spare").allocate(0, 12 << 20, reserve).unwrap();
    fill(&lab, "large");
    lab.fs.remove_file("spare").unwrap();
    lab.fs.commit().unwrap();
    let file = lab.create("file");
    file.write_at(&pattern(2, 8 << 20), 0).unwrap();
    file.allocate(0, 8 << 20, reserve).unwrap();
    file.allocate(0, 12 << 20, reserve).unwrap();
    assert!(matches!(file.allocate(0, 13 << 20, reserve), Err(Error::NoSpace)));
    drop(file);
    let lab = lab.reopened();
    assert!(lab.fs.read("file").unwrap() == pattern(2, 8 << 20));
    lab.close();
}

/// Creates small files until there is no space for the metadata of one more; returns how many.
pub(super) fn fill_metadata(lab: &Lab) -> usize {
    let value = [7; 3000];
    let make = |at: usize| {
        let file = lab.fs.root().create(format!("small {at}").as_bytes(), 0o644)?;
        file.set_xattr(b"user.much", &value, XattrMode::Create)
    };
    for at in 0.. {
        if let Err(error) = make(at) {
            assert!(matches!(error, Error::NoSpace), "{error}");
            return at;
        }
    }
    unreachable!("a filesystem that is never full")
}

/// Changing an existing item needs no space.
#[test]
fn attributes_and_truncation_need_no_free_metadata() {
    let lab = Lab::of(128 << 20, &Options::default(), 256 << 20);
    lab.create("file").write_at(&pattern(1, 100_000), 0).unwrap();
    lab.fs.commit().unwrap();
    let made = fill_metadata(&lab);
    let at = |seconds| Timestamp { sec: seconds, nsec: 0 };
    let file = lab.file("file");
    let cut = |size, seconds| Attributes {
        size: Some(size),
        modified: Some(at(seconds)),
        changed: Some(at(seconds)),
        ..Attributes::default()
    };
    for (size, seconds) in [(50_000, 1), (0, 2)] {
        file.inode().set_attributes(&cut(size, seconds)).unwrap();
        assert_eq!(file.len(), size);
    }
    for number in 0..made {
        let small = lab.fs.root().lookup(format!("small {number}").as_bytes()).unwrap();
        let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
        small.set_attributes(&mode).unwrap();
    }
    // That leaves enough space for removal.
    for number in 0..made {
        lab.fs.remove_file(format!("small {number}")).unwrap();
    }
    drop(file);
    let lab = lab.reopened();
    let metadata = lab.file("file").inode().metadata().unwrap();
    assert_eq!((metadata.size, metadata.modified), (0, at(2)));
    lab.close();
}

/// The extents of each file are in nearly all leaves of the extent tree: deleting a file changes
/// them all.
#[test]
fn file_scattered_over_the_extent_tree_is_deleted_without_space() {
    let lab = Lab::of(256 << 20, &Options { nodesize: 4096, ..Options::default() }, 64 << 20);
    let files: Vec<_> = (0..40).map(|number| lab.create(&format!("file {number}"))).collect();
    for round in 0..700 {
        for file in &files {
            file.write_at(&pattern(round, 4096), round * 8192).unwrap();
        }
        lab.fs.commit().unwrap();
    }
    drop(files);
    fill(&lab, "large");
    fill_metadata(&lab);
    for number in (0..40).step_by(5) {
        lab.fs.remove_file(format!("file {number}")).unwrap();
        lab.fs.commit().unwrap();
    }
    lab.close();
}

/// The reserve for the commit is only a part of a small metadata space, however large its blocks.
#[test]
fn full_filesystem_with_large_blocks_and_little_metadata_can_be_emptied() {
    let options = Options { nodesize: 65536, metadata: Profile::Single, ..Options::default() };
    let lab = Lab::of(128 << 20, &options, 256 << 20);
    for number in 0..20 {
        let file = lab.create(&format!("file {number}"));
        for at in 0..10 {
            file.write_at(&pattern(at, 4096), at * 8192).unwrap();
        }
    }
    lab.fs.commit().unwrap();
    fill(&lab, "large");
    let made = fill_metadata(&lab);
    for number in 0..20 {
        lab.fs.remove_file(format!("file {number}")).unwrap();
    }
    for number in 0..made {
        lab.fs.remove_file(format!("small {number}")).unwrap();
    }
    lab.fs.remove_file("large").unwrap();
    lab.fs.commit().unwrap();
    lab.close();
}
