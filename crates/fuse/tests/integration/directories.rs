//! Tests of directories, and of the kernel's references to nodes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use userbtrfs_fuse::{Config, InitFlags};
use userbtrfs_testkit::test_env::until;

use crate::harness::{Mounted, config, options};
use crate::memory::Behavior;

const MANY: usize = 10_000;

/// Mounts with this flag set or cleared.
fn mounted_with(flag: InitFlags, is_set: bool) -> Option<Mounted> {
    let mut flags = InitFlags::LOCAL_DISK;
    flags.set(flag, is_set);
    Mounted::with(Behavior::default(), &Config { flags, ..config() }, &options())
}

fn names(mounted: &Mounted) -> Vec<String> {
    let entries = fs::read_dir(mounted.root()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn each_of_many_names_is_listed_once() {
    for is_plus in [true, false] {
        let Some(mounted) = mounted_with(InitFlags::DO_READDIRPLUS, is_plus) else { return };
        let all: BTreeSet<_> = (0..MANY).map(|number| format!("name-{number}")).collect();
        for name in &all {
            File::create_new(mounted.path(name)).unwrap();
        }
        let listed = names(&mounted);
        assert_eq!(listed.len(), MANY);
        assert!(listed.into_iter().collect::<BTreeSet<_>>() == all);
    }
}

#[test]
fn listings_have_file_types_and_inode_numbers() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir(mounted.path("directory")).unwrap();
    File::create_new(mounted.path("file")).unwrap();
    for entry in fs::read_dir(mounted.root()).unwrap().map(Result::unwrap) {
        let found = entry.metadata().unwrap();
        assert_eq!(entry.ino(), found.ino());
        assert_eq!(entry.file_type().unwrap(), found.file_type());
    }
}

#[test]
fn a_directory_may_change_while_it_is_listed() {
    let Some(mounted) = Mounted::new() else { return };
    for number in 0..3000 {
        File::create_new(mounted.path(&format!("old-{number}"))).unwrap();
    }
    let mut seen = BTreeSet::new();
    for (number, entry) in fs::read_dir(mounted.root()).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::remove_file(mounted.path(&name)).unwrap();
        assert!(seen.insert(name));
        if number < 100 {
            File::create_new(mounted.path(&format!("new-{number}"))).unwrap();
        }
    }
    let old = seen.iter().filter(|name| name.starts_with("old-")).count();
    assert_eq!(old, 3000);
}

#[test]
fn references_are_dropped_when_all_is_removed() {
    for is_plus in [true, false] {
        let Some(mounted) = mounted_with(InitFlags::DO_READDIRPLUS, is_plus) else { return };
        fs::create_dir(mounted.path("d")).unwrap();
        for number in 0..1000 {
            let path = mounted.path(&format!("d/{number}"));
            fs::write(&path, "x").unwrap();
            fs::hard_link(&path, mounted.path(&format!("{number}"))).unwrap();
        }
        assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 1000);
        assert!(names(&mounted).iter().all(|name| mounted.path(name).exists()));
        assert!(mounted.memory.with(|tree| tree.counts()).0 >= 1001);
        fs::remove_dir_all(mounted.path("d")).unwrap();
        for number in 0..1000 {
            fs::remove_file(mounted.path(&format!("{number}"))).unwrap();
        }
        until("the last FORGET", || mounted.memory.with(|tree| tree.counts()) == (0, 0));
    }
}
