//! Compression on write.

use std::io::Read as _;

use userbtrfs_format::IncompatFlags;

use super::*;
use crate::units::SECTOR;

const ALGORITHMS: [Compression; 3] = Compression::ALL;

/// The size of the image of a [`Lab`].
const IMAGE: usize = 128 << 20;

fn options(method: &str, force: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    let method = method.parse().unwrap();
    options.write(true).commit_seconds(0).compress(Some(Compress { method, force }));
    options
}

/// A filesystem in memory that compresses.
struct Compressing {
    device: Arc<MemoryDevice>,
    options: OpenOptions,
    fs: Filesystem,
}

impl Compressing {
    fn new(options: &OpenOptions) -> Self {
        Self::of_size(IMAGE, options)
    }

    fn of_size(bytes: usize, options: &OpenOptions) -> Self {
        let device = Arc::new(MemoryDevice::new(bytes));
        userbtrfs_mkfs::make(&*device, &Options::default()).unwrap();
        Self::open(device, options)
    }

    fn open(device: Arc<MemoryDevice>, options: &OpenOptions) -> Self {
        let fs = options.open_devices(vec![Arc::clone(&device) as Arc<dyn Device>]).unwrap();
        Self { device, options: options.clone(), fs }
    }

    /// Opens what a crash would leave.
    fn crashed(self) -> Self {
        self.fs.abandon();
        let copy = Arc::new(MemoryDevice::from_bytes(self.device.snapshot()));
        Self::open(copy, &self.options)
    }

    fn reopened(self) -> Self {
        self.fs.close().unwrap();
        check(&self.device);
        Self::open(self.device, &self.options)
    }

