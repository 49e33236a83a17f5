//! Signals: they end a run in order, so that everything is unmounted and removed.
//!
//! A program under way gets the terminal's signal itself; one that does not is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use userbtrfs::copy::export::Progress;

/// How often a signal is looked for.
const TICK: Duration = Duration::from_millis(100);

/// Whether a signal came.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the signals that would end this program.
    pub(crate) fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("signals")?;
        }
        Ok(Self(flag))
    }

    /// One that never comes.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Whether a signal came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Does something whose progress a signal stops.
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

    /// An error once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.came(), "interrupted");
        Ok(())
    }
}
