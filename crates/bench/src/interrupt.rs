//! Signals: they end a run in order, so that everything is unmounted and removed.
//!
//! A program under way gets the terminal's signal itself; one that does not is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

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

    /// An error once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.came(), "interrupted");
        Ok(())
    }
}
