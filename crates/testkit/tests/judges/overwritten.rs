//! Overwrites with no or little space left: by us and by Linux, on copies of one image.
//!
//! 1. We or Linux filled the image. The files that are overwritten, as a whole and by sectors, are
//!    copied on write, nocow, nocow but shared with a snapshot, or preallocated.
//! 2. We can write everything that Linux can, and some of it cannot be written.
//! 3. If there is no space, the write fails, never the sync. Successful writes are durable after
//!    it, each sector of a failed write is old or new, and the snapshot is unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use userbtrfs::mkfs::Options;
use userbtrfs::{OpenOptions, TreeId};
use userbtrfs_format::SECTOR;
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::linux::{Linux, run};
use userbtrfs_testkit::manifest::Mode;
use userbtrfs_testkit::model::Outcome;
use userbtrfs_testkit::operation::{AllocateKind, Object, Operation};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::target::{LinuxTarget, Target};
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_file};
use super::ours::use_by_linux;
use super::{is_torture, open, seed};

/// The size of each overwritten file in bytes.
const LEN: u64 = 2 * MIB;
/// The file that takes all other space.
const FILLER: &str = "filler";
/// The file that is removed for the second half: space for two files and some sectors.
const SPARE: &str = "spare";
const SPARE_LEN: u64 = 2 * LEN + LEN / 4 * 3;
const SNAPSHOT: &str = "snapshot";
/// `FS_NOCOW_FL`.
const NOCOW: u32 = 0x0080_0000;
/// The number of overwrites of a whole file.
const TIMES: u32 = 4;
/// The number of overwrites of single sectors of it.
const SECTORS: u32 = 64;

/// A file that is overwritten, and the seeds of the possible content of each sector.
struct Overwritten {
    name: &'static str,
    sectors: Vec<BTreeSet<u32>>,
}

/// The result of each write, and of the unlink, with a description.
type Ends = Vec<(String, Outcome)>;

fn object(name: &str) -> Object {
    Object::Path(name.into())
}

fn apply(target: &mut dyn Target, operation: &Operation) -> Outcome {
    target.apply(operation).map(drop)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

fn target<'a>(is_ours: bool, linux: &'a Linux, image: &Path) -> Box<dyn Target + 'a> {
    if !is_ours {
        return Box::new(LinuxTarget::new(linux, image).unwrap());
    }
    let options = OpenOptions::new().memory(32 << 20).clone();
    Box::new(EngineTarget::on_subvolume(image, TreeId::FS, &options).unwrap())
}

fn create(target: &mut dyn Target, name: &str, flags: u32) {
    let create = Operation::Create { path: name.into(), mode: Mode::new(0o644) };
    apply(target, &create).unwrap();
    apply(target, &Operation::SetFlags { object: object(name), flags }).unwrap();
}

/// Creates a file with data, and syncs it.
fn make(target: &mut dyn Target, name: &str, flags: u32, length: u64) {
    create(target, name, flags);
    let object = object(name);
    let offset = 0;
    let seed = 1;
    apply(target, &Operation::Write { object: object.clone(), offset, length, seed }).unwrap();
    apply(target, &Operation::Sync { object }).unwrap();
}

/// Fills an image with the files to overwrite, and the rest with `FILLER`.
fn fill(made: &Made, is_ours: bool, linux: &Linux, image: &Path) {
    made.image().write_to(image).unwrap();
    make(&mut *target(is_ours, linux, image), "shared", NOCOW, LEN);
    let mount = linux.mount(image, "noatime,subvolid=5").unwrap();
    let snapshot = mount.path().join(SNAPSHOT);
    run(Command::new("btrfs").args(["subvolume", "snapshot"]).arg(mount.path()).arg(snapshot))
        .unwrap();
    drop(mount);
    let mut target = target(is_ours, linux, image);
    let target = &mut *target;
    make(target, "copied", 0, LEN);
    make(target, "in place", NOCOW, LEN);
    create(target, "ahead", 0);
    let object = object("ahead");
    let kind = AllocateKind::Reserve;
    apply(target, &Operation::Allocate { object, offset: 0, length: LEN, kind }).unwrap();
    make(target, SPARE, 0, SPARE_LEN);
    target.commit();
    create(target, FILLER, 0);
    for length in [MIB, 64 << 10, SECTOR] {
        append_until_full(target, length);
        // Unused reservations are released.
        target.commit();
    }
}

fn append_until_full(target: &mut dyn Target, length: u64) {
    let append = Operation::Append { object: object(FILLER), length, seed: 1 };
    loop {
        match apply(target, &append) {
            Ok(()) => {}
            Err(error) => return assert_eq!(error, Errno::NOSPC),
        }
    }
}

