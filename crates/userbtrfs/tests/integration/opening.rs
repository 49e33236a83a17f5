//! Opening files by their paths.

use std::thread;

use userbtrfs::{Error, FileKind, FileOpenOptions, Filesystem, OpenOptions};

use super::{Image, reason};

/// Returns a filesystem with the file `/file`, the directory `/dir` and symbolic links.
fn filesystem(image: &Image) -> Filesystem {
    let fs = image.open();
    fs.write("/file", "content").unwrap();
    fs.create_dir("/dir", 0o755).unwrap();
    fs.symlink("file", "/link").unwrap();
    fs.symlink("../new", "/dir/dangling").unwrap();
    fs.symlink("dir/dangling", "/twice").unwrap();
    fs.symlink("loop", "/loop").unwrap();
    fs
}

fn options() -> FileOpenOptions {
    FileOpenOptions::new()
}

#[test]
fn open_without_create_needs_the_file() {
    let image = Image::new();
    let fs = filesystem(&image);
    assert_eq!(options().open(&fs, "/link").unwrap().read_all().unwrap(), b"content");
    assert!(matches!(reason(options().open(&fs, "/none")), Error::NotFound));
    assert!(matches!(reason(options().open(&fs, "/twice")), Error::NotFound));
    assert!(matches!(reason(options().open(&fs, "/dir")), Error::IsADirectory));
    assert!(matches!(reason(options().truncate(true).open(&fs, "/none")), Error::NotFound));
}

#[test]
fn open_with_create_keeps_a_file_and_makes_a_missing_one() {
    let image = Image::new();
    let fs = filesystem(&image);
    let mut create = options();
    create.create(true).mode(0o600);
    let file = create.open(&fs, "/file").unwrap();
    assert_eq!(file.read_all().unwrap(), b"content");
    assert_eq!(file.inode().metadata().unwrap().mode, 0o100_644);
    let file = create.open(&fs, "/dir/new").unwrap();
    assert!(file.is_empty());
    assert_eq!(file.inode().metadata().unwrap().mode, 0o100_600);
    assert!(matches!(reason(create.open(&fs, "/dir")), Error::IsADirectory));
    assert!(matches!(reason(create.open(&fs, "/none/new")), Error::NotFound));
    assert!(matches!(reason(create.open(&fs, "/other/")), Error::NotADirectory));
}

#[test]
fn open_with_create_makes_the_target_of_a_dangling_link() {
    let image = Image::new();
    let fs = filesystem(&image);
    let file = options().create(true).open(&fs, "/twice").unwrap();
    assert_eq!(file.inode().id(), fs.lookup_no_follow("/new").unwrap().id());
    let link = fs.lookup_no_follow("/dir/dangling").unwrap();
    assert_eq!(link.metadata().unwrap().kind, FileKind::Symlink);
    assert!(matches!(reason(options().create(true).open(&fs, "/loop")), Error::SymlinkLoop));

    fs.symlink("/dir/written", "/dir/third").unwrap();
    fs.in_working_dir("/dir").write("third", "text").unwrap();
    assert_eq!(fs.read("/dir/written").unwrap(), b"text");
    fs.symlink("cloned", "/fourth").unwrap();
    fs.clone_file("/file", "/fourth").unwrap();
    assert_eq!(fs.read("/cloned").unwrap(), b"content");
}

#[test]
fn open_with_create_new_accepts_nothing_at_the_path() {
    let image = Image::new();
    let fs = filesystem(&image);
    let mut new = options();
    new.create_new(true).create(true).truncate(true);
    for path in ["/file", "/dir", "/link", "/twice", "/loop"] {
        assert!(matches!(reason(new.open(&fs, path)), Error::Exists), "{path}");
    }
    assert_eq!(fs.read("/file").unwrap(), b"content");
    assert!(new.open(&fs, "/new").unwrap().is_empty());
}

#[test]
fn open_with_truncate_removes_the_content() {
    let image = Image::new();
    let fs = filesystem(&image);
    assert!(options().truncate(true).open(&fs, "/link").unwrap().is_empty());
    assert!(fs.read("/file").unwrap().is_empty());
}

#[test]
fn open_for_reading_alone_creates_and_truncates_nothing() {
    let image = Image::new();
    filesystem(&image).close().unwrap();
    let fs = OpenOptions::new().open(image.path()).unwrap();
    assert!(options().create(true).open(&fs, "/file").is_ok());
    assert!(matches!(reason(options().create(true).open(&fs, "/new")), Error::ReadOnly));
    assert!(matches!(reason(options().truncate(true).open(&fs, "/file")), Error::ReadOnly));
}

#[test]
fn open_with_create_in_many_threads_makes_one_file() {
    let image = Image::new();
    let fs = image.open();
    for round in 0..50 {
        let path = format!("/{round}");
        let open = || options().create(true).open(&fs, path.as_str()).unwrap().inode().id();
        let ids: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }
}
