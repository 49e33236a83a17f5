//! Files that we defragment: they get as few extents as Linux makes of the same files, their
//! content and that of their snapshots stays, and so it does after a cut.

use std::path::Path;
use std::process::Command;

use userbtrfs::mkfs::Options;
use userbtrfs::{
    Allocate, Compress, Compression, Defragment, Extent, ExtentKind, File, Filesystem, InodeFlags,
    OpenOptions, Recompress, TreeId,
};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{RecordingDevice, SparseDevice};
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::cut_states::judge_prefixes;
use super::made::{MIB, Made, check_file, kinds};
use super::ours::{judge_by_linux, use_by_linux};
use super::{is_torture, open_to_write};

const SECTOR: u64 = 4096;

/// The threshold of btrfs-progs.
const THRESHOLD: u64 = 32 << 20;

/// The files, each with the length of the parts of which it is written.
const FILES: [(&str, u64, u64); 6] = [
    ("small", SECTOR, 400),
    ("sparse", SECTOR, 300),
    ("preallocated", SECTOR, 200),
    ("nocow", SECTOR, 200),
    ("packed", 32 << 10, 40),
    ("large", 1 << 20, 12),
];

fn request() -> Defragment {
    Defragment { threshold: THRESHOLD, ..Defragment::default() }
}

/// Writes a file in parts, each of which becomes an extent. The sparse file has holes, and a part
/// of the preallocated one is never written.
fn write(filesystem: &Filesystem, (name, part, count): (&str, u64, u64)) {
    let file = filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
    let compress = Compress { method: Compression::Zstd.into(), force: true };
    filesystem.set_compress((name == "packed").then_some(compress));
    match name {
        "nocow" => file.inode().set_flags(InodeFlags::NODATACOW).unwrap(),
        "preallocated" => {
            file.allocate(0, part * count, Allocate::Reserve { keep_size: false }).unwrap();
        }
        _ => {}
    }
    for number in 0..count {
        // First the even ones, then the odd ones.
        let number = if number < count / 2 { 2 * number } else { 2 * number - count + 1 };
        let is_skipped = match name {
            "sparse" => number % 10 > 6,
            "preallocated" => number % 20 > 11,
            _ => false,
        };
        if !is_skipped {
            let bytes = pattern::bytes(7, number * part, usize::try_from(part).unwrap());
            file.write_all_at(&bytes, number * part).unwrap();
            file.sync_all().unwrap();
        }
    }
    filesystem.set_compress(None);
}

fn data_extents(file: &File) -> usize {
    let extents = file.extents().unwrap();
    extents.iter().filter(|extent| matches!(extent.kind, ExtentKind::Data { .. })).count()
}

fn counts(filesystem: &Filesystem) -> Vec<(&'static str, usize)> {
    let count = |name| (name, data_extents(&filesystem.open_file(name).unwrap()));
    FILES.map(|(name, ..)| count(name)).to_vec()
}

/// Returns the content of each file that there is.
fn contents(filesystem: &Filesystem, dir: &str) -> Vec<Option<Vec<u8>>> {
    FILES.map(|(name, ..)| filesystem.read(format!("{dir}/{name}")).ok()).to_vec()
}

fn open(image: &Path, write: bool) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(write).subvolume_id(TreeId::FS).commit_seconds(0).open(image).unwrap()
}

