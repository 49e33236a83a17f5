//! Signals. They end a run in an orderly way, so that everything is unmounted and removed.
//!
//! A running program receives the terminal's signal itself; otherwise it is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use userbtrfs::copy::Progress;

/// The interval at which signals are checked.
const TICK: Duration = Duration::from_millis(100);

/// A flag that is set when a signal arrives.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs handlers for the signals that would terminate this program.
    pub(crate) fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("signals")?;
        }
        Ok(Self(flag))
    }

    /// Returns a flag that is never set.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Returns true if a signal has arrived.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs `act`; a signal stops its `progress`.
    pub(crate) fn stopping(&self, progress: &Progress, act: impl FnOnce()) {
        let (done, is_done) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| {
                let is_done = is_done;
                while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    if self.came() {
                        progress.stop();
                    }
                }
            });
            act();
            drop(done);
        });
    }

    /// Returns an error if a signal has arrived.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.came(), "interrupted");
        Ok(())
    }
}
