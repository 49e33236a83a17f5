//! The terminal of a live view: keys are read as they are typed, and the view covers the screen.

use std::io::{self, Stdin, Stdout, Write, stdin, stdout};
use std::time::{Duration, Instant};

// Not those of rustix, which also set the speed of the input apart from that of the output: the
// terminal would not be as before.
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{Winsize, tcgetwinsize};

/// Saves the cursor and the screen, which an empty one replaces, and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Shows the cursor, and restores the screen and the cursor.
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the first line.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears the rest of the screen.
const CLEAR_REST: &str = "\x1b[J";
/// The last line of the screen.
const FOOTER: &str = "q: quit";
/// The size of a terminal that does not know its own.
const DEFAULT_SIZE: Size = Size { columns: 80, rows: 24 };
/// The key Ctrl-C.
const CTRL_C: u8 = 3;
/// The time after which signals and the size are checked.
const STEP: Duration = Duration::from_millis(200);

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    columns: usize,
    rows: usize,
}

/// An event that ends a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The time is over.
    Time,
    /// The size of the terminal changed.
    Resized,
    /// The view ends.
    End,
}

/// A terminal that shows a view. The drop restores it.
pub(super) struct Screen {
    input: Stdin,
    output: Stdout,
    before: Termios,
    size: Size,
}

impl Screen {
    /// Sets up the terminal of stdin and stdout.
    pub(super) fn enter() -> io::Result<Self> {
        let input = stdin();
        let before = tcgetattr(&input)?;
        let mut modes = before.clone();
        cfmakeraw(&mut modes);
        tcsetattr(&input, SetArg::TCSANOW, &modes)?;
        let output = stdout();
        let mut screen = Self { input, output, before, size: DEFAULT_SIZE };
        screen.size = screen.current_size();
        screen.output.write_all(ENTER)?;
        screen.output.flush()?;
        Ok(screen)
    }

    /// Returns the width.
    pub(super) fn columns(&self) -> usize {
        self.size.columns
    }

    /// Draws lines over those that were there; only as many as fit.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        self.output.write_all(frame(lines, self.size).as_bytes())?;
        self.output.flush()
    }

    /// Waits for an event; keys without a meaning are ignored.
    pub(super) fn wait(
        &mut self,
        time: Duration,
        is_ended: impl Fn() -> bool,
    ) -> io::Result<Event> {
        let end = Instant::now() + time;
        loop {
            if is_ended() {
                return Ok(Event::End);
            }
            let size = self.current_size();
            if size != self.size {
                self.size = size;
                return Ok(Event::Resized);
            }
            let left = end.saturating_duration_since(Instant::now());
            if self.is_end_typed(left.min(STEP))? {
                return Ok(Event::End);
            }
            if Instant::now() >= end {
                return Ok(Event::Time);
            }
        }
    }

    /// Waits for keys; returns true if one of them ends the view, or the terminal is gone.
    fn is_end_typed(&self, time: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.input, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) | Ok(0) => return Ok(false),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let mut keys = [0; 64];
        match rustix::io::read(&self.input, &mut keys) {
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            Ok(0) | Err(Errno::IO) => Ok(true),
            Ok(len) => Ok(keys[..len].iter().any(|key| matches!(*key, b'q' | b'Q' | CTRL_C))),
            Err(error) => Err(error.into()),
        }
    }

    fn current_size(&self) -> Size {
        tcgetwinsize(&self.output).map_or(DEFAULT_SIZE, size_of)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about an error of the terminal.
        let _ = self.output.write_all(LEAVE).and_then(|()| self.output.flush());
        let _ = tcsetattr(&self.input, SetArg::TCSANOW, &self.before);
    }
}

fn size_of(size: Winsize) -> Size {
    if size.ws_col == 0 || size.ws_row == 0 {
        return DEFAULT_SIZE;
    }
    Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
}

/// Returns the bytes that draw lines and the footer on a terminal.
fn frame(lines: &[String], size: Size) -> String {
    let mut frame = HOME.to_owned();
    let fitting = lines.iter().take(size.rows.saturating_sub(1));
    for line in fitting {
        frame.extend(line.chars().take(size.columns));
        frame.extend([CLEAR_LINE, "\r\n"]);
    }
    frame.extend(FOOTER.chars().take(size.columns));
    frame.extend([CLEAR_LINE, CLEAR_REST]);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_fits_the_terminal() {
        let lines: Vec<_> = (0..9).map(|number| format!("line number {number}")).collect();
        let drawn = frame(&lines, Size { columns: 6, rows: 4 });
        assert_eq!(drawn.matches("\r\n").count(), 3);
        assert!(drawn.starts_with("\x1b[Hline n\x1b[K\r\n") && drawn.contains("q: qui\x1b[K"));
        let drawn = frame(&lines[..2], Size { columns: 80, rows: 4 });
        assert!(drawn.ends_with("line number 1\x1b[K\r\nq: quit\x1b[K\x1b[J"), "{drawn:?}");
        assert_eq!(frame(&lines, Size { columns: 80, rows: 1 }).matches("\r\n").count(), 0);
    }

    #[test]
    fn terminal_without_a_size_has_the_usual_one() {
        let size = |ws_col, ws_row| size_of(Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
        assert_eq!(size(0, 0), DEFAULT_SIZE);
        assert_eq!(size(132, 43), Size { columns: 132, rows: 43 });
    }
}
