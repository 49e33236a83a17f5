//! Data that we compress: Linux reads it, also after it replayed a log with it, scrubs it without
//! an error, and btrfs-progs finds the image clean.

use std::fs;
use std::path::Path;

use userbtrfs::mkfs::{ChecksumKind, Options};
use userbtrfs::{
    Compress, ExtentKind, File, Filesystem, InodeFlags, OpenOptions, TreeId, XattrMode,
};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_file};
use super::ours::{judge_by_linux, use_by_linux};

/// The sizes of files in bytes: around what is inline, a sector, and an extent.
const SIZES: [usize; 10] =
    [1, 300, 2049, 4095, 4096, 4097, 50_000, 128 << 10, (128 << 10) + 1, 3 << 20];

/// The files and their content.
type Files = Vec<(String, Vec<u8>)>;

fn open(device: &Arc<SparseDevice>, compress: Option<Compress>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).compress(compress);
    options.open_devices(vec![device.clone()]).unwrap()
}

/// Returns bytes of which some ranges are text, some noise and some zeros.
fn content(seed: u32, size: usize) -> Vec<u8> {
    let mut bytes = pattern::bytes(seed, 0, size);
    for (index, part) in bytes.chunks_mut(150_000).enumerate() {
        match index % 4 {
            1 => part.fill(0),
            2 => part.iter_mut().for_each(|byte| *byte &= 0x0f),
            _ => {}
        }
    }
    bytes
}

/// Creates files of every size, noise and others, fsyncs them, and overwrites parts of some.
fn fill(filesystem: &Filesystem) -> Files {
    let mut files = Files::new();
    for size in SIZES {
        for seed in 1..4 {
            let name = format!("{size} of {seed}");
            let mut bytes = content(seed, size);
            let inode = filesystem.root().create(name.as_bytes(), 0o644).unwrap();
            let file = inode.open().unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
            if size > 4096 && seed == 2 {
                let new = content(4, size / 3);
                file.write_all_at(&new, size as u64 / 2).unwrap();
                bytes[size / 2..][..new.len()].copy_from_slice(&new);
                file.sync_all().unwrap();
            }
            files.push((name, bytes));
        }
    }
    files
}

/// Checks the files by Linux, which replays the log if there is one.
fn judge(what: &str, image: &SparseImage, files: &Files) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    image.write_to(&path).unwrap();
    check_file(what, &path);
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&path, "noatime,subvolid=5").unwrap();
    assert_files(what, mount.path(), files);
    drop(mount);
    linux.assert_no_complaints().unwrap();
    linux.scrub(&path).unwrap();
    judge_by_linux(&linux, what, &path);
    use_by_linux(&linux, what, &path);
    linux.assert_no_complaints().unwrap();
}

fn assert_files(what: &str, root: &Path, files: &Files) {
    for (name, bytes) in files {
        assert!(fs::read(root.join(name)).unwrap() == *bytes, "{what}: {name}");
    }
}

fn is_compressed(file: &File) -> bool {
    file.extents()
        .unwrap()
        .iter()
        .any(|extent| matches!(extent.kind, ExtentKind::Data { compression: Some(_), .. }))
}

#[test]
fn linux_reads_what_we_compress_also_from_a_log() {
    skip_unless_linux!();
    let nodes = Options { nodesize: 4096, checksum: ChecksumKind::Xxhash64, ..Options::default() };
    for (method, force, options) in [
        ("zlib:9", false, Options::default()),
        ("zlib:1", true, nodes.clone()),
        ("lzo", false, nodes.clone()),
        ("lzo", true, Options::mixed()),
        ("zstd:-15", true, Options::default()),
        ("zstd:15", false, Options::mixed()),
    ] {
        let what = format!("{method}, forced: {force}");
        let made = Made::new("compressed", 256 * MIB, options);
        let device = Arc::new(made.image().to_device());
        let compress = Compress { method: method.parse().unwrap(), force };
        let filesystem = open(&device, Some(compress));
        let files = fill(&filesystem);
        let large = filesystem.open_file(format!("/{} of 2", 3 << 20)).unwrap();
        assert!(is_compressed(&large), "{what}");
        drop(large);
        let image = device.image();
        assert!(filesystem.stats().log.log_commits > 0, "{what}: there is a log");
        judge(&format!("{what}, log"), &image, &files);
        filesystem.close().unwrap();
        judge(&what, &device.image(), &files);
    }
}

