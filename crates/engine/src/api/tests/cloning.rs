//! Clones and dedupe: content, errors, shared space, and its return.

use userbtrfs_sync::thread;

use super::*;

const KIB: u64 = 1024;

/// Returns the extents of a file, with the addresses of the bytes.
fn places(file: &File) -> Vec<(u64, u64, Option<u64>)> {
    let place = |extent: &Extent| {
        let at = match extent.kind {
            ExtentKind::Data { logical, offset, .. } => Some(logical + offset),
            ExtentKind::Prealloc { logical } => Some(logical),
            ExtentKind::Hole | ExtentKind::Inline => None,
        };
        (extent.start, extent.len, at)
    };
    file.extents().unwrap().iter().map(place).collect()
}

fn written(lab: &Lab, name: &str, seed: u64, len: usize) -> (File, Vec<u8>) {
    let file = lab.create(name);
    let bytes = pattern(seed, len);
    file.write_all_at(&bytes, 0).unwrap();
    (file, bytes)
}

#[test]
fn clone_takes_no_data_space_and_outlives_its_source() {
    let lab = Lab::new();
    let none = lab.data_in_use();
    let (a, bytes) = written(&lab, "a", 1, 500_000);
    let b = lab.create("b");
    b.clone_range(&a, 0, 0, 0).unwrap();
    lab.fs.commit().unwrap();
    assert_eq!((b.len(), lab.data_in_use()), (500_000, none + 503_808));
    assert_eq!(places(&a), places(&b));
    drop((a, b));
    let lab = lab.reopened();
    lab.fs.remove_file("a").unwrap();
    let lab = lab.reopened();
    assert!(lab.fs.read("b").unwrap() == bytes);
    assert_eq!(lab.data_in_use(), none + 503_808);
    lab.fs.remove_file("b").unwrap();
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), none);
    lab.close();
}

#[test]
fn parts_are_shared_shifted_and_within_one_file() {
    let lab = Lab::new();
    let (a, bytes) = written(&lab, "a", 1, 256 << 10);
    let (b, mut other) = written(&lab, "b", 2, 256 << 10);
    b.clone_range(&a, 64 * KIB, 64 * KIB, 32 * KIB).unwrap();
    other[32 << 10..96 << 10].copy_from_slice(&bytes[64 << 10..128 << 10]);
    a.clone_range(&a, 0, 100 * KIB, 300 * KIB).unwrap();
    let mut whole = bytes.clone();
    whole.resize(300 << 10, 0);
    whole.extend_from_slice(&bytes[..100 << 10]);
    assert!(a.read_all().unwrap() == whole && b.read_all().unwrap() == other);
    // Data written afterwards is in one file alone.
    a.write_all_at(&[9; 5000], 70_000).unwrap();
    whole[70_000..75_000].fill(9);
    assert!(a.read_all().unwrap() == whole && b.read_all().unwrap() == other);
    drop((a, b));
    let lab = lab.reopened();
    assert!(lab.fs.read("a").unwrap() == whole && lab.fs.read("b").unwrap() == other);
    lab.close();
}

#[test]
fn last_sector_is_cloned_to_the_end_of_a_file_alone() {
    let lab = Lab::new();
    let (a, bytes) = written(&lab, "a", 1, 10_000);
    let (b, mut expected) = written(&lab, "b", 2, 20_000);
    let refused = b.clone_range(&a, 8192, 0, 8192);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    b.clone_range(&a, 8192, 0, 20_480).unwrap();
    expected.resize(20_480, 0);
    expected.extend_from_slice(&bytes[8192..]);
    assert!(b.read_all().unwrap() == expected);
    b.set_len(22_300).unwrap();
    b.clone_range(&a, 8192, 1808, 20_480).unwrap_err();
    b.set_len(22_288).unwrap();
    b.clone_range(&a, 8192, 1808, 20_480).unwrap();
    b.set_len(30_000).unwrap();
    expected.resize(30_000, 0);
    assert!(b.read_all().unwrap() == expected, "no byte beyond the end of the source shows");
    drop((a, b));
    let lab = lab.reopened();
    assert!(lab.fs.read("b").unwrap() == expected);
    lab.close();
}

