//! Walks of directories on the filesystem of the temporary directory.

use std::fs::{self as std_fs, OpenOptions};
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn some_tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    std_fs::create_dir(at("dir")).unwrap();
    std_fs::write(at("dir/file"), b"content").unwrap();
    std_fs::hard_link(at("dir/file"), at("link")).unwrap();
    symlink("nowhere", at("symlink")).unwrap();
    fs::mknodat(fs::CWD, at("pipe"), FileType::Fifo, OpenMode::from_raw_mode(0o600), 0).unwrap();
    root
}

#[test]
fn every_path_is_met_and_nothing_followed() {
    let manifest = walk(some_tree().path()).unwrap();
    let met: Vec<_> = manifest.entries().iter().map(|e| (e.path.to_string(), e.kind)).collect();
    let expected = [
        ("/", Kind::Dir),
        ("/dir", Kind::Dir),
        ("/dir/file", Kind::File),
        ("/link", Kind::File),
        ("/pipe", Kind::Fifo),
        ("/symlink", Kind::Symlink),
    ];
    assert_eq!(met, expected.map(|(path, kind)| (path.to_owned(), kind)));
    let link = manifest.get(b"/link").unwrap();
    assert_eq!((link.nlink, link.size), (2, 7));
    assert_eq!(link.link, Some(Bytes::from(*b"/dir/file")));
    assert_eq!(manifest.get(b"/symlink").unwrap().target, Some(Bytes::from(*b"nowhere")));
}

#[test]
fn content_is_read_where_there_is_data_only() {
    let root = tempfile::tempdir().unwrap();
    let file = OpenOptions::new().write(true).create_new(true).open(root.path().join("f")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(b"far", 1 << 39).unwrap();
    let manifest = walk(root.path()).unwrap();
    let entry = manifest.get(b"/f").unwrap();
    let mut expected = ContentDigest::default();
    expected.update(1 << 39, b"far");
    assert_eq!(entry.content, Some(expected.finish()));
    assert_eq!(entry.segments, [(1 << 39, 4096)]);
}

#[test]
fn paths_longer_than_linux_takes_are_met() {
    let root = tempfile::tempdir().unwrap();
    let name = "n".repeat(200);
    let mut dir = open_dir(fs::CWD, root.path()).unwrap();
    for _ in 0..30 {
        fs::mkdirat(&dir, name.as_str(), OpenMode::from_raw_mode(0o700)).unwrap();
        dir = open_dir(&dir, name.as_str()).unwrap();
    }
    let manifest = walk(root.path()).unwrap();
    let longest = manifest.entries().last().unwrap();
    assert_eq!(longest.path.as_slice().len(), 30 * 201);
}
