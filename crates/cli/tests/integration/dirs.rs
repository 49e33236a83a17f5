//! Directories: loops, dangling entries, names with the same hash, and paths.

use std::sync::Arc;

use userbtrfs::device::{Device, MemoryDevice};
use userbtrfs::{
    Error, FileKind, Filesystem, InodeId, ItemKind, Key, OpenOptions, TreeId, WalkEntry,
};
use userbtrfs_image_builder::{ImageEditor, InodeSpec, inline_extent, inode_ref, root_ref};

use crate::support::command::Bench;
use crate::support::forging::{Items, edit_leaf, extent, inode, put_dir, put_name};
use crate::support::golden::Unpacked;
use crate::support::{assert_says, open, reason, small, top_level};

const ROOT: u64 = 256;
const EMPTY: u64 = 260;
const DIRECTORY: u8 = 2;
const REGULAR: u8 = 1;

/// Returns the small image after an edit of the items of all inodes but the root directory.
fn with_inodes(edit: impl FnOnce(&mut Items)) -> ImageEditor {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(EMPTY), edit);
    editor
}

/// Walks a filesystem; returns the entries and the errors.
fn walk(filesystem: &Filesystem) -> (Vec<WalkEntry>, Vec<Error>) {
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    for entry in filesystem.walk("/").unwrap() {
        entry.map_or_else(|error| errors.push(error.error), |entry| entries.push(entry));
    }
    (entries, errors)
}

fn paths(entries: &[WalkEntry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

#[test]
fn a_directory_that_contains_itself_ends_every_walk_with_an_error() {
    let editor =
        with_inodes(|items| put_name(items, EMPTY, 2, b"again", (inode(EMPTY), DIRECTORY)));
    let filesystem = open(&editor).unwrap();
    let (entries, errors) = walk(&filesystem);
    assert!(matches!(errors[..], [Error::DirectoryLoop(id)] if id == top_level(EMPTY)));
    assert!(paths(&entries).contains(&"/pipe".to_owned()), "the walk goes on");
    // A path of finite length is no loop.
    let path = format!("/empty{}", "/again".repeat(100));
    assert_eq!(filesystem.lookup(&path).unwrap().id(), top_level(EMPTY));

    let bench = Bench::new(&editor);
    for (words, rest) in [("find", ["/"]), ("ls -R", ["/"])] {
        let ran = bench.verb(words, &rest);
        assert!(String::from_utf8_lossy(&ran.stdout).contains("pipe"), "{ran:?}");
        assert_says(&ran.bad(), &["inode 260 of subvolume 5 contains itself"]);
    }
    let said = bench.get_all("copy").bad();
    assert_says(&said, &["/empty/again: inode 260 of subvolume 5 contains itself"]);
    assert!(bench.at("copy/empty").is_dir() && bench.at("copy/pipe").exists());
}

#[test]
fn a_directory_that_contains_the_root_ends_every_walk_with_an_error() {
    let editor = with_inodes(|items| put_name(items, EMPTY, 2, b"up", (inode(ROOT), DIRECTORY)));
    let (_, errors) = walk(&open(&editor).unwrap());
    assert!(matches!(errors[..], [Error::DirectoryLoop(id)] if id == top_level(ROOT)));
    Bench::new(&editor).get_all("copy").bad();
}

#[test]
fn a_subvolume_that_contains_itself_ends_every_walk_with_an_error() {
    let mut editor = small();
    let subvolume = TreeId(256);
    edit_leaf(&mut editor, subvolume, inode(ROOT), |items| {
        let itself = Key::new(subvolume.0, ItemKind::ROOT_ITEM, u64::MAX);
        put_name(items, ROOT, 3, b"again", (itself, DIRECTORY));
    });
    let key = Key::new(256, ItemKind::ROOT_ITEM, 0);
    edit_leaf(&mut editor, TreeId::ROOT, key, |items| {
        items.insert(Key::new(256, ItemKind::ROOT_REF, 256), root_ref(ROOT, 3, b"again"));
        items.insert(Key::new(256, ItemKind::ROOT_BACKREF, 256), root_ref(ROOT, 3, b"again"));
        items.remove(&Key::new(256, ItemKind::ROOT_BACKREF, 5));
    });
    let filesystem = open(&editor).unwrap();
    let (_, errors) = walk(&filesystem);
    assert!(!errors.is_empty());
    let error = filesystem.subvolumes().unwrap_err();
    assert!(matches!(error, Error::DirectoryLoop(_)), "{error}");
    Bench::new(&editor).get_all("copy").bad();
}

/// Seven directories, each with five names that lead to the next one: if a walk followed all of
/// them, it would visit 5^7 paths.
#[test]
fn directory_with_several_names_is_entered_once() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(EMPTY), |items| {
        items.retain(|key, _| key.objectid == 257 && key.kind == ItemKind::INODE_ITEM);
        for number in 1000..1007 {
            for index in 2..7 {
                let name = [b'a' + u8::try_from(index).unwrap()];
                put_name(items, number, index, &name, (inode(number + 1), DIRECTORY));
            }
        }
        items.retain(|key, _| key.kind != ItemKind::DIR_ITEM);
        for number in 1001..1008 {
            put_dir(items, number, number - 1, 2, b"c");
        }
        items.insert(inode(1000), InodeSpec::directory(0).build());
        items.insert(Key::new(1000, ItemKind::INODE_REF, ROOT), inode_ref(8, b"top"));
    });
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 8, b"top", (inode(1000), DIRECTORY));
    });
    let (entries, errors) = walk(&open(&editor).unwrap());
    let deepest = paths(&entries).into_iter().max_by_key(String::len).unwrap();
    assert_eq!(deepest, format!("/top{}", "/c".repeat(7)));
    let strays = errors.iter().filter(|error| matches!(error, Error::Stray { .. }));
    assert_eq!(strays.count(), 4 * 7);
    assert_says(&errors[errors.len() - 1], &["does not know its name"]);

    let bench = Bench::new(&editor);
    let said = bench.get_all("copy").bad();
    assert!(bench.at("copy/top").join("c/".repeat(7)).is_dir());
    assert!(!bench.at("copy/top/d").exists());
    let unknown = said.lines().filter(|line| line.contains("does not know its name"));
    assert_eq!(unknown.count(), 4 * 7, "each is entered once");
}