    fn create(&self, name: &str) -> File {
        self.fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> File {
        let file = self.create(name);
        file.write_all_at(bytes, 0).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn flags(&self, name: &str) -> InodeFlags {
        self.fs.metadata(name).unwrap().flags
    }
}

/// Returns bytes that compress to about half.
fn text(seed: u64, len: usize) -> Vec<u8> {
    pattern(seed, len / 2 + 16).iter().flat_map(|byte| [byte & 15, b'x']).take(len).collect()
}

/// Returns the compression of each extent on disk; `None` for one that is not compressed.
fn compressions(file: &File) -> Vec<Option<Compression>> {
    let kinds = file.extents().unwrap().into_iter();
    let of_data = kinds.filter_map(|extent| match extent.kind {
        ExtentKind::Data { compression, .. } => Some(compression),
        _ => None,
    });
    of_data.collect()
}

fn is_inline(file: &File) -> bool {
    file.extents().unwrap().iter().any(|extent| extent.kind == ExtentKind::Inline)
}

#[test]
fn compressed_files_are_read_back_at_once_after_crash_and_after_reopening() {
    for algorithm in ALGORITHMS {
        for force in [false, true] {
            let lab = Compressing::new(&options(algorithm.name(), force));
            let bytes = text(1, 3 << 20);
            let file = lab.create("file");
            file.write_all_at(&bytes, 5).unwrap();
            file.sync_all().unwrap();
            assert!(file.read_all().unwrap()[5..] == bytes);
            // The last sector alone cannot become shorter.
            let expected = [vec![Some(algorithm); 24], vec![None]].concat();
            assert_eq!(compressions(&file), expected);
            let allocated = lab.fs.metadata("file").unwrap().allocated;
            assert_eq!(allocated, (3 << 20) + SECTOR);
            assert!(lab.fs.usage().unwrap().kinds.iter().any(|kind| kind.used < 3 << 20));
            drop(file);
            let lab = lab.crashed();
            assert!(lab.fs.read("file").unwrap()[5..] == bytes);
            let lab = lab.reopened();
            assert!(lab.fs.read("file").unwrap()[5..] == bytes);
            assert_eq!(compressions(&lab.fs.open_file("file").unwrap()), expected);
            lab.fs.close().unwrap();
        }
    }
}

#[test]
fn first_use_of_algorithm_commits_and_later_ones_are_logged() {
    for (method, feature) in
        [("lzo", IncompatFlags::COMPRESS_LZO), ("zstd:1", IncompatFlags::COMPRESS_ZSTD)]
    {
        let lab = Compressing::new(&options(method, false));
        lab.fs.commit().unwrap();
        assert!(!lab.fs.superblock().incompat.contains(feature));
        let records =
            Arc::new(userbtrfs_sync::Mutex::new(userbtrfs_sync::Class::CacheShard, Vec::new()));
        let told = Arc::clone(&records);
        lab.fs.trace_syncs(move |record| told.lock().push(record.how));
        let file = lab.write("file", &text(2, 100_000));
        let first = SyncOutcome::Committed(FullCommitReason::Feature);
        assert_eq!(*records.lock(), [first]);
        assert!(lab.fs.superblock().incompat.contains(feature));
        file.write_all_at(&text(3, 50_000), 30_000).unwrap();
        file.sync_all().unwrap();
        assert_eq!(*records.lock(), [first, SyncOutcome::Logged]);
        let expected = file.read_all().unwrap();
        drop(file);
        let lab = lab.crashed();
        assert!(lab.fs.superblock().incompat.contains(feature));
        assert!(lab.fs.read("file").unwrap() == expected);
        lab.reopened().fs.close().unwrap();
    }
    let lab = Compressing::new(&options("zlib", false));
    lab.fs.commit().unwrap();
    lab.write("file", &text(2, 100_000));
    assert_eq!(lab.fs.stats().log.commits(FullCommitReason::Feature), 0);
    lab.fs.close().unwrap();
}

#[test]
fn file_that_does_not_become_smaller_is_marked_unless_forced() {
    // A sample shows a run, but most of the data is noise.
    let mut deceptive = pattern(4, 12 << 10);
    deceptive.chunks_mut(256).for_each(|part| part[..16].fill(b'x'));
    for (force, flag) in [(false, InodeFlags::NOCOMPRESS), (true, InodeFlags::empty())] {
        let lab = Compressing::new(&options("zlib:9", force));
        let noise = lab.write("noise", &pattern(5, 1 << 20));
        assert_eq!(compressions(&noise), [None]);
        assert_eq!(lab.flags("noise"), InodeFlags::empty(), "there was no attempt");
        let file = lab.write("file", &deceptive);
        assert_eq!(compressions(&file), [None]);
        assert_eq!(lab.flags("file"), flag);
        file.write_all_at(&text(8, 1 << 20), 1 << 20).unwrap();
        file.sync_all().unwrap();
        assert_eq!(compressions(&file).contains(&Some(Compression::Zlib)), force);
        drop((noise, file));
        let lab = lab.reopened();
        assert_eq!(lab.flags("file"), flag);
        lab.fs.close().unwrap();
    }
}

#[test]
fn property_and_flags_decide_for_their_file_and_are_inherited() {
    let mut plain = OpenOptions::new();
    plain.write(true).commit_seconds(0);
    let lab = Compressing::new(&plain);
    let root = lab.fs.root();
    let bytes = text(3, 300_000);
    assert_eq!(compressions(&lab.write("none", &bytes)), [None]);
    for (name, algorithm) in [("lzo", Compression::Lzo), ("zstd:7", Compression::Zstd)] {
        let dir = root.create_dir(name.as_bytes(), 0o755).unwrap();
        let set = dir.inode().set_xattr(b"btrfs.compression", name.as_bytes(), XattrMode::Either);
        set.unwrap();
        let file = dir.create(b"file", 0o644).unwrap().open().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(compressions(&file), [Some(algorithm); 3], "{name}");
    }
    let flagged = lab.create("flagged");
    flagged.inode().set_flags(InodeFlags::COMPRESS).unwrap();
    flagged.write_all_at(&bytes, 0).unwrap();
    flagged.sync_all().unwrap();
    assert_eq!(compressions(&flagged), [Some(Compression::Zlib); 3]);
    drop((root, flagged));
    let Compressing { device, fs, .. } = lab.reopened();
    fs.close().unwrap();

    // With an option, the property still decides, and NOCOMPRESS counts unless that is forced.
    for force in [false, true] {
        let lab = Compressing::open(Arc::clone(&device), &options("zlib", force));
        let file = lab.fs.open_file("/zstd:7/file").unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(compressions(&file), [Some(Compression::Zstd); 3]);
        let refusing = lab.create(&format!("refusing {force}"));
        let no = refusing.inode().set_xattr(b"btrfs.compression", b"no", XattrMode::Either);
        no.unwrap();
        refusing.write_all_at(&bytes, 0).unwrap();
        refusing.sync_all().unwrap();
        assert_eq!(compressions(&refusing).contains(&Some(Compression::Zlib)), force);
        drop((file, refusing));
        lab.reopened().fs.close().unwrap();
    }
}

#[test]
fn files_written_in_place_unsummed_or_preallocated_are_not_compressed() {
    let bytes = text(5, 300_000);
    let mut in_place = options("zstd", true);
    in_place.data_cow(false);
    let mut unsummed = options("zstd", true);
    unsummed.data_checksums(false);
    for options in [in_place, unsummed] {
        let lab = Compressing::new(&options);
        assert_eq!(compressions(&lab.write("file", &bytes)), [None]);
        lab.reopened().fs.close().unwrap();
    }
    let lab = Compressing::new(&options("zstd", true));
    let file = lab.create("file");
    file.allocate(0, 100_000, Allocate::Reserve { keep_size: false }).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    assert!(compressions(&file).iter().all(Option::is_none));
    assert!(file.read_all().unwrap() == bytes);
    let direct = lab.create("direct");
    let buffer = Arc::new(userbtrfs_device::Buffer::from(&bytes[..65536]));
    direct.write_direct(&buffer, 0).unwrap();
    assert_eq!(compressions(&direct), [None]);
    drop((file, direct));
    lab.reopened().fs.close().unwrap();
}

#[test]
fn small_files_are_stored_inline_if_their_compressed_bytes_fit() {
    const SIZES: [usize; 7] = [1, 60, 2048, 2049, 3000, 4095, 4096];
    let name = |size: usize| format!("file {size}");
    let content =
        |size: usize| -> Vec<u8> { text(size as u64, size).iter().map(|byte| byte & 3).collect() };
    for method in ["zlib", "lzo", "zstd:-5"] {
        let lab = Compressing::new(&options(method, false));
        lab.write("first", &text(1, 100_000));
        for size in SIZES {
            let file = lab.write(&name(size), &content(size));
            assert!(is_inline(&file), "{method} {size}");
            assert!(file.read_all().unwrap() == content(size), "{method} {size}");
        }
        // Linux asks LZO for no gain of a small file.
        let given_up = if method == "lzo" { InodeFlags::empty() } else { InodeFlags::NOCOMPRESS };
        // The zeros behind the end make it look compressible, as in Linux.
        let noise = lab.write("noise", &pattern(5, 2500));
        assert!(!is_inline(&noise));
        assert_eq!(lab.flags("noise"), given_up);
        let tiny = lab.write("tiny", b"hello\n");
        assert!(is_inline(&tiny));
        assert_eq!(lab.flags("tiny"), given_up);
        lab.write("full", &pattern(5, 4096));
        assert_eq!(lab.flags("full"), InodeFlags::empty(), "there was no attempt");
        drop((noise, tiny));
        let lab = lab.crashed();
        for size in SIZES {
            assert!(lab.fs.read(name(size)).unwrap() == content(size), "{method} {size}");
        }
        let lab = lab.reopened();
        // Each grows, first in memory and then on disk, and shrinks again.
        let mut expected = SIZES.map(content);
        for (size, expected) in SIZES.into_iter().zip(&mut expected) {
            let file = lab.fs.open_file(name(size)).unwrap();
            assert!(is_inline(&file), "{method} {size}");
            assert!(file.read_all().unwrap() == *expected, "{method} {size}");
            for grown in [size + 10, 9000, 4096, 5000, 70_000, 2000 + size % 7] {
                file.set_len(grown as u64).unwrap();
                expected.resize(grown, 0);
                file.write_all_at(b"end", grown as u64 - 3).unwrap();
                expected[grown - 3..].copy_from_slice(b"end");
                if grown % 2 == 0 {
                    file.sync_all().unwrap();
                }
                assert!(file.read_all().unwrap() == *expected, "{method} {size} {grown}");
            }
        }
        let lab = lab.reopened();
        for (size, expected) in SIZES.into_iter().zip(&expected) {
            assert!(lab.fs.read(name(size)).unwrap() == *expected, "{method} {size}");
        }
        lab.fs.close().unwrap();
    }
}

/// A file of one whole sector stays inline when extents are added behind it, as in Linux.
#[test]
fn whole_sector_stays_inline_when_the_file_grows() {
    let lab = Compressing::new(&options("zlib", false));
    let file = lab.write("file", &[7; 4096]);
    let rest = vec![8; 100_000];
    file.write_all_at(&rest, 4096).unwrap();
    file.sync_all().unwrap();
    assert!(is_inline(&file));
    drop(file);
    let lab = lab.crashed().reopened();
    let expected = [&[7; 4096][..], &rest].concat();
    assert!(lab.fs.read("file").unwrap() == expected);
    assert!(is_inline(&lab.fs.open_file("file").unwrap()));
    lab.fs.close().unwrap();
}

#[test]
fn parts_of_compressed_extents_are_overwritten_cut_punched_and_shared() {
    for algorithm in ALGORITHMS {
        let lab = Compressing::new(&options(algorithm.name(), false));
        let mut expected = text(1, 1 << 20);
        let file = lab.write("file", &expected);
        let mut random = Random(7);
        for round in 0..60 {
            let at = usize::try_from(random.below(1 << 20)).unwrap();
            let len = usize::try_from(random.below(100_000)).unwrap().min((1 << 20) - at);
            match round % 5 {
                0 => {
                    file.allocate(at as u64, len as u64 + 1, Allocate::PunchHole).unwrap();
                    let end = (at + len + 1).min(1 << 20);
                    expected[at..end].fill(0);
                }
                1 => {
                    file.set_len(at as u64).unwrap();
                    file.set_len(1 << 20).unwrap();
                    expected[at..].fill(0);
                }
                _ => {
                    let bytes = text(round, len);
                    file.write_all_at(&bytes, at as u64).unwrap();
                    expected[at..][..len].copy_from_slice(&bytes);
                }
            }
            if round % 7 == 0 {
                file.sync_all().unwrap();
            }
            assert!(file.read_all().unwrap() == expected, "{algorithm:?} {round}");
        }
        file.sync_all().unwrap();
        drop(file);
        let lab = lab.crashed();
        assert!(lab.fs.read("file").unwrap() == expected);
        let lab = lab.reopened();
        let file = lab.fs.open_file("file").unwrap();
        let copy = lab.create("copy");
        copy.clone_range(&file, 0, 1 << 20, 0).unwrap();
        file.write_all_at(&[9; 10_000], 4000).unwrap();
        file.sync_all().unwrap();
        copy.sync_all().unwrap();
        assert!(copy.read_all().unwrap() == expected);
        expected[4000..14_000].fill(9);
        drop((file, copy));
        let lab = lab.crashed();
        assert!(lab.fs.read("file").unwrap() == expected);
        lab.fs.close().unwrap();
        check(&lab.device);
    }
}

#[test]
fn damaged_compressed_extent_is_an_error_and_never_wrong_bytes() {
    for algorithm in ALGORITHMS {
        let lab = Compressing::new(&options(algorithm.name(), false));
        let bytes = text(1, 128 << 10);
        let file = lab.write("file", &bytes);
        let [Extent { kind: ExtentKind::Data { logical, disk_bytes, .. }, .. }] =
            file.extents().unwrap()[..]
        else {
            panic!("one extent")
        };
        drop(file);
        lab.fs.close().unwrap();
        let image = lab.device.snapshot();
        let at = usize::try_from(physical(&image, logical)).unwrap();
        for damaged in (0..disk_bytes).step_by(4099) {
            let mut image = image.clone();
            image[at + usize::try_from(damaged).unwrap()] ^= 0x40;
            let device = Arc::new(MemoryDevice::from_bytes(image));
            let fs = OpenOptions::new().open_devices(vec![device]).unwrap();
            let read = fs.read("file");
            assert!(
                matches!(read, Err(PathError { error: Error::Data { .. }, .. })),
                "{algorithm:?} at {damaged}"
            );
        }
    }
}

/// The extents are decompressed at once, by several threads.
#[test]
fn all_data_before_a_damaged_one_of_many_compressed_extents_is_read() {
    const EXTENT: usize = 128 << 10;
    const COUNT: usize = 5;
    let lab = Compressing::of_size(IMAGE / 2, &options("lzo", false));
    let bytes = text(1, COUNT * EXTENT);
    let extents = lab.write("file", &bytes).extents().unwrap();
    assert_eq!(extents.len(), COUNT);
    lab.fs.close().unwrap();
    let image = lab.device.snapshot();
    for (number, extent) in extents.iter().enumerate() {
        let ExtentKind::Data { logical, .. } = extent.kind else { panic!("all is data") };
        let mut image = image.clone();
        let at = usize::try_from(physical(&image, logical)).unwrap();
        image[at + 1000] ^= 0x40;
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let fs = OpenOptions::new().open_devices(vec![device]).unwrap();
        let file = fs.root().lookup(b"file").unwrap().open().unwrap();
        let mut read = Vec::new();
        let error = file.reader().read_to_end(&mut read).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{error}");
        assert!(read == bytes[..number * EXTENT], "{number}: {} bytes", read.len());
        let error = file.read_at(&mut vec![0; bytes.len()], 0).unwrap_err();
        let damaged = u64::try_from(number * EXTENT).unwrap();
        assert!(matches!(error, Error::Data { offset, .. } if offset == damaged), "{error}");
        let after = (number + 1) * EXTENT;
        let mut rest = vec![0; bytes.len() - after];
        file.read_at(&mut rest, u64::try_from(after).unwrap()).unwrap();
        assert!(rest == bytes[after..], "{number}");
    }
}

/// Returns the address on the device of a logical address.
fn physical(image: &[u8], logical: u64) -> u64 {
    let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
    let fs = OpenOptions::new().open_devices(vec![device]).unwrap();
    let range = userbtrfs_volume::Range { logical: userbtrfs_format::Logical(logical), len: 4096 };
    let bytes = fs.volume().read(range, 0).unwrap().unwrap();
    let at = image.chunks(4096).position(|sector| *sector == bytes[..]).unwrap();
    at as u64 * 4096
}

#[test]
fn fragmented_space_gets_data_uncompressed() {
    // In a smaller image metadata fills up first, and so leaves space for data in one piece.
    let lab = Compressing::of_size(2 * IMAGE, &options("zlib", false));
    // Fill the space with files of one sector each, and remove every second one.
    let noise = pattern(1, 4096);
    let mut count = 0;
    while let Ok(inode) = lab.fs.root().create(format!("{count}").as_bytes(), 0o644) {
        if inode.open().unwrap().write_all_at(&noise, 0).is_err() {
            break;
        }
        count += 1;
    }
    lab.fs.commit().unwrap();
    for number in (0..count).step_by(2) {
        lab.fs.root().remove_file(format!("{number}").as_bytes()).unwrap();
    }
    lab.fs.commit().unwrap();
    let bytes = text(2, 1 << 20);
    let file = lab.write("file", &bytes);
    assert!(file.read_all().unwrap() == bytes);
    assert!(compressions(&file).contains(&None));
    drop(file);
    let lab = lab.crashed();
    assert!(lab.fs.read("file").unwrap() == bytes);
    lab.reopened().fs.close().unwrap();
}

/// Compressed data needs less space for data, and more for items: where there is no space for
/// these, it is written as it is, and nothing that was accepted is lost.
#[test]
fn filesystem_that_fills_up_keeps_what_it_accepted() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    userbtrfs_mkfs::make(&*device, &Options::mixed()).unwrap();
    let lab = Compressing::open(device, &options("zlib:1", true));
    let mut written = Vec::new();
    for number in 0.. {
        let name = format!("{number}");
        let Ok(inode) = lab.fs.root().create(name.as_bytes(), 0o644) else { break };
        let bytes = if number % 3 == 0 { pattern(number, 200_000) } else { text(number, 200_000) };
        let file = inode.open().unwrap();
        let len = (0..bytes.len())
            .step_by(50_000)
            .take_while(|at| file.write_all_at(&bytes[*at..][..50_000], *at as u64).is_ok());
        let len = len.count() * 50_000;
        written.push((name, bytes[..len].to_vec()));
        if len < bytes.len() {
            break;
        }
        if number % 5 == 0 {
            file.sync_all().unwrap();
        }
    }
    assert!(written.len() > 100, "{} files", written.len());
    lab.fs.commit().unwrap();
    let lab = lab.reopened();
    for (name, bytes) in written {
        assert!(lab.fs.read(&name).unwrap()[..bytes.len()] == bytes, "{name}");
    }
    lab.fs.close().unwrap();
}

/// A filesystem that is filled, emptied and filled again does not lose space, whatever was
/// compressed.
#[test]
fn filesystem_is_filled_deleted_and_refilled_with_compressible_and_incompressible_data() {
    const PART: usize = 100_000;
    let mut lab = Compressing::of_size(96 << 20, &options("zstd:1", false));
    let mut totals = Vec::new();
    for round in 0..5 {
        let mut files = Vec::new();
        let mut total = 0;
        'full: for number in 0.. {
            let Ok(inode) = lab.fs.root().create(format!("{number}").as_bytes(), 0o644) else {
                break;
            };
            let seed = round * 1000 + number;
            let bytes =
                if number % 2 == 0 { pattern(seed, 4 * PART) } else { text(seed, 4 * PART) };
            let file = inode.open().unwrap();
            files.push((number, bytes));
            for (at, part) in files[files.len() - 1].1.chunks(PART).enumerate() {
                match file.write_at(part, (at * PART) as u64) {
                    Ok(len) if len == part.len() => total += len,
                    Ok(_) | Err(Error::NoSpace) => break 'full,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        lab.fs.commit().unwrap();
        totals.push(total);
        lab = lab.reopened();
        for (number, bytes) in files {
            let name = format!("{number}");
            let there = lab.fs.read(&name).unwrap();
            assert!(bytes.starts_with(&there), "{round}: {name}");
            lab.fs.root().remove_file(name.as_bytes()).unwrap();
        }
        lab.fs.commit().unwrap();
    }
    assert!(totals.iter().all(|total| *total > 60 << 20), "{totals:?}");
    let least = totals.iter().min().unwrap();
    let most = totals.iter().max().unwrap();
    assert!(most - least < most / 10, "{totals:?}");
    lab.reopened().fs.close().unwrap();
}