#[test]
fn holes_and_preallocated_extents_are_cloned_as_they_are() {
    let lab = Lab::new();
    let a = lab.create("a");
    a.write_all_at(&[1; 8192], 64 << 10).unwrap();
    a.allocate(128 << 10, 64 << 10, Allocate::Reserve { keep_size: false }).unwrap();
    let (b, _) = written(&lab, "b", 2, 256 << 10);
    lab.fs.commit().unwrap();
    b.clone_range(&a, 0, 192 * KIB, 0).unwrap();
    let kinds = |file: &File| {
        let extents = file.extents().unwrap();
        extents.into_iter().filter(|it| it.start < 192 * KIB).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&a), kinds(&b));
    // A write to shared preallocated space goes elsewhere.
    b.write_all_at(&vec![3; 64 << 10], 128 << 10).unwrap();
    a.write_all_at(&[4; 4096], 128 << 10).unwrap();
    lab.fs.commit().unwrap();
    assert!(b.read_all().unwrap()[128 << 10..192 << 10] == vec![3; 64 << 10]);
    let read = a.read_all().unwrap();
    assert!(read[128 << 10..132 << 10] == [4; 4096] && read[132 << 10..] == vec![0; 60 << 10]);
    drop((a, b));
    lab.close();
}

#[test]
fn inline_file_stays_inline_only_if_the_target_ends_with_it() {
    let lab = Lab::new();
    let (a, bytes) = written(&lab, "a", 1, 100);
    lab.fs.commit().unwrap();
    let none = lab.data_in_use();
    let empty = lab.create("empty");
    empty.clone_range(&a, 0, 0, 0).unwrap();
    let (short, _) = written(&lab, "short", 2, 60);
    short.clone_range(&a, 0, 100, 0).unwrap();
    assert_eq!(lab.data_in_use(), none, "both are inline");
    let far = lab.create("far");
    far.clone_range(&a, 0, 0, 8192).unwrap();
    let (long, _) = written(&lab, "long", 3, 6000);
    long.clone_range(&a, 0, 0, 0).unwrap_err();
    a.clone_range(&a, 0, 0, 4096).unwrap();
    let within = [bytes.clone(), vec![0; 3996], bytes.clone()].concat();
    drop((a, empty, short, far, long));
    let lab = lab.reopened();
    assert!(lab.fs.read("empty").unwrap() == bytes && lab.fs.read("short").unwrap() == bytes);
    assert!(lab.fs.read("a").unwrap() == within);
    assert!(lab.fs.read("far").unwrap() == [vec![0; 8192], bytes].concat());
    lab.close();
}

#[test]
fn impossible_requests_change_nothing() {
    let lab = Lab::new();
    let (a, _) = written(&lab, "a", 1, 100_000);
    let (b, bytes) = written(&lab, "b", 2, 50_000);
    let plain = lab.fs.root().create(b"plain", 0o644).unwrap();
    plain.set_flags(InodeFlags::NODATACOW).unwrap();
    let plain = plain.open().unwrap();
    let other = Lab::new();
    let theirs = other.create("theirs");
    let invalid = [
        b.clone_range(&a, 100, 4096, 0),
        b.clone_range(&a, 0, 4096, 100),
        b.clone_range(&a, 0, 100, 0),
        b.clone_range(&a, 102_400, 4096, 0),
        b.clone_range(&a, 98_304, 4096, 0),
        b.clone_range(&a, 1 << 63, 0, 0),
        b.clone_range(&a, 4096, u64::MAX, 0),
        b.clone_range(&a, 0, 4096, (1 << 63) - 4096),
        b.clone_range(&a, 0, 4096, u64::MAX - 4095),
        b.clone_range(&plain, 0, 0, 0),
        a.clone_range(&a, 0, 8192, 4096),
        a.clone_range(&a, 4096, 8192, 0),
        a.clone_range(&a, 0, 4096, 0),
        plain.clone_range(&a, 0, 4096, 0),
        a.clone_range(&plain, 0, 0, 0),
        b.dedupe_range(&a, 0, 100_000, 0).map(drop),
        b.dedupe_range(&a, 98_304, 4096, 0).map(drop),
        b.dedupe_range(&a, 0, 4096, 49_152).map(drop),
        b.dedupe_range(&a, 1, 4096, 0).map(drop),
    ];
    for (number, result) in invalid.iter().enumerate() {
        let errno = result.as_ref().err().map(Error::errno);
        assert_eq!(errno, Some(22), "{number}: {result:?}");
    }
    assert_eq!(b.clone_range(&theirs, 0, 0, 0).unwrap_err().errno(), 18);
    b.inode().set_flags(InodeFlags::IMMUTABLE).unwrap();
    let again = lab.file("b");
    assert_eq!(again.clone_range(&a, 0, 4096, 0).unwrap_err().errno(), 1);
    b.inode().set_flags(InodeFlags::APPEND).unwrap();
    assert_eq!(again.clone_range(&a, 0, 4096, 0).unwrap_err().errno(), 1);
    b.inode().set_flags(InodeFlags::empty()).unwrap();
    lab.fs.create_dir("dir", 0o755).unwrap();
    assert_eq!(lab.fs.clone_file("a", "dir").unwrap_err().errno(), 21);
    assert_eq!(lab.fs.clone_file("dir", "new").unwrap_err().errno(), 21);
    assert!(b.read_all().unwrap() == bytes && b.len() == 50_000);
    drop((a, b, plain, again, theirs));
    other.close();
    lab.close();
}

