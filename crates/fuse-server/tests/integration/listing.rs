//! Listings of directories.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{Dir, FileType, Mode};
use rustix::io::Errno;
use userbtrfs_image_builder::ImageEditor;
use userbtrfs_testkit::linux::btrfs_check;
use userbtrfs_testkit::test_env::is_torture;

use crate::support::{Site, both, shell};

/// Numbers of the format: the top-level tree, and the kind of the items that a listing reads.
const FS_TREE: u64 = 5;
const DIR_INDEX: u8 = 96;
/// The size of a leaf's header and of an item's, and where the latter has the key's offset.
const LEAF_HEADER: usize = 101;
const LEAF_ITEM: usize = 25;
const KEY_OFFSET: usize = 9;

fn names(root: &Path) -> BTreeSet<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    fs::read_dir(root).unwrap().map(|entry| name(entry).into_string().unwrap()).collect()
}

#[test]
fn a_large_directory_is_listed_whole() {
    both(|root| {
        let made: BTreeSet<String> = (0..5000).map(|number| format!("file{number}")).collect();
        for name in &made {
            File::create(root.join(name)).unwrap();
        }
        assert_eq!(names(root), made);
        // From the cache, and after it was invalidated.
        assert_eq!(names(root), made);
        fs::remove_file(root.join("file7")).unwrap();
        assert_eq!(names(root).len(), 4999);
        assert_eq!(shell(root, "ls -l | wc -l").trim(), "5000");
    });
}

/// A listing shows each entry that stays exactly once, whatever is added and removed meanwhile.
#[test]
fn a_directory_is_listed_while_it_changes() {
    both(|root| {
        let stays = |number: usize| format!("stays{number}");
        for number in 0..2000 {
            File::create(root.join(stays(number))).unwrap();
            File::create(root.join(format!("goes{number}"))).unwrap();
        }
        let mut seen = Vec::new();
        let dir = Dir::read_from(File::open(root).unwrap()).unwrap();
        for entry in dir {
            let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
            if let Some(number) = name.strip_prefix("goes") {
                let _ = fs::remove_file(root.join(&name));
                let _ = File::create(root.join(format!("comes{number}")));
            }
            seen.push(name);
        }
        let stayed = seen.iter().filter(|name| name.starts_with("stays"));
        assert_eq!(stayed.clone().count(), 2000);
        assert_eq!(stayed.collect::<BTreeSet<_>>().len(), 2000);
    });
}

/// A listing of very many entries shows each that stays once, while another thread changes others.
#[test]
fn a_directory_of_very_many_entries_is_listed_while_it_changes() {
    let Some(site) = Site::new() else { return };
    let count = if is_torture() { 1_000_000 } else { 100_000 };
    site.format_sized(8 << 30, &[]);
    let stays = |number: usize| format!("stays{number}");
    site.with_ours(|root| {
        let dir = File::open(root).unwrap();
        let make = |name: &str| {
            let kind = FileType::RegularFile;
            let mode = Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(&dir, name, kind, mode, 0).unwrap();
        };
        (0..count).for_each(|number| make(&stays(number)));
        let is_listed = AtomicBool::new(false);
        let (seen, changes) = thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut changes = 0_usize;
                while !is_listed.load(Ordering::Relaxed) || changes < 1000 {
                    make(&format!("comes{changes}"));
                    if let Some(gone) = changes.checked_sub(10) {
                        fs::remove_file(root.join(format!("comes{gone}"))).unwrap();
                    }
                    changes += 1;
                }
                changes
            });
            let entries = Dir::read_from(&dir).unwrap();
            let names =
                entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
            let seen: Vec<_> = names.filter(|name| name.starts_with("stays")).collect();
            is_listed.store(true, Ordering::Relaxed);
            (seen, changes.join().unwrap())
        });
        println!("{changes} came while {count} were listed");
        assert_eq!(seen.len(), count);
        assert!(seen.into_iter().collect::<BTreeSet<_>>() == (0..count).map(stays).collect());
    });
    btrfs_check(&site.image()).unwrap();
    let there = site.with_linux("ro,noatime", |root| names(root).len());
    assert_eq!(there, count + 10);
}

