//! The raw disk, read and written by plain system calls: a lower bound for the time of all targets.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Result;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::bench::{Bench, Destination};
use crate::content::Content;
use crate::sample::{Sample, timed};

/// The size of one read or write, in bytes.
const STEP: u64 = 1 << 20;

/// Reads the allocated parts of a file in order; also returns the number of bytes.
pub(crate) fn read(bench: &Bench, path: &Path) -> Result<(Sample, u64)> {
    let (work, bytes) = timed(|| {
        let file = File::open(path)?;
        let mut total = 0;
        let mut end = 0;
        loop {
            bench.interrupt().check()?;
            let start = match seek(&file, SeekFrom::Data(end)) {
                Err(Errno::NXIO) => return Ok(total),
                found => found?,
            };
            end = seek(&file, SeekFrom::Hole(start))?;
            read_range(&file, start, end)?;
            total += end - start;
        }
    })?;
    Ok((Sample::of_work(work), bytes))
}

fn read_range(file: &File, start: u64, end: u64) -> Result<()> {
    let mut buffer = vec![0; usize::try_from(STEP)?];
    let mut at = start;
    while at < end {
        let step = (end - at).min(STEP);
        file.read_exact_at(&mut buffer[..usize::try_from(step)?], at)?;
        at += step;
    }
    Ok(())
}

/// Writes one file of this size.
pub(crate) fn write(bench: &Bench, bytes: u64) -> Result<Sample> {
    let destination = Destination::new(bench)?;
    let mut buffer = Vec::new();
    Content::new(0).fill(&mut buffer, usize::try_from(STEP)?);
    bench.settle()?;
    let (work, file) = timed(|| {
        let mut file = File::create(destination.join("floor"))?;
        let mut left = bytes;
        while left > 0 {
            bench.interrupt().check()?;
            let step = left.min(STEP);
            file.write_all(&buffer[..usize::try_from(step)?])?;
            left -= step;
        }
        Ok(file)
    })?;
    let (sync, ()) = timed(|| Ok(file.sync_all()?))?;
    Ok(Sample { sync: Some(sync), ..Sample::of_work(work) })
}
