//! `top`: a live view of the counters of a mount.
//!
//! 1. The server is asked for `stats` once in each interval; nothing else is read.
//! 2. The view is drawn if stdin and stdout are a terminal and no number of blocks is given;
//!    otherwise plain blocks are printed, each about one interval.
//! 3. The terminal is restored when the view ends: by a key, a signal, or an error.

mod blocks;
mod change;
mod screen;
mod snapshot;

use std::io::{IsTerminal as _, Write as _, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

use crate::cli::admin::mounted::{answer_of, mount_of};
use crate::cli::args::{Format, Global};
use crate::cli::output::json_line;
use blocks::{document, lines};
use change::Change;
use screen::{Event, Screen};
use snapshot::Snapshot;

/// The time that the first view is about, so that it is shown soon.
const FIRST: Duration = Duration::from_millis(250);
/// The width of plain blocks.
const COLUMNS: usize = 80;

#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// Seconds between two views
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print N blocks of text, and end
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one block of text, and end
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Mount point
    mountpoint: PathBuf,
}

/// Parses an interval of at least a tenth of a second.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let interval = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    let is_allowed = (Duration::from_millis(100)..=Duration::from_hours(24)).contains(&interval);
    if is_allowed { Ok(interval) } else { Err("must be from 0.1 to 86400 seconds".to_owned()) }
}

pub(crate) fn run(global: &Global, args: &TopArgs) -> Result<ExitCode> {
    let count = if args.once { Some(1) } else { args.count };
    let view = View { mount: mount_of(&args.mountpoint), interval: args.interval };
    let has_screen = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let is_live = stdin().is_terminal() && stdout().is_terminal() && has_screen;
    if is_live && count.is_none() && global.format == Format::Text {
        view.show()
    } else {
        view.print(count, global.format)
    }
}

/// The view of a mount.
struct View {
    mount: PathBuf,
    interval: Duration,
}

/// The counters, and when they were read.
struct Reading {
    snapshot: Snapshot,
    at: Instant,
}

impl View {
    fn read(&self) -> Result<Reading> {
        let words = ["--format", "json", "stats"].map(Into::into);
        let snapshot = Snapshot::parse(&answer_of(&self.mount, &words)?)?;
        Ok(Reading { snapshot, at: Instant::now() })
    }

    fn title(&self) -> String {
        self.mount.display().to_string()
    }

    /// Prints blocks, by default until the mount ends or this process is stopped.
    fn print(&self, count: Option<u64>, format: Format) -> Result<ExitCode> {
        let mut before = self.read()?;
        let mut left = count;
        while left != Some(0) {
            sleep(self.interval);
            let now = self.read()?;
            let change = now.since(&before);
            let mut out = stdout().lock();
            match format {
                Format::Json => writeln!(out, "{}", json_line(document(&change)))?,
                Format::Text => {
                    for line in lines(&self.title(), &change, COLUMNS) {
                        writeln!(out, "{line}")?;
                    }
                    if left != Some(1) {
                        writeln!(out)?;
                    }
                }
            }
            out.flush()?;
            before = now;
            left = left.map(|left| left - 1);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the view on the terminal until a key or a signal ends it.
    fn show(&self) -> Result<ExitCode> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGHUP, SIGINT, SIGTERM] {
            let stored = usize::try_from(number).expect("signals are positive");
            flag::register_usize(number, Arc::clone(&signal), stored)?;
        }
        let mut before = self.read()?;
        let mut screen = Screen::enter()?;
        let mut wait = FIRST.min(self.interval);
        let mut shown = Vec::new();
        let is_ended = || signal.load(Ordering::SeqCst) != 0;
        loop {
            match screen.wait(wait.saturating_sub(before.at.elapsed()), is_ended)? {
                Event::End => break,
                Event::Resized => screen.draw(&shown)?,
                Event::Time => {
                    let now = self.read()?;
                    shown = lines(&self.title(), &now.since(&before), screen.columns());
                    screen.draw(&shown)?;
                    before = now;
                    wait = self.interval;
                }
            }
        }
        drop(screen);
        let number = i32::try_from(signal.load(Ordering::SeqCst)).unwrap_or(0);
        if number != 0 {
            let _ = emulate_default_handler(number);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Reading {
    fn since<'a>(&'a self, before: &'a Self) -> Change<'a> {
        Change {
            before: &before.snapshot,
            now: &self.snapshot,
            time: self.at.duration_since(before.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_a_number_of_seconds_within_limits() {
        assert_eq!(seconds("1"), Ok(Duration::from_secs(1)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["", "x", "0", "-1", "0.01", "nan", "inf", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
