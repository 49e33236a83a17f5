//! The loads of fio and fs_mark in this process.
//!
//! 1. A job of fio writes a new file in blocks of 64 KiB, with an fsync after each:
//!    `rw=write bs=64k fsync=1 fallocate=none`.
//! 2. A thread of fs_mark creates empty files in a directory of its own, without a sync:
//!    `-s 0 -S 0`.
//! 3. The time begins when the first thread is started, and ends when the last one has ended.

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::files::Files;
use super::latency::Latencies;
use super::loadfile::How;
use super::outcome::{Figures, Outcome, Unit};
use crate::content::Content;

/// The size of one write of fio, in bytes.
pub(crate) const BLOCK: u64 = 64 << 10;
/// The names of the operations whose latencies are counted.
pub(crate) const FSYNC: &str = "fsync";
pub(crate) const CREATE: &str = "create";

/// Runs jobs of fio, each of which writes a number of blocks.
pub(crate) fn fio<F: Files>(files: &F, jobs: u64, blocks: u64) -> Result<Outcome> {
    let mut bytes = Vec::new();
    Content::new(BLOCK).fill(&mut bytes, usize::try_from(BLOCK)?);
    let (elapsed, latencies) = together(jobs, |job| {
        let path = format!("/writers.{job}.0");
        let file = files.open(path.as_bytes(), How::Create)?.context("a new file")?;
        let mut latencies = Latencies::default();
        for block in 0..blocks {
            files.write(&file, &bytes, block * BLOCK)?;
            let began = Instant::now();
            files.sync(&file)?;
            latencies.add(began.elapsed());
        }
        Ok(latencies)
    })?;
    let rate = per_second(jobs * blocks * BLOCK, elapsed) / 1e6;
    let operations = vec![Figures::of(FSYNC, &latencies)];
    Ok(Outcome { clients: jobs, rate, unit: Unit::Megabytes, operations })
}

/// Runs threads of fs_mark, each of which creates a number of files.
pub(crate) fn fsmark<F: Files>(files: &F, threads: u64, each: u64) -> Result<Outcome> {
    let (elapsed, latencies) = together(threads, |thread| {
        files.make_dir(format!("/d{thread}").as_bytes())?;
        let mut latencies = Latencies::default();
        for number in 0..each {
            let path = format!("/d{thread}/{number:016x}");
            let began = Instant::now();
            drop(files.open(path.as_bytes(), How::Create)?.context("a new file")?);
            latencies.add(began.elapsed());
        }
        Ok(latencies)
    })?;
    let rate = per_second(threads * each, elapsed);
    let operations = vec![Figures::of(CREATE, &latencies)];
    Ok(Outcome { clients: threads, rate, unit: Unit::Files, operations })
}

/// Runs `body` in a number of threads; returns the time of all, and their latencies together.
fn together(
    threads: u64,
    body: impl Fn(u64) -> Result<Latencies> + Sync,
) -> Result<(Duration, Latencies)> {
    let began = Instant::now();
    let all: Vec<_> = thread::scope(|scope| {
        let body = &body;
        let start = |number| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || body(number));
            thread.context("a job")
        };
        let threads: Vec<_> = (0..threads).map(start).collect::<Result<_>>()?;
        let join = |it: ScopedJoinHandle<'_, _>| it.join().expect("no job panics");
        threads.into_iter().map(join).collect::<Result<_>>()
    })?;
    let elapsed = began.elapsed();
    let mut together = Latencies::default();
    for one in &all {
        together.merge(one);
    }
    Ok((elapsed, together))
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn per_second(amount: u64, elapsed: Duration) -> f64 {
    amount as f64 / elapsed.as_secs_f64()
}
