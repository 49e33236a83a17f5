//! File handles, as an NFS server uses them: name_to_handle_at(2) and open_by_handle_at(2).

use std::fs;
use std::path::Path;

use userbtrfs_engine::api::OpenOptions;
use userbtrfs_testkit::test_env::{has_program, until};

use crate::support::{Ours, Site, shell};

/// `take PATH` prints the handle of a path; `open HANDLE` prints the content of its file, or the
/// names in its directory and those in the directory above, or the error.
const HANDLES: &str = r#"
import ctypes, os, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
root = os.open(".", os.O_RDONLY)
word, text = sys.argv[1:]
if word == "take":
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    if libc.name_to_handle_at(root, text.encode(), handle, ctypes.byref(mount), 0):
        sys.exit(os.strerror(ctypes.get_errno()))
    print(handle.raw[:8 + struct.unpack("I", handle.raw[:4])[0]].hex(), end="")
else:
    handle = ctypes.create_string_buffer(bytes.fromhex(text))
    file = libc.open_by_handle_at(root, handle, os.O_RDONLY)
    if file < 0:
        print(os.strerror(ctypes.get_errno()), end="")
    elif stat.S_ISDIR(os.fstat(file).st_mode):
        above = os.open("..", os.O_RDONLY, dir_fd=file)
        print(sorted(os.listdir(file)), sorted(os.listdir(above)), end="")
    else:
        print(os.read(file, 99).decode(), end="")
"#;

fn handle(root: &Path, word: &str, text: &str) -> String {
    fs::write(root.with_extension("py"), HANDLES).unwrap();
    shell(root, &format!("python3 {}.py {word} {text}", root.display()))
}

/// Has the kernel forget all inodes that are not in use.
fn forget_inodes() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

#[test]
fn handle_leads_to_its_inode_after_the_kernel_has_forgotten_it() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    site.with_linux("noatime", |root| {
        shell(root, "btrfs -q subvolume create sub; mkdir -p sub/dir; echo in sub >sub/dir/file");
    });
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let root = ours.path();
    shell(root, "mkdir -p a/b; echo content >a/b/file; echo other >a/b/other");
    let take = |path: &str| handle(root, "take", path);
    let paths = ["a/b/file", "a/b", "sub/dir/file", "sub/dir", "sub", "."];
    let handles = paths.map(take);
    forget_inodes();
    let shown = handles.each_ref().map(|taken| handle(root, "open", taken));
    let expected = [
        "content\n",
        "['file', 'other'] ['b']",
        "in sub\n",
        "['file'] ['dir']",
        "['dir'] ['a', 'sub']",
        "['a', 'sub'] ['a', 'sub']",
    ];
    // The directory above the root is that of the mount point.
    assert_eq!(shown[..5], expected[..5]);
    assert!(shown[5].starts_with("['a', 'sub'] "), "{shown:?}");
    let [file, ..] = &handles;
    shell(root, "mv a/b/file a/moved; rm a/b/other");
    forget_inodes();
    assert_eq!(handle(root, "open", file), "content\n");
    ours.end();
}

#[test]
fn handle_of_a_deleted_file_is_stale() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    site.with_ours(|root| {
        shell(root, "echo content >file; mkdir dir");
        let handles = ["file", "dir"].map(|path| handle(root, "take", path));
        shell(root, "rm file; rmdir dir; echo new >file; mkdir dir");
        for taken in &handles {
            until("the handle to be stale", || {
                forget_inodes();
                handle(root, "open", taken) == "Stale file handle"
            });
        }
    });
}