/// Makes a directory of 3,000 files, whose names fill several leaves; returns their number, too.
fn with_many_names() -> (ImageEditor, usize) {
    const COUNT: usize = 3000;
    let device = Arc::new(MemoryDevice::new(128 << 20));
    userbtrfs::mkfs::make(&*device, &userbtrfs::mkfs::Options::default()).unwrap();
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    let filesystem = OpenOptions::new().write(true).open_devices(devices).unwrap();
    let dir = filesystem.root().create_dir(b"many", 0o755).unwrap();
    for number in 0..COUNT {
        dir.create(format!("name {number}").as_bytes(), 0o644).unwrap();
    }
    drop(dir);
    filesystem.close().unwrap();
    (ImageEditor::over(device).unwrap(), COUNT)
}

#[test]
fn a_damaged_leaf_of_a_directory_hides_no_more_than_its_own_names() {
    let (mut editor, count) = with_many_names();
    let items = editor.items(TreeId::FS);
    let is_index = |key: Key| (key.objectid, key.kind) == (257, ItemKind::DIR_INDEX);
    let places: Vec<_> = items.iter().filter(|item| is_index(item.key)).collect();
    assert_eq!(places.len(), count);
    for index in [0, count / 2, count - 1] {
        let leaf = places[index].logical;
        let in_leaf = || items.iter().filter(|item| item.logical == leaf).map(|item| item.key);
        let lost = in_leaf().filter(|key| is_index(*key)).count();
        // The last leaf of names has the first files' inodes, too.
        let inodes = in_leaf().filter(|key| key.kind == ItemKind::INODE_ITEM).count();
        for copy in editor.copies(leaf) {
            editor.edit_raw(copy, 4096, |bytes| bytes[4000] ^= 1);
        }
        let filesystem = open(&editor).unwrap();
        let (entries, errors) = walk(&filesystem);
        let files = entries.iter().filter(|entry| entry.kind == FileKind::Regular).count();
        assert!(errors.len() == 1 && files == count - lost, "{index}: {files}, {errors:?}");

        let bench = Bench::new(&editor);
        assert_says(&bench.get_all("copy").bad(), &[&format!("block {leaf}")]);
        let copied = bench.at("copy/many").read_dir().unwrap().count();
        assert_eq!(copied, count - lost - inodes);
        for words in ["find", "ls -R"] {
            let ran = bench.verb(words, &["/"]);
            let listed = String::from_utf8_lossy(&ran.stdout).matches("name ").count();
            assert_eq!(listed, count - lost, "{words}");
            assert_says(&ran.bad(), &[&format!("block {leaf}")]);
        }
        editor.revert();
    }
}

