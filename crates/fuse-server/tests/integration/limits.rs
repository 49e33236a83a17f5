//! The limits of names and attributes that share an item, and the error for one more.
//!
//! Entries whose names hash alike share one item of the tree, which must fit into one leaf. So do
//! the names that a file has in one directory, until further ones get an item for each hash.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use rustix::io::Errno;
use userbtrfs_testkit::hash_collisions::alike;
use userbtrfs_testkit::linux::run;
use userbtrfs_testkit::walk_linux;

use crate::support::Site;

/// The size of an entry, and of a name of a file, before the name.
const ENTRY_HEAD: usize = 30;
const REF_HEAD: usize = 10;

const NODE_SIZES: [usize; 2] = [4096, 16384];

/// The maximum size of an item in the format: a block without its header and that of the item.
fn item_max(node_size: usize) -> usize {
    node_size - 101 - 25
}

/// Returns the lengths of names that fill an item of `room` bytes except for a last one, and the
/// length of the last one; each name takes `head` bytes more.
fn lengths(room: usize, head: usize) -> (Vec<usize>, usize) {
    let mut left = room;
    let mut all = Vec::new();
    while left > 2 * (head + 200) {
        all.push(200);
        left -= head + 200;
    }
    let half = left / 2 - head;
    all.push(half);
    (all, left - half - 2 * head)
}

/// Makes an entry: is passed a file, for links, and the path of the entry.
type Make = fn(&Path, &Path) -> std::io::Result<()>;

const WAYS: &[(&str, Make)] = &[
    ("create", |_, name| File::create_new(name).map(drop)),
    ("mkdir", |_, name| fs::create_dir(name)),
    ("symlink", |_, name| symlink("target", name)),
    ("link", |file, name| fs::hard_link(file, name)),
    ("rename", |file, name| {
        let other = file.with_extension("other");
        fs::hard_link(file, &other)?;
        let renamed = fs::rename(&other, name);
        let _ = fs::remove_file(other);
        renamed
    }),
];

/// Runs `work` in a mount by Linux and in one of ours, with nodes of each size; Linux must show the
/// same afterwards. Passes the image to `look` after each of them.
fn each(work: impl Fn(&Path, usize), look: impl Fn(&Path)) {
    let Some(site) = Site::new() else { return };
    for node_size in NODE_SIZES {
        let format = || site.format_with(&["-n", &node_size.to_string()]);
        format();
        site.with_linux("noatime", |root| work(root, node_size));
        look(&site.image());
        format();
        let shown = site.with_ours(|root| {
            work(root, node_size);
            walk_linux::walk(root).unwrap()
        });
        look(&site.image());
        site.judge(&shown);
    }
}

#[test]
fn names_that_hash_alike_fill_an_item_and_one_byte_more_is_refused() {
    let work = |root: &Path, node_size: usize| {
        let (lengths, last) = lengths(item_max(node_size), ENTRY_HEAD);
        let file = root.join("file");
        File::create(&file).unwrap();
        for (way, make) in WAYS {
            let dir = root.join(way);
            fs::create_dir(&dir).unwrap();
            let name = |number, length| dir.join(OsStr::from_bytes(&alike("", number, length)));
            for (number, length) in lengths.iter().enumerate() {
                File::create_new(name(number, *length)).unwrap();
            }
            let refused = make(&file, &name(1000, last + 1)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::OVERFLOW.raw_os_error()), "{way}");
            make(&file, &name(1001, last)).unwrap();
            let full = make(&file, &name(1002, 20)).unwrap_err();
            assert_eq!(full.raw_os_error(), Some(Errno::OVERFLOW.raw_os_error()), "{way}");
            assert_eq!(fs::read_dir(&dir).unwrap().count(), lengths.len() + 1);
        }
    };
    each(work, |_| {});
}

