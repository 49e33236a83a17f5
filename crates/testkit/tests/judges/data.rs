//! Data of files written by us: extents are as long as possible, and damage never yields a wrong
//! byte.

use userbtrfs::device::Buffer;
use userbtrfs::mkfs::{ChecksumKind, Options, Profile};
use userbtrfs::{Allocate, Error, ExtentKind, File, Filesystem, OpenOptions, TreeId};
use userbtrfs_format::SECTOR;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_image};
use super::{is_torture, open_device, seed};

/// The maximum length of an extent, in bytes.
const EXTENT_MAX: u64 = 128 * MIB;

fn open_for_writing(device: &Arc<SparseDevice>, memory: u64) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(memory << 20);
    options.open_devices(vec![device.clone()]).unwrap()
}

/// The size of a large file, and the number of bytes per write.
const SIZE: u64 = 300 * MIB;
const PART: u64 = 192 << 10;

/// More than fits into memory, or into one extent.
#[test]
fn data_written_in_sequence_is_stored_in_sequence() {
    skip_unless_linux!();
    let made = Made::new("large", 512 * MIB, Options { nodesize: 4096, ..Options::default() });
    let device = Arc::new(made.image().to_device());
    let filesystem = open_for_writing(&device, 64);
    let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
    for offset in (0..SIZE).step_by(usize::try_from(PART).unwrap()) {
        let length = PART.min(SIZE - offset);
        let bytes = pattern::bytes(2, offset, usize::try_from(length).unwrap());
        assert_eq!(file.write_at(&bytes, offset).unwrap(), bytes.len());
    }
    filesystem.commit().unwrap();
    let extents = file.extents().unwrap();
    assert!(extents.len() <= 150, "{} extents", extents.len());
    assert!(extents.iter().all(|extent| extent.len <= EXTENT_MAX));
    // At most one at the end of each block group.
    let gaps = extents.windows(2).filter(|pair| end(&pair[0].kind) != start(&pair[1].kind));
    assert!(gaps.count() <= 12, "{extents:?}");
    drop(file);
    filesystem.close().unwrap();
    check_image("large", &device.image());
    let filesystem = open_device(device).unwrap();
    let mut reader = filesystem.open_file("/file").unwrap().reader();
    let mut at = 0;
    while let Some(chunk) = reader.next_chunk().unwrap() {
        let bytes = chunk.bytes().expect("no hole");
        assert!(bytes == pattern::bytes(2, at, bytes.len()), "at {at}");
        at += bytes.len() as u64;
    }
    assert_eq!(at, SIZE);
}

/// Slightly more than fits into one extent.
const MORE: u64 = EXTENT_MAX + 8 * MIB;

/// A way to allocate this much for a file.
type Make = fn(&File, &Arc<Buffer>);

#[test]
fn an_extent_is_as_long_as_can_be_and_no_longer() {
    skip_unless_linux!();
    let made = Made::new("huge", 8 << 30, Options::default());
    let device = Arc::new(made.image().to_device());
    // With so much memory nothing is written before all data is in it.
    let filesystem = open_for_writing(&device, 8192);
    let len = usize::try_from(MORE).unwrap();
    let bytes = Arc::new(Buffer::from(&pattern::bytes(3, 0, len)[..]));
    let make: [(&str, Make); 3] = [
        ("written", |file, bytes| assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len())),
        ("set aside", |file, _| {
            file.allocate(0, MORE, Allocate::Reserve { keep_size: false }).unwrap();
        }),
        ("written past memory", |file, bytes| file.write_direct(bytes, 0).unwrap()),
    ];
    for (name, make) in make {
        let file = filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        make(&file, &bytes);
        let lens: Vec<u64> = file.extents().unwrap().iter().map(|extent| extent.len).collect();
        assert_eq!(lens, [EXTENT_MAX, MORE - EXTENT_MAX], "{name}");
    }
    filesystem.close().unwrap();
    check_image("extents as long as can be", &device.image());
    let filesystem = open_device(device).unwrap();
    for (name, _) in make {
        let content = filesystem.read(format!("/{name}")).unwrap();
        match name {
            "set aside" => assert!(content.iter().all(|byte| *byte == 0), "{name}"),
            _ => assert!(content[..] == bytes[..], "{name}"),
        }
    }
}

