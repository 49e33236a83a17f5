//! The progress of long work, as a status line on the terminal: what is done, the rate, and an
//! estimate of the time that is left if the total is known.
//!
//! 1. Nothing is shown if stderr is not a terminal, with `--quiet`, or before the delay is over;
//!    totals are not measured before that either.
//! 2. The line is removed when the work ends.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::io::{IsTerminal as _, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use userbtrfs::mount::control::Remaining;
use userbtrfs::{Counted, Filesystem, OpenOptions, ReplayProgress};

use crate::cli::args::Global;
use crate::cli::host::status_line;
use crate::cli::text;

/// The environment variable with the time before progress is shown, in seconds.
const DELAY_VARIABLE: &str = "USERBTRFS_PROGRESS_DELAY";
/// That time without the variable.
const DELAY: Duration = Duration::from_secs(1);
/// The time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);
/// The time that the rate is about.
const WINDOW: Duration = Duration::from_secs(10);

/// An amount of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Amount {
    /// Files; `None` if they are not counted.
    pub(in crate::cli) files: Option<u64>,
    /// Bytes; `None` if they are not counted.
    pub(in crate::cli) bytes: Option<u64>,
}

/// Measures the total of a piece of work, until the flag is set; `None` if that is not possible.
type Measure<'a> = dyn Fn(&AtomicBool) -> Option<Amount> + Sync + 'a;

/// The total of a piece of work.
#[derive(Clone, Copy)]
pub(in crate::cli) enum Total<'a> {
    Unknown,
    Known(Amount),
    /// Measured while the work is in progress.
    Measured(&'a Measure<'a>),
    /// Read for each line, after the amount that is done.
    Polled(&'a (dyn Fn() -> Option<Amount> + Sync)),
}

/// A piece of work that is watched.
pub(in crate::cli) struct Watched<'a> {
    /// The word or two at the start of the line, such as "copying".
    pub(in crate::cli) name: &'a str,
    /// Returns the amount that is done.
    pub(in crate::cli) done: &'a (dyn Fn() -> Amount + Sync),
    pub(in crate::cli) total: Total<'a>,
}

/// Returns true if progress is shown.
pub(in crate::cli) fn is_shown(global: &Global) -> bool {
    !global.quiet && stderr().is_terminal()
}

/// Runs `work`, and shows its progress.
pub(in crate::cli) fn watch<T>(
    global: &Global,
    watched: &Watched<'_>,
    work: impl FnOnce() -> T,
) -> T {
    if !is_shown(global) {
        return work();
    }
    let (done, is_done) = channel::<()>();
    let has_ended = AtomicBool::new(false);
    let total = OnceLock::new();
    thread::scope(|scope| {
        let started = Instant::now();
        let has_ended = &has_ended;
        let total = &total;
        // Without this thread no progress is shown.
        let _line = thread::Builder::new().spawn_scoped(scope, move || {
            let delay = delay();
            // Without a delay all work is shown, also if it ends before this thread runs.
            if !delay.is_zero() && is_done.recv_timeout(delay) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            match watched.total {
                Total::Unknown | Total::Polled(_) => {}
                Total::Known(known) => total.set(Some(known)).expect("it is set once"),
                Total::Measured(measure) => {
                    let measure = move || total.set(measure(has_ended));
                    let _measuring = thread::Builder::new().spawn_scoped(scope, measure);
                }
            }
            let mut samples = Samples::default();
            let mut draw = || {
                let now = (watched.done)();
                let total = match watched.total {
                    Total::Polled(total) => total(),
                    _ => total.get().copied().flatten(),
                };
                let line = samples.line(watched.name, started.elapsed(), now, total);
                status_line::show(&line.fitted(status_line::width()));
            };
            draw();
            while is_done.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                draw();
            }
            draw();
            status_line::clear();
        });
        let result = work();
        has_ended.store(true, Ordering::Relaxed);
        drop(done);
        result
    })
}

/// The rest of a piece of work.
#[derive(Default)]
struct Rest {
    left: AtomicU64,
    /// The most bytes, done and left, that the work had.
    most: AtomicU64,
}

