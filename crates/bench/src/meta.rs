//! Creating, renaming and removing empty files, and committing that.
//!
//! 1. Each turn has a new, empty filesystem, and these steps: create, rename, remove, each with its
//!    commit.
//! 2. Files are processed in the order of their numbers; each thread has an equal share of them,
//!    and so has each directory.
//! 3. The sizes of the directories are checked to show that all files were made, and all removed.

use std::ops::Range;
use std::thread;

use anyhow::{Result, ensure};

use crate::args::MetaArgs;
use crate::bench::Bench;
use crate::case::{Step, take_turns};
use crate::floor;
use crate::fresh::Fresh;
use crate::memory;
use crate::names::{Library, Mounted, Names};
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;

/// The number of files of the case that measures only the commit.
const COMMITTED: u64 = 30_000;
/// Signals are checked once in this number of files.
const CHECKED: u64 = 4096;
/// The size in bytes of the four items of an empty file without the name: INODE_ITEM (160),
/// INODE_REF (10), DIR_ITEM and DIR_INDEX (30 each), and 25 for the header of each in the leaf.
const ITEMS_LEN: u64 = 160 + 10 + 2 * 30 + 4 * 25;
/// How often the items contain the name.
const NAMES_IN_ITEMS: u64 = 3;
/// The space of a filesystem for each file, and in addition, in bytes.
const ROOM_PER_FILE: u64 = 4 << 10;
const ROOM: u64 = 4 << 30;

/// Measures each number of files with each number of threads.
///
/// The lowest number of files comes first: memory that the allocator keeps after a turn counts as
/// memory of the next.
pub(crate) fn run(bench: &Bench, args: &MetaArgs, report: &mut Report) -> Result<()> {
    let scaled = |files: u64| (files / args.common.scale.get()).max(1);
    let mut counts: Vec<_> = args.files.iter().map(|files| scaled(files.get())).collect();
    counts.sort_unstable();
    counts.dedup();
    let dirs = args.dirs.get();
    let memory = args.memory.get() << 20;
    let case = |files, threads| Meta { files, threads, dirs, memory };
    case(scaled(COMMITTED), 1).measure(bench, Part::Commit, report)?;
    for files in counts {
        for threads in &args.threads {
            case(files, threads.get()).measure(bench, Part::Steps, report)?;
        }
    }
    Ok(())
}

/// The parts of a turn to report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All operations.
    Steps,
    /// Files are created, and only the commit is reported.
    Commit,
}

/// The operation on each file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Create,
    Rename,
    Remove,
}

impl Doing {
    const ALL: [Self; 3] = [Self::Create, Self::Rename, Self::Remove];

    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }

    fn apply(self, names: &dyn Names, dir: usize, number: u64) -> Result<()> {
        let old = name(b'o', number);
        let new = name(b'n', number);
        match self {
            Self::Create => names.create(dir, &old),
            Self::Rename => names.rename(dir, &old, &new),
            Self::Remove => names.remove(dir, &new),
        }
    }
}

/// The length of a name in bytes.
const NAME_LEN: u64 = 12;

/// Returns the name of a file: a letter, and its number in ten digits.
fn name(letter: u8, number: u64) -> [u8; 12] {
    let mut name = *b"?-0000000000";
    name[0] = letter;
    let mut rest = number;
    for digit in name[2..].iter_mut().rev() {
        *digit = b"0123456789"[usize::try_from(rest % 10).expect("below ten")];
        rest /= 10;
    }
    name
}

struct Meta {
    files: u64,
    threads: u64,
    dirs: u64,
    /// The library's memory limit, in bytes.
    memory: u64,
}

impl Meta {
    fn measure(&self, bench: &Bench, part: Part, report: &mut Report) -> Result<()> {
        let mut targets = bench.chosen(&[Target::Lib, Target::Btrfs])?;
        if targets.is_empty() {
            return Ok(());
        }
        targets.push(Target::FloorWrite);
        let title = format!("meta {} x{}", self.files, self.threads);
        let rows = take_turns(bench, &title, targets, |target| {
            let samples = self.turn(bench, part, target)?;
            let steps = move |(doing, sample)| self.steps(part, target, doing, sample);
            Ok(samples.into_iter().flat_map(steps))
        })?;
        report.add(rows, bench.compares_durable());
        Ok(())
    }

    /// Returns the steps, one or two rows, that one sample belongs to.
    fn steps(&self, part: Part, target: Target, doing: Doing, sample: Sample) -> Vec<Step> {
        let step = |what: &str, sample| self.step(what, target, sample);
        let commit = sample.sync.unwrap_or_default();
        let durable = Sample { work: sample.work + commit, sync: None, ..sample };
        if part == Part::Commit {
            return vec![step("commit of new files", Sample { work: commit, ..durable })];
        }
        let name = doing.name();
        let both = format!("{}+commit", doing.name());
        vec![step(name, sample), step(&both, durable)]
    }

