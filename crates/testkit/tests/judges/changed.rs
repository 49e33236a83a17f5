//! Images made by Linux, with snapshots and shared extents, changed by us: Linux accepts them, and
//! shows what we show.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use userbtrfs::TreeId;
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::{Bytes, Kind, Mode};
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{
    Attributes, Generator, Object, Operation, RenameKind, XattrKind, split,
};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::target::{self, Target};

use super::made::{check_file, with_memory};
use super::ours::{judge_by_linux, use_by_linux};
use super::{Unpacked, assert_none, is_torture, open, seed};

/// The images.
const IMAGES: &[&str] = &[
    "shared",
    "subvolumes",
    "snapshots",
    "half-dropped-shared",
    "links",
    "names",
    "xattrs",
    "orphan",
    "half-dropped",
    "basic",
    "special",
    "no-extref",
    "old-format",
    "space-cache-v1",
    "nodesize-4k",
    "block-group-tree",
];
/// Files in a subvolume that has a snapshot: they fill many leaves.
const FILES: u32 = 500;
/// The directory for the operations of the model.
const OWN: &[u8] = b"judged";

#[test]
fn linux_accepts_its_images_as_we_change_them() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let rounds = if is_torture() { 50 } else { 1 };
    for name in IMAGES {
        for seed in seed..seed + rounds {
            change(&linux, &Golden::named(name), seed);
        }
    }
}

/// A balance makes blocks that are newer than the last snapshot, but shared like the blocks that
/// they replace.
#[test]
fn linux_accepts_what_it_balanced_as_we_change_it() {
    skip_unless_linux!();
    let seed = seed();
    let linux = Linux::lock().unwrap();
    let unpacked = Unpacked::new(&Golden::named("nodesize-4k"));
    let mount = linux.mount(&unpacked.image, "noatime").unwrap();
    let [original, snapshot] = ["moved", "moved too"].map(|name| mount.path().join(name));
    let btrfs = |words: [&str; 2], paths: &[&Path]| {
        run(Command::new("btrfs").args(words).args(paths)).unwrap();
    };
    btrfs(["subvolume", "create"], &[&original]);
    for number in 0..FILES {
        fs::write(original.join(format!("{number}")), [7; 1000]).unwrap();
    }
    btrfs(["subvolume", "snapshot"], &[&original, &snapshot]);
    btrfs(["filesystem", "sync"], &[mount.path()]);
    btrfs(["balance", "start"], &["-m".as_ref(), mount.path()]);
    drop(mount);
    change_image(&linux, "balanced", &unpacked.image, seed);
}

fn change(linux: &Linux, golden: &Golden, seed: u64) {
    let unpacked = Unpacked::new(golden);
    change_image(linux, golden.name(), &unpacked.image, seed);
}

fn change_image(linux: &Linux, name: &str, image: &Path, seed: u64) {
    let mut random = Random::new(seed);
    for subvolume in writable_subvolumes(image) {
        let what = format!("{name}, subvolume {}, seed {seed}", subvolume.0);
        change_subvolume(&what, image, subvolume, &mut random);
    }
    check_file(name, image);
    judge_by_linux(linux, name, image);
    use_by_linux(linux, name, image);
    judge_by_linux(linux, name, image);
    let mut complaints = linux.complaints().unwrap();
    // Linux reports this for old filesystems, independent of the writer.
    complaints.retain(|complaint| !complaint.contains("deprecated"));
    assert!(complaints.is_empty(), "{name}: Linux complains: {complaints:?}");
}

fn writable_subvolumes(image: &Path) -> Vec<TreeId> {
    let filesystem = open(image, 64).unwrap();
    let all = filesystem.subvolumes().unwrap().into_iter();
    let writable = all.filter(|subvolume| !subvolume.is_read_only()).map(|subvolume| subvolume.id);
    [TreeId::FS].into_iter().chain(writable).collect()
}