#[test]
fn files_get_as_few_extents_as_by_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let device = {
        let image = Made::new("default", 512 * MIB, Options::default()).image();
        Arc::new(image.to_device())
    };
    let filesystem = open_to_write(Arc::<SparseDevice>::clone(&device));
    for file in FILES {
        write(&filesystem, file);
    }
    filesystem.root().snapshot(b"snapshot", TreeId::FS, true).unwrap();
    let before = counts(&filesystem);
    let expected = contents(&filesystem, "");
    assert!(expected.iter().all(Option::is_some));
    filesystem.close().unwrap();
    let [by_us, by_linux] = ["ours", "theirs"].map(|name| folder.path().join(name));
    device.image().write_to(&by_us).unwrap();
    device.image().write_to(&by_linux).unwrap();

    let mount = linux.mount(&by_linux, "noatime,subvolid=5").unwrap();
    for (name, ..) in FILES {
        let mut defragment = Command::new("btrfs");
        defragment.args(["filesystem", "defragment", "-f"]).arg(mount.path().join(name));
        run(&mut defragment).unwrap();
    }
    run(Command::new("sync").arg("-f").arg(mount.path())).unwrap();
    drop(mount);
    let filesystem = open(&by_linux, false);
    let theirs = counts(&filesystem);
    drop(filesystem);

    let filesystem = open(&by_us, true);
    for (name, ..) in FILES {
        filesystem.open_file(name).unwrap().defragment(&request()).unwrap();
    }
    let ours = counts(&filesystem);
    filesystem.close().unwrap();
    println!("before: {before:?}\nLinux:  {theirs:?}\nours:   {ours:?}");
    // Linux looks at 256 KiB at a time, and so leaves a small extent alone that is next to a
    // boundary of them.
    for ((name, theirs), (_, ours)) in theirs.iter().zip(&ours) {
        assert!(ours <= theirs, "{name}: {ours}, by Linux {theirs}");
    }
    let filesystem = open(&by_us, false);
    assert!(contents(&filesystem, "") == expected);
    assert!(contents(&filesystem, "snapshot") == expected);
    drop(filesystem);
    check_file("defragmented", &by_us);
    linux.scrub(&by_us).unwrap();
    judge_by_linux(&linux, "defragmented", &by_us);
    use_by_linux(&linux, "defragmented", &by_us);
    linux.assert_no_complaints().unwrap();
}

#[test]
fn linux_reads_what_is_compressed_while_it_is_defragmented() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for algorithm in Compression::ALL {
        let device = {
            let image = Made::new("default", 256 * MIB, Options::default()).image();
            Arc::new(image.to_device())
        };
        let filesystem = open_to_write(Arc::<SparseDevice>::clone(&device));
        let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
        let bytes = b"compressible text ".repeat(60_000);
        for part in bytes.chunks(20_000).enumerate().collect::<Vec<_>>().into_iter().rev() {
            file.write_all_at(part.1, part.0 as u64 * 20_000).unwrap();
            file.sync_all().unwrap();
        }
        let compression = Recompress::With(algorithm.into());
        file.defragment(&Defragment { compression, ..Defragment::default() }).unwrap();
        for extent in file.extents().unwrap() {
            let ExtentKind::Data { compression, .. } = extent.kind else { panic!("{extent:?}") };
            // The last sector alone cannot become shorter.
            assert!(compression == Some(algorithm) || extent.len <= SECTOR, "{extent:?}");
        }
        drop(file);
        filesystem.close().unwrap();
        let image = folder.path().join(algorithm.name());
        device.image().write_to(&image).unwrap();
        check_file(algorithm.name(), &image);
        let mount = linux.mount(&image, "ro,noatime,subvolid=5").unwrap();
        assert!(std::fs::read(mount.path().join("file")).unwrap() == bytes);
        drop(mount);
        linux.scrub(&image).unwrap();
    }
    linux.assert_no_complaints().unwrap();
}

/// Returns where a file is compressed, and whether it is marked incompressible.
fn compressed(filesystem: &Filesystem, name: &str) -> (Vec<(u64, bool)>, bool) {
    let file = filesystem.open_file(name).unwrap();
    let at = |extent: Extent| match extent.kind {
        ExtentKind::Data { compression, .. } => (extent.start, compression.is_some()),
        ref other => panic!("{other:?}"),
    };
    let extents = file.extents().unwrap().into_iter().map(at).collect();
    (extents, file.inode().metadata().unwrap().flags.contains(InodeFlags::NOCOMPRESS))
}

