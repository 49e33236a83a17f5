//! A pseudo-terminal that the command writes to.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The controlling side of a pseudo-terminal, with the output so far.
pub(crate) struct Terminal {
    coming: Receiver<Vec<u8>>,
    said: Vec<u8>,
}

impl Terminal {
    /// Opens a terminal, and its user side as the stderr of a command.
    pub(crate) fn new() -> (Self, Stdio) {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        // It must not become the controlling terminal of the tests: they would get SIGHUP.
        let user = open(&name, OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
        let (sender, coming) = channel();
        thread::spawn(move || {
            let mut controller = File::from(controller);
            let mut part = [0; 4096];
            // A read fails once no process has the user side open.
            while let Ok(len) = controller.read(&mut part)
                && sender.send(part[..len].to_vec()).is_ok()
            {}
        });
        (Self { coming, said: Vec::new() }, user.unwrap().into())
    }

    /// Reads while `is_awaited` returns true for the output so far, for at most `at_most`; returns
    /// all output.
    pub(crate) fn read_while(
        &mut self,
        at_most: Duration,
        is_awaited: impl Fn(&str) -> bool,
    ) -> String {
        let end = Instant::now() + at_most;
        loop {
            let said = String::from_utf8_lossy(&self.said).into_owned();
            if !is_awaited(&said) {
                return said;
            }
            match self.coming.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(part) => self.said.extend(part),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return said,
            }
        }
    }
}