#[test]
fn empty_range_is_no_change() {
    let lab = Lab::new();
    let (a, _) = written(&lab, "a", 1, 8192);
    let (b, bytes) = written(&lab, "b", 2, 5000);
    let before = b.inode().metadata().unwrap();
    b.clone_range(&a, 8192, 0, 0).unwrap();
    b.clone_range(&b, 5000, 0, 100).unwrap();
    assert_eq!(b.dedupe_range(&a, 0, 100, 0).unwrap(), Deduped::Same { len: 0, shared: 0 });
    assert_eq!(b.inode().metadata().unwrap(), before);
    assert!(b.read_all().unwrap() == bytes);
    drop((a, b));
    lab.close();
}

#[test]
fn shared_data_is_not_overwritten_in_place() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|name| {
        let inode = lab.fs.root().create(name.as_bytes(), 0o644).unwrap();
        inode.set_flags(InodeFlags::NODATACOW).unwrap();
        inode.open().unwrap()
    });
    let old = pattern(1, 64 << 10);
    a.write_all_at(&old, 0).unwrap();
    for committed in [false, true] {
        if committed {
            // The shared extents are durable in the transaction before.
            a.write_all_at(&[1], 0).unwrap();
            lab.fs.commit().unwrap();
            a.write_all_at(&old, 0).unwrap();
            lab.fs.commit().unwrap();
            a.write_all_at(&old, 0).unwrap();
            lab.fs.commit().unwrap();
        }
        let before = places(&a);
        a.write_all_at(&old[..8192], 0).unwrap();
        a.sync_all().unwrap();
        assert_eq!(places(&a), before, "in place while it is alone");
        b.clone_range(&a, 0, 0, 0).unwrap();
        a.write_all_at(&[7; 4096], 16 << 10).unwrap();
        b.write_all_at(&[8; 4096], 32 << 10).unwrap();
        a.sync_all().unwrap();
        b.sync_all().unwrap();
        let ours = a.read_all().unwrap();
        let theirs = b.read_all().unwrap();
        assert!(ours[16 << 10..20 << 10] == [7; 4096] && ours[20 << 10..] == old[20 << 10..]);
        assert!(theirs[..32 << 10] == old[..32 << 10] && theirs[32 << 10..36 << 10] == [8; 4096]);
        b.set_len(0).unwrap();
        let before = places(&a);
        a.write_all_at(&old, 0).unwrap();
        a.sync_all().unwrap();
        assert!(places(&a) != before, "a log may lead to it");
    }
    drop((a, b));
    lab.close();
}

#[test]
fn durable_clone_that_was_overwritten_is_whole_after_a_crash() {
    let lab = Lab::new();
    let [a, b] = ["a", "b"].map(|name| {
        let inode = lab.fs.root().create(name.as_bytes(), 0o644).unwrap();
        inode.set_flags(InodeFlags::NODATACOW).unwrap();
        inode.open().unwrap()
    });
    let old = pattern(1, 64 << 10);
    a.write_all_at(&old, 0).unwrap();
    b.clone_range(&a, 0, 0, 0).unwrap();
    lab.fs.commit().unwrap();
    b.write_all_at(&pattern(2, 64 << 10), 0).unwrap();
    b.sync_all().unwrap();
    // The log has the new content of `b`; without the log, its old content must be there.
    a.write_all_at(&pattern(3, 64 << 10), 0).unwrap();
    a.sync_all().unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(lab.device.snapshot()));
    lab.fs.abandon();
    let mut options = OpenOptions::new();
    options.pending_log(PendingLog::Leave).memory(16 << 20);
    let fs = options.open_devices(vec![device]).unwrap();
    assert!(fs.read("a").unwrap() == old && fs.read("b").unwrap() == old);
}

