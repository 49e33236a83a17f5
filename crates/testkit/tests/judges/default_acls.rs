//! New inodes inherit the default ACL of their directory as they do on Linux.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use userbtrfs::mkfs::Options;
use userbtrfs::{Dir, XattrMode};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;

use super::made::{MIB, Made, check_file};
use super::open_to_write;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The requested modes.
const MODES: [u32; 5] = [0o777, 0o666, 0o640, 0o4711, 0o000];

/// The kinds of inodes, by the first letter of their names.
const KINDS: [&str; 5] = ["file", "dir", "pipe", "link", "unnamed"];

const NOBODY: u32 = u32::MAX;
const FIFO: u32 = 0o010_000;

type Entry = (u16, u16, u32);

/// Returns the value of an attribute that holds these entries: tag, permissions and id.
fn list(entries: &[Entry]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// Returns default lists: a user and a mask; a mask that narrows; a group; permissions alone.
fn defaults() -> Vec<Vec<u8>> {
    let owner = (1, 7, NOBODY);
    let group = (4, 5, NOBODY);
    let others = (32, 5, NOBODY);
    let user = (2, 6, 1000);
    let other_group = (8, 7, 2000);
    let lists: [&[Entry]; 4] = [
        &[owner, user, group, (16, 7, NOBODY), others],
        &[(1, 6, NOBODY), user, group, (16, 4, NOBODY), (32, 0, NOBODY)],
        &[owner, group, other_group, (16, 7, NOBODY), (32, 1, NOBODY)],
        &[owner, group, (32, 0, NOBODY)],
    ];
    lists.into_iter().map(list).collect()
}

fn make_by_us(dir: &Dir, kind: &str, name: &str, mode: u32) {
    let name = name.as_bytes();
    match kind {
        "file" => drop(dir.create(name, mode).unwrap()),
        // mkdir(2) takes no set-id bits.
        "dir" => drop(dir.create_dir(name, mode & 0o1777).unwrap()),
        "pipe" => drop(dir.make_node(name, FIFO | mode, (0, 0)).unwrap()),
        "link" => drop(dir.symlink(name, b"file").unwrap()),
        _ => dir.link(name, &dir.create_unnamed(mode).unwrap()).unwrap(),
    }
}

fn make_by_linux(dir: &Path, kind: &str, name: &str, mode: u32) {
    let path = dir.join(name);
    let mode = Mode::from_bits_retain(mode);
    match kind {
        "file" => drop(rustix::fs::open(path, OFlags::CREATE | OFlags::EXCL, mode).unwrap()),
        "dir" => rustix::fs::mkdir(path, mode).unwrap(),
        "pipe" => rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap(),
        "link" => rustix::fs::symlink("file", path).unwrap(),
        _ => {
            let file = rustix::fs::open(dir, OFlags::TMPFILE | OFlags::WRONLY, mode).unwrap();
            let flags = rustix::fs::AtFlags::EMPTY_PATH;
            rustix::fs::linkat(file, "", CWD, path, flags).unwrap();
        }
    }
}

/// Returns the mode and both lists, as Linux shows them.
fn shown(path: &Path) -> (u32, [Option<Vec<u8>>; 2]) {
    let lists = [ACCESS, DEFAULT].map(|name| {
        let mut value = vec![0; 256];
        match rustix::fs::lgetxattr(path, name, &mut value[..]) {
            Ok(len) => Some(value[..len].to_vec()),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    });
    (rustix::fs::lstat(path).unwrap().st_mode, lists)
}

#[test]
fn new_inodes_inherit_default_acl_as_on_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let made = Made::new("acls", 256 * MIB, Options::default());
    let device = Arc::new(made.image().to_device());
    let filesystem = open_to_write(device.clone());
    let each = || {
        let modes = MODES.iter().flat_map(|mode| KINDS.iter().map(move |kind| (*kind, *mode)));
        modes.map(|(kind, mode)| (kind, mode, format!("{kind}-{mode:o}")))
    };
    for (number, default) in defaults().iter().enumerate() {
        let dir = filesystem.create_dir(format!("/{number}"), 0o755).unwrap();
        dir.inode().set_xattr(DEFAULT, default, XattrMode::Either).unwrap();
        for (kind, mode, name) in each() {
            make_by_us(&dir, kind, &format!("ours-{name}"), mode);
        }
        // An inode made with the list ignored has none.
        let plain = dir.clone().ignoring_default_acl().create_dir(b"plain", 0o751).unwrap();
        assert!(plain.inode().xattrs().unwrap().is_empty());
        assert_eq!(plain.inode().metadata().unwrap().mode & 0o7777, 0o751);
    }
    filesystem.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    device.image().write_to(&file).unwrap();
    check_file("acls", &file);
    let mount = linux.mount(&file, "noatime").unwrap();
    let mut with_list = 0;
    for number in 0..defaults().len() {
        let dir = mount.path().join(number.to_string());
        for (kind, mode, name) in each() {
            let theirs = format!("theirs-{name}");
            make_by_linux(&dir, kind, &theirs, mode);
            let theirs = shown(&dir.join(theirs));
            assert_eq!(shown(&dir.join(format!("ours-{name}"))), theirs, "{number}: {name}");
            with_list += usize::from(theirs.1[0].is_some());
        }
    }
    assert!(with_list > 30, "{with_list} have an access list");
    drop(mount);
    linux.assert_no_complaints().unwrap();
}
