//! `filesystem defragment`, of an image and of a mount; and btrfs-progs on a mount.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use userbtrfs::{Compression, ExtentKind, Filesystem};
use userbtrfs_testkit::test_env::has_program;

use super::support::command::{Ran, run};
use super::support::made::Made;
use super::support::pattern;
use super::support::site::Site;

/// The sectors of a file, each of which is an extent.
const SECTORS: usize = 64;

/// Makes files of many extents.
fn scatter(made: &Made, names: &[&str]) -> Vec<u8> {
    let filesystem = made.open_for_writing();
    let bytes = pattern(SECTORS * 4096);
    for name in names {
        let (dir, name) = filesystem.open_parent_of_file(name.as_bytes()).unwrap();
        let file = dir.create(&name, 0o644).unwrap().open().unwrap();
        for (number, part) in bytes.chunks(4096).enumerate() {
            file.write_all_at(part, number as u64 * 4096).unwrap();
            file.sync_all().unwrap();
        }
    }
    filesystem.close().unwrap();
    bytes
}

fn compressions(filesystem: &Filesystem, path: &str) -> Vec<Option<Compression>> {
    let extents = filesystem.open_file(path).unwrap().extents().unwrap();
    let of_data = extents.into_iter().filter_map(|extent| match extent.kind {
        ExtentKind::Data { compression, .. } => Some(compression),
        _ => None,
    });
    of_data.collect()
}

fn extents(made: &Made, path: &str) -> usize {
    compressions(&made.open(), path).len()
}

#[test]
fn files_of_an_image_are_defragmented() {
    let made = Made::new();
    made.does("mkdir", &["/dir", "/dir/deep"]);
    made.does("subvolume -q create", &["/dir/sub"]);
    let bytes = scatter(&made, &["/a", "/dir/b", "/dir/deep/c", "/dir/sub/d", "/e"]);
    assert_eq!(extents(&made, "/a"), SECTORS);
    assert_eq!(made.verb("filesystem defragment -v", &["/a"]).good(), "/a\n");
    assert_eq!(extents(&made, "/a"), 1);
    let ran = made.verb("filesystem defrag", &["/dir"]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(0), 0));
    assert!(ran.stderr.contains("is a directory"), "{}", ran.stderr);
    assert_eq!(extents(&made, "/dir/b"), SECTORS);
    made.does("filesystem defrag -rf", &["/dir"]);
    assert_eq!(
        ["/dir/b", "/dir/deep/c", "/dir/sub/d"].map(|it| extents(&made, it)),
        [1, 1, SECTORS]
    );
    made.does("filesystem defragment -s 16k -l 32K -t 1M", &["/e"]);
    assert_eq!(extents(&made, "/e"), SECTORS - 7);
    for name in ["/a", "/dir/b", "/dir/deep/c", "/dir/sub/d", "/e"] {
        assert!(made.open().read(name).unwrap() == bytes, "{name}");
    }
    made.judge();
}

#[test]
fn files_are_compressed_by_the_algorithm_and_level_given() {
    let made = Made::new();
    let filesystem = made.open_for_writing();
    let text = b"text to compress ".repeat(20_000);
    let file = filesystem.root().create(b"file", 0o644).unwrap().open().unwrap();
    file.write_all_at(&text, 0).unwrap();
    drop(file);
    filesystem.close().unwrap();
    for (options, algorithm) in [
        ("-c", Compression::Zlib),
        ("-vclzo", Compression::Lzo),
        ("-czstd:9", Compression::Zstd),
        ("-c -L 9", Compression::Zlib),
        ("-czstd -L -5", Compression::Zstd),
        ("--compress=lzo", Compression::Lzo),
    ] {
        let ran = made.verb(&format!("filesystem defragment {options}"), &["/file"]);
        ran.good();
        assert_eq!(compressions(&made.open(), "/file"), [Some(algorithm); 3], "{options}");
    }
    for (options, says) in
        [("-cfoo", "foo"), ("-czstd -L 16", "16"), ("-clzo -L 3", "3"), ("-czlib:10", "10")]
    {
        let ran = made.verb(&format!("filesystem defragment {options}"), &["/file"]);
        assert!(ran.code != Some(0) && ran.stderr.contains(says), "{options}: {}", ran.stderr);
        assert_eq!(compressions(&made.open(), "/file"), [Some(Compression::Lzo); 3], "{options}");
    }
    assert!(made.open().read("/file").unwrap() == text);
    made.judge();
}

