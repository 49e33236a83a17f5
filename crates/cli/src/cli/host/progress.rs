//! The progress and the summary of a copy.

use std::io::{Write as _, stderr};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use userbtrfs::Counted;
use userbtrfs::copy::Progress;

use crate::cli::args::{Format, Global};
use crate::cli::host::meter::{Amount, Total, Watched, watch};
use crate::cli::host::signals::{Interrupted, Signals};
use crate::cli::output::print_json;
use crate::cli::report::{ignore_closed_pipe, warn};
use crate::cli::text;

/// Runs `work` and shows its progress; a signal stops it.
pub(in crate::cli) fn while_watched(
    global: &Global,
    progress: &Progress,
    total: Total<'_>,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let _signals = Signals::set(&progress.stop_flag())?;
    let done = || Amount { files: Some(progress.files()), bytes: Some(progress.bytes()) };
    watch(global, &Watched { name: "copying", done: &done, total }, work)
}

fn describe(progress: &Progress) -> String {
    format!("{}, {}", Counted(progress.files(), "file"), text::size(progress.bytes()))
}

/// Prints the summary of a copy, and returns its exit status.
pub(in crate::cli) fn finish(
    verb: &str,
    global: &Global,
    progress: &Progress,
    started: Instant,
) -> Result<ExitCode> {
    let seconds = started.elapsed().as_secs_f64();
    let mut printed = Ok(());
    if global.format == Format::Json {
        let document = json!({
            "files": progress.files(),
            "others": progress.others(),
            "bytes": progress.bytes(),
            "not_kept": progress.not_kept(),
            "errors": progress.errors(),
            "seconds": seconds,
        });
        printed = print_json(verb, &document);
    } else if global.verbose > 0 && !global.quiet {
        // An error of stderr cannot be reported.
        let _ = writeln!(stderr(), "{} in {seconds:.2} s", describe(progress));
    }
    if progress.not_kept() > 0 {
        let what = match progress.not_kept() {
            1 => "1 owner or attribute".to_owned(),
            count => format!("{count} owners or attributes"),
        };
        let words = format!("{what} not preserved (use -v to list them)");
        warn(global, &format!("{verb}: {words}"));
    }
    if progress.is_stopped() {
        return Err(anyhow::Error::new(Interrupted).context(verb.to_owned()));
    }
    ignore_closed_pipe(printed)?;
    Ok(if progress.errors() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGINT;
    use signal_hook::low_level::raise;

    use super::*;

    /// One copy follows another, as in the shell.
    #[test]
    fn a_signal_stops_the_copy_that_is_under_way_and_no_other() {
        let global = Global { format: Format::Text, quiet: true, verbose: 0, raw_names: false };
        let copies = [Progress::default(), Progress::default(), Progress::default()];
        for (done, progress) in copies.iter().enumerate() {
            while_watched(&global, progress, Total::Unknown, || Ok(raise(SIGINT)?)).unwrap();
            let stopped = copies.iter().filter(|progress| progress.is_stopped()).count();
            assert_eq!(stopped, done + 1);
        }
    }
}
