//! The view of a single writer, also after the image is opened again.

use userbtrfs_device::Buffer;

use super::*;

#[test]
fn written_data_is_visible_at_once_and_after_reopening() {
    let lab = Lab::of(128 << 20, &Options::default(), 128 << 20);
    let file = lab.create("file");
    let bytes = pattern(1, 3 << 20);
    assert_eq!(file.write_at(&bytes, 5).unwrap(), bytes.len());
    assert_eq!(file.len(), bytes.len() as u64 + 5);
    assert_eq!(file.read_all().unwrap()[5..], bytes);
    file.sync_all().unwrap();
    assert_eq!(file.read_all().unwrap()[5..], bytes);
    drop(file);
    let lab = lab.reopened();
    let found = lab.fs.read("/file").unwrap();
    assert!(found[..5] == [0; 5] && found[5..] == bytes);
    let extents = lab.file("file").extents().unwrap();
    assert_eq!(extents.len(), 1, "{extents:?}");
    assert_eq!(lab.fs.metadata("/file").unwrap().allocated, (3 << 20) + 4096);
    lab.close();
}

#[test]
fn file_leaves_the_tree_when_it_grows_and_returns_when_it_shrinks() {
    let mut lab = Lab::new();
    for (name, sizes) in [
        ("grows", [100, 2048, 2049, 5000]),
        ("shrinks", [2000, 700, 1, 0]),
        ("jumps", [300, 70_000, 200, 100]),
    ] {
        let file = lab.create(name);
        file.write_at(&pattern(7, sizes[0]), 0).unwrap();
        let mut expected = pattern(7, sizes[0]);
        file.sync_all().unwrap();
        drop(file);
        for size in sizes {
            let file = lab.file(name);
            file.set_len(size as u64).unwrap();
            expected.resize(size, 0);
            assert_eq!(file.read_all().unwrap(), expected);
            if size > 10 {
                file.write_at(b"edge", size as u64 - 4).unwrap();
                expected[size - 4..].copy_from_slice(b"edge");
            }
            drop(file);
            lab = lab.reopened();
            assert_eq!(lab.fs.read(name).unwrap(), expected, "{name} at {size}");
        }
    }
    let kinds = |name| lab.file(name).extents().unwrap().into_iter().map(|e| e.kind);
    assert!(!kinds("grows").any(|kind| kind == ExtentKind::Inline));
    lab.close();
}

#[test]
fn a_file_that_grows_by_a_direct_write_leaves_the_tree() {
    for (len, synced) in [(1, true), (100, false), (100, true), (2048, true)] {
        let lab = Lab::new();
        let file = lab.create("file");
        file.write_at(&pattern(7, len), 0).unwrap();
        if synced {
            file.sync_all().unwrap();
        }
        let bytes = pattern(8, 4096);
        file.write_direct(&Arc::new(Buffer::from(&bytes[..])), 0).unwrap();
        assert!(file.read_all().unwrap() == bytes, "{len}");
        drop(file);
        let lab = lab.reopened();
        assert!(lab.fs.read("file").unwrap() == bytes, "{len}, opened again");
        lab.close();
    }
}

/// The old bytes on disk beyond the end of a file are never visible.
#[test]
fn file_extended_after_truncation_reads_zeros() {
    let mut lab = Lab::new();
    lab.create("file").write_at(&[7; 10_000], 0).unwrap();
    for grown in [5_500, 8_192, 20_000] {
        lab = lab.reopened();
        let file = lab.file("file");
        file.set_len(5_000).unwrap();
        drop(file);
        lab = lab.reopened();
        let file = lab.file("file");
        file.set_len(grown).unwrap();
        let expected = [vec![7; 5_000], vec![0; usize::try_from(grown).unwrap() - 5_000]].concat();
        assert!(file.read_all().unwrap() == expected);
        drop(file);
        lab = lab.reopened();
        assert!(lab.fs.read("file").unwrap() == expected);
        lab.file("file").write_at(&[7; 10_000], 0).unwrap();
    }
    lab.close();
}

#[test]
fn a_small_file_is_in_the_tree_and_takes_no_space_for_data() {
    let lab = Lab::new();
    let before = lab.data_in_use();
    for number in 0..100 {
        lab.create(&format!("file {number}")).write_at(&pattern(number, 900), 0).unwrap();
    }
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), before);
    for number in 0..100 {
        let name = format!("file {number}");
        assert_eq!(lab.fs.read(&name).unwrap(), pattern(number, 900));
        assert_eq!(lab.file(&name).extents().unwrap()[0].kind, ExtentKind::Inline);
    }
    lab.close();
}