#[test]
fn clone_of_many_extents_takes_steps() {
    let lab = Lab::of(256 << 20, &Options::default(), 16 << 20);
    let none = lab.data_in_use();
    let a = lab.create("a");
    let b = lab.create("b");
    let sectors = 5000_u64;
    for at in 0..sectors {
        a.write_all_at(&at.to_le_bytes().repeat(512), at * 8192).unwrap();
    }
    a.set_len(sectors * 8192).unwrap();
    b.clone_range(&a, 0, 0, 0).unwrap();
    // Shifted, so that each extent replaces parts of two.
    b.clone_range(&a, 0, sectors * 4096, 12_288).unwrap();
    let ours = a.read_all().unwrap();
    let mut expected = a.read_all().unwrap();
    let len = usize::try_from(sectors * 4096).unwrap();
    expected[12_288..][..len].copy_from_slice(&ours[..len]);
    assert!(b.read_all().unwrap() == expected);
    assert_eq!(lab.data_in_use(), none + sectors * 4096);
    drop((a, b));
    let lab = lab.reopened();
    assert!(lab.fs.read("b").unwrap() == expected);
    for name in ["a", "b"] {
        lab.fs.remove_file(name).unwrap();
    }
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), none);
    lab.close();
}

#[test]
fn clone_shows_the_source_at_one_moment() {
    let lab = Lab::new();
    let a = lab.create("a");
    let b = lab.create("b");
    let len = 256 << 10;
    a.write_all_at(&vec![1; len], 0).unwrap();
    thread::scope(|scope| {
        let a = &a;
        scope.spawn(move || {
            for number in 2..60 {
                assert_eq!(a.write_at(&vec![number; len], 0).unwrap(), len);
            }
        });
        scope.spawn(|| (0..5).for_each(|_| lab.fs.commit().unwrap()));
        for _ in 0..30 {
            b.clone_range(a, 0, 0, 0).unwrap();
            let bytes = b.read_all().unwrap();
            assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == bytes[0]));
        }
    });
    drop((a, b));
    lab.close();
}

#[test]
fn files_cloned_crosswise_by_many_threads_stay_whole() {
    let lab = Lab::of(256 << 20, &Options::default(), 16 << 20);
    let files: Vec<File> = (0..4).map(|at| lab.create(&at.to_string())).collect();
    let len = 64_u64 << 10;
    for (number, file) in (1..).zip(&files) {
        file.write_all_at(&vec![number; 64 << 10], 0).unwrap();
    }
    thread::scope(|scope| {
        for seed in 0..4 {
            let files = &files;
            let fs = &lab.fs;
            scope.spawn(move || {
                let mut random = Random(seed);
                for round in 0..60_u64 {
                    let mut any = || &files[usize::try_from(random.below(4)).unwrap()];
                    let from = any();
                    let to = any();
                    if from.inode().id() != to.inode().id() {
                        match round % 3 {
                            0 => drop(to.dedupe_range(from, 0, len, 0).unwrap()),
                            _ => to.clone_range(from, 0, len, 0).unwrap(),
                        }
                    }
                    if round % 16 == seed { fs.commit().unwrap() } else { to.sync_all().unwrap() }
                }
            });
        }
    });
    for file in &files {
        let bytes = file.read_all().unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0] && *byte > 0));
    }
    drop(files);
    lab.close();
}

