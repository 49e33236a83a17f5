//! `put` of data: files of every size, holes, files that do not fit, and a copy that is stopped.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::thread;

use userbtrfs::copy::{Copier, CopyOptions, ImageTarget, Progress};
use userbtrfs::{ExtentKind, Filesystem};

use crate::support::held::Held;
use crate::support::made::Made;
use crate::support::{assert_says, pattern};

/// A directory beside the image.
fn source(made: &Made) -> PathBuf {
    let source = made.at("source");
    fs::create_dir(&source).unwrap();
    source
}

#[test]
fn contents_of_every_size_are_kept() {
    const KIB: usize = 1 << 10;
    let made = Made::new();
    let source = source(&made);
    let around = [2 * KIB, 4 * KIB, 64 * KIB, 128 * KIB, 1024 * KIB, 5000 * KIB];
    let sizes: Vec<_> = around.iter().flat_map(|&size| [size - 1, size, size + 1]).collect();
    for &size in [0, 1].iter().chain(&sizes) {
        fs::write(source.join(size.to_string()), pattern(size)).unwrap();
    }
    made.does("put --fsync", &[source.to_str().unwrap(), "/each"]);
    made.does("put", &[source.to_str().unwrap(), "/all"]);
    let filesystem = made.open();
    for dir in ["each", "all"] {
        for &size in &sizes {
            let content = filesystem.read(format!("/{dir}/{size}")).unwrap();
            assert!(content == pattern(size), "{dir}/{size}");
        }
    }
    drop(filesystem);
    made.judge();
}

/// A file of 1 TiB with data at its start, in its middle and at its end, and one without data.
#[test]
fn holes_are_kept() {
    const TIB: u64 = 1 << 40;
    let made = Made::new();
    let source = source(&made);
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.set_len(TIB).unwrap();
    let data = [(0, 5000), (1 << 30, 300_000), (TIB - 100, 100)];
    for (offset, len) in data {
        sparse.write_all_at(&pattern(len), offset).unwrap();
    }
    File::create(source.join("hole")).unwrap().set_len(TIB + 1).unwrap();
    let said = made.verb("put --format json", &[source.to_str().unwrap(), "/"]).good();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(said["put"]["bytes"].as_u64().unwrap() < 1 << 20, "{said}");

    let filesystem = made.open();
    let file = filesystem.open_file("/source/sparse").unwrap();
    for (offset, len) in data {
        let mut content = vec![0; len];
        file.read_at(&mut content, offset).unwrap();
        assert!(content == pattern(len), "at {offset}");
    }
    assert_eq!(file.seek_data(1 << 20).unwrap(), 1 << 30);
    assert_eq!(file.seek_hole(1 << 30).unwrap(), (1 << 30) + 303_104);
    assert_eq!(file.len(), TIB);
    assert!(file.inode().metadata().unwrap().allocated < 1 << 20);
    let hole = filesystem.metadata("/source/hole").unwrap();
    assert_eq!((hole.size, hole.allocated), (TIB + 1, 0));
    drop((file, filesystem));
    made.judge();
}

#[test]
fn file_that_does_not_fit_is_named_and_the_rest_is_copied() {
    let made = Made::of_size("100M");
    let source = source(&made);
    fs::write(source.join("before"), pattern(10_000)).unwrap();
    fs::write(source.join("large"), vec![1; 100 << 20]).unwrap();
    fs::hard_link(source.join("large"), source.join("large again")).unwrap();
    fs::write(source.join("behind"), pattern(20_000)).unwrap();
    let said = made.verb("put", &[source.to_str().unwrap(), "/"]).bad();
    assert_says(&said, &["put: ", "source/large", ": no space left on the device"]);
    assert!(said.lines().all(|line| line.contains("source/large")), "{said}");
    assert_eq!(made.paths(), ["/source", "/source/before", "/source/behind"]);
    made.judge();

    fs::remove_file(source.join("large again")).unwrap();
    fs::write(source.join("large"), vec![2; 20 << 20]).unwrap();
    let content = format!("{}/.", source.display());
    made.does("put", &[&content, "/source"]);
    let filesystem = made.open();
    assert!(filesystem.read("/source/large").unwrap() == vec![2; 20 << 20]);
    assert!(filesystem.read("/source/behind").unwrap() == pattern(20_000));
    drop(filesystem);
    made.judge();
}

#[test]
fn a_copy_that_is_stopped_leaves_no_incomplete_file() {
    let made = Made::new();
    let source = source(&made);
    fs::write(source.join("small"), b"small").unwrap();
    fs::write(source.join("large"), vec![1; 128 << 20]).unwrap();
    let (filesystem, held) = Held::open(&made);
    let progress = Progress::default();
    let copier = Copier::new(CopyOptions::default(), &progress);
    let root = filesystem.root();
    thread::scope(|scope| {
        let progress = &progress;
        // The copy cannot end before it is stopped.
        scope.spawn(move || {
            let _held = held;
            while progress.bytes() < 1 << 20 {
                thread::yield_now();
            }
            progress.stop();
        });
        let target = ImageTarget { dir: &root, name: Some(b"copy"), path: b"/copy" };
        copier.put(&source, &target, &|error| panic!("{error}"));
    });
    assert!(progress.bytes() < 128 << 20, "it was stopped");
    drop(root);
    filesystem.close().unwrap();
    assert!(!made.paths().contains(&"/copy/large".to_owned()));
    made.judge();
}

/// Returns whether a file has compressed extents.
fn is_compressed(filesystem: &Filesystem, path: &str) -> bool {
    let extents = filesystem.open_file(path).unwrap().extents().unwrap();
    extents
        .iter()
        .any(|extent| matches!(extent.kind, ExtentKind::Data { compression: Some(_), .. }))
}

#[test]
fn data_is_compressed_if_asked_to() {
    let made = Made::new();
    let source = source(&made);
    let text = b"All work and no play makes Jack a dull boy.\n".repeat(50_000);
    fs::write(source.join("text"), &text).unwrap();
    fs::write(source.join("noise"), pattern(500_000)).unwrap();
    let source = source.to_str().unwrap();
    for method in ["zlib:9", "lzo", "zstd", "zstd:-15"] {
        made.does(&format!("put --compress {method}"), &[source, &format!("/{method}")]);
    }
    made.does("put --fsync --compress zstd:1", &[source, "/fsync"]);
    made.does("put --compress no", &[source, "/no"]);
    made.does("put", &[source, "/plain"]);
    let filesystem = made.open();
    for dir in ["zlib:9", "lzo", "zstd", "zstd:-15", "fsync", "no", "plain"] {
        let is_plain = matches!(dir, "no" | "plain");
        assert_eq!(is_compressed(&filesystem, &format!("/{dir}/text")), !is_plain, "{dir}");
        assert!(filesystem.read(format!("/{dir}/text")).unwrap() == text, "{dir}");
        assert!(filesystem.read(format!("/{dir}/noise")).unwrap() == pattern(500_000), "{dir}");
    }
    drop(filesystem);
    made.judge();
    for (method, says) in [
        ("gzip", "unrecognized compression gzip"),
        ("zstd:16", "compression level 16 is out of range for zstd (-15 to 15)"),
        ("zlib:0x", "unrecognized compression zlib:0x"),
    ] {
        let told = made.verb(&format!("put --compress {method}"), &[source, "/refused"]);
        assert_says(&told.stderr, &[says]);
    }
    assert!(made.open().lookup("/refused").is_err());
}