    fn step(&self, what: &str, target: Target, sample: Sample) -> Step {
        let dirs = if self.dirs == 1 { String::new() } else { format!(" /{}", self.dirs) };
        let series = format!("{what} x{}{dirs}", self.threads);
        let amount = match target {
            Target::FloorWrite => Amount { bytes: self.bytes(), ..Amount::default() },
            _ => Amount { items: self.files, ..Amount::default() },
        };
        Step {
            case: format!("{series} {}", self.files),
            series: Some(series),
            amount,
            sample,
            ..Step::default()
        }
    }

    fn turn(&self, bench: &Bench, part: Part, target: Target) -> Result<Vec<(Doing, Sample)>> {
        if target == Target::FloorWrite {
            return Ok(vec![(Doing::Create, floor::write(bench, self.bytes())?)]);
        }
        let image = Fresh::new(bench, ROOM + self.files * ROOM_PER_FILE)?;
        let dirs = usize::try_from(self.dirs)?;
        if target == Target::Btrfs {
            let mounted = Mounted::new(bench, &image, dirs)?;
            let mut samples = self.samples(bench, part, &mounted)?;
            // The kernel's memory does not count to this process.
            for (_, sample) in &mut samples {
                sample.peak = None;
            }
            return Ok(samples);
        }
        let library = Library::new(&image, dirs, self.memory)?;
        let samples = self.samples(bench, part, &library)?;
        library.close()?;
        Ok(samples)
    }

    /// Returns the total size of the items of all files in bytes; metadata is stored twice (DUP).
    fn bytes(&self) -> u64 {
        2 * self.files * (ITEMS_LEN + NAMES_IN_ITEMS * NAME_LEN)
    }

    fn samples(
        &self,
        bench: &Bench,
        part: Part,
        names: &dyn Names,
    ) -> Result<Vec<(Doing, Sample)>> {
        let doings = if part == Part::Commit { &Doing::ALL[..1] } else { &Doing::ALL[..] };
        bench.settle()?;
        let sample = |doing: &Doing| {
            memory::reset_peak()?;
            let (work, ()) = timed(|| self.each(bench, *doing, names))?;
            let (commit, ()) = timed(|| names.commit())?;
            let peak = Some(memory::peak()?);
            self.check(*doing, names)?;
            Ok((*doing, Sample { sync: Some(commit), peak, ..Sample::of_work(work) }))
        };
        doings.iter().map(sample).collect()
    }

    /// Applies the operation to each file.
    fn each(&self, bench: &Bench, doing: Doing, names: &dyn Names) -> Result<()> {
        let part = |numbers: Range<u64>| {
            for number in numbers {
                if number.is_multiple_of(CHECKED) {
                    bench.interrupt().check()?;
                }
                doing.apply(names, self.dir_of(number), number)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let start = |thread| scope.spawn(move || part(self.part_of(thread)));
            let threads: Vec<_> = (0..self.threads).map(start).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    }

    /// Returns the files of a thread.
    fn part_of(&self, thread: u64) -> Range<u64> {
        let start = |thread| thread * self.files / self.threads;
        start(thread)..start(thread + 1)
    }

    /// Returns the directory of a file.
    fn dir_of(&self, number: u64) -> usize {
        usize::try_from(number * self.dirs / self.files).expect("one of a list")
    }

    fn check(&self, doing: Doing, names: &dyn Names) -> Result<()> {
        let mut size = 0;
        for dir in 0..usize::try_from(self.dirs)? {
            size += names.size(dir)?;
        }
        let left = if doing == Doing::Remove { 0 } else { self.files };
        let expected = 2 * left * NAME_LEN;
        let done = doing.name();
        ensure!(size == expected, "after {done}: names of {size} bytes in place of {expected}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn meta(files: u64, threads: u64, dirs: u64) -> Meta {
        Meta { files, threads, dirs, memory: 0 }
    }

    #[test]
    fn names_are_numbers_in_order() {
        assert_eq!(&name(b'o', 0), b"o-0000000000");
        assert_eq!(&name(b'n', 4_999_999), b"n-0004999999");
        assert_eq!(name(b'n', 1).len() as u64, NAME_LEN);
    }

    #[test]
    fn each_file_belongs_to_one_thread_and_one_directory() {
        for (files, threads, dirs) in [(10, 3, 4), (1, 2, 3), (100, 1, 1)] {
            let meta = meta(files, threads, dirs);
            let numbers: Vec<_> = (0..threads).flat_map(|thread| meta.part_of(thread)).collect();
            assert_eq!(numbers, (0..files).collect::<Vec<_>>());
            assert!(numbers.iter().all(|number| (meta.dir_of(*number) as u64) < dirs));
        }
    }

    #[test]
    fn commit_has_its_own_row_if_requested() {
        let seconds = Duration::from_secs;
        let sample = Sample { sync: Some(seconds(2)), ..Sample::of_work(seconds(3)) };
        let works = |part| -> Vec<_> {
            let steps = meta(10, 1, 1).steps(part, Target::Lib, Doing::Create, sample);
            steps.into_iter().map(|step| (step.case, step.sample.work.as_secs())).collect()
        };
        let steps = [("create x1 10".to_owned(), 3), ("create+commit x1 10".to_owned(), 5)];
        assert_eq!(works(Part::Steps), steps);
        assert_eq!(works(Part::Commit), [("commit of new files x1 10".to_owned(), 2)]);
    }
}