/// Returns an image with two dangling entries in the root directory: a file and a directory.
fn with_dangling_names() -> ImageEditor {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 8, b"lost file", (inode(5000), REGULAR));
        put_name(items, ROOT, 9, b"lost dir", (inode(5001), DIRECTORY));
        put_name(items, ROOT, 10, b"zoo", (inode(257), REGULAR));
    });
    editor
}

#[test]
fn a_name_of_a_missing_inode_is_an_error_that_names_it() {
    let filesystem = open(&with_dangling_names()).unwrap();
    for (path, number) in [("/lost file", 5000), ("/lost dir", 5001), ("/lost dir/x", 5001)] {
        let error = filesystem.metadata(path).unwrap_err();
        assert!(matches!(error.error, Error::NoInode(id) if id == top_level(number)), "{error}");
        assert_says(&error, &["inode", &number.to_string(), "a name leads to it"]);
    }
    assert_eq!(filesystem.read("/zoo").unwrap(), b"hello\n");
    let (entries, errors) = walk(&filesystem);
    assert!(paths(&entries).contains(&"/zoo".to_owned()));
    assert!(matches!(errors[..], [Error::NoInode(id)] if id == top_level(5001)), "{errors:?}");
}

#[test]
fn name_of_a_missing_inode_does_not_hide_the_others() {
    let bench = Bench::new(&with_dangling_names());
    let names = bench.verb("ls", &["/"]).good();
    assert!(names.contains("lost file\n") && names.contains("zoo\n"), "{names}");
    for words in ["ls -l", "ls -R -l", "ls --format json"] {
        let ran = bench.verb(words, &["/"]);
        let listed = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(listed.contains("zoo") && listed.contains("small"), "{words}: {listed}");
        assert_says(&ran.bad(), &["lost file: inode 5000", "lost dir: inode 5001"]);
    }
    let said = bench.get_all("copy").bad();
    assert_says(&said, &["/lost file: inode 5000", "/lost dir: inode 5001"]);
    assert_eq!(std::fs::read(bench.at("copy/zoo")).unwrap(), b"hello\n");
    assert_eq!(std::fs::read(bench.at("copy/sub/inner")).unwrap(), b"world\n");
}

/// The kind in an entry is wrong: a directory for a file, and a file for a directory.
#[test]
fn an_entry_of_the_wrong_kind_does_no_harm() {
    let mut editor = small();
    edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
        put_name(items, ROOT, 8, b"no dir", (inode(257), DIRECTORY));
        put_name(items, ROOT, 9, b"no file", (inode(EMPTY), REGULAR));
        put_name(items, ROOT, 10, b"no link", (inode(257), 7));
    });
    let filesystem = open(&editor).unwrap();
    let (entries, errors) = walk(&filesystem);
    assert!(matches!(errors[..], [Error::NotADirectory]), "{errors:?}");
    assert_eq!(entries.len(), 10);
    assert!(matches!(reason(filesystem.lookup("/no dir/x")), Error::NotADirectory));
    assert!(matches!(reason(filesystem.lookup("/no link/")), Error::NotASymlink));
    Bench::new(&editor).get_all("copy").bad();
}

