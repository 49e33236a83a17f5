//! `cat`: writes the content of files. Errors are reported, and the next file follows.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::FileReader;

use crate::cli::args::PathsArgs;
use crate::cli::report::ExitStatus;
use crate::cli::session::Session;
use crate::cli::text::shown;

/// Zeros for holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

pub(crate) fn run(session: &Session, args: &PathsArgs) -> Result<ExitCode> {
    let filesystem = &session.filesystem;
    let mut out = std::io::stdout().lock();
    let failures = ExitStatus::default();
    for path in &session.expand(&args.paths) {
        let file = filesystem.open_file(path.as_encoded_bytes()).map_err(anyhow::Error::from);
        let copied = file.and_then(|file| copy(file.reader(), &mut out));
        failures.continue_after(copied.with_context(|| shown(path)))?;
    }
    Ok(failures.code())
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