#[test]
fn failure_is_reported_and_the_rest_is_defragmented() {
    let made = Made::new();
    scatter(&made, &["/a", "/b"]);
    made.does("subvolume -q snapshot -r", &["/", "/snapshot"]);
    let said = made.verb("filesystem defragment", &["/snapshot/a", "/none", "/b"]).bad();
    assert_eq!(
        said,
        "userbtrfs: /snapshot/a: read-only\nuserbtrfs: /none: no such file or directory\n"
    );
    assert_eq!((extents(&made, "/b"), extents(&made, "/snapshot/a")), (1, SECTORS));
    let said = made.verb("filesystem defragment -s 1M", &["/a"]).bad();
    assert!(said.starts_with("userbtrfs: /a: "), "{said}");
    made.judge();
}

fn verb(site: &Site, words: &str, paths: &[&str]) -> Ran {
    let paths = paths.iter().map(|path| site.point().join(path).into_os_string());
    run(words.split(' ').map(|word| OsStr::new(word).to_owned()).chain(paths))
}

#[test]
fn files_of_a_mount_are_defragmented() {
    let Some(site) = Site::new() else { return };
    site.made.does("mkdir", &["/dir"]);
    let bytes = scatter(&site.made, &["/a", "/dir/b", "/c", "/d"]);
    site.mount(&[]).good();
    let point = site.point();
    let read = |name: &str| fs::read(point.join(name)).unwrap();
    verb(&site, "filesystem defragment", &["a"]).good();
    let said = verb(&site, "filesystem defragment -rv -czstd", &["dir", "c"]).good();
    assert_eq!(said, format!("{0}/dir/b\n{0}/c\n", point.display()));
    let said = verb(&site, "filesystem defragment", &["none", "a"]).bad();
    assert_eq!(said, format!("userbtrfs: {}/none: No such file or directory\n", point.display()));
    // A writer beside it loses nothing.
    let file = fs::File::options().write(true).open(point.join("d")).unwrap();
    let mut expected = bytes.clone();
    for round in 0..20_usize {
        let part = [u8::try_from(round).unwrap(); 3000];
        file.write_all_at(&part, round as u64 * 7000).unwrap();
        expected[round * 7000..][..3000].copy_from_slice(&part);
        verb(&site, "filesystem defragment", &["d"]).good();
    }
    drop(file);
    assert!(read("d") == expected);
    assert!(["a", "dir/b", "c"].into_iter().all(|name| read(name) == bytes));
    site.umount();
    site.judge();
    assert_eq!(["/a", "/dir/b", "/c"].map(|name| extents(&site.made, name)), [1; 3]);
    assert!(site.made.open().read("/d").unwrap() == expected);
}

fn progs(dir: &Path, words: &str) -> (bool, String) {
    let output = Command::new("btrfs").args(words.split(' ')).current_dir(dir).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn btrfs_progs_defragment_files_of_a_mount() {
    let Some(site) = Site::new() else { return };
    if !has_program("btrfs") {
        return;
    }
    site.made.does("mkdir", &["/dir"]);
    let bytes = scatter(&site.made, &["/a", "/dir/b"]);
    site.made.does("subvolume -q snapshot -r", &["/", "/snapshot"]);
    site.mount(&[]).good();
    let point = site.point();
    fs::write(point.join("text"), b"some text ".repeat(30_000)).unwrap();
    fs::File::open(point.join("text")).unwrap().sync_all().unwrap();
    for words in ["-v a", "-r dir", "-czstd text", "dir"] {
        let (is_good, said) = progs(&point, &format!("filesystem defragment {words}"));
        assert!(is_good, "{words}: {said}");
    }
    let (is_good, said) = progs(&point, "filesystem defragment snapshot/a");
    assert!(!is_good && said.contains("Read-only file system"), "{said}");
    let (is_good, said) = progs(&point, "filesystem defragment -s 1g a");
    assert!(!is_good && said.contains("Invalid argument"), "{said}");
    assert!(fs::read(point.join("a")).unwrap() == bytes);
    site.umount();
    site.judge();
    assert_eq!(["/a", "/dir/b", "/snapshot/a"].map(|it| extents(&site.made, it)), [1, 1, SECTORS]);
    let compressed = compressions(&site.made.open(), "/text");
    assert!(compressed[..2].iter().all(|one| *one == Some(Compression::Zstd)), "{compressed:?}");
}
