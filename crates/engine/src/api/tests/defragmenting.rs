//! Defragmentation of files.

use super::*;
use crate::units::SECTOR;

/// The sectors of the files of most tests.
const SECTORS: u64 = 200;

/// Writes a file of extents of one sector each: all sectors in a random order, with a sync after
/// each one.
fn scatter(file: &File, bytes: &[u8]) {
    let mut order: Vec<usize> = (0..bytes.len() / 4096).collect();
    let mut random = Random(7);
    for at in (1..order.len()).rev() {
        order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
    }
    for sector in order {
        let start = sector * 4096;
        file.write_all_at(&bytes[start..start + 4096], start as u64).unwrap();
        file.sync_all().unwrap();
    }
}

/// Creates a file of `SECTORS` extents of one sector each.
fn scattered(lab: &Lab, name: &str) -> (File, Vec<u8>) {
    let bytes = pattern(3, to_len(SECTORS * SECTOR));
    let file = lab.create(name);
    scatter(&file, &bytes);
    assert_eq!(data_extents(&file).len() as u64, SECTORS);
    (file, bytes)
}

fn to_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// Returns the start, the length and the address of each extent with data.
fn data_extents(file: &File) -> Vec<(u64, u64, u64)> {
    let address = |extent: &Extent| match extent.kind {
        ExtentKind::Data { logical, .. } => Some((extent.start, extent.len, logical)),
        _ => None,
    };
    file.extents().unwrap().iter().filter_map(address).collect()
}

fn compressions(file: &File) -> Vec<Option<Compression>> {
    let of_data = |extent: Extent| match extent.kind {
        ExtentKind::Data { compression, .. } => Some(compression),
        _ => None,
    };
    file.extents().unwrap().into_iter().filter_map(of_data).collect()
}

/// Returns bytes that compress well.
fn text(len: usize) -> Vec<u8> {
    pattern(9, len / 4 + 1)
        .iter()
        .flat_map(|byte| [byte & 15, b'x', b'y', b'z'])
        .take(len)
        .collect()
}