/// Changes files of Linux at random, and applies operations of the model next to them.
fn change_subvolume(what: &str, image: &Path, subvolume: TreeId, random: &mut Random) {
    let mut target =
        EngineTarget::on_subvolume(image, subvolume, &with_memory(random.number())).unwrap();
    let node_size = target.filesystem().superblock().nodesize;
    let mkdir = Operation::Mkdir { path: OWN.into(), mode: Mode::new(0o755) };
    target.apply(&mkdir).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut model = Model::new(node_size);
    let mut generator = Generator::new(random.number(), node_size).commit_every(50);
    let steps = if is_torture() { 2000 } else { 150 };
    for _ in 0..steps {
        change_one(what, &mut target, random);
        let operation = generator.next().expect("it does not end");
        let expected = model.apply(&operation);
        if !names_root(&operation) {
            let found = target::do_to(&mut target, &operation.clone().below(OWN, 0));
            assert_eq!(found, expected, "{what}: {operation}");
        }
    }
    target.reopen();
    model.apply(&Operation::Reopen).unwrap();
    let shown = target.manifest().below(&[b"/", OWN].concat());
    assert_none(what, &model.differences(&shown));
    target.close().unwrap();
}

fn names_root(operation: &Operation) -> bool {
    super::threads::names_root(operation)
}

/// Makes a random change to any file.
fn change_one(what: &str, target: &mut EngineTarget, random: &mut Random) {
    let Some(operation) = draw(target, random) else { return };
    // The operation may fail for any other reason.
    if let Err(error @ (Errno::IO | Errno::ROFS | Errno::NOSPC)) = target.apply(&operation) {
        panic!("{what}: {operation}: {error}");
    }
}

/// Draws an operation on a file below the root of the subvolume, inside this subvolume.
fn draw(target: &EngineTarget, random: &mut Random) -> Option<Operation> {
    let path = pick(target, random)?;
    let (dir, _) = split(&path)?;
    let new: Bytes = [dir, b"/new-", random.below(1000).to_string().as_bytes()].concat().into();
    let path = Bytes::from(path);
    let object = Object::Path(path.clone());
    Some(match random.below(9) {
        0 => Operation::Unlink { path },
        1 => Operation::Rmdir { path },
        2 => Operation::Rename { from: path, to: new, kind: RenameKind::Plain },
        3 => Operation::Link { from: object, to: new },
        4 => {
            let value = random.bytes(100).into();
            let name = format!("user.{}", random.below(5)).into();
            Operation::SetXattr { object, name, value, kind: XattrKind::Any }
        }
        5 => {
            let attributes = Attributes { uid: Some(7), ..Attributes::default() };
            Operation::Setattr { object, attributes }
        }
        6 => Operation::Create { path: new, mode: Mode::new(0o640) },
        7 => {
            let kind = Kind::Fifo;
            let mode = Mode::new(0o600);
            Operation::Mknod { path: new, kind, mode, rdev: (0, 0) }
        }
        _ => Operation::Replace { object, length: random.length(17), seed: 5 },
    })
}

/// Returns a random path of something in this subvolume.
fn pick(target: &EngineTarget, random: &mut Random) -> Option<Vec<u8>> {
    let filesystem = target.filesystem();
    let root = filesystem.root();
    let subvolume = root.inode().id().subvolume;
    let mut dir = root;
    let mut path = Vec::new();
    loop {
        let entries: Vec<_> = dir.entries().map(|entry| entry.unwrap()).collect();
        let entry = random.pick(&entries)?;
        if path.is_empty() && entry.name() == OWN {
            return None;
        }
        let inode = dir.follow(entry).unwrap();
        if inode.id().subvolume != subvolume {
            return None;
        }
        path = userbtrfs_testkit::operation::join(&path, entry.name());
        match inode.open_dir() {
            Ok(below) if !random.one_in(3) => dir = below,
            _ => return Some(path),
        }
    }
}