#[test]
fn dedupe_shares_equal_ranges_and_reports_what_differs() {
    let lab = Lab::new();
    let none = lab.data_in_use();
    let (a, bytes) = written(&lab, "a", 1, 100_000);
    let (b, _) = written(&lab, "b", 1, 100_000);
    b.write_all_at(&[7], 50_000).unwrap();
    lab.fs.commit().unwrap();
    assert_eq!(b.dedupe_range(&a, 0, 100_000, 0).unwrap(), Deduped::Differs);
    assert_eq!(lab.data_in_use(), none + 2 * 102_400);
    let same = Deduped::Same { len: 49_152, shared: 49_152 };
    assert_eq!(b.dedupe_range(&a, 0, 49_152, 0).unwrap(), same);
    let again = Deduped::Same { len: 49_152, shared: 0 };
    assert_eq!(b.dedupe_range(&a, 0, 49_152, 0).unwrap(), again);
    b.write_all_at(&bytes[50_000..50_001], 50_000).unwrap();
    let after = b.inode().metadata().unwrap().modified;
    let rest = Deduped::Same { len: 100_000, shared: 102_400 - 49_152 };
    assert_eq!(b.dedupe_range(&a, 0, 100_000, 0).unwrap(), rest);
    assert_eq!(b.inode().metadata().unwrap().modified, after);
    assert_eq!(places(&a), places(&b));
    drop((a, b));
    let lab = lab.reopened();
    assert_eq!(lab.data_in_use(), none + 102_400);
    assert!(lab.fs.read("b").unwrap() == bytes);
    lab.close();
}

#[test]
fn clone_without_metadata_space_leaves_a_prefix() {
    let lab = Lab::of(128 << 20, &Options::default(), 32 << 20);
    let a = lab.create("a");
    let b = lab.create("b");
    for at in 0..3000_u64 {
        a.write_all_at(&[1; 4096], at * 8192).unwrap();
    }
    lab.fs.commit().unwrap();
    let space = lab.fs.inner.transactions.as_ref().unwrap().space();
    let mut held = Vec::new();
    for bytes in [1 << 20, 1 << 17, 1 << 15, 1 << 12] {
        held.extend(std::iter::from_fn(|| space.reserve(bytes).ok()));
    }
    let failed = b.clone_range(&a, 0, 0, 0);
    assert!(matches!(failed, Err(Error::NoSpace)), "{failed:?}");
    let read = b.read_all().unwrap();
    assert!(read.len() < 3000 * 8192 && read == a.read_all().unwrap()[..read.len()]);
    drop(held);
    b.clone_range(&a, 0, 0, 0).unwrap();
    assert!(b.read_all().unwrap() == a.read_all().unwrap());
    drop((a, b));
    lab.close();
}

#[test]
fn copy_shares_whole_sectors_if_both_offsets_allow_it() {
    let lab = Lab::new();
    let none = lab.data_in_use();
    let (a, bytes) = written(&lab, "a", 1, 100_000);
    let b = lab.create("b");
    assert_eq!(b.share_from(&a, 0, 0, u64::MAX).unwrap(), 100_000);
    lab.fs.commit().unwrap();
    assert_eq!((places(&b), lab.data_in_use()), (places(&a), none + 102_400));
    let (c, mut expected) = written(&lab, "c", 2, 100_000);
    assert_eq!(c.share_from(&a, 4096, 8192, 10_000).unwrap(), 8192);
    expected[8192..16_384].copy_from_slice(&bytes[4096..12_288]);
    assert_eq!(c.share_from(&a, 1, 40_000, 5000).unwrap(), 0);
    assert_eq!(c.share_from(&a, 98_304, 98_304, 5000).unwrap(), 1696);
    expected[98_304..].copy_from_slice(&bytes[98_304..]);
    assert_eq!(c.share_from(&c, 0, 4096, 8192).unwrap(), 0);
    assert!(c.read_all().unwrap() == expected);
    let of_a = places(&a)[0].2.map(|at| at + 4096);
    assert_eq!(places(&c).iter().filter(|it| it.2 == of_a).count(), 1);
    drop((a, b, c));
    lab.close();
}

#[test]
fn file_is_cloned_by_path() {
    let lab = Lab::new();
    let (a, bytes) = written(&lab, "a", 1, 100_000);
    lab.fs.set_permissions("a", 0o600).unwrap();
    lab.fs.clone_file("a", "new").unwrap();
    drop(written(&lab, "old", 2, 200_000));
    lab.fs.clone_file("a", "old").unwrap();
    lab.fs.clone_file("a", "a").unwrap();
    for name in ["a", "new", "old"] {
        assert!(lab.fs.read(name).unwrap() == bytes, "{name}");
    }
    let mode = |name: &str| lab.fs.metadata(name).unwrap().mode & 0o7777;
    assert_eq!((mode("new"), mode("old")), (0o600, 0o644));
    drop(a);
    lab.close();
}