#[test]
fn attributes_that_hash_alike_fill_an_item_and_one_byte_more_is_refused() {
    let work = |root: &Path, node_size: usize| {
        let room = item_max(node_size);
        let path = root.join("alone");
        File::create(&path).unwrap();
        let set = |path: &Path, name: &[u8], length: usize| {
            setxattr(path, name, &vec![b'v'; length], XattrFlags::empty())
        };
        let most = room - ENTRY_HEAD - "user.a".len();
        assert_eq!(set(&path, b"user.a", most + 1), Err(Errno::NOSPC));
        set(&path, b"user.a", most).unwrap();
        let path = root.join("alike");
        File::create(&path).unwrap();
        let name = |number| alike("user.", number, 40);
        set(&path, &name(0), 1000).unwrap();
        let left = room - 2 * (ENTRY_HEAD + 40) - 1000;
        assert_eq!(set(&path, &name(1), left + 1), Err(Errno::NOSPC));
        set(&path, &name(1), left).unwrap();
        assert_eq!(set(&path, &name(2), 0), Err(Errno::NOSPC));
    };
    each(work, |_| {});
}

/// The names of a file in one directory share one item while they fit, as in Linux; later ones have
/// items by their hash.
#[test]
fn names_of_a_file_fill_an_item_before_they_get_others() {
    let in_extrefs = |image: &Path| {
        let mut dump = Command::new("btrfs");
        dump.args(["inspect-internal", "dump-tree", "-t", "fs"]).arg(image);
        let text = String::from_utf8(run(&mut dump).unwrap().stdout).unwrap();
        let is_item = |line: &&str| line.starts_with("\titem ") && line.contains(" INODE_EXTREF ");
        assert_eq!(text.lines().filter(is_item).count(), 2);
    };
    let work = |root: &Path, node_size: usize| {
        let (lengths, last) = lengths(item_max(node_size), REF_HEAD);
        for (dir, over) in [("full", 0), ("over", 1)] {
            let dir = root.join(dir);
            fs::create_dir(&dir).unwrap();
            let name = |number: usize, length: usize| dir.join(format!("{number:x<length$}"));
            File::create(name(0, lengths[0])).unwrap();
            for (number, length) in lengths.iter().enumerate().skip(1) {
                fs::hard_link(name(0, lengths[0]), name(number, *length)).unwrap();
            }
            fs::hard_link(name(0, lengths[0]), name(1000, last + over)).unwrap();
        }
        let full = root.join("full");
        let one = fs::read_dir(&full).unwrap().next().unwrap().unwrap().path();
        fs::hard_link(one, full.join("one more")).unwrap();
    };
    each(work, in_extrefs);
}

/// Linux makes all the names of a file, which takes little time; ours continues from there.
#[test]
fn a_file_has_65535_names_at_most() {
    let Some(site) = Site::new() else { return };
    let no_more = |root: &Path, removed: &str, more: &str| {
        let link = || fs::hard_link(root.join("0"), root.join(more));
        assert_eq!(link().unwrap_err().raw_os_error(), Some(Errno::MLINK.raw_os_error()));
        fs::remove_file(root.join(removed)).unwrap();
        link().unwrap();
        assert_eq!(fs::metadata(root.join("0")).unwrap().nlink(), 65535);
        let again = fs::hard_link(root.join("0"), root.join("again")).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(Errno::MLINK.raw_os_error()));
    };
    site.format();
    site.with_linux("noatime", |root| {
        File::create(root.join("0")).unwrap();
        for number in 1..65535 {
            fs::hard_link(root.join("0"), root.join(number.to_string())).unwrap();
        }
        no_more(root, "77", "more");
    });
    site.with_ours(|root| no_more(root, "65534", "still more"));
    // `btrfs check` takes quadratic time in the number of names: only tests with fewer names run
    // it.
    site.with_ours(|root| {
        assert_eq!(fs::read_dir(root).unwrap().count(), 65535);
        assert!(!root.join("65534").exists() && root.join("still more").exists());
    });
}