#[test]
fn file_reaches_the_largest_offset() {
    let lab = Lab::new();
    let file = lab.create("file");
    let last = i64::MAX as u64 - 3;
    assert_eq!(file.write_at(b"beyond", last).unwrap(), 3);
    assert_eq!(file.len(), i64::MAX as u64);
    assert!(matches!(file.write_at(b"x", i64::MAX as u64), Err(Error::FileTooLarge)));
    assert!(matches!(file.set_len(u64::MAX), Err(Error::FileTooLarge)));
    assert!(matches!(file.append(b"x"), Err(Error::FileTooLarge)));
    let punched = file.allocate(u64::MAX - 5, 4, Allocate::PunchHole);
    assert!(matches!(punched, Err(Error::FileTooLarge)));
    drop(file);
    let lab = lab.reopened();
    let file = lab.file("file");
    let mut read = [0; 9];
    assert_eq!(file.read_at(&mut read, last - 3).unwrap(), 6);
    assert_eq!(&read[..6], b"\0\0\0bey");
    assert_eq!(file.seek_data(0).unwrap(), last / 4096 * 4096);
    file.set_len(0).unwrap();
    assert_eq!(file.extents().unwrap(), []);
    drop(file);
    lab.close();
}

#[test]
fn dirty_data_is_data_for_seek_hole() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.set_len(100 << 10).unwrap();
    file.write_at(&[1; 4096], 8192).unwrap();
    file.write_at(&[1; 100], 40_000).unwrap();
    for _ in 0..2 {
        assert_eq!(file.seek_data(0).unwrap(), 8192);
        assert_eq!(file.seek_hole(8192).unwrap(), 12288);
        assert_eq!(file.seek_hole(0).unwrap(), 0);
        assert_eq!(file.seek_data(12288).unwrap(), 36864);
        assert!(matches!(file.seek_data(45_056), Err(Error::NoMoreData)));
        file.sync_all().unwrap();
    }
    drop(file);
    lab.close();
}

#[test]
fn direct_writes_and_buffered_ones_see_each_other() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_at(&vec![1; 20_000], 0).unwrap();
    let buffer = Arc::new(Buffer::from(&pattern(3, 8192)[..]));
    file.write_direct(&buffer, 4096).unwrap();
    let mut expected = vec![1; 20_000];
    expected[4096..12288].copy_from_slice(&buffer);
    assert_eq!(file.read_all().unwrap(), expected);
    file.write_at(b"over it", 5000).unwrap();
    expected[5000..5007].copy_from_slice(b"over it");
    let read = file.read_direct(4096, 4096).unwrap();
    assert_eq!(read[..], expected[4096..8192]);
    file.write_direct(&buffer, 20480).unwrap();
    expected.resize(20480, 0);
    expected.extend_from_slice(&buffer);
    assert_eq!(file.read_all().unwrap(), expected);
    assert!(matches!(file.write_direct(&buffer, 100), Err(Error::Invalid(_))));
    drop(file);
    let lab = lab.reopened();
    assert_eq!(lab.fs.read("file").unwrap(), expected);
    lab.close();
}

#[test]
fn a_slice_stays_as_it_is_and_memory_is_changed_in_place() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_at(&[1; 10_000], 0).unwrap();
    let slice = file.slice(100).unwrap().unwrap();
    assert_eq!(file.modify(50, 9000, |bytes| bytes.fill(2)).unwrap(), 9000);
    assert_eq!(file.modify(9_999, 5, |bytes| bytes.fill(3)).unwrap(), 1);
    assert!(slice.iter().all(|&byte| byte == 1));
    assert!(file.slice(10_000).unwrap().is_none());
    drop((slice, file));
    let lab = lab.reopened();
    let expected = [&[1; 50][..], &[2; 9000], &[1; 949], &[3]].concat();
    assert_eq!(lab.fs.read("file").unwrap(), expected);
    lab.close();
}

#[test]
fn preallocated_space_is_written_in_place() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_at(&[7; 5000], 0).unwrap();
    file.allocate(0, 1 << 20, Allocate::Reserve { keep_size: false }).unwrap();
    assert_eq!(file.len(), 1 << 20);
    lab.fs.commit().unwrap();
    let used = lab.data_in_use();
    file.write_at(&pattern(5, 100_000), 200_000).unwrap();
    drop(file);
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), used);
    let mut expected = vec![0; 1 << 20];
    expected[..5000].fill(7);
    expected[200_000..300_000].copy_from_slice(&pattern(5, 100_000));
    assert_eq!(lab.fs.read("file").unwrap(), expected);
    lab.close();
}

