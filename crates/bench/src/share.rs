//! Snapshots, clones, and the deletion of snapshots up to the end of cleaning.
//!
//! 1. Each turn begins with a copy of one image, so that all targets have the same blocks at the
//!    same places; its space is preallocated.
//! 2. *cold*: nothing is in memory but what opening reads. *warm*: all files were listed before,
//!    with their attributes.
//! 3. A snapshot is durable when the call returns, by either target. A deletion is measured until
//!    the cleaner is done and that is committed.
//! 4. Linux looks at the result: the names, the files of a snapshot, the bytes of a clone, and the
//!    used bytes.

mod base;
mod sides;

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};

use crate::args::ShareArgs;
use crate::bench::{Bench, Destination};
use crate::case::{Step, take_turns};
use crate::content::Content;
use crate::floor;
use crate::fresh::Fresh;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::tally::Tally;
use crate::target::Target;

use base::{Base, EXTENTS_PER_MIB, FILE, SNAPSHOT, SOURCE};
use sides::{CLONE, Library, OnMount, Side, look, snapshot_name};

/// The number of snapshots of a warm tree in one turn.
const SNAPSHOTS: u64 = 16;
/// The bytes that the floor writes for a snapshot, with a flush.
const SNAPSHOT_BYTES: u64 = 64 << 10;
/// The bytes of the items of a cloned extent: EXTENT_DATA (53) and its header (25), and the
/// reference in the extent tree (29).
const CLONED_BYTES: u64 = 53 + 25 + 29;
/// The bytes that a clone may use, as a part of its size.
const CLONE_USES: u64 = 16;
/// The bytes of a clone that are compared, at either end.
const COMPARED: usize = 1 << 20;

/// Measures all cases.
pub(crate) fn run(bench: &Bench, args: &ShareArgs, report: &mut Report) -> Result<()> {
    let targets = bench.chosen(&[Target::Lib, Target::Btrfs])?;
    if targets.is_empty() {
        return Ok(());
    }
    let scaled = |amount: u64| (amount / args.common.scale.get()).max(1);
    let case = |doing, amount| Case { doing, amount, memory: args.memory.get() << 20 };
    let files = scaled(args.files.get());
    let base = Base::of_tree(bench, files, false)?;
    for doing in [Doing::SnapshotCold, Doing::SnapshotWarm] {
        case(doing, files).measure(bench, &base, &targets, report)?;
    }
    drop(base);
    let mebibytes = scaled(args.mebibytes.get());
    let base = Base::of_file(bench, mebibytes)?;
    case(Doing::Clone, mebibytes).measure(bench, &base, &targets, report)?;
    drop(base);
    let deleted = scaled(args.deleted.get());
    let base = Base::of_tree(bench, deleted, true)?;
    for doing in [Doing::DeleteSnapshot, Doing::DeleteBoth] {
        case(doing, deleted).measure(bench, &base, &targets, report)?;
    }
    Ok(())
}

/// The operations of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    SnapshotCold,
    SnapshotWarm,
    Clone,
    DeleteSnapshot,
    DeleteBoth,
}

/// The operations, and the number of files, or of MiB, that they are about.
struct Case {
    doing: Doing,
    amount: u64,
    /// The library's memory limit, in bytes.
    memory: u64,
}

impl Case {
    fn measure(
        &self,
        bench: &Bench,
        base: &Base,
        targets: &[Target],
        report: &mut Report,
    ) -> Result<()> {
        let reads = matches!(self.doing, Doing::DeleteSnapshot | Doing::DeleteBoth);
        let floor = if reads { Target::FloorRead } else { Target::FloorWrite };
        let all = [targets, &[floor]].concat();
        let rows = take_turns(bench, "share", all, |target| match target {
            Target::FloorRead | Target::FloorWrite => self.floor(bench, base),
            _ => self.turn(bench, base, target),
        })?;
        report.add(rows, bench.compares_durable());
        Ok(())
    }

    fn turn(&self, bench: &Bench, base: &Base, target: Target) -> Result<Vec<Step>> {
        let image = Fresh::copied(bench, base.path())?;
        image.sync()?;
        let before = look(bench.mount(image.path())?.path())?.1;
        let side: Box<dyn Side> = match target {
            Target::Btrfs => Box::new(OnMount::new(bench, &image)?),
            _ => Box::new(Library::open(&image, self.memory)?),
        };
        bench.settle()?;
        let steps = self.steps(&*side)?;
        side.close()?;
        let mount = bench.mount(image.path())?;
        self.check(mount.path(), before)?;
        Ok(steps)
    }

