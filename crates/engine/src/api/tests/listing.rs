//! Listings of directories, and their parents.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Returns the positions and names of all entries.
fn listed(dir: &Dir) -> Vec<(u64, Vec<u8>)> {
    let line = |entry: DirEntry| (entry.position(), entry.name().to_vec());
    dir.entries().map(|entry| line(entry.unwrap())).collect()
}

#[test]
fn a_directory_is_listed_from_memory_as_from_its_tree() {
    for count in [0, 7, 100, 1000] {
        let lab = Lab::new();
        let dir = lab.fs.root().create_dir(b"d", 0o755).unwrap();
        let name = |number: u64| number.to_string().into_bytes();
        for number in 0..count {
            dir.create(&name(number), 0o644).unwrap();
        }
        for number in (0..count).step_by(3) {
            dir.rename(&name(number), &dir, &name(number + count), RenameMode::Replace).unwrap();
        }
        for number in (1..count).step_by(5) {
            dir.remove_file(&name(number)).ok();
        }
        let before = listed(&dir);
        let (some, _) = dir.list(before.get(2).map_or(0, |(after, _)| *after), 4).unwrap();
        let some: Vec<_> = some.iter().map(|entry| entry.name().to_vec()).collect();
        let rest = before.iter().skip(3).map(|(_, name)| name.clone());
        assert!(rest.take(some.len()).eq(some));
        let lab = lab.reopened();
        assert_eq!(listed(&lab.fs.open_dir("/d").unwrap()), before);
        lab.close();
    }
}

#[test]
fn an_empty_path_leads_to_nothing() {
    let lab = Lab::new();
    let dir = lab.fs.create_dir("name", 0o755).unwrap();
    assert_eq!(lab.fs.lookup("name").unwrap().id(), dir.inode().id());
    assert!(matches!(lab.fs.lookup("").map(drop), Err(PathError { error: Error::NotFound, .. })));
    assert!(matches!(
        lab.fs.lookup_no_follow("").map(drop),
        Err(PathError { error: Error::NotFound, .. })
    ));
    assert!(matches!(lab.fs.walk("").map(drop), Err(PathError { error: Error::NotFound, .. })));
    assert!(matches!(
        lab.fs.create_dir("", 0o755).map(drop),
        Err(PathError { error: Error::NotFound, .. })
    ));
    lab.fs.create_dir_all("", 0o755).unwrap();
    drop(dir);
    lab.close();
}

#[test]
fn a_directory_knows_where_it_is() {
    let lab = Lab::new();
    let root = lab.fs.root();
    let a = root.create_dir(b"a", 0o755).unwrap();
    let b = root.create_dir(b"b", 0o755).unwrap();
    let in_a = a.create_dir(b"x", 0o755).unwrap();
    let in_b = b.create_dir(b"y", 0o755).unwrap();
    let parents = |dirs: [&Dir; 4]| dirs.map(|dir| dir.parent().unwrap().unwrap());
    let id = |dir: &Dir| dir.inode().id();
    let expected = [id(&root), id(&root), id(&a), id(&b)];
    assert_eq!(parents([&root, &a, &in_a, &in_b]), expected);
    a.rename(b"x", &b, b"y", RenameMode::Exchange).unwrap();
    assert_eq!(parents([&root, &a, &in_b, &in_a]), expected);
    b.rename(b"y", &root, b"z", RenameMode::Replace).unwrap();
    assert_eq!(in_a.parent().unwrap(), Some(id(&root)));
    lab.fs.commit().unwrap();
    assert_eq!(parents([&root, &a, &in_b, &in_a]), [id(&root), id(&root), id(&a), id(&root)]);
    drop((root, a, b, in_a, in_b));
    let lab = lab.reopened();
    let dir = |path: &str| lab.fs.open_dir(path).unwrap();
    assert_eq!(parents([&dir("/"), &dir("/a"), &dir("/a/x"), &dir("/z")]), {
        [id(&dir("/")), id(&dir("/")), id(&dir("/a")), id(&dir("/"))]
    });
    dir("/a").rename(b"x", &dir("/b"), b"x", RenameMode::Replace).unwrap();
    let b = dir("/b");
    let gone = dir("/b/x");
    assert_eq!(gone.parent().unwrap(), Some(id(&b)));
    b.remove_dir(b"x").unwrap();
    assert_eq!(gone.parent().unwrap(), None);
    drop((b, gone));
    lab.close();
}