#[test]
fn flags_that_forbid_writing_do() {
    let lab = Lab::new();
    let inode = lab.fs.root().create(b"file", 0o644).unwrap();
    inode.set_flags(InodeFlags::APPEND).unwrap();
    let file = inode.open().unwrap();
    assert!(matches!(file.write_at(b"x", 0), Err(Error::NotPermitted)));
    assert!(matches!(file.set_len(3), Err(Error::NotPermitted)));
    assert_eq!(file.append(b"one").unwrap(), 0);
    assert_eq!(file.append(b"two").unwrap(), 3);
    assert_eq!(file.read_all().unwrap(), b"onetwo");
    inode.set_flags(InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(file.append(b"x"), Err(Error::NotPermitted)));
    drop((file, inode));
    lab.close();
}

#[test]
fn a_deleted_file_takes_its_dirty_data_along() {
    let lab = Lab::new();
    let used = lab.data_in_use();
    let file = lab.create("open");
    file.write_at(&pattern(1, 1 << 20), 0).unwrap();
    lab.create("closed").write_at(&pattern(2, 1 << 20), 0).unwrap();
    lab.fs.remove_file("/open").unwrap();
    lab.fs.remove_file("/closed").unwrap();
    assert_eq!(file.read_all().unwrap(), pattern(1, 1 << 20));
    file.write_at(b"still", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), used);
    lab.close();
}

#[test]
fn a_reader_keeps_the_file_that_it_reads() {
    let lab = Lab::new();
    let used = lab.data_in_use();
    let file = lab.create("file");
    file.write_at(&pattern(1, 1 << 20), 0).unwrap();
    let mut reader = file.reader();
    drop(file);
    lab.fs.remove_file("/file").unwrap();
    lab.fs.commit().unwrap();
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut content).unwrap();
    assert!(content == pattern(1, 1 << 20));
    drop(reader);
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), used);
    lab.close();
}

#[test]
fn a_file_that_grows_while_it_is_written_back_has_no_sector_in_two_extents() {
    let lab = Lab::of(128 << 20, &Options::default(), 4 << 20);
    let file = lab.create("log");
    let line = pattern(1, 5000);
    for _ in 0..1200 {
        file.append(&line).unwrap();
    }
    let extents = file.extents().unwrap();
    assert!(extents.len() > 1, "some of it was written before the rest came");
    let mut next = None;
    for extent in extents {
        let ExtentKind::Data { logical, disk_bytes, .. } = extent.kind else {
            panic!("{extent:?}")
        };
        assert_eq!(disk_bytes, extent.len.next_multiple_of(4096), "{extent:?}");
        assert!(next.is_none_or(|next| next == logical), "{extent:?} should be at {next:?}");
        next = Some(logical + disk_bytes);
    }
    assert!(file.read_all().unwrap().chunks(line.len()).all(|found| found == line));
    drop(file);
    lab.close();
}

#[test]
fn many_extents_are_changed_in_steps() {
    let lab = Lab::of(256 << 20, &Options::default(), 16 << 20);
    let file = lab.create("file");
    let mut expected = vec![0; 3000 * 8192 - 4096];
    for piece in 0..3000_u64 {
        let bytes = pattern(piece, 4096);
        file.write_at(&bytes, piece * 8192).unwrap();
        expected[usize::try_from(piece).unwrap() * 8192..][..4096].copy_from_slice(&bytes);
    }
    file.sync_all().unwrap();
    assert_eq!(file.extents().unwrap().len(), 5999);
    file.allocate(1_000_001, 15_000_000, Allocate::PunchHole).unwrap();
    expected[1_000_001..][..15_000_000].fill(0);
    assert!(file.read_all().unwrap() == expected);
    drop(file);
    let lab = lab.reopened();
    let file = lab.file("file");
    assert!(file.read_all().unwrap() == expected);
    file.set_len(70_000).unwrap();
    assert!(file.read_all().unwrap() == expected[..70_000]);
    file.set_len(20_000_000).unwrap();
    assert!(file.read_all().unwrap()[70_000..].iter().all(|byte| *byte == 0));
    drop(file);
    let lab = lab.reopened();
    assert_eq!(lab.fs.metadata("file").unwrap().allocated, 9 * 4096);
    lab.fs.remove_file("file").unwrap();
    lab.close();
}

#[test]
fn old_data_is_written_and_committed_in_the_background() {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    userbtrfs_mkfs::make(&*device, &Options::default()).unwrap();
    let devices = || vec![Arc::clone(&device) as Arc<dyn Device>];
    let mut options = OpenOptions::new();
    let fs = options.write(true).commit_seconds(1).open_devices(devices()).unwrap();
    let file = fs.root().create(b"file", 0o644).unwrap().open().unwrap();
    let bytes = pattern(1, 100_000);
    file.write_at(&bytes, 0).unwrap();
    for second in 0.. {
        let seen = OpenOptions::new().open_devices(devices()).unwrap().read("file");
        if seen.is_ok_and(|seen| seen == bytes) {
            break;
        }
        assert!(second < 60, "it should be there after two seconds or three");
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    drop(file);
    fs.close().unwrap();
}