fn start(kind: &ExtentKind) -> u64 {
    match kind {
        ExtentKind::Data { logical, .. } => *logical,
        other => panic!("{other:?}"),
    }
}

fn end(kind: &ExtentKind) -> u64 {
    match kind {
        ExtentKind::Data { logical, disk_bytes, .. } => logical + disk_bytes,
        other => panic!("{other:?}"),
    }
}

/// Sizes of files, none of which is inline.
const SIZES: [u64; 8] = [2049, 4095, 4096, 4097, 50_000, 131_072, 300_001, 1_000_000];

/// Returns the size of a file.
fn size(number: usize) -> u64 {
    SIZES[number]
}

fn content(number: usize) -> Vec<u8> {
    let seed = u32::try_from(2 * number + 1).unwrap();
    pattern::bytes(seed, 0, usize::try_from(size(number)).unwrap())
}

#[test]
fn a_damaged_sector_is_an_error_or_mended_but_never_wrong() {
    let seed = seed();
    let sums = |checksum| Options { checksum, nodesize: 4096, ..Options::default() };
    let twice = Options { data: Profile::Dup, ..sums(ChecksumKind::Crc32c) };
    let kinds = [
        (Made::new("crc32c", 128 * MIB, sums(ChecksumKind::Crc32c)), false),
        (Made::new("sha256", 128 * MIB, sums(ChecksumKind::Sha256)), false),
        (Made::new("mixed", 64 * MIB, Options::mixed()), false),
        (Made::new("data twice", 256 * MIB, twice), true),
    ];
    for (made, has_copy) in kinds {
        let image = written(&made);
        let mut places = sectors_of_files(&image);
        assert!(!places.is_empty(), "{}", made.name);
        let count = if is_torture() { places.len() } else { 40 };
        let mut random = Random::new(seed);
        random.shuffle(&mut places);
        for place in places.into_iter().take(count) {
            let what = format!("{}, sector at {place}, seed {seed}", made.name);
            let mut damaged = image.clone();
            flip(&mut damaged, place + random.below(SECTOR), &mut random);
            let errors = read_all(&what, &damaged);
            assert_eq!(errors, u32::from(!has_copy), "{what}");
        }
    }
}

/// Returns an image with all files.
fn written(made: &Made) -> SparseImage {
    let device = Arc::new(made.image().to_device());
    let filesystem = open_for_writing(&device, 16);
    for number in 0..SIZES.len() {
        let name = number.to_string();
        let inode = filesystem.root().create(name.as_bytes(), 0o644).unwrap();
        let file = inode.open().unwrap();
        let bytes = content(number);
        assert_eq!(file.write_at(&bytes, 0).unwrap(), bytes.len());
        file.close().unwrap();
    }
    filesystem.close().unwrap();
    device.image()
}

/// Returns the sectors of the image that have data of files, found by content.
fn sectors_of_files(image: &SparseImage) -> Vec<u64> {
    let known: std::collections::HashSet<Vec<u8>> = (0..SIZES.len())
        .flat_map(|number| {
            let mut bytes = content(number);
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            bytes.chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>()
        })
        .collect();
    let mut sector = vec![0; 4096];
    let is_known = |place: &u64| {
        image.read(*place, &mut sector);
        known.contains(&sector)
    };
    (0..image.len() / SECTOR).map(|number| number * SECTOR).filter(is_known).collect()
}

fn flip(image: &mut SparseImage, at: u64, random: &mut Random) {
    let mut byte = [0];
    image.read(at, &mut byte);
    image.write(at, &[byte[0] ^ 1 << random.below(8)]);
}

/// Reads all files; returns the number of errors. No file returns a wrong byte.
fn read_all(what: &str, image: &SparseImage) -> u32 {
    let filesystem = open_device(Arc::new(image.to_device())).unwrap();
    let mut errors = 0;
    for number in 0..SIZES.len() {
        let file = filesystem.open_file(number.to_string()).unwrap();
        match file.read_all() {
            Ok(bytes) => assert!(bytes == content(number), "{what}: file {number}"),
            Err(Error::OutOfMemory { .. }) => panic!("{what}: out of memory"),
            Err(_) => errors += 1,
        }
    }
    errors
}
