//! `dedupe`: shares what files of the image have in common.
//!
//! 1. Sectors are found by a hash of their bytes; the filesystem compares the bytes before it
//!    shares them, so a collision changes nothing.
//! 2. Each run of equal sectors is shared at once, so that its extents are as long as can be.
//! 3. Memory is in proportion to the data of the files: about 50 bytes for each sector of 4 KiB.

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Result;
use serde_json::json;
use userbtrfs::{Deduped, Error, File};
use userbtrfs_format::SECTOR_SIZE;

use crate::cli::args::Format;
use crate::cli::host::meter::{Total, watch_bytes};
use crate::cli::host::totals::of_image_files;
use crate::cli::output::{print_json, stdout};
use crate::cli::paths::each;
use crate::cli::session::{RunVerb, Session};

#[derive(clap::Args)]
pub(crate) struct DedupeArgs {
    /// Files inside the image
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<OsString>,
}

/// A sector that was seen first: its file, and its offset.
type Place = (usize, u64);

/// The sectors of the files until now.
#[derive(Default)]
struct Sectors {
    files: Vec<File>,
    first: HashMap<u64, Place>,
    shared: u64,
}

/// A range of a file that is equal to an earlier one, as far as the hashes tell.
struct Run {
    source: Place,
    start: u64,
    end: u64,
}

impl RunVerb for DedupeArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let mut sectors = Sectors::default();
        let total = |_: &AtomicBool| Some(of_image_files(filesystem, &self.paths));
        let total = Total::Measured(&total);
        let done = watch_bytes(&session.global, "deduplicating", total, |read| {
            each(&self.paths, |path| sectors.add(filesystem.open_file(path)?, read))
        });
        match session.global.format {
            Format::Json => print_json("dedupe", &json!({ "bytes_shared": sectors.shared }))?,
            Format::Text => {
                let mut out = stdout();
                writeln!(out, "{} bytes shared", sectors.shared)?;
                out.flush()?;
            }
        }
        done
    }
}

impl Sectors {
    /// Shares the sectors of a file that earlier files have, or that it has before, and remembers
    /// the others. The bytes are counted in `read`.
    fn add(&mut self, file: File, read: &AtomicU64) -> Result<()> {
        if self.files.iter().any(|known| known.inode().id() == file.inode().id()) {
            return Ok(());
        }
        self.files.push(file);
        let number = self.files.len() - 1;
        let mut runs: Vec<Run> = Vec::new();
        let mut reader = self.files[number].reader();
        while let Some(chunk) = reader.next_chunk()? {
            let mut at = chunk.offset();
            for sector in chunk.bytes().unwrap_or_default().chunks(SECTOR_SIZE as usize) {
                let end = at + sector.len() as u64;
                if let Some(source) = find(&mut self.first, sector, (number, at)) {
                    extend(&mut runs, source, at, end);
                }
                at = end;
            }
            read.fetch_add(chunk.len(), Ordering::Relaxed);
        }
        drop(reader);
        runs.iter().try_for_each(|run| self.share(number, run))
    }

    fn share(&mut self, number: usize, run: &Run) -> Result<()> {
        let (source, from) = run.source;
        let file = &self.files[number];
        let source = &self.files[source];
        match file.dedupe_range(source, from, run.end - run.start, run.start) {
            Ok(Deduped::Same { shared, .. }) => self.shared += shared,
            // Only the hashes were equal, or only one of the files has checksums.
            Ok(Deduped::Differs) | Err(Error::Invalid(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Returns the place of an equal sector that was seen before; otherwise remembers this one.
fn find(first: &mut HashMap<u64, Place>, sector: &[u8], place: Place) -> Option<Place> {
    let mut hasher = DefaultHasher::new();
    sector.hash(&mut hasher);
    let found = *first.entry(hasher.finish()).or_insert(place);
    (found != place).then_some(found)
}

/// Adds a sector to the last run if it continues that, or as a new run.
fn extend(runs: &mut Vec<Run>, source: Place, start: u64, end: u64) {
    match runs.last_mut() {
        Some(last) if last.end == start && continues(last, source) => last.end = end,
        _ => runs.push(Run { source, start, end }),
    }
}

fn continues(run: &Run, source: Place) -> bool {
    (source.0, source.1) == (run.source.0, run.source.1 + (run.end - run.start))
}
