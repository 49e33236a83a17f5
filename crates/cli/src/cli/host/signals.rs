//! The signals that stop a copy or a prompt, and the limits of the process.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;

use nix::libc;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Iterated;
use signal_hook::low_level::{emulate_default_handler, unregister};
use signal_hook::{SigId, flag};
use userbtrfs::Filesystem;

use crate::cli::report::print_error;

/// The error of a copy that a signal stopped.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; incomplete files were removed")]
pub(in crate::cli) struct Interrupted;

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
/// Set once the default actions are registered, on the condition of `IDLE`.
static HAS_DEFAULTS: OnceLock<()> = OnceLock::new();

/// The filesystem of a prompt, as long as it is open.
pub(in crate::cli) type PromptFilesystem = Arc<Mutex<Option<Filesystem>>>;

/// The number of guards.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// The signal that stopped a copy; 0 if there is none.
static STOPPED_BY: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

impl Signals {
    pub(in crate::cli) fn set(stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let was_idle = IDLE.swap(false, Ordering::SeqCst);
        GUARDS.fetch_add(1, Ordering::SeqCst);
        let mut signals = Self { ids: Vec::new(), was_idle };
        let is_first = HAS_DEFAULTS.set(()).is_ok();
        for signal in [SIGINT, SIGTERM] {
            if is_first {
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
        GUARDS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Forgets the signal that stopped a copy: the process continues.
pub(in crate::cli) fn forget_signal() {
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

/// The message of SIGINT at a prompt.
pub(in crate::cli) const PROMPT_HINT: &str =
    "\"exit\" or the end of the input commits and ends, \"crash\" drops changes";

/// Handles the signals of a prompt from now on, while no copy runs: SIGINT shows a hint, and
/// SIGTERM and SIGHUP commit and end the process.
///
/// The caller takes the filesystem out before it closes it.
pub(in crate::cli) fn handle_prompt_signals(filesystem: PromptFilesystem) -> io::Result<()> {
    IDLE.store(false, Ordering::SeqCst);
    let mut signals = Iterated::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().spawn(move || {
        for signal in signals.forever() {
            if GUARDS.load(Ordering::SeqCst) > 0 {
                continue;
            }
            if signal == SIGINT {
                print_error(PROMPT_HINT);
                continue;
            }
            let filesystem = filesystem.lock().expect("no holder panics");
            if let Some(Err(error)) = filesystem.as_ref().map(Filesystem::commit) {
                print_error(&error.to_string());
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with EFBIG instead of ending the
/// process. Child processes get the default action again.
pub(in crate::cli) fn catch_file_size_signal() {
    // A signal that cannot be handled keeps its default.
    let _ = flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)));
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
