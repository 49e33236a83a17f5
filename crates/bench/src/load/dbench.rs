//! dbench in this process: clients that execute a loadfile again and again.
//!
//! 1. Each client is a thread, as each client of dbench is a process.
//! 2. With a duration, a fifth of it is a warm-up before it, as in dbench. An operation counts if
//!    it began while the time was measured, also if it ended later: a long one is not left out.
//! 3. A client that fails stops all, and its error is returned.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::client::{Client, Done, KINDS};
use super::files::Files;
use super::latency::Latencies;
use super::loadfile::Loadfile;
use super::outcome::{Figures, Outcome, Unit};

/// The part of the duration that the warm-up takes.
const WARM_UP: u32 = 5;
/// The interval at which the end is checked.
const TICK: Duration = Duration::from_millis(20);

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// Each client executes the loadfile this number of times; all of it is measured.
    Passes(u64),
    /// The duration that is measured.
    Time(Duration),
}

/// Runs a number of clients.
pub(crate) fn run<F: Files>(
    files: &F,
    load: &Loadfile,
    clients: u64,
    length: Length,
) -> Result<Outcome> {
    let clock = Clock::default();
    let (elapsed, measured) = thread::scope(|scope| {
        if matches!(length, Length::Passes(_)) {
            clock.start();
        }
        let start = |number| {
            let clock = &clock;
            let body = move || client(Client::new(files, load, number), clock, length);
            let thread = thread::Builder::new().spawn_scoped(scope, body);
            // The other threads end, too.
            thread.inspect_err(|_| clock.end()).context("a client")
        };
        let threads: Vec<_> = (0..clients).map(start).collect::<Result<_>>()?;
        let timed = match length {
            Length::Passes(_) => None,
            Length::Time(duration) => {
                clock.wait(duration / WARM_UP);
                clock.start();
                clock.wait(duration);
                clock.end();
                clock.elapsed()
            }
        };
        let join = |it: ScopedJoinHandle<'_, _>| it.join().expect("no client panics");
        let measured: Vec<_> = threads.into_iter().map(join).collect::<Result<_>>()?;
        anyhow::Ok((timed.or_else(|| clock.elapsed()).unwrap_or_default(), measured))
    })?;
    let mut all = Measured::default();
    for one in &measured {
        all.merge(one);
    }
    ensure!(all.bytes > 0, "no client read or wrote in this time");
    Ok(all.outcome(clients, elapsed))
}

/// The body of a client's thread.
fn client<F: Files>(mut client: Client<'_, F>, clock: &Clock, length: Length) -> Result<Measured> {
    let mut measured = Measured::default();
    let mut passes = 0;
    let mut note = |done: Done| {
        if clock.counts(done.began) {
            measured.add(&done);
        }
        !clock.has_ended()
    };
    loop {
        // All clients end when one fails.
        let goes_on = client.pass(&mut note).inspect_err(|_| clock.end())?;
        passes += 1;
        let is_last = matches!(length, Length::Passes(wanted) if passes == wanted);
        if is_last || !goes_on {
            return Ok(measured);
        }
    }
}

/// The begin and the end of the measurement.
#[derive(Default)]
struct Clock {
    start: OnceLock<Instant>,
    ended: AtomicBool,
}

impl Clock {
    fn start(&self) {
        self.start.get_or_init(Instant::now);
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn counts(&self, began: Instant) -> bool {
        self.start.get().is_some_and(|start| began >= *start)
    }

    fn elapsed(&self) -> Option<Duration> {
        self.start.get().map(Instant::elapsed)
    }

    /// Waits for a duration, or until a client fails.
    fn wait(&self, duration: Duration) {
        let start = Instant::now();
        while !self.has_ended() {
            let left = duration.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(TICK));
        }
    }
}

/// The operations of one client.
#[derive(Default)]
struct Measured {
    latencies: [Latencies; KINDS.len()],
    bytes: u64,
}

impl Measured {
    fn add(&mut self, done: &Done) {
        self.latencies[done.kind].add(done.latency);
        self.bytes += done.bytes;
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
        self.bytes += other.bytes;
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
    fn outcome(&self, clients: u64, elapsed: Duration) -> Outcome {
        let rate = self.bytes as f64 / 1e6 / elapsed.as_secs_f64();
        let named = KINDS.iter().zip(&self.latencies);
        let occurred = named.filter(|(_, latencies)| latencies.count() > 0);
        let operations = occurred.map(|(name, it)| Figures::of(name, it)).collect();
        Outcome { clients, rate, unit: Unit::Megabytes, operations }
    }
}
