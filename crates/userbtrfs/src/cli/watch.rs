//! A copy that takes a while: its progress, its end, and how it is stopped.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use userbtrfs::Counted;
use userbtrfs::extract::Progress;

use super::args::{Format, Global};
use super::output::print_json;
use super::{printed, remark, text};

/// How long a copy runs before its progress is shown, and how often that is renewed.
const QUIET: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// A signal ended it.
#[derive(Debug, thiserror::Error)]
#[error("stopped; what was not complete is removed")]
pub(super) struct Stopped;

/// Runs `work` with the progress bar beside it; a signal stops it.
pub(super) fn while_watched(
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
    format!("{}, {}", Counted(progress.files(), "file"), text::size(progress.bytes()))
}

/// Says what was done.
pub(super) fn finish(
    verb: &str,
    global: &Global,
    progress: &Progress,
    started: Instant,
) -> Result<ExitCode> {
    let seconds = started.elapsed().as_secs_f64();
    let mut told = Ok(());
    if global.format == Format::Json {
        let document = json!({
            "files": progress.files(),
            "others": progress.others(),
            "bytes": progress.bytes(),
            "not-kept": progress.not_kept(),
            "errors": progress.errors(),
            "seconds": seconds,
        });
        told = print_json(verb, &document);
    } else if global.verbose > 0 && !global.quiet {
        // Where stderr is gone, there is no one to tell.
        let _ = writeln!(stderr(), "{} in {seconds:.2} s", describe(progress));
    }
    if progress.not_kept() > 0 {
        let count = progress.not_kept();
        let words = format!("{count} of the owners and attributes could not be kept (-v)");
        remark(global, &format!("{verb}: {words}"));
    }
    if progress.is_stopped() {
        return Err(anyhow::Error::new(Stopped).context(verb.to_owned()));
    }
    printed(told)?;
    Ok(if progress.errors() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Deep trees, many files in flight, and the threads of a mount need descriptors.
pub(super) fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it only what needs very many fails, and says so.
    let _ = setrlimit(Resource::Nofile, limit);
}