#[test]
fn the_default_subvolume_may_be_gone() {
    let mut editor = small();
    let key = Key::new(5, ItemKind::ROOT_ITEM, 0);
    edit_leaf(&mut editor, TreeId::ROOT, key, |items| {
        items.remove(&key);
    });
    let error = crate::support::refusal(open(&editor));
    assert!(matches!(error, Error::NoSubvolume), "{error}");
    let opened = userbtrfs::OpenOptions::new()
        .subvolume_id(TreeId(256))
        .open_devices(vec![editor.device().clone()]);
    assert_eq!(opened.unwrap().read("/inner").unwrap(), b"world\n");
}

#[test]
fn names_with_the_same_hash_are_distinguished() {
    let golden = Unpacked::new("names");
    let filesystem = Filesystem::open(golden.path()).unwrap();
    let alike: Vec<_> = filesystem
        .open_dir("/dir")
        .unwrap()
        .entries()
        .map(|entry| entry.unwrap().name().to_vec())
        .filter(|name| name.starts_with(b"same hash "))
        .collect();
    let [one, other] = &alike[..] else { panic!("{alike:?}") };
    assert_eq!(userbtrfs_codec::hash::name_hash(one), userbtrfs_codec::hash::name_hash(other));
    for name in &alike {
        assert_eq!(filesystem.read([b"/dir/", &name[..]].concat()).unwrap(), *name);
    }
}

#[test]
fn every_golden_name_is_looked_up() {
    let golden = Unpacked::new("names");
    let filesystem = Filesystem::open(golden.path()).unwrap();
    for entry in filesystem.open_dir("/dir").unwrap().entries() {
        let entry = entry.unwrap();
        let found = filesystem.open_dir("/dir").unwrap().lookup(entry.name()).unwrap();
        assert!(found.metadata().unwrap().is_file());
        assert_eq!(found.names().unwrap()[0].1, entry.name());
    }
}