/// Linux finds the flags and properties as it would leave them.
#[test]
fn linux_reads_files_compressed_by_property_and_files_marked_incompressible() {
    skip_unless_linux!();
    let made = Made::new("properties", 256 * MIB, Options::default());
    let device = Arc::new(made.image().to_device());
    let filesystem = open(&device, None);
    let mut files = Files::new();
    for value in ["zlib", "lzo", "zstd:3"] {
        let dir = filesystem.root().create_dir(value.as_bytes(), 0o755).unwrap();
        dir.inode().set_xattr(b"btrfs.compression", value.as_bytes(), XattrMode::Either).unwrap();
        let file = dir.create(b"file", 0o644).unwrap().open().unwrap();
        let bytes = content(2, 1 << 20);
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        assert!(is_compressed(&file), "{value}");
        files.push((format!("{value}/file"), bytes));
    }
    filesystem.close().unwrap();
    let filesystem =
        open(&device, Some(Compress { method: "zlib".parse().unwrap(), force: false }));
    // A sample shows a run, but most of the data is noise.
    let mut bytes = pattern::bytes(1, 0, 12 << 10);
    bytes.chunks_mut(256).for_each(|part| part[..16].fill(b'x'));
    let inode = filesystem.root().create(b"noise", 0o644).unwrap();
    inode.open().unwrap().write_all_at(&bytes, 0).unwrap();
    files.push(("noise".to_owned(), bytes));
    filesystem.commit().unwrap();
    assert!(inode.metadata().unwrap().flags.contains(InodeFlags::NOCOMPRESS));
    drop(inode);
    filesystem.close().unwrap();
    judge("properties", &device.image(), &files);
}

/// Linux finds files that share compressed extents as they were written, whichever part was
/// overwritten or cloned to another place.
#[test]
fn linux_reads_clones_of_what_we_compress() {
    skip_unless_linux!();
    for method in ["zlib", "lzo", "zstd:3"] {
        let made = Made::new("clones", 256 * MIB, Options::default());
        let device = Arc::new(made.image().to_device());
        let filesystem =
            open(&device, Some(Compress { method: method.parse().unwrap(), force: true }));
        let mut source = content(2, 1 << 20);
        for byte in &mut source {
            *byte &= 0x0f;
        }
        let create =
            |name: &str| filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        let file = create("file");
        file.write_all_at(&source, 0).unwrap();
        file.sync_all().unwrap();
        assert!(is_compressed(&file), "{method}");
        let twin = create("twin");
        twin.clone_range(&file, 0, 0, 0).unwrap();
        let mut expected = [source.clone(), source];
        // Parts that begin and end within compressed extents.
        for (number, (at, len)) in
            [(4096, 4096), (100_000, 70_000), (262_144, 131_072), (700_001, 5)]
                .into_iter()
                .enumerate()
        {
            let bytes = content(9, len);
            let which = number % 2;
            [&file, &twin][which].write_all_at(&bytes, at as u64).unwrap();
            expected[which][at..][..len].copy_from_slice(&bytes);
            [&file, &twin][which].sync_all().unwrap();
        }
        twin.clone_range(&file, 36_864, 200_704, 405_504).unwrap();
        let part = expected[0][36_864..][..200_704].to_vec();
        expected[1][405_504..][..200_704].copy_from_slice(&part);
        twin.sync_all().unwrap();
        let [ours, theirs] = expected;
        let files = vec![("file".to_owned(), ours), ("twin".to_owned(), theirs)];
        drop((file, twin));
        judge(&format!("{method}, log"), &device.image(), &files);
        filesystem.close().unwrap();
        judge(method, &device.image(), &files);
    }
}

/// Files around the size that is stored inline are marked incompressible where Linux does that.
#[test]
fn small_files_get_the_flags_that_linux_gives_them() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    // The bytes of the pattern become an eighth shorter; those of the random numbers do not.
    let pattern = pattern::bytes(5, 0, 12_000);
    let mut random = Random::new(5);
    let noise: Vec<u8> = (0..12_000).map(|_| random.below(256).to_le_bytes()[0]).collect();
    let files: Vec<(String, Vec<u8>)> =
        [1, 6, 100, 1500, 2048, 2500, 3000, 4095, 4096, 5000, 12_000]
            .into_iter()
            .flat_map(|size| {
                let text = vec![b'x'; size];
                let parts = [("noise", &noise), ("pattern", &pattern), ("text", &text)];
                parts.map(|(kind, bytes)| (format!("{kind} {size}"), bytes[..size].to_vec()))
            })
            .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let made = Made::new("flags", 256 * MIB, Options::default());
    made.image().write_to(&path).unwrap();
    let mount = linux.mount(&path, "noatime,subvolid=5,compress=zstd").unwrap();
    for (name, bytes) in &files {
        fs::write(mount.path().join(name), bytes).unwrap();
    }
    drop(mount);
    let theirs = OpenOptions::new().subvolume_id(TreeId::FS).open(&path).unwrap();
    let device = Arc::new(made.image().to_device());
    let ours = open(&device, Some(Compress { method: "zstd".parse().unwrap(), force: false }));
    for (name, bytes) in &files {
        let inode = ours.root().create(name.as_bytes(), 0o644).unwrap();
        inode.open().unwrap().write_all_at(bytes, 0).unwrap();
    }
    ours.commit().unwrap();
    let is_marked = |filesystem: &Filesystem, name: &str| {
        filesystem.metadata(name).unwrap().flags.contains(InodeFlags::NOCOMPRESS)
    };
    let marks = |filesystem: &Filesystem| -> Vec<(String, bool)> {
        files.iter().map(|(name, _)| (name.clone(), is_marked(filesystem, name))).collect()
    };
    assert_eq!(marks(&ours), marks(&theirs));
}