    fn steps(&self, side: &dyn Side) -> Result<Vec<Step>> {
        let amount = self.amount;
        let items = |items| Amount { items, ..Amount::default() };
        let step = |case: &str, amount, work| {
            let sample = Sample::of_work(work);
            Step { case: case.to_owned(), amount, sample, ..Step::default() }
        };
        Ok(match self.doing {
            Doing::SnapshotCold => {
                vec![step(&self.name(), items(1), side.snapshot(1)?)]
            }
            Doing::SnapshotWarm => {
                side.warm()?;
                vec![step(&self.name(), items(SNAPSHOTS), side.snapshot(SNAPSHOTS)?)]
            }
            Doing::Clone => {
                let extents = Amount { bytes: amount << 20, ..items(amount * EXTENTS_PER_MIB) };
                let work = side.clone_file()?;
                let durable = work + side.commit()?;
                let both = format!("clone+commit of {amount}M");
                vec![step(&self.name(), extents, work), step(&both, extents, durable)]
            }
            Doing::DeleteSnapshot => {
                vec![step(&self.name(), items(amount), side.delete(SNAPSHOT)?)]
            }
            Doing::DeleteBoth => {
                let source = side.delete(SOURCE)?;
                let last = side.delete(SNAPSHOT)?;
                let name = format!("delete last, {amount} files");
                vec![step(&self.name(), items(amount), source), step(&name, items(amount), last)]
            }
        })
    }

    /// Returns the name of the first row.
    fn name(&self) -> String {
        let amount = self.amount;
        match self.doing {
            Doing::SnapshotCold => format!("snapshot cold, {amount} files"),
            Doing::SnapshotWarm => format!("snapshot warm, {amount} files"),
            Doing::Clone => format!("clone of {amount}M"),
            Doing::DeleteSnapshot => format!("delete snapshot, {amount} files"),
            Doing::DeleteBoth => format!("delete source of a snapshot, {amount} files"),
        }
    }

    /// Reads the image, writes as many bytes as the items of a clone have, or flushes as often as
    /// snapshots are made.
    fn floor(&self, bench: &Bench, base: &Base) -> Result<Vec<Step>> {
        let case = self.name();
        let (sample, amount) = match self.doing {
            Doing::DeleteSnapshot | Doing::DeleteBoth => {
                bench.settle()?;
                let (sample, bytes) = floor::read(bench, base.path())?;
                (sample, Amount { bytes, ..Amount::default() })
            }
            Doing::Clone => {
                let bytes = self.amount * EXTENTS_PER_MIB * CLONED_BYTES;
                (floor::write(bench, bytes)?, Amount { bytes, ..Amount::default() })
            }
            Doing::SnapshotCold | Doing::SnapshotWarm => {
                let items = if self.doing == Doing::SnapshotCold { 1 } else { SNAPSHOTS };
                let sample = Sample::of_work(flush(bench, items)?);
                (sample, Amount { items, ..Amount::default() })
            }
        };
        Ok(vec![Step { case, amount, sample, ..Step::default() }])
    }

    /// Checks what Linux finds; `before` are the bytes that were used before.
    fn check(&self, mount: &Path, before: u64) -> Result<()> {
        let (names, used) = look(mount)?;
        let expect = |expected: &[&str]| {
            ensure!(names == expected, "{names:?} are in the root directory");
            Ok(())
        };
        match self.doing {
            Doing::SnapshotCold | Doing::SnapshotWarm => {
                let number = if self.doing == Doing::SnapshotCold { 1 } else { SNAPSHOTS };
                ensure!(names.len() as u64 == 1 + number, "{names:?} are in the root directory");
                let source = Tally::of(&mount.join(SOURCE))?;
                let copy = Tally::of(&mount.join(snapshot_name(number - 1)))?;
                ensure!(source == copy && copy.files == self.amount, "{copy:?} in the snapshot");
                Ok(())
            }
            Doing::Clone => {
                expect(&[CLONE, FILE])?;
                let most = before + (self.amount << 20) / CLONE_USES + (1 << 20);
                ensure!(used <= most, "{used} bytes are used after the clone, {before} before");
                ensure!(ends(&mount.join(FILE))? == ends(&mount.join(CLONE))?, "not the same");
                Ok(())
            }
            Doing::DeleteSnapshot => expect(&[SOURCE]),
            Doing::DeleteBoth => {
                expect(&[])?;
                ensure!(used < before, "{used} bytes are used after all, {before} before");
                Ok(())
            }
        }
    }
}

/// Returns the size of a file, and what it has at its start and its end.
fn ends(path: &Path) -> Result<(u64, Vec<u8>, Vec<u8>)> {
    let mut file = File::open(path)?;
    let len = fs::metadata(path)?.len();
    let mut read = |from: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; COMPARED];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let first = read(0)?;
    let last = read(len.saturating_sub(COMPARED as u64))?;
    Ok((len, first, last))
}

/// Writes to a preallocated file and flushes it, so many times.
fn flush(bench: &Bench, times: u64) -> Result<Duration> {
    let destination = Destination::new(bench)?;
    let file = File::create(destination.join("floor"))?;
    fallocate(&file, FallocateFlags::empty(), 0, times * SNAPSHOT_BYTES)?;
    file.sync_all()?;
    let mut bytes = Vec::new();
    Content::new(times).fill(&mut bytes, usize::try_from(SNAPSHOT_BYTES)?);
    bench.settle()?;
    let (time, ()) = timed(|| {
        for number in 0..times {
            file.write_all_at(&bytes, number * SNAPSHOT_BYTES)?;
            file.sync_data()?;
        }
        Ok(())
    })?;
    Ok(time)
}
