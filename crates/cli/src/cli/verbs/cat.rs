//! `cat`: writes the content of files. Errors are reported, and the next file follows.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use rustix::fs::FileType;
use userbtrfs::FileReader;

use crate::cli::args::PathsArgs;
use crate::cli::host::meter::{Total, watch_bytes};
use crate::cli::host::totals::of_image_files;
use crate::cli::report::ExitStatus;
use crate::cli::session::Session;
use crate::cli::text::shown;

/// Zeros for holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(crate) fn run(session: &Session, args: &PathsArgs) -> Result<ExitCode> {
    let filesystem = &session.filesystem;
    let paths = session.expand(&args.paths);
    let write = |written: &AtomicU64| -> Result<ExitCode> {
        let mut out = Counted { out: std::io::stdout().lock(), written };
        let failures = ExitStatus::default();
        for path in &paths {
            let file = filesystem.open_file(path.as_encoded_bytes()).map_err(anyhow::Error::from);
            let copied = file.and_then(|file| copy(file.reader(), &mut out));
            failures.continue_after(copied.with_context(|| shown(path)))?;
        }
        Ok(failures.code())
    };
    // On a terminal, or in a pager, progress would be among the content.
    if !is_stdout_a_file() {
        return write(&AtomicU64::new(0));
    }
    let total = |_: &AtomicBool| Some(of_image_files(filesystem, &paths));
    watch_bytes(&session.global, "copying", Total::Measured(&total), write)
}

fn is_stdout_a_file() -> bool {
    let found = rustix::fs::fstat(std::io::stdout());
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)
}

/// A writer that counts the bytes that are written.
struct Counted<'a, W> {
    out: W,
    written: &'a AtomicU64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.written.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes all that a reader reads, holes as zeros.
pub(in crate::cli) fn copy(mut reader: FileReader, out: &mut impl Write) -> Result<()> {
    while let Some(chunk) = reader.next_chunk()? {
        if let Some(bytes) = chunk.bytes() {
            out.write_all(bytes)?;
            continue;
        }
        let mut left = chunk.len();
        while left > 0 {
            let len = left.min(ZEROS.len() as u64);
            out.write_all(&ZEROS[..usize::try_from(len)?])?;
            left -= len;
        }
    }
    Ok(())
}