impl Rest {
    fn set(&self, now: Remaining) {
        self.left.store(now.left, Ordering::Relaxed);
        self.most.fetch_max(now.done.saturating_add(now.left), Ordering::Relaxed);
    }

    /// Returns the amount that is done: all but what is left of the most there was. No bytes are
    /// counted before there are some.
    fn done(&self) -> Amount {
        let left = self.left.load(Ordering::Relaxed);
        let bytes = self.total().and_then(|total| Some(total.bytes?.saturating_sub(left)));
        Amount { files: None, bytes }
    }

    fn total(&self) -> Option<Amount> {
        let most = self.most.load(Ordering::Relaxed);
        (most > 0).then_some(Amount { files: None, bytes: Some(most) })
    }
}

/// Runs work of which `remaining` returns how much is left, and shows its progress. What is added
/// to the work meanwhile is added to the total.
pub(in crate::cli) fn watch_remaining<T>(
    global: &Global,
    name: &str,
    remaining: &(dyn Fn() -> Remaining + Sync),
    work: impl FnOnce() -> T,
) -> T {
    let rest = Rest::default();
    // The total includes what is done before the first line.
    rest.set(remaining());
    let done = || {
        rest.set(remaining());
        rest.done()
    };
    let total = || rest.total();
    let watched = Watched { name, done: &done, total: Total::Polled(&total) };
    watch(global, &watched, work)
}

/// Like [`watch_remaining`], for work that reports how much is left.
pub(in crate::cli) fn watch_reported<T>(
    global: &Global,
    name: &str,
    work: impl FnOnce(&mut dyn FnMut(Remaining)) -> T,
) -> T {
    let rest = Rest::default();
    let done = || rest.done();
    let total = || rest.total();
    let watched = Watched { name, done: &done, total: Total::Polled(&total) };
    watch(global, &watched, || work(&mut |now| rest.set(now)))
}

/// Runs work that adds the bytes that are done to a counter, and shows its progress.
pub(in crate::cli) fn watch_bytes<T>(
    global: &Global,
    name: &str,
    total: Total<'_>,
    work: impl FnOnce(&AtomicU64) -> T,
) -> T {
    let bytes = AtomicU64::new(0);
    let done = || Amount { files: None, bytes: Some(bytes.load(Ordering::Relaxed)) };
    watch(global, &Watched { name, done: &done, total }, || work(&bytes))
}

/// Opens an image by `open`, and shows how much of a pending log is replayed.
pub(in crate::cli) fn open_watched<T>(
    global: &Global,
    mut options: OpenOptions,
    open: impl FnOnce(&OpenOptions) -> T,
) -> T {
    let progress = Arc::new(ReplayProgress::default());
    options.replay_progress(Arc::clone(&progress));
    let remaining = || {
        let done = progress.replayed();
        Remaining { done, left: progress.total().saturating_sub(done) }
    };
    watch_remaining(global, "opening", &remaining, || open(&options))
}

/// Makes all changes durable and closes the filesystem, and shows how much was written of the data
/// and metadata that is only in memory.
pub(in crate::cli) fn close_watched(
    global: &Global,
    filesystem: Filesystem,
) -> userbtrfs::Result<()> {
    filesystem.mark_closing();
    let remaining = || to_write(&filesystem);
    watch_remaining(global, "writing to the image", &remaining, || filesystem.finish())?;
    filesystem.close()
}

/// Returns how much data and metadata is only in memory, which the end of a mount or of a command
/// writes.
pub(in crate::cli) fn to_write(filesystem: &Filesystem) -> Remaining {
    let dirty = filesystem.stats().dirty;
    Remaining { done: 0, left: dirty.data.saturating_add(dirty.metadata) }
}

/// Returns how much a resize that begins now has moved, and has still to move, at each call.
pub(in crate::cli) fn to_relocate(filesystem: impl Borrow<Filesystem>) -> impl Fn() -> Remaining {
    let before = filesystem.borrow().stats().relocation.moved;
    move || {
        let now = filesystem.borrow().stats().relocation;
        Remaining { done: now.moved.saturating_sub(before), left: now.left }
    }
}

