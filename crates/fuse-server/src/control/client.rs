//! The client side.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use thiserror::Error;
use userbtrfs_fuse::STATX_DONT_SYNC;

use super::progress::{PROGRESS, Remaining};
use super::socket::{directories, name, open_own};
use crate::KIND;

/// The reason why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The path that should be a mount point cannot be examined.
    #[error("{}: {error}", path.display())]
    Point {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The path is not in a mount of userbtrfs.
    #[error("{}: not a mount of userbtrfs", path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// The path is in a mount of userbtrfs, but is not its mount point.
    #[error("{}: within the mount at {}", path.display(), mount.display())]
    Within {
        /// The path.
        path: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
    /// Another user has mounted it, and only that user may ask.
    #[error("{}: permission denied: mounted by user {user}", path.display())]
    Stranger {
        /// The path.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// It is mounted, but there is no server that this user can reach.
    #[error("{}: its server is gone, or cannot be reached from here", path.display())]
    NoServer {
        /// The path.
        path: PathBuf,
    },
    /// The server refused, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The server disconnected within an answer, or sent an invalid one.
    #[error("the server did not answer: {0}")]
    Unanswered(io::Error),
    /// The answer could not be written to the output.
    #[error("{0}")]
    Output(#[source] io::Error),
}

/// Asks the server of the mount at `point`, and writes the answer to `out` as it arrives.
///
/// An answer of unknown length ends with the mount.
pub fn ask(point: &Path, words: &[&[u8]], out: &mut dyn Write) -> Result<(), AskError> {
    ask_watched(point, words, out, &mut |_| ())
}

/// Like [`ask`]; calls `progress` with what the server sends before the answer. It sends that only
/// if the words ask for it.
pub fn ask_watched(
    point: &Path,
    words: &[&[u8]],
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Remaining),
) -> Result<(), AskError> {
    converse(connect(point)?, words, out, progress)
}

/// Like [`ask`], for the mount with this device number, wherever it is mounted.
pub fn ask_device(device: u64, words: &[&[u8]], out: &mut dyn Write) -> Result<(), AskError> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts_of(&table, &name(device)).into_iter().next();
    let unseen = || Line { point: PathBuf::from(name(device)), user: String::new() };
    let mount = mount.unwrap_or_else(unseen);
    let path = mount.point.clone();
    converse(connect_to(device, mount, &path)?, words, out, &mut |_| ())
}

/// Returns the device number of what is mounted at a path.
pub fn device_at(path: &Path) -> io::Result<u64> {
    device_of(path)
}

fn converse(
    mut stream: UnixStream,
    words: &[&[u8]],
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Remaining),
) -> Result<(), AskError> {
    let count = words.len().to_string();
    let words = std::iter::once(count.as_bytes()).chain(words.iter().copied());
    let question: Vec<u8> = words.flat_map(|word| [word, &[0]].concat()).collect();
    stream.write_all(&question).map_err(AskError::Unanswered)?;
    let mut answer = BufReader::new(stream);
    let status = read_status(&mut answer, progress)?;
    match status.split_once(' ').unwrap_or((&status, "")) {
        ("error", why) => Err(AskError::Refused(why.to_owned())),
        ("whole", length) => {
            let length = length.parse().map_err(|_| nonsense())?;
            match pass_on(&mut answer.take(length), out)? {
                passed if passed == length => Ok(()),
                _ => Err(cut_off()),
            }
        }
        ("parts", "") => pass_on(&mut answer, out).map(drop),
        ("", "") => Err(cut_off()),
        _ => Err(nonsense()),
    }
}

/// Reads the first line of the answer, and the progress before it.
fn read_status(
    answer: &mut BufReader<UnixStream>,
    progress: &mut dyn FnMut(Remaining),
) -> Result<String, AskError> {
    loop {
        let mut line = String::new();
        answer.read_line(&mut line).map_err(AskError::Unanswered)?;
        let status = line.trim_end_matches('\n');
        let Some((PROGRESS, amounts)) = status.split_once(' ') else {
            return Ok(status.to_owned());
        };
        progress(Remaining::parse(amounts).ok_or_else(nonsense)?);
        // If the server is gone, the next line shows that.
        let _ = answer.get_mut().write_all(&[0]);
    }
}

fn cut_off() -> AskError {
    AskError::Unanswered(io::ErrorKind::UnexpectedEof.into())
}