/// Overwrites all files with no space left, and again with a little.
fn overwrite(target: &mut dyn Target, files: &mut [Overwritten], seed: u64) -> Ends {
    let mut random = Random::new(seed);
    let mut ends = Ends::new();
    for half in ["nothing", "little"] {
        if half == "little" {
            let unlinked = apply(target, &Operation::Unlink { path: SPARE.into() });
            ends.push(("unlinked".to_owned(), unlinked));
            target.commit();
        }
        for file in &mut *files {
            let whole = (0..TIMES).map(|_| (0, LEN));
            let sector = |_| (random.below(LEN / SECTOR) * SECTOR, SECTOR);
            for (offset, length) in whole.chain((0..SECTORS).map(sector)) {
                let seed = u32::try_from(ends.len() + 2).unwrap();
                let what = format!("{half} left, {}: {length} at {offset}", file.name);
                ends.push((what, file.overwrite(target, offset, length, seed)));
            }
        }
    }
    ends
}

impl Overwritten {
    fn all() -> Vec<Self> {
        let file = |(name, seed)| {
            let sectors = (0..LEN / SECTOR).map(|_| BTreeSet::from([seed])).collect();
            Self { name, sectors }
        };
        [("in place", 1), ("ahead", 0), ("shared", 1), ("copied", 1)].map(file).into()
    }

    fn overwrite(
        &mut self,
        target: &mut dyn Target,
        offset: u64,
        length: u64,
        seed: u32,
    ) -> Outcome {
        let object = object(self.name);
        let write = Operation::Write { object: object.clone(), offset, length, seed };
        let written = apply(target, &write);
        for sector in &mut self.sectors[index(offset / SECTOR)..index((offset + length) / SECTOR)] {
            if written.is_ok() {
                sector.clear();
            }
            sector.insert(seed);
        }
        apply(target, &Operation::Sync { object }).unwrap();
        written.inspect_err(|error| assert_eq!(*error, Errno::NOSPC))
    }

    fn assert_holds(&self, what: &str, content: &[u8]) {
        assert_eq!(content.len(), index(LEN), "{what}, {}", self.name);
        let sectors = content.chunks(index(SECTOR)).zip(&self.sectors);
        for ((found, seeds), offset) in sectors.zip((0..).step_by(index(SECTOR))) {
            let made = |seed: &u32| found == pattern::bytes(*seed, offset, found.len());
            assert!(seeds.iter().any(made), "{what}, {} at {offset}: not {seeds:?}", self.name);
        }
    }
}

fn assert_no_less(what: &str, theirs: &Ends, ours: &Ends) {
    let refused = |ends: &Ends| ends.iter().filter(|(_, end)| end.is_err()).count();
    let by_linux = refused(theirs);
    let by_us = refused(ours);
    println!("{what}: of {}, Linux refused {by_linux}, we {by_us}", theirs.len());
    assert!((1..theirs.len()).contains(&by_linux), "{what}: Linux refused {by_linux}");
    for ((one, theirs), (_, ours)) in theirs.iter().zip(ours) {
        assert!(ours.is_ok() || theirs.is_err(), "{what}: {one}: {ours:?}, but Linux can");
    }
}

fn judge(linux: &Linux, made: &Made, is_filled_by_us: bool, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full");
    let copy = |name: &str| {
        let copy = folder.path().join(name);
        fs::copy(&full, &copy).unwrap();
        copy
    };
    fill(made, is_filled_by_us, linux, &full);
    let filler = if is_filled_by_us { "us" } else { "Linux" };
    let what = format!("{}, filled by {filler}, seed {seed}", made.name);
    check_file(&what, &full);
    let of_linux = copy("linux");
    let of_ours = copy("ours");
    let theirs = overwrite(&mut *target(false, linux, &of_linux), &mut Overwritten::all(), seed);
    let mut files = Overwritten::all();
    let ours = overwrite(&mut *target(true, linux, &of_ours), &mut files, seed);
    assert_no_less(&what, &theirs, &ours);
    let filesystem = open(&of_ours, 64).unwrap();
    for file in &files {
        file.assert_holds(&what, &filesystem.read(format!("/{}", file.name)).unwrap());
    }
    let held = filesystem.read(format!("/{SNAPSHOT}/shared")).unwrap();
    assert!(held == pattern::bytes(1, 0, index(LEN)), "{what}: what the snapshot holds");
    drop(filesystem);
    check_file(&what, &of_ours);
    use_by_linux(linux, &what, &of_ours);
    linux.assert_no_complaints().unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

#[test]
fn overwrites_on_a_full_filesystem_succeed_where_those_of_linux_do() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let nodes = |nodesize| Options { nodesize, ..Options::default() };
    let mut all = vec![
        Made::new("4k nodes", 128 * MIB, nodes(4096)),
        Made::new("mixed", 64 * MIB, Options::mixed()),
    ];
    if is_torture() {
        all.push(Made::new("default", 400 * MIB, Options::default()));
    }
    let seed = seed();
    let rounds = if is_torture() { 3 } else { 1 };
    for seed in seed..seed + rounds {
        for made in &all {
            for is_filled_by_us in [false, true] {
                judge(&linux, made, is_filled_by_us, seed);
            }
        }
    }
}
