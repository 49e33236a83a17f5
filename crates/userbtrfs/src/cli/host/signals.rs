//! The progress and the summary of a copy, and the signals that stop it.

use std::io::{self, IsTerminal as _, Write as _, stderr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use nix::libc;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Iterated;
use signal_hook::low_level::{emulate_default_handler, unregister};
use signal_hook::{SigId, flag};
use userbtrfs::copy::export::Progress;
use userbtrfs::{Counted, Filesystem};

use crate::cli::args::{Format, Global};
use crate::cli::output::print_json;
use crate::cli::report::{complain, printed, remark};
use crate::cli::text;

/// The time before the progress of a copy is shown, and between two updates.
const QUIET: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// The error of a copy that a signal stopped.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; incomplete files were removed")]
pub(in crate::cli) struct Stopped;

/// A guard of the handlers of SIGINT and SIGTERM: the first signal sets a flag, so that the copy is
/// stopped cleanly, and the second one has its default action. The drop restores the behaviour
/// before.
pub(in crate::cli) struct Signals {
    ids: Vec<SigId>,
    was_idle: bool,
}

/// True if there is no guard. A handler, once installed, stays installed, so that it has to apply
/// the default action while this is true.
static IDLE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));
static HANDED_ON: OnceLock<()> = OnceLock::new();

/// The filesystem of a prompt, as long as it is open.
pub(in crate::cli) type PromptFilesystem = Arc<Mutex<Option<Filesystem>>>;

/// The number of guards.
static COPIES: AtomicUsize = AtomicUsize::new(0);

/// The signal that stopped a copy; 0 if there is none.
static STOPPED_BY: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

impl Signals {
    pub(in crate::cli) fn set(stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let was_idle = IDLE.swap(false, Ordering::SeqCst);
        COPIES.fetch_add(1, Ordering::SeqCst);
        let mut signals = Self { ids: Vec::new(), was_idle };
        let hand_on = HANDED_ON.set(()).is_ok();
        for signal in [SIGINT, SIGTERM] {
            if hand_on {
                flag::register_conditional_default(signal, Arc::clone(&IDLE))?;
            }
            signals.ids.push(flag::register_conditional_default(signal, Arc::clone(stop))?);
            signals.ids.push(flag::register(signal, Arc::clone(stop))?);
            let number = usize::try_from(signal).expect("signals are positive");
            signals.ids.push(flag::register_usize(signal, Arc::clone(&STOPPED_BY), number)?);
        }
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
        IDLE.store(self.was_idle, Ordering::SeqCst);
        COPIES.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Forgets the signal that stopped a copy: the process goes on.
pub(in crate::cli) fn go_on() {
    STOPPED_BY.store(0, Ordering::SeqCst);
}

/// Ends the process by the signal that stopped a copy, if one did: the parent, such as a shell with
/// a loop, sees it.
pub(in crate::cli) fn end_by_signal() {
    let signal = i32::try_from(STOPPED_BY.load(Ordering::SeqCst)).unwrap_or(0);
    if signal != 0 {
        let _ = emulate_default_handler(signal);
    }
}

/// Handles the signals of a prompt from now on, while no copy runs: SIGINT shows a hint, and
/// SIGTERM and SIGHUP commit and end the process.
///
/// The caller takes the filesystem out before it closes it.
pub(in crate::cli) fn keep_prompt(filesystem: PromptFilesystem) -> io::Result<()> {
    IDLE.store(false, Ordering::SeqCst);
    let mut signals = Iterated::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().spawn(move || {
        for signal in signals.forever() {
            if COPIES.load(Ordering::SeqCst) > 0 {
                continue;
            }
            if signal == SIGINT {
                complain(
                    "\"exit\" or the end of the input commits and ends, \"crash\" drops changes",
                );
                continue;
            }
            let filesystem = filesystem.lock().expect("no holder panics");
            if let Some(Err(error)) = filesystem.as_ref().map(Filesystem::commit) {
                complain(&error.to_string());
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with EFBIG instead of ending the
/// process. Child processes get the default action again.
pub(in crate::cli) fn survive_file_size_limit() {
    // A signal that cannot be handled keeps its default.
    let _ = flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Runs `work` and shows its progress; a signal stops it.
pub(in crate::cli) fn while_watched(
    global: &Global,
    progress: &Progress,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let _signals = Signals::set(&progress.stop_flag())?;
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let bar = !global.quiet && stderr().is_terminal();
        // Without this thread no progress is shown.
        let _bar = thread::Builder::new().spawn_scoped(scope, move || {
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

/// Prints the summary of a copy, and returns its exit status.
pub(in crate::cli) fn finish(
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
            "not_kept": progress.not_kept(),
            "errors": progress.errors(),
            "seconds": seconds,
        });
        told = print_json(verb, &document);
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
        remark(global, &format!("{verb}: {words}"));
    }
    if progress.is_stopped() {
        return Err(anyhow::Error::new(Stopped).context(verb.to_owned()));
    }
    printed(told)?;
    Ok(if progress.errors() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Raises the limit of open files to its maximum: deep trees, many files in flight, and the threads
/// of a mount need descriptors.
pub(in crate::cli) fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, operations that need more descriptors report that.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    /// One copy follows another, as in the shell.
    #[test]
    fn a_signal_stops_the_copy_that_is_under_way_and_no_other() {
        let global = Global { format: Format::Text, quiet: true, verbose: 0 };
        let copies = [Progress::default(), Progress::default(), Progress::default()];
        for (done, progress) in copies.iter().enumerate() {
            while_watched(&global, progress, || Ok(raise(SIGINT)?)).unwrap();
            let stopped = copies.iter().filter(|progress| progress.is_stopped()).count();
            assert_eq!(stopped, done + 1);
        }
    }
}