/// A listing shows the entries that existed when it began: a program that renames each entry as it
/// is listed reaches the end, in a directory that is listed at once and in one that is not.
#[test]
fn listing_ends_while_each_listed_entry_is_renamed() {
    both(|root| {
        for count in [5, 3000] {
            let within = root.join(format!("of {count}"));
            fs::create_dir(&within).unwrap();
            for number in 0..count {
                File::create(within.join(format!("{number}"))).unwrap();
            }
            let mut dir = Dir::read_from(File::open(&within).unwrap()).unwrap();
            for times in 1..=2 {
                let mut listed = 0;
                for entry in dir.by_ref() {
                    let entry = entry.unwrap();
                    let name = entry.file_name().to_str().unwrap();
                    if name != "." && name != ".." {
                        let new = format!("{name}x");
                        fs::rename(within.join(name), within.join(&new)).unwrap();
                        File::create(within.join(format!("{times} {listed}"))).unwrap();
                        listed += 1;
                    }
                    assert!(listed <= times * count, "it goes on and on");
                }
                assert_eq!(listed, times * count);
                dir.rewind();
            }
        }
    });
}

#[test]
fn listing_continues_at_a_position() {
    both(|root| {
        for number in 0..300 {
            File::create(root.join(format!("{number}"))).unwrap();
        }
        let mut dir = Dir::read_from(File::open(root).unwrap()).unwrap();
        let first: Vec<_> = dir.by_ref().take(100).map(|entry| entry.unwrap()).collect();
        let rest: Vec<_> =
            dir.by_ref().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        dir.seek(first[99].offset()).unwrap();
        let again: Vec<_> = dir.map(|entry| entry.unwrap().file_name().to_owned()).collect();
        assert_eq!((rest.len(), &again), (202, &rest));
    });
}

#[test]
fn listing_shows_file_types() {
    both(|root| {
        shell(root, "mkdir d; echo x >f; ln -s x l; mkfifo p; mknod c c 1 3; mknod b b 7 0");
        let kinds: BTreeSet<_> = Dir::read_from(File::open(root).unwrap())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().to_str().unwrap().to_owned();
                (name, format!("{:?}", entry.file_type()), entry.ino() > 0)
            })
            .collect();
        let of =
            |name: &str, kind: &str| assert!(kinds.contains(&(name.into(), kind.into(), true)));
        of(".", "Directory");
        of("..", "Directory");
        of("d", "Directory");
        of("f", "RegularFile");
        of("l", "Symlink");
        of("p", "Fifo");
        of("c", "CharacterDevice");
        of("b", "BlockDevice");
    });
}

/// A damaged directory is listed to its end, even if it has more invalid names in a row than fit
/// into a page.
#[test]
fn invalid_names_do_not_end_a_listing() {
    let Some(site) = Site::new() else { return };
    site.format();
    let sound = |number: usize| !(3..6000).contains(&number);
    site.with_ours(|root| {
        for number in 0..6010 {
            let kind = if sound(number) { "sound" } else { "wrong" };
            File::create(root.join(format!("{kind}{number:04}"))).unwrap();
        }
    });
    let mut editor = ImageEditor::open(&site.image()).unwrap();
    let tree = editor.trees().into_iter().find(|tree| tree.0 == FS_TREE).unwrap();
    let entries = editor.items(tree).into_iter();
    for place in entries.filter(|place| place.key.kind.0 == DIR_INDEX) {
        editor.edit_item(&place, |item| {
            let name = item.len() - "wrong0000".len();
            if item[name..].starts_with(b"wrong") {
                item[name] = b'/';
            }
        });
    }
    drop(editor);
    let expected = (0..6010).filter(|number| sound(*number)).map(|n| format!("sound{n:04}"));
    site.with_ours(|root| assert!(names(root) == expected.collect()));
}

/// The dir index of an entry is in two items: if they differ, the name cannot be removed, and
/// everything else works.
#[test]
fn removal_of_a_name_with_a_wrong_dir_index_fails() {
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_ours(|root| drop(shell(root, "mkdir d; echo b >d/b")));
    let mut editor = ImageEditor::open(&site.image()).unwrap();
    let tree = editor.trees().into_iter().find(|tree| tree.0 == FS_TREE).unwrap();
    let mut entries = editor.items(tree).into_iter();
    let inner = entries.rfind(|place| place.key.kind.0 == DIR_INDEX).unwrap();
    let offset = LEAF_HEADER + inner.slot * LEAF_ITEM + KEY_OFFSET;
    let elsewhere = (inner.key.offset + 7).to_le_bytes();
    editor.edit_block(inner.logical, |block| block[offset..][..8].copy_from_slice(&elsewhere));
    drop(editor);
    site.with_ours(|root| {
        let refused = fs::remove_file(root.join("d/b")).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::IO), "{refused}");
        assert_eq!(shell(root, "cat d/b; touch d/c d/e; rm d/c; ls d"), "b\nb\ne\n");
    });
}