/// The tree is deeper than any path that the system accepts.
#[test]
fn deep_trees_are_walked_looked_up_and_copied() {
    let golden = Unpacked::new("names");
    let filesystem = Filesystem::open(golden.path()).unwrap();
    let deepest = filesystem.walk("/deep").unwrap().map(Result::unwrap).last().unwrap();
    assert!(deepest.path.len() > 4096 && deepest.depth >= 40, "{}", deepest.depth);
    let content = filesystem.read(&deepest.path).unwrap();
    let up = [&deepest.path[..], "/..".repeat(deepest.depth).as_bytes()].concat();
    assert!(matches!(reason(filesystem.lookup(&up)), Error::NotADirectory));

    let to = golden.beside("copy");
    let ran =
        crate::support::command::verb("get -q", &golden.path(), &["/deep", to.to_str().unwrap()]);
    ran.good();
    // The system does not accept the whole path, but each of its parts.
    let mut dir =
        rustix::fs::open(&to, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let parts: Vec<_> = deepest.path.split(|byte| *byte == b'/').skip(2).collect();
    let (file, dirs) = parts.split_last().unwrap();
    for part in dirs {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
        dir = rustix::fs::openat(&dir, *part, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let flags = rustix::fs::OFlags::RDONLY;
    let copy = rustix::fs::openat(&dir, *file, flags, rustix::fs::Mode::empty()).unwrap();
    let mut copied = Vec::new();
    std::io::Read::read_to_end(&mut std::fs::File::from(copy), &mut copied).unwrap();
    assert_eq!(copied, content);
}

/// Opens the image with symbolic links in the root directory: names and targets.
fn with_links(links: &[(&str, &str)]) -> Filesystem {
    let mut editor = small();
    for (number, (name, target)) in (3000..).zip(links) {
        edit_leaf(&mut editor, TreeId::FS, inode(EMPTY), |items| {
            let mode = 0o120_777;
            let size = target.len() as u64;
            items.insert(inode(number), InodeSpec::new(mode, size).build());
            items.insert(extent(number, 0), inline_extent(target.as_bytes()));
        });
        edit_leaf(&mut editor, TreeId::FS, inode(ROOT), |items| {
            put_name(items, ROOT, number, name.as_bytes(), (inode(number), 7));
        });
    }
    open(&editor).unwrap()
}

#[test]
fn symbolic_links_in_a_loop_are_an_error() {
    let filesystem = with_links(&[("a", "b"), ("b", "/a"), ("self", "self"), ("in", "in/x")]);
    for path in ["/a", "/b", "/a/x", "/self", "/self/", "/in"] {
        let error = filesystem.lookup(path).err().unwrap_or_else(|| panic!("{path}"));
        assert!(matches!(error.error, Error::SymlinkLoop), "{path}: {error}");
        assert_eq!(error.errno(), 40);
    }
    let link = filesystem.lookup_no_follow("/a").unwrap();
    assert_eq!(link.read_link().unwrap(), b"b");
    assert!(matches!(reason(filesystem.lookup_no_follow("/a/")), Error::SymlinkLoop));
    assert_eq!(walk(&filesystem).1.len(), 0);
}

#[test]
fn symbolic_links_are_followed_from_where_they_are() {
    let filesystem = with_links(&[
        ("up", "../../../small"),
        ("absolute", "/sub/inner"),
        ("dir", "sub"),
        ("dangling", "nowhere"),
    ]);
    assert_eq!(filesystem.read("/up").unwrap(), b"hello\n");
    assert_eq!(filesystem.read("/absolute").unwrap(), b"world\n");
    assert_eq!(filesystem.read("/dir/inner").unwrap(), b"world\n");
    assert_eq!(filesystem.read("/dir/../small").unwrap(), b"hello\n");
    assert_eq!(filesystem.read("/link").unwrap(), b"world\n");
    assert!(matches!(reason(filesystem.lookup("/dangling")), Error::NotFound));
    assert_eq!(filesystem.read_link("/dangling").unwrap(), b"nowhere");
    let kind = |path: &str| filesystem.symlink_metadata(path).unwrap().kind;
    assert_eq!((kind("/dir"), kind("/dir/")), (FileKind::Symlink, FileKind::Directory));
}

#[test]
fn paths_resolve_as_in_linux() {
    let filesystem = open(&small()).unwrap();
    let id = |path: &str| filesystem.lookup(path).map(|inode| inode.id());
    for path in ["/", "//", "/.", "/..", "/../..", "/sub/..", "/empty/../", "sub/../../.."] {
        assert_eq!(id(path).unwrap(), top_level(ROOT), "{path}");
    }
    let sub = InodeId { subvolume: TreeId(256), number: ROOT };
    for path in ["/sub", "sub", "/sub/", "//sub//.//", "/empty/../sub", "/../sub"] {
        assert_eq!(id(path).unwrap(), sub, "{path}");
    }
    for path in ["/small/", "/small/.", "/small/..", "/small/x", "/large//", "/pipe/", "/link/"] {
        assert!(matches!(reason(id(path)), Error::NotADirectory), "{path}");
    }
    for path in ["", "/nothing", "/empty/nothing", "/nothing/small", "/Small", "/smal"] {
        assert!(matches!(reason(id(path)), Error::NotFound), "{path}");
    }
    for path in ["/a\0b", "/small\0"] {
        assert!(matches!(reason(id(path)), Error::BadName(_)), "{path}");
    }
    assert!(matches!(reason(id(&format!("/{}", "n".repeat(256)))), Error::NameTooLong));
    let root = filesystem.root();
    for name in [&b""[..], b".", b"..", b"sub/inner", b"/"] {
        assert!(matches!(root.lookup(name), Err(Error::BadName(_))));
    }
    assert!(matches!(reason(filesystem.open_file("/sub")), Error::IsADirectory));
    assert!(matches!(reason(filesystem.open_file("/pipe")), Error::NotAFile));
    assert!(matches!(reason(filesystem.open_dir("/small")), Error::NotADirectory));
    assert!(matches!(reason(filesystem.read_link("/small")), Error::NotASymlink));
}