fn nonsense() -> AskError {
    AskError::Unanswered(io::ErrorKind::InvalidData.into())
}

/// Copies bytes until there are no more. Returns their number.
fn pass_on(from: &mut dyn io::BufRead, out: &mut dyn Write) -> Result<u64, AskError> {
    let mut passed = 0;
    loop {
        let bytes = from.fill_buf().map_err(AskError::Unanswered)?;
        let length = bytes.len();
        if length == 0 {
            return Ok(passed);
        }
        out.write_all(bytes).and_then(|()| out.flush()).map_err(AskError::Output)?;
        from.consume(length);
        passed += length as u64;
    }
}

/// Checks that `point` is where a filesystem of ours is mounted.
pub fn check(point: &Path) -> Result<(), AskError> {
    find(point).map(drop)
}

/// Returns the device number of the filesystem at a path. Nothing else is asked for: the kernel
/// tells that much of another user's mount, too.
fn device_of(path: &Path) -> io::Result<u64> {
    let flags = AtFlags::NO_AUTOMOUNT | STATX_DONT_SYNC;
    let found = statx(CWD, path, flags, StatxFlags::empty())?;
    Ok(makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// Returns the number of the mount at `point` as a device, and its line in the table of mounts.
fn find(point: &Path) -> Result<(u64, Line), AskError> {
    let path = || point.to_owned();
    let wrong = |error| AskError::Point { path: path(), error };
    let whole = point.canonicalize().map_err(wrong)?;
    let device = device_of(&whole).map_err(wrong)?;
    let table = fs::read("/proc/self/mountinfo").map_err(wrong)?;
    let mut mounts = mounts_of(&table, &name(device));
    if mounts.is_empty() {
        return Err(AskError::NotMounted { path: path() });
    }
    let is_point = mounts.iter().any(|mount| mount.point == whole);
    let first = mounts.swap_remove(0);
    if is_point {
        Ok((device, first))
    } else {
        Err(AskError::Within { path: path(), mount: first.point })
    }
}

fn connect(point: &Path) -> Result<UnixStream, AskError> {
    let (device, first) = find(point)?;
    connect_to(device, first, point)
}

fn connect_to(device: u64, first: Line, point: &Path) -> Result<UnixStream, AskError> {
    let path = || point.to_owned();
    let sockets = directories().into_iter().filter(|directory| open_own(directory).is_ok());
    let mut streams =
        sockets.filter_map(|directory| UnixStream::connect(directory.join(name(device))).ok());
    match streams.find(is_own) {
        Some(stream) => Ok(stream),
        None if first.user == geteuid().as_raw().to_string() => {
            Err(AskError::NoServer { path: path() })
        }
        None => Err(AskError::Stranger { path: path(), user: first.user }),
    }
}

/// Returns where the mount with this device number is; `None` if it is not visible.
pub fn mount_point(device: u64) -> Option<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    mounts_of(&table, &name(device)).into_iter().next().map(|line| line.point)
}

/// Returns whether a mount with this device number is visible; true if that cannot be determined.
pub fn is_mounted(device: u64) -> bool {
    let table = fs::read("/proc/self/mountinfo");
    table.map_or(true, |table| !mounts_of(&table, &name(device)).is_empty())
}

/// Returns whether the server runs as this user.
fn is_own(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == geteuid())
}

/// A line of the table of mounts.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    point: PathBuf,
    /// The number of the user that has mounted it.
    user: String,
}

/// Returns the lines of a table of mounts (`/proc/PID/mountinfo`) that are mounts of userbtrfs with
/// this device number, `MAJOR:MINOR`.
fn mounts_of(table: &[u8], device: &str) -> Vec<Line> {
    let kinds = ["fuse", "fuseblk"].map(|kind| format!("{kind}.{KIND}").into_bytes());
    let ours = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let end = fields.iter().position(|field| *field == b"-")?;
        let [kind, _source, options] = fields.get(end + 1..)? else { return None };
        let is_it = *fields.get(2)? == device.as_bytes() && kinds.iter().any(|one| one == kind);
        let user =
            options.split(|byte| *byte == b',').find_map(|one| one.strip_prefix(b"user_id="));
        is_it.then_some(())?;
        let point = PathBuf::from(std::ffi::OsString::from_vec(unescaped(fields.get(4)?)));
        Some(Line { point, user: String::from_utf8_lossy(user?).into_owned() })
    };
    table.split(|byte| *byte == b'\n').filter_map(ours).collect()
}