fn delay() -> Duration {
    let seconds = std::env::var(DELAY_VARIABLE).ok().and_then(|text| text.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(DELAY)
}

/// The amounts of the last seconds.
#[derive(Default)]
struct Samples(VecDeque<(Duration, Amount)>);

impl Samples {
    /// Returns the line at a time since the start.
    fn line(&mut self, name: &str, at: Duration, now: Amount, total: Option<Amount>) -> Line {
        while self.0.front().is_some_and(|(first, _)| at.saturating_sub(*first) > WINDOW) {
            self.0.pop_front();
        }
        // Before the first sample, everything is new.
        let (since, before) = self.0.front().copied().unwrap_or_default();
        self.0.push_back((at, now));
        let time = at.saturating_sub(since);
        let rate = |count: fn(Amount) -> Option<u64>| {
            let grown = count(now)?.saturating_sub(count(before).unwrap_or(0));
            per_second(grown, time)
        };
        let total = total.unwrap_or_default();
        let files = now.files.map(|files| of(Counted(files, "file"), total.files));
        let total_bytes = total.bytes.map(text::size);
        let bytes = now.bytes.map(|done| of(text::size(done), total_bytes));
        let by_bytes = now.bytes.filter(|bytes| *bytes > 0 || total.bytes > Some(0));
        let [done, all, rate] = if by_bytes.is_some() {
            [now.bytes, total.bytes, rate(|amount| amount.bytes)]
        } else {
            [now.files, total.files, rate(|amount| amount.files)]
        };
        let left = || time_left(all?.checked_sub(done?)?, rate?);
        let left = left().map(|left| format!("about {} left", clock(left)));
        let rate = rate.map(|rate| match by_bytes {
            Some(_) => format!("{}/s", text::size(rate)),
            None => format!("{rate}/s"),
        });
        Line { name: Some(format!("{name} {}", clock(at))), files, bytes, rate, left }
    }
}

/// The parts of a line, those that are known.
#[derive(Clone)]
struct Line {
    /// The name of the work, and the time since its start.
    name: Option<String>,
    files: Option<String>,
    bytes: Option<String>,
    rate: Option<String>,
    /// The estimate of the time that is left.
    left: Option<String>,
}

impl Line {
    /// Returns the line in at most `width` characters, as far as that is possible without cutting
    /// the estimate: the rate, which follows from the others, is left out first.
    fn fitted(mut self, width: usize) -> String {
        let least_useful: [fn(&mut Self) -> &mut Option<String>; 4] =
            [|it| &mut it.rate, |it| &mut it.files, |it| &mut it.bytes, |it| &mut it.name];
        for part in least_useful {
            let is_last = self.parts().count() == 1;
            if is_last || self.to_string().chars().count() <= width {
                break;
            }
            *part(&mut self) = None;
        }
        self.to_string()
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        let parts = [&self.name, &self.files, &self.bytes, &self.rate, &self.left];
        parts.into_iter().flatten().map(String::as_str)
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().collect::<Vec<_>>().join(", "))
    }
}

fn of(done: impl Display, total: Option<impl Display>) -> String {
    total.map_or_else(|| done.to_string(), |total| format!("{done} of {total}"))
}

/// Returns a rate; `None` if the time is too short for one.
fn per_second(grown: u64, time: Duration) -> Option<u64> {
    let ms = time.as_millis();
    let rate = (u128::from(grown) * 1000).checked_div(ms)?;
    u64::try_from(rate).ok()
}

/// Returns the time for the rest of the work; `None` if there is no progress.
fn time_left(rest: u64, rate: u64) -> Option<Duration> {
    rest.checked_div(rate).map(Duration::from_secs)
}

