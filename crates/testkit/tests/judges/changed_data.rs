//! Files made by Linux (compressed, shared by reflinks and snapshots, preallocated, nocow, with
//! hole items), changed by us and by Linux in turns.
//!
//! 1. A changed file has its old content with the changes; all others, including those that share
//!    its extents, are unchanged.
//! 2. `btrfs check` and a scrub find no errors, and Linux shows what we show.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use userbtrfs::{Allocate, Error, Filesystem, Inode, InodeId, OpenOptions, TreeId};
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::random_workload::RandomWorkload;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::check_file;
use super::ours::judge_by_linux_but;
use super::{is_torture, seed};

/// Longer files are not changed, in bytes.
const SIZE_MAX: u64 = 4 << 20;
/// Options of mkfs.btrfs and mount(8).
const KINDS: &[(&[&str], &str)] = &[
    (&[], "noatime"),
    (&["-O", "^no-holes", "-n", "4096"], "noatime,compress-force=zstd"),
    (&["--mixed"], "noatime,compress=lzo"),
];
/// The number of files in each subvolume at first.
const FILES: u64 = 25;

#[test]
fn files_of_linux_are_changed_by_us_and_nothing_else_is() {
    skip_unless_linux!();
    let seed = seed();
    let rounds = if is_torture() { 40 } else { 1 };
    let linux = Linux::lock().unwrap();
    for seed in seed..seed + rounds {
        for kind in KINDS {
            take_turns(&linux, kind, seed);
        }
    }
}

fn take_turns(linux: &Linux, (mkfs, options): &(&[&str], &str), seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    File::create(&image).unwrap().set_len(1 << 30).unwrap();
    run(Command::new("mkfs.btrfs").arg("-q").args(*mkfs).arg(&image)).unwrap();
    let mut random = Random::new(seed);
    for turn in 0..2 {
        let what = format!("{mkfs:?}, {options}, seed {seed}, turn {turn}");
        change_by_linux(linux, &image, options, turn == 0, &mut random);
        change_by_us(&what, &image, &mut random);
        check_file(&what, &image);
        // Linux finds no hole in a preallocated extent that a file got by sharing, if the file has
        // no preallocation of its own and is otherwise fully allocated.
        judge_by_linux_but(linux, &what, &image, &["segments"]);
        linux.scrub(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        linux.assert_no_complaints().unwrap_or_else(|error| panic!("{what}: {error:#}"));
    }
}

fn change_by_linux(
    linux: &Linux,
    image: &Path,
    options: &str,
    is_first: bool,
    random: &mut Random,
) {
    let mount = linux.mount(image, options).unwrap();
    let subvolumes = [1, 2].map(|number| mount.path().join(format!("subvolume{number}")));
    if is_first {
        for subvolume in &subvolumes {
            run(Command::new("btrfs").args(["subvolume", "create"]).arg(subvolume)).unwrap();
            for number in 0..FILES {
                let length = random.length(18);
                let seed = u32::try_from(1 + random.below(1 << 31)).unwrap();
                let bytes = pattern::bytes(seed, 0, usize::try_from(length).unwrap());
                fs::write(subvolume.join(number.to_string()), bytes).unwrap();
            }
        }
    }
    let seed = random.number();
    RandomWorkload::new(mount.path(), subvolumes.to_vec(), seed).unwrap().run(120).unwrap();
}

/// The files of a filesystem and their contents.
struct Files {
    ids: Vec<InodeId>,
    contents: HashMap<InodeId, Vec<u8>>,
}

impl Files {
    fn of(filesystem: &Filesystem) -> Self {
        let mut files = Self { ids: Vec::new(), contents: HashMap::new() };
        for entry in filesystem.walk("/").unwrap() {
            let inode = entry.unwrap().inode;
            let metadata = inode.metadata().unwrap();
            if metadata.is_file() && metadata.size <= SIZE_MAX {
                let content = inode.open().unwrap().read_all().unwrap();
                if files.contents.insert(inode.id(), content).is_none() {
                    files.ids.push(inode.id());
                }
            }
        }
        files
    }

    fn assert_all(&self, what: &str, filesystem: &Filesystem) {
        for (id, content) in &self.contents {
            let found = filesystem.inode(*id).open().unwrap().read_all().unwrap();
            let differs = found.iter().zip(content).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: {id:?}");
            assert_eq!(found.len(), content.len(), "{what}: {id:?}");
        }
    }
}

fn open_for_writing(image: &Path) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(16 << 20);
    options.open(image).unwrap()
}

fn change_by_us(what: &str, image: &Path, random: &mut Random) {
    let filesystem = open_for_writing(image);
    let mut files = Files::of(&filesystem);
    let read_only: Vec<_> = filesystem.subvolumes().unwrap();
    let read_only: Vec<_> =
        read_only.iter().filter(|one| one.is_read_only()).map(|one| one.id).collect();
    let steps = if is_torture() { 1000 } else { 200 };
    for step in 0..steps {
        let id = *random.pick(&files.ids).expect("there are files");
        let inode = filesystem.inode(id);
        let content = files.contents.get_mut(&id).expect("it is known");
        let before = content.clone();
        let changed = change(&inode, content, random);
        if read_only.contains(&id.subvolume) {
            let is_same = *content == before;
            assert!(changed.is_err() || is_same, "{what}: a read-only snapshot is changed");
            *content = before;
        } else {
            changed.unwrap_or_else(|error| panic!("{what}: step {step}: {error}"));
        }
        let found = inode.open().unwrap().read_all().unwrap();
        assert!(found == *content, "{what}: step {step}, {id:?}");
        drop(inode);
        if random.one_in(50) {
            filesystem.commit().unwrap();
            files.assert_all(what, &filesystem);
        }
    }
    filesystem.close().unwrap();
    files.assert_all(what, &open_for_writing(image));
}

/// Changes a file and its expected content.
fn change(inode: &Inode, content: &mut Vec<u8>, random: &mut Random) -> Result<(), Error> {
    let file = inode.open()?;
    let start = random.below(content.len() as u64 + 8192);
    let start = if random.one_in(2) { start / 4096 * 4096 } else { start };
    let length = random.length(17);
    let from = usize::try_from(start).unwrap();
    let to = usize::try_from(start + length).unwrap();
    let seed = u32::try_from(1 + random.below(1 << 31)).unwrap();
    match random.below(9) {
        0 => {
            content.resize(from, 0);
            file.set_len(start)?;
        }
        1 => {
            let size = content.len();
            content[from.min(size)..to.min(size)].fill(0);
            file.allocate(start, length, Allocate::PunchHole)?;
        }
        2 => {
            content.resize(content.len().max(to), 0);
            content[from..to].fill(0);
            file.allocate(start, length, Allocate::ZeroRange { keep_size: false })?;
        }
        3 => {
            let keep_size = random.one_in(2);
            content.resize(if keep_size { content.len() } else { content.len().max(to) }, 0);
            file.allocate(start, length, Allocate::Reserve { keep_size })?;
        }
        4 => {
            let end = content.len() as u64;
            content.extend(pattern::bytes(seed, end, to - from));
            file.append(&content[usize::try_from(end).unwrap()..])?;
        }
        5 => file.sync_all()?,
        _ => {
            content.resize(content.len().max(to), 0);
            pattern::fill(seed, start, &mut content[from..to]);
            file.write_at(&content[from..to], start)?;
        }
    }
    file.close()
}
