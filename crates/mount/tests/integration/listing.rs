//! Listings of directories.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::Dir;

use crate::support::{both, shell};

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
        // From the cache, and after it is old.
        assert_eq!(names(root), made);
        fs::remove_file(root.join("file7")).unwrap();
        assert_eq!(names(root).len(), 4999);
        assert_eq!(shell(root, "ls -l | wc -l").trim(), "5000");
    });
}

/// Who lists a directory sees each entry that stays once, whatever comes and goes meanwhile.
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

#[test]
fn a_place_in_a_listing_is_found_again() {
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
fn kinds_are_told_with_the_names() {
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