/// Returns bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut random = Random(5);
    (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

fn with(method: &str) -> Defragment {
    let compression = Recompress::With(method.parse().unwrap());
    Defragment { compression, ..Defragment::default() }
}

#[test]
fn small_extents_become_one_and_content_and_times_stay() {
    let lab = Lab::new();
    let (file, bytes) = scattered(&lab, "file");
    let before = file.inode().metadata().unwrap();
    assert_eq!(file.defragment(&Defragment::default()).unwrap(), SECTORS * SECTOR);
    assert_eq!(data_extents(&file).len(), 1);
    let after = file.inode().metadata().unwrap();
    assert_eq!(
        (after.modified, after.changed, after.allocated),
        (before.modified, before.changed, before.allocated)
    );
    assert!(file.read_all().unwrap() == bytes);
    // Nothing is left to do.
    assert_eq!(file.defragment(&Defragment::default()).unwrap(), 0);
    drop(file);
    let lab = lab.reopened();
    assert!(lab.fs.read("file").unwrap() == bytes);
    assert_eq!(data_extents(&lab.file("file")).len(), 1);
    lab.close();
}

#[test]
fn synced_defragmentation_survives_a_crash_and_an_unsynced_one_changes_nothing() {
    for is_synced in [false, true] {
        let lab = Lab::new();
        let (file, bytes) = scattered(&lab, "file");
        lab.fs.commit().unwrap();
        file.defragment(&Defragment::default()).unwrap();
        if is_synced {
            file.sync_all().unwrap();
        }
        drop(file);
        let Lab { device, memory, fs } = lab;
        fs.abandon();
        let copy = Arc::new(MemoryDevice::from_bytes(device.snapshot()));
        let lab = Lab::open(copy, memory);
        assert!(lab.fs.read("file").unwrap() == bytes);
        let expected = if is_synced { 1 } else { SECTORS };
        assert_eq!(data_extents(&lab.file("file")).len() as u64, expected);
        lab.close();
    }
}

#[test]
fn holes_and_preallocated_and_large_extents_stay() {
    const LARGE: u64 = 1 << 20;
    let lab = Lab::new();
    let file = lab.create("file");
    let large = pattern(1, to_len(LARGE));
    file.write_all_at(&large, 0).unwrap();
    file.sync_all().unwrap();
    let hole = LARGE..LARGE + 8 * SECTOR;
    let small = pattern(2, to_len(6 * SECTOR));
    for at in [1, 0, 2, 5, 4, 3] {
        let part = &small[at * 4096..][..4096];
        file.write_all_at(part, hole.end + at as u64 * SECTOR).unwrap();
        file.sync_all().unwrap();
    }
    let end = hole.end + 6 * SECTOR;
    file.allocate(end, 4 * SECTOR, Allocate::Reserve { keep_size: false }).unwrap();
    file.write_all_at(&small[..4096], end + 4 * SECTOR).unwrap();
    file.sync_all().unwrap();
    let before = file.extents().unwrap();
    // The last sector has no neighbour that it could join.
    assert_eq!(file.defragment(&Defragment::default()).unwrap(), 6 * SECTOR);
    let after = file.extents().unwrap();
    let kinds: Vec<_> = after.iter().map(|extent| (extent.start, extent.len)).collect();
    let expected = [
        (0, LARGE),
        (LARGE, 8 * SECTOR),
        (hole.end, 6 * SECTOR),
        (end, 4 * SECTOR),
        (end + 4 * SECTOR, SECTOR),
    ];
    assert_eq!(kinds, expected);
    assert_eq!((after[0], after[1]), (before[0], before[1]));
    assert_eq!(after[after.len() - 2..], before[before.len() - 2..]);
    let bytes = file.read_all().unwrap();
    assert!(bytes[..large.len()] == large && bytes[to_len(hole.end)..][..small.len()] == small);
    // A threshold above its size has the large extent rewritten only if it can join another one.
    let wide = Defragment { threshold: 32 << 20, ..Defragment::default() };
    assert_eq!(file.defragment(&wide).unwrap(), 0);
    drop(file);
    lab.close();
}

#[test]
fn range_bounds_what_is_rewritten() {
    let lab = Lab::new();
    let (file, bytes) = scattered(&lab, "file");
    let range = Defragment { start: 10 * SECTOR + 5, len: 20 * SECTOR, ..Defragment::default() };
    assert_eq!(file.defragment(&range).unwrap(), 21 * SECTOR);
    let extents = data_extents(&file);
    assert_eq!(extents.len() as u64, SECTORS - 20);
    assert_eq!((extents[10].0, extents[10].1), (10 * SECTOR, 21 * SECTOR));
    assert!(file.read_all().unwrap() == bytes);
    let beyond = Defragment { start: SECTORS * SECTOR, ..Defragment::default() };
    assert!(matches!(file.defragment(&beyond), Err(Error::Invalid(_))));
    assert_eq!(lab.create("empty").defragment(&beyond).unwrap(), 0);
    drop(file);
    lab.close();
}

#[test]
fn file_longer_than_a_batch_gets_extents_of_a_batch() {
    let lab = Lab::of(512 << 20, &Options::default(), 32 << 20);
    let file = lab.create("file");
    let bytes = pattern(5, 5 << 20);
    for (at, part) in bytes.chunks(64 << 10).enumerate().collect::<Vec<_>>().into_iter().rev() {
        file.write_all_at(part, (at * (64 << 10)) as u64).unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(data_extents(&file).len(), 80);
    file.defragment(&Defragment::default()).unwrap();
    // The memory bound of the lab allows batches of 2 MiB.
    let lengths: Vec<_> = data_extents(&file).iter().map(|(_, len, _)| *len).collect();
    assert_eq!(lengths, [2 << 20, 2 << 20, 1 << 20]);
    assert!(file.read_all().unwrap() == bytes);
    drop(file);
    lab.close();
}

#[test]
fn snapshot_keeps_its_extents_and_cannot_be_defragmented() {
    let lab = Lab::new();
    let (file, bytes) = scattered(&lab, "file");
    lab.fs.root().snapshot(b"snapshot", TreeId::FS, true).unwrap();
    file.defragment(&Defragment::default()).unwrap();
    assert_eq!(data_extents(&file).len(), 1);
    let kept = lab.file("snapshot/file");
    assert_eq!(data_extents(&kept).len() as u64, SECTORS);
    assert!(matches!(kept.defragment(&Defragment::default()), Err(Error::ReadOnly)));
    assert!(kept.read_all().unwrap() == bytes && file.read_all().unwrap() == bytes);
    drop((file, kept));
    lab.close();
}

#[test]
fn immutable_file_is_defragmented() {
    let lab = Lab::new();
    let (file, bytes) = scattered(&lab, "file");
    file.inode().set_some_flags(InodeFlags::IMMUTABLE, InodeFlags::IMMUTABLE).unwrap();
    file.defragment(&Defragment::default()).unwrap();
    assert_eq!(data_extents(&file).len(), 1);
    assert!(file.read_all().unwrap() == bytes);
    drop(file);
    lab.close();
}

#[test]
fn data_is_compressed_for_one_call_only() {
    let lab = Lab::new();
    let bytes = text(1 << 20);
    let file = lab.create("file");
    file.write_all_at(&bytes, 0).unwrap();
    file.inode().set_some_flags(InodeFlags::NOCOMPRESS, InodeFlags::NOCOMPRESS).unwrap();
    for algorithm in Compression::ALL {
        assert_eq!(file.defragment(&with(algorithm.name())).unwrap(), 1 << 20);
        assert_eq!(compressions(&file), [Some(algorithm); 8]);
        assert!(file.read_all().unwrap() == bytes);
    }
    // Full extents are as long as compressed ones can be.
    assert_eq!(file.defragment(&Defragment::default()).unwrap(), 0);
    let never = Defragment { compression: Recompress::Never, ..Defragment::default() };
    assert_eq!(file.defragment(&never).unwrap(), 1 << 20);
    assert_eq!(compressions(&file), [None]);
    file.write_all_at(&bytes, 0).unwrap();
    assert_eq!(compressions(&file), [None]);
    drop(file);
    let lab = lab.reopened();
    assert!(lab.fs.read("file").unwrap() == bytes);
    lab.close();
}

#[test]
fn incompressible_data_is_stored_as_it_is() {
    let lab = Lab::new();
    let (file, bytes) = scattered(&lab, "file");
    file.defragment(&with("zstd")).unwrap();
    assert_eq!(compressions(&file), [None]);
    assert!(file.read_all().unwrap() == bytes);
    drop(file);
    lab.close();
}

/// Bytes that a sample takes for incompressible become shorter nevertheless.
#[test]
fn compression_that_is_asked_for_needs_no_sample() {
    let lab = Lab::new();
    let noise = noise(128 << 10);
    let few: Vec<_> = noise.iter().map(|byte| byte % 100).collect();
    let bytes = [&few[..], &noise[..], &few[..]].concat();
    let file = lab.create("file");
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    file.defragment(&with("zlib")).unwrap();
    let zlib = Some(Compression::Zlib);
    assert_eq!(compressions(&file), [zlib, None, zlib]);
    let flags = file.inode().metadata().unwrap().flags;
    assert!(flags.contains(InodeFlags::NOCOMPRESS), "it is marked");
    assert!(file.read_all().unwrap() == bytes);
    drop(file);
    lab.close();
}

#[test]
fn small_file_stays_inline_and_is_compressed() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.write_all_at(&[b'a'; 1000], 0).unwrap();
    file.sync_all().unwrap();
    file.defragment(&with("zstd")).unwrap();
    let extents = file.extents().unwrap();
    assert!(matches!(extents[..], [Extent { kind: ExtentKind::Inline, .. }]), "{extents:?}");
    assert_eq!(file.read_all().unwrap(), [b'a'; 1000]);
    drop(file);
    lab.close();
}

#[test]
fn nodatacow_file_is_moved_and_not_compressed() {
    let lab = Lab::new();
    let file = lab.create("file");
    file.inode().set_some_flags(InodeFlags::NODATACOW, InodeFlags::NODATACOW).unwrap();
    let bytes = text(to_len(SECTORS * SECTOR));
    scatter(&file, &bytes);
    assert_eq!(file.defragment(&with("zlib")).unwrap(), SECTORS * SECTOR);
    assert_eq!(compressions(&file), [None]);
    assert!(file.read_all().unwrap() == bytes);
    // It is overwritten in place again.
    let before = data_extents(&file);
    file.write_all_at(&bytes[..9000], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(data_extents(&file), before);
    drop(file);
    lab.close();
}

/// Free space in pieces is used before the last unallocated space of the device.
#[test]
fn unallocated_space_is_left_for_others() {
    const PIECE: u64 = 2 << 20;
    let lab = Lab::of(512 << 20, &Options::default(), 32 << 20);
    let large = lab.create("large");
    for piece in 0..100 {
        large.write_all_at(&pattern(piece, to_len(PIECE)), piece * PIECE).unwrap();
        // One extent: a part of an extent is not freed.
        large.sync_data().unwrap();
    }
    let file = lab.create("file");
    let bytes = pattern(101, 60 << 20);
    file.write_all_at(&bytes, 0).unwrap();
    lab.fs.commit().unwrap();
    for piece in (0..100).step_by(2) {
        large.allocate(piece * PIECE, PIECE, Allocate::PunchHole).unwrap();
    }
    lab.fs.commit().unwrap();
    let chunks = || lab.fs.usage().unwrap().device_allocated;
    let before = chunks();
    let all = Defragment { compression: Recompress::Never, ..Defragment::default() };
    assert_eq!(file.defragment(&all).unwrap(), 60 << 20);
    assert_eq!(chunks(), before);
    assert!(file.read_all().unwrap() == bytes);
    drop((large, file));
    lab.close();
}

#[test]
fn without_space_the_content_stays() {
    let lab = Lab::new();
    let (file, bytes) = scattered(&lab, "file");
    lab.fs.root().snapshot(b"snapshot", TreeId::FS, true).unwrap();
    let filler = lab.create("filler");
    let junk = pattern(11, 1 << 20);
    let mut at = 0;
    while filler.write_at(&junk, at).is_ok_and(|len| len == junk.len()) {
        at += junk.len() as u64;
    }
    let _full = filler.sync_all();
    while filler.write_at(&junk[..4096], at).is_ok() {
        at += SECTOR;
    }
    assert!(matches!(file.defragment(&Defragment::default()).map_err(|error| error.errno()),
        Err(errno) if errno == Error::NoSpace.errno()));
    assert!(file.read_all().unwrap() == bytes);
    drop((file, filler));
    let lab = lab.reopened();
    assert!(lab.fs.read("file").unwrap() == bytes);
    lab.close();
}

#[test]
fn writers_beside_defragmentation_lose_nothing() {
    let lab = Lab::new();
    let (file, mut bytes) = scattered(&lab, "file");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Random(5);
            for round in 0..2000_u64 {
                let at = random.below(SECTORS * SECTOR - 100);
                let part = round.to_le_bytes();
                file.write_all_at(&part, at).unwrap();
                bytes[to_len(at)..][..8].copy_from_slice(&part);
                if round % 50 == 0 {
                    file.sync_all().unwrap();
                }
            }
        });
        while !writer.is_finished() {
            file.defragment(&with("lzo")).unwrap();
            file.defragment(&Defragment::default()).unwrap();
        }
        writer.join().unwrap();
    });
    assert!(file.read_all().unwrap() == bytes);
    drop(file);
    let lab = lab.reopened();
    assert!(lab.fs.read("file").unwrap() == bytes);
    lab.close();
}