#[test]
fn attributes_at_once_are_those_of_the_inode() {
    let lab = Lab::new();
    let file = lab.create("f");
    let id = file.inode().id();
    file.write_at(&[7; 10_000], 0).unwrap();
    let at_once = lab.fs.metadata_at_once(id).unwrap();
    assert_eq!((at_once.size, at_once.allocated, at_once.unfinished), (10_000, 0, 12_288));
    file.sync_all().unwrap();
    let at_once = lab.fs.metadata_at_once(id).unwrap();
    assert_eq!((at_once.allocated, at_once.unfinished), (12_288, 0));
    drop(file);
    lab.fs.root().remove_file(b"f").unwrap();
    assert!(lab.fs.metadata_at_once(id).is_none());
    let lab = lab.reopened();
    lab.create("g");
    let lab = lab.reopened();
    let entry = lab.fs.root().entries().next().unwrap().unwrap();
    assert!(lab.fs.metadata_at_once(entry.target()).is_none());
    let metadata = lab.fs.root().metadata_of(&entry).unwrap();
    assert_eq!(metadata, lab.file("g").inode().metadata().unwrap());
    assert_eq!(lab.fs.metadata_at_once(entry.target()), Some(metadata));
    lab.close();
}

/// A lookup of a name that is replaced or exchanged finds the old or the new inode.
#[test]
fn replaced_name_always_resolves() {
    let lab = Lab::new();
    let root = lab.fs.root();
    let dirs = ["one", "two"].map(|name| root.create_dir(name.as_bytes(), 0o755).unwrap());
    for name in ["left", "right"] {
        for dir in &dirs {
            dir.create(name.as_bytes(), 0o644).unwrap();
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(1);
            while !done.load(Ordering::Relaxed) {
                let dir = ["one", "two"][usize::try_from(random.below(2)).unwrap()];
                for name in ["left", "right"] {
                    lab.fs.metadata(format!("/{dir}/{name}")).unwrap();
                }
            }
        });
        for number in 0..5000 {
            let [from, to] = if number % 2 == 0 { [0, 0] } else { [0, 1] }.map(|at| &dirs[at]);
            from.rename(b"left", to, b"right", RenameMode::Exchange).unwrap();
            from.create(b"new", 0o644).unwrap();
            from.rename(b"new", to, b"left", RenameMode::Replace).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    drop((root, dirs));
    lab.close();
}

/// In a snapshot an empty directory takes the place of an inner subvolume. Random operations found
/// that any name was only missing there.
#[test]
fn name_that_is_too_long_is_refused_in_place_of_an_inner_subvolume_too() {
    let lab = Lab::new();
    let outer = lab.fs.root().create_subvolume(b"outer", 0o755).unwrap();
    outer.create_subvolume(b"inner", 0o755).unwrap();
    let id = outer.inode().id().subvolume;
    lab.fs.root().snapshot(b"copy", id, false).unwrap();
    let lookup = |name: String| lab.fs.lookup(format!("/copy/inner/{name}")).map(drop);
    assert!(matches!(lookup("x".repeat(255)), Err(PathError { error: Error::NotFound, .. })));
    assert!(matches!(lookup("x".repeat(256)), Err(PathError { error: Error::NameTooLong, .. })));
    let dir = lab.fs.open_dir("/copy/inner").unwrap();
    assert!(matches!(dir.lookup("x".repeat(256).as_bytes()), Err(Error::NameTooLong)));
    lab.close();
}
