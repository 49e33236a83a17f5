//! The errors of calls by path: they name the path and the operation.

use std::fs;
use std::io::ErrorKind;

use userbtrfs::{Error, FileOpenOptions, Filesystem, PathError, PathOperation, PathResult};

use super::{Image, open};

/// Returns the text of an error of a call by path.
fn text<T>(failed: PathResult<T>) -> String {
    failed.err().expect("the call must fail").to_string()
}

#[test]
fn the_error_of_a_call_names_its_path_and_its_operation() {
    let image = Image::new();
    let fs = image.open();
    fs.create_dir("/dir", 0o755).unwrap();
    fs.write("/dir/file", "content").unwrap();
    let missing = |call: &dyn Fn(&Filesystem) -> PathResult<()>, expected: &str| {
        assert_eq!(text(call(&fs)), format!("{expected}: no such file or directory"));
    };
    missing(&|fs| fs.lookup("/no").map(drop), "/no: look up");
    missing(&|fs| fs.lookup_no_follow("/no").map(drop), "/no: look up");
    missing(&|fs| fs.open_file("no").map(drop), "no: open");
    missing(&|fs| FileOpenOptions::new().open(fs, "/no").map(drop), "/no: open");
    missing(&|fs| fs.open_dir("/no/").map(drop), "/no/: open directory");
    missing(&|fs| fs.open_parent("/no/x").map(drop), "/no/x: open parent directory");
    missing(&|fs| fs.open_parent_of_file("/no/x").map(drop), "/no/x: open parent directory");
    missing(&|fs| fs.open_parent_to_remove("/no/x").map(drop), "/no/x: open parent directory");
    missing(&|fs| fs.metadata("/no").map(drop), "/no: read attributes");
    missing(&|fs| fs.symlink_metadata("/no").map(drop), "/no: read attributes");
    missing(&|fs| fs.read_link("/no").map(drop), "/no: read symbolic link");
    missing(&|fs| fs.read("/no").map(drop), "/no: read");
    missing(&|fs| fs.write("/no/x", "content"), "/no/x: write");
    missing(&|fs| fs.walk("/no").map(drop), "/no: walk");
    missing(&|fs| fs.create_dir("/no/x", 0o755).map(drop), "/no/x: create directory");
    missing(&|fs| fs.symlink("target", "/no/x"), "/no/x: create symbolic link");
    missing(&|fs| fs.hard_link("/dir/file", "/no/x"), "/dir/file: link to /no/x");
    missing(&|fs| fs.clone_file("/no", "/dir/x"), "/no: clone to /dir/x");
    missing(&|fs| fs.rename("/no", "/dir/x"), "/no: rename to /dir/x");
    missing(&|fs| fs.remove_file("/no"), "/no: remove");
    missing(&|fs| fs.remove_dir("/no"), "/no: remove directory");
    missing(&|fs| fs.remove_dir_all("/no"), "/no: remove tree");
    missing(&|fs| fs.set_permissions("/no", 0o644), "/no: set permissions");
}

#[test]
fn the_error_of_a_call_on_a_tree_names_the_path_at_which_it_failed() {
    let image = Image::new();
    let fs = image.open();
    fs.create_dir_all("/a/b", 0o755).unwrap();
    fs.write("/a/file", "content").unwrap();
    let refused = fs.create_dir_all("/a/file/c", 0o755);
    assert_eq!(text(refused), "/a/file: create directory: not a directory");
    // What a read-only subvolume contains is not removed.
    let inner = fs.open_dir("/a/b").unwrap().create_subvolume(b"inner", 0o755).unwrap();
    fs.write("/a/b/inner/file", "content").unwrap();
    fs.set_subvolume_read_only(inner.inode().id().subvolume, true).unwrap();
    let error = fs.remove_dir_all("/a").unwrap_err();
    assert_eq!(error.call.operation, PathOperation::RemoveDirAll);
    assert!(error.call.path.starts_with(b"/a/b/inner"), "{error}");
}

#[test]
fn the_error_of_opening_names_the_image_once() {
    let image = Image::new();
    let missing = image.folder.path().join("missing");
    let error = open(&missing).unwrap_err().to_string();
    assert_eq!(error.matches(missing.to_str().unwrap()).count(), 1, "{error}");
    let foreign = image.folder.path().join("foreign");
    fs::write(&foreign, vec![7; 1 << 20]).unwrap();
    let error = open(&foreign).unwrap_err().to_string();
    let expected = format!("{}: open image: no valid superblock", foreign.display());
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!(error.matches(foreign.to_str().unwrap()).count(), 1, "{error}");
}

#[test]
fn an_error_keeps_its_path_when_it_is_converted() {
    let image = Image::new();
    let fs = image.open();
    let call = || -> Result<Vec<u8>, Error> { Ok(fs.read(b"/no\xff")?) };
    let error = call().unwrap_err();
    assert!(matches!(error.reason(), Error::NotFound));
    assert_eq!(error.errno(), 2);
    assert!(matches!(&error, Error::Path(failed) if failed.call.operation == PathOperation::Read));

    let failed: PathError = fs.read(b"/no\xff").unwrap_err();
    assert_eq!(failed.call.path, b"/no\xff");
    let text = failed.to_string();
    let error = std::io::Error::from(failed);
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotFound, text));
}