/// Compression that a defragmentation asks for is tried whatever a sample of the data looks like.
#[test]
fn same_data_is_compressed_by_a_defragmentation_as_by_linux() {
    const PART: usize = 128 << 10;
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(5);
    let noise: Vec<u8> = (0..PART).map(|_| random.below(256).to_le_bytes()[0]).collect();
    let few: Vec<u8> = noise.iter().map(|byte| byte % 100).collect();
    let text = vec![b'x'; PART];
    let files =
        [("noise", [&noise, &noise]), ("few", [&few, &few]), ("text", [&few, &text])].into_iter();
    let files = files.chain([("both", [&noise, &few]), ("marked", [&noise, &text])]);
    let files: Vec<_> =
        files.map(|(name, parts)| (name, parts.map(|it| &it[..]).concat())).collect();
    let image = Made::new("default", 256 * MIB, Options::default()).image();
    let [by_us, by_linux] = ["ours", "theirs"].map(|name| folder.path().join(name));
    image.write_to(&by_us).unwrap();
    image.write_to(&by_linux).unwrap();

    let mount = linux.mount(&by_linux, "noatime,subvolid=5").unwrap();
    for (name, bytes) in &files {
        let path = mount.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        run(Command::new("sync").arg("-f").arg(mount.path())).unwrap();
        run(Command::new("btrfs").args(["filesystem", "defragment", "-f", "-czlib"]).arg(path))
            .unwrap();
    }
    drop(mount);
    let filesystem = open(&by_us, true);
    for (name, bytes) in &files {
        let file = filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync_all().unwrap();
        let compression = Recompress::With(Compression::Zlib.into());
        file.defragment(&Defragment { compression, ..Defragment::default() }).unwrap();
    }
    filesystem.close().unwrap();
    let [ours, theirs] = [&by_us, &by_linux].map(|image| {
        let filesystem = open(image, false);
        files.iter().map(|(name, _)| (*name, compressed(&filesystem, name))).collect::<Vec<_>>()
    });
    let (same, rest) = ours.split_at(3);
    assert_eq!(same, &theirs[..3]);
    // Linux gives up the rest of 512 KiB.
    for ((name, ours), (_, theirs)) in rest.iter().zip(&theirs[3..]) {
        assert_eq!(ours.0, [(0, false), (PART as u64, true)], "{name}");
        assert_eq!((theirs.0.as_slice(), ours.1), ([(0, false)].as_slice(), theirs.1), "{name}");
    }
    check_file("compressed", &by_us);
    linux.scrub(&by_us).unwrap();
    linux.assert_no_complaints().unwrap();
}

#[test]
fn cut_of_a_defragmentation_changes_no_content() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    for made in kinds().into_iter().take(if is_torture() { 9 } else { 2 }) {
        let device = Arc::new(RecordingDevice::on(&made.image()));
        let filesystem = open_to_write(device.clone());
        for file in &FILES[..5] {
            write(&filesystem, *file);
        }
        filesystem.root().snapshot(b"snapshot", TreeId::FS, true).unwrap();
        let expected = contents(&filesystem, "");
        assert!(expected[..5].iter().all(Option::is_some));
        filesystem.commit().unwrap();
        let begin = device.count();
        for (index, (name, ..)) in FILES[..5].iter().enumerate() {
            let file = filesystem.open_file(name).unwrap();
            let compression = if index % 2 == 0 {
                Recompress::Usual
            } else {
                Recompress::With(Compression::Zlib.into())
            };
            file.defragment(&Defragment { compression, ..request() }).unwrap();
            file.sync_all().unwrap();
        }
        filesystem.commit().unwrap();
        filesystem.abandon();
        let step = if is_torture() { 1 } else { 9 };
        judge_prefixes(&linux, made.name, &device, begin, step, |what, opened| {
            for dir in ["", "snapshot"] {
                assert!(contents(opened, dir) == expected, "{what}: {dir}");
            }
        });
    }
}