/// Decodes a path of the table, where blanks and the like are a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = (byte == b'\\').then(|| after.first_chunk::<3>()).flatten();
        let digit = |digit: &u8| digit.checked_sub(b'0').filter(|digit| *digit < 8);
        let octal = |digits: &[u8; 3]| {
            digits.iter().try_fold(0_u32, |number, one| Some(number * 8 + u32::from(digit(one)?)))
        };
        match escaped.and_then(octal).and_then(|number| u8::try_from(number).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => path.push(byte),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
21 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw
70 28 0:45 / /mnt/a\\040b\\134 rw - fuse.userbtrfs disk.img rw,user_id=1000,group_id=0
71 28 0:45 /sub /bound rw - fuse.userbtrfs disk.img rw,user_id=1000,group_id=0
72 28 0:46 / /mnt/c rw shared:7 master:3 - fuse.other disk.img rw,user_id=0
73 28 7:3 / /mnt/d rw - fuseblk.userbtrfs /dev/loop3 rw,user_id=0,group_id=0,blksize=4096
74 28 0:47 / /mnt/e rw
";

    fn shown(device: &str) -> Vec<(String, String)> {
        let lines = mounts_of(TABLE, device).into_iter();
        lines.map(|line| (line.point.display().to_string(), line.user)).collect()
    }

    #[test]
    fn mounts_of_ours_are_found_by_their_number() {
        let of = |point: &str, user: &str| (point.to_owned(), user.to_owned());
        assert_eq!(shown("0:45"), [of("/mnt/a b\\", "1000"), of("/bound", "1000")]);
        assert_eq!(shown("7:3"), [of("/mnt/d", "0")]);
        for other in ["0:20", "0:46", "0:47", "0:4"] {
            assert_eq!(shown(other), []);
        }
    }

    #[test]
    fn path_that_is_no_mount_of_ours_is_refused_by_name() {
        let refused = |path: &str| ask(Path::new(path), &[b"x"], &mut Vec::new()).unwrap_err();
        assert!(matches!(refused("/proc"), AskError::NotMounted { .. }));
        assert_eq!(refused("/proc").to_string(), "/proc: not a mount of userbtrfs");
        assert!(matches!(refused("/nowhere/at/all"), AskError::Point { .. }));
    }

    /// Returns the outcome of a conversation in which the server sends `answer`, and the progress.
    fn outcome(answer: &str) -> (Result<(), AskError>, Vec<(u64, u64)>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(answer.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut seen = Vec::new();
        let mut progress = |now: Remaining| seen.push((now.done, now.left));
        let outcome = converse(ours, &[b"x"], &mut Vec::new(), &mut progress);
        let mut sent = Vec::new();
        (&theirs).read_to_end(&mut sent).unwrap();
        assert_eq!(sent.len(), b"1\0x\0".len() + seen.len(), "each line is confirmed");
        (outcome, seen)
    }

    #[test]
    fn progress_before_an_answer_is_confirmed_and_passed_on() {
        let (done, seen) = outcome("progress 0 7\nprogress 5 2\nwhole 2\nok");
        assert!(done.is_ok());
        assert_eq!(seen, [(0, 7), (5, 2)]);
        let (refused, seen) = outcome("progress 0 7\nerror of the end\n");
        assert!(matches!(refused, Err(AskError::Refused(why)) if why == "of the end"));
        assert_eq!(seen, [(0, 7)]);
        let (cut, seen) = outcome("progress 0 7\n");
        assert!(matches!(cut, Err(AskError::Unanswered(_))));
        assert_eq!(seen, [(0, 7)]);
        let (wrong, seen) = outcome("progress x\nwhole 0\n");
        assert!(matches!(wrong, Err(AskError::Unanswered(_))) && seen.is_empty());
    }

    #[test]
    fn octal_escape_in_a_mount_point_is_decoded() {
        for (field, path) in
            [("a\\040b", "a b"), ("\\", "\\"), ("\\04", "\\04"), ("\\777", "\\777")]
        {
            assert_eq!(unescaped(field.as_bytes()), path.as_bytes());
        }
    }
}
