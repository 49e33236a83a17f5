//! `get`: trees out of the image.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use userbtrfs::extract::{ExtractError, ExtractOptions, Extractor, Progress};

use super::args::{Format, GetArgs, Global};
use super::ls::shown;
use super::output::print_json;
use super::{Failures, complain, open, remark, text};

/// How long a copy runs before its progress is shown, and how often that is renewed.
const QUIET: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn run(global: &Global, args: &GetArgs) -> Result<ExitCode> {
    let filesystem = open(global, &args.root)?;
    let (destination, sources) = args.paths.split_last().context("no destination")?;
    let destination = Path::new(destination);
    let into = destination.is_dir();
    if sources.len() > 1 && !into {
        bail!("{}: not a directory", destination.display());
    }
    raise_open_files();
    let (progress, failures) = (Progress::default(), Failures::default());
    let started = Instant::now();
    let mut options =
        ExtractOptions { one_subvolume: args.one_subvolume, ..ExtractOptions::default() };
    options.workers = args.jobs.unwrap_or(options.workers);
    let extractor = Extractor::new(options, &progress);
    let report = |error| {
        let minor = matches!(error, ExtractError::NotKept { .. });
        if !minor || global.verbose > 0 {
            complain(&format!("get: {error}"));
        }
    };
    while_watched(global, &progress, || {
        for source in sources {
            let path = source.as_encoded_bytes();
            let target = target(path, destination, into)?;
            let found = filesystem.lookup_no_follow(path).map_err(anyhow::Error::from);
            let copied = found.map(|inode| extractor.extract(&inode, path, &target, &report));
            failures.note(copied.with_context(|| shown(source)))?;
        }
        Ok(())
    })?;
    let code = finish(global, &progress, started)?;
    Ok(if code == ExitCode::SUCCESS { failures.code() } else { code })
}

/// Where a source goes. The root of the image has no name: its entries go into the
/// destination itself, as with `cp -a /. DEST`.
fn target(path: &[u8], destination: &Path, into: bool) -> Result<PathBuf> {
    if !into {
        return Ok(destination.to_path_buf());
    }
    let name = path.split(|&b| b == b'/').rfind(|part| !part.is_empty());
    Ok(match name.filter(|name| *name != b"." && *name != b"..") {
        Some(name) => destination.join(OsStr::from_bytes(name)),
        None => destination.canonicalize()?,
    })
}

/// Runs `work` with the progress bar beside it; a signal stops it.
fn while_watched(
    global: &Global,
    progress: &Progress,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // The first one stops it in good order, the second one at once.
        flag::register_conditional_shutdown(signal, 1, progress.stop_flag())?;
        flag::register(signal, progress.stop_flag())?;
    }
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let bar = !global.quiet && stderr().is_terminal();
        scope.spawn(move || {
            if bar && is_done.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                let bar = ProgressBar::new_spinner().with_style(style());
                while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    bar.set_message(describe(progress));
                    bar.tick();
                }
                bar.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a valid template")
}

fn describe(progress: &Progress) -> String {
    format!("{} files, {}", progress.files(), text::size(progress.bytes()))
}

fn finish(global: &Global, progress: &Progress, started: Instant) -> Result<ExitCode> {
    let seconds = started.elapsed().as_secs_f64();
    if global.format == Format::Json {
        let document = json!({
            "files": progress.files(),
            "others": progress.others(),
            "bytes": progress.bytes(),
            "not-kept": progress.not_kept(),
            "errors": progress.errors(),
            "seconds": seconds,
        });
        print_json("get", &document)?;
    } else if global.verbose > 0 && !global.quiet {
        writeln!(stderr(), "{} in {seconds:.2} s", describe(progress))?;
    }
    if progress.not_kept() > 0 {
        let count = progress.not_kept();
        remark(global, &format!("get: {count} owners or attributes could not be kept (-v)"));
    }
    if progress.is_stopped() {
        bail!("get: stopped; what was not complete is removed");
    }
    Ok(if progress.errors() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Deep trees and many files in flight need descriptors.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it only very deep trees fail, and they say so.
    let _ = setrlimit(Resource::Nofile, limit);
}