/// Returns a duration as minutes and seconds, with hours if there are some.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let [hours, minutes, rest] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    match hours {
        0 => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn amount(files: u64, bytes: u64) -> Amount {
        Amount { files: Some(files), bytes: Some(bytes) }
    }

    /// Returns a line on a wide terminal.
    fn shown(
        samples: &mut Samples,
        name: &str,
        at: Duration,
        now: Amount,
        total: Option<Amount>,
    ) -> String {
        samples.line(name, at, now, total).to_string()
    }

    #[test]
    fn narrow_line_keeps_the_estimate() {
        let mut samples = Samples::default();
        let total = Some(amount(921, 4926 * MIB));
        let line = samples.line("copying", Duration::from_secs(4), amount(31, 1230 * MIB), total);
        let whole =
            "copying 0:04, 31 files of 921, 1.20GiB of 4.81GiB, 307.50MiB/s, about 0:12 left";
        assert_eq!(whole.len(), 79);
        for (width, expected) in [
            (79, whole),
            (78, "copying 0:04, 31 files of 921, 1.20GiB of 4.81GiB, about 0:12 left"),
            (60, "copying 0:04, 1.20GiB of 4.81GiB, about 0:12 left"),
            (40, "copying 0:04, about 0:12 left"),
            (20, "about 0:12 left"),
        ] {
            assert_eq!(line.clone().fitted(width), expected);
        }
        let unknown = samples.line("copying", Duration::from_secs(5), amount(31, MIB), None);
        assert_eq!(unknown.fitted(5), "copying 0:05");
    }

    #[test]
    fn line_has_the_rate_and_the_time_left() {
        let mut samples = Samples::default();
        let at = Duration::from_secs;
        let line = shown(&mut samples, "copying", at(2), amount(1, 4 * MIB), None);
        assert_eq!(line, "copying 0:02, 1 file, 4.00MiB, 2.00MiB/s");
        let total = Some(amount(90, 240 * MIB));
        let line = shown(&mut samples, "copying", at(4), amount(3, 24 * MIB), total);
        let expected = "copying 0:04, 3 files of 90, 24.00MiB of 240.00MiB, 10.00MiB/s, \
                        about 0:21 left";
        assert_eq!(line, expected);
        let line = shown(&mut samples, "copying", at(60), amount(3, 24 * MIB), total);
        assert!(line.ends_with("0.00B/s") || line.contains("KiB/s"), "{line}");
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let mut samples = Samples::default();
        for second in 1..=100 {
            samples.line(
                "copying",
                Duration::from_secs(second),
                amount(0, 100 * MIB * second),
                None,
            );
        }
        for second in 101..=120 {
            let now = amount(0, 10_000 * MIB + MIB * (second - 100));
            let line = shown(&mut samples, "copying", Duration::from_secs(second), now, None);
            assert_eq!(line.ends_with(", 1.00MiB/s"), second >= 110, "{second}: {line}");
        }
    }

    #[test]
    fn work_without_bytes_is_counted_by_files() {
        let mut samples = Samples::default();
        let files = |files| Amount { files: Some(files), bytes: None };
        let line =
            shown(&mut samples, "removing", Duration::from_secs(2), files(10), Some(files(40)));
        assert_eq!(line, "removing 0:02, 10 files of 40, 5/s, about 0:06 left");
        let line = shown(
            &mut Samples::default(),
            "closing",
            Duration::from_secs(3),
            Amount::default(),
            None,
        );
        assert_eq!(line, "closing 0:03");
    }

    #[test]
    fn total_is_the_most_that_was_left_and_done() {
        let rest = Rest::default();
        let bytes = |bytes| Amount { files: None, bytes };
        rest.set(Remaining::default());
        assert_eq!((rest.done(), rest.total()), (bytes(None), None));
        let steps = [(0, 8, 0, 8), (0, 5, 3, 8), (2, 9, 2, 11), (7, 1, 10, 11), (0, 0, 11, 11)];
        for (done, left, shown, total) in steps {
            rest.set(Remaining { done, left });
            assert_eq!((rest.done(), rest.total()), (bytes(Some(shown)), Some(bytes(Some(total)))));
        }
    }

    #[test]
    fn total_that_is_exceeded_leaves_no_time() {
        let line = shown(
            &mut Samples::default(),
            "copying",
            Duration::from_secs(1),
            amount(9, 9 * MIB),
            Some(amount(1, MIB)),
        );
        assert!(!line.contains("left"), "{line}");
        assert_eq!(time_left(5, 0), None);
        assert_eq!(per_second(5, Duration::ZERO), None);
        assert_eq!(clock(Duration::from_secs(3_725)), "1:02:05");
    }
}
