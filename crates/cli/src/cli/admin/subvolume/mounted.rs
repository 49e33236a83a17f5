//! Changes of subvolumes through a mount: the kernel resolves the paths, and the server gets inode
//! numbers.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use userbtrfs::mount::control::{self, AskError};

use super::list::ListOptions;
use super::place::made_snapshot;
use super::show::Identity;
use crate::cli::admin::mounted::{answer_at, mount_of, request_at};
use crate::cli::args::Global;
use crate::cli::report::{ExitStatus, announce};

/// Returns true if a path that is given in place of an image is, or would be, in a mount of ours.
pub(in crate::cli::admin) fn is_in_mount(path: &Path) -> bool {
    let dir = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => path,
        Ok(_) => return false,
        Err(_) => parent(path),
    };
    matches!(control::check(dir), Ok(()) | Err(AskError::Within { .. }))
}

/// Returns true if an object is in a mount of ours, of whatever kind it is.
pub(in crate::cli::admin) fn has_object(path: &Path) -> bool {
    matches!(control::check(path), Ok(()) | Err(AskError::Within { .. }))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns the number of the directory of a path, and the last name.
fn place(path: &Path) -> Result<(OsString, OsString)> {
    let name = path.file_name().ok_or_else(|| anyhow!("path has no file name"))?;
    Ok((number(parent(path))?, name.to_owned()))
}

fn number(path: &Path) -> Result<OsString> {
    Ok(path.metadata()?.ino().to_string().into())
}

/// Calls `change` with each path; a failure is reported, and the next path follows.
fn each(
    paths: impl Iterator<Item = impl AsRef<OsStr>>,
    change: impl Fn(&Path) -> Result<()>,
) -> ExitCode {
    let failures = ExitStatus::default();
    for path in paths {
        let path = Path::new(path.as_ref());
        if let Err(error) = change(path) {
            failures.report(&error.context(path.display().to_string()));
        }
    }
    failures.code()
}

pub(super) fn create(
    global: &Global,
    paths: impl Iterator<Item = impl AsRef<OsStr>>,
    parents: bool,
) -> ExitCode {
    each(paths, |path| {
        if parents {
            std::fs::create_dir_all(parent(path))?;
        }
        let (dir, name) = place(path)?;
        request_at(global, parent(path), &["subvolume-create".into(), "--".into(), dir, name])?;
        announce(global, || format!("Create subvolume '{}'", path.display()))
    })
}

pub(super) fn snapshot(
    global: &Global,
    source: &Path,
    dest: &Path,
    read_only: bool,
) -> Result<ExitCode> {
    let device = |path: &Path| control::device_at(path).with_context(|| path.display().to_string());
    let into = dest.metadata().is_ok_and(|found| found.is_dir());
    let dest = match source.file_name() {
        Some(name) if into => dest.join(name),
        None if into => bail!("{}: source has no file name", source.display()),
        _ => dest.to_owned(),
    };
    if device(source)? != device(parent(&dest))? {
        bail!("{}: invalid cross-device link", dest.display());
    }
    let make = || -> Result<()> {
        let (dir, name) = place(&dest)?;
        let mut words: Vec<OsString> = vec!["subvolume-snapshot".into()];
        words.extend(read_only.then(|| "-r".into()));
        words.extend(["--".into(), number(source)?, dir, name]);
        request_at(global, parent(&dest), &words).map(drop)
    };
    make().with_context(|| dest.display().to_string())?;
    let source = source.display().to_string();
    let line = || made_snapshot(read_only, &source, dest.as_os_str().as_encoded_bytes());
    announce(global, line)?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes subvolumes; `line` returns the line about one.
pub(super) fn delete(
    global: &Global,
    paths: impl Iterator<Item = impl AsRef<OsStr>>,
    commit: bool,
    line: impl Fn(&Path) -> String,
) -> ExitCode {
    each(paths, |path| {
        let (dir, name) = place(path)?;
        let mut words: Vec<OsString> = vec!["subvolume-delete".into()];
        words.extend(commit.then(|| "-c".into()));
        words.extend(["--".into(), dir, name]);
        request_at(global, parent(path), &words)?;
        announce(global, || line(path))
    })
}

/// Fails unless `path` is a directory, and returns the words of a request about it: its verb, and
/// its inode number.
pub(super) fn about(verb: &str, path: &Path) -> Result<Vec<OsString>> {
    let number = number(path).with_context(|| path.display().to_string())?;
    Ok(vec![verb.into(), "--".into(), number])
}

/// Deletes the subvolume with an id; `line` returns the line about a path.
pub(super) fn delete_id(
    global: &Global,
    point: &Path,
    id: u64,
    commit: bool,
    line: impl Fn(&str) -> String,
) -> Result<ExitCode> {
    let mut words: Vec<OsString> = vec!["subvolume-delete-id".into()];
    words.extend(commit.then(|| "-c".into()));
    words.extend(["--".into(), id.to_string().into()]);
    let path = answer_at(point, &words).with_context(|| format!("subvolume {id}"))?;
    let path = path.strip_prefix(b"/").unwrap_or(&path);
    let path = mount_of(point).join(OsStr::from_bytes(path));
    announce(global, || line(&path.display().to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the subvolumes as seen from a directory.
pub(super) fn list(global: &Global, path: &Path, options: &ListOptions) -> Result<ExitCode> {
    let mut words: Vec<OsString> = vec!["subvolume-list-at".into()];
    words.extend(options.words(global));
    words.extend(["--".into(), number(path).with_context(|| path.display().to_string())?]);
    request_at(global, path, &words)
}

/// Shows the subvolume with an id or UUID.
pub(super) fn show_by(global: &Global, path: &Path, identity: &Identity) -> Result<ExitCode> {
    let mut words: Vec<OsString> = vec!["subvolume-show-by".into()];
    words.extend(identity.words());
    request_at(global, path, &words)
}

/// Shows the subvolume whose root directory has this path.
pub(super) fn show(global: &Global, path: &Path) -> Result<ExitCode> {
    request_at(global, path, &about("subvolume-show-at", path)?)
        .with_context(|| path.display().to_string())
}

/// Sets the default subvolume to the one whose root directory has this path.
pub(super) fn set_default(global: &Global, path: &Path) -> Result<ExitCode> {
    request_at(global, path, &about("subvolume-set-default-at", path)?)
        .with_context(|| path.display().to_string())
}

/// Shows the property `ro` of the subvolume whose root directory has this path.
pub(super) fn property_get(global: &Global, path: &Path) -> Result<ExitCode> {
    request_at(global, path, &about("property-get", path)?)
        .with_context(|| path.display().to_string())
}

/// Sets the property `ro` of the subvolume whose root directory has this path.
pub(super) fn property_set(
    global: &Global,
    path: &Path,
    read_only: bool,
    force: bool,
) -> Result<ExitCode> {
    let mut words: Vec<OsString> = vec!["property-set".into()];
    words.extend(force.then(|| "-f".into()));
    words.extend(read_only.then(|| "-r".into()));
    words.extend(["--".into(), number(path)?]);
    request_at(global, path, &words).with_context(|| path.display().to_string())
}

/// Waits until deleted subvolumes of the mount at `point` are gone: those with these ids, or all.
pub(super) fn sync(global: &Global, point: &Path, ids: &[u64]) -> Result<ExitCode> {
    let pending = deleted(point, ids)?;
    let mut left = if ids.is_empty() { pending } else { ids.to_vec() };
    let count = left.len();
    if count > 0 {
        announce(global, || waiting_for(count))?;
    }
    while !left.is_empty() {
        let still = deleted(point, &left)?;
        let gone = left.iter().filter(|id| !still.contains(id));
        for (at, id) in gone.enumerate() {
            let at = count - left.len() + at + 1;
            announce(global, || format!("Subvolume id {id} is gone ({at}/{count})"))?;
        }
        left = still;
        if !left.is_empty() {
            std::thread::sleep(BETWEEN_QUESTIONS);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line before the wait for deleted subvolumes.
pub(super) fn waiting_for(count: usize) -> String {
    format!("Waiting for {count} subvolume{}", if count == 1 { "" } else { "s" })
}

/// The time between two requests while subvolumes are being deleted.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(200);

/// Returns those of the deleted subvolumes that are not gone; without ids all.
fn deleted(point: &Path, ids: &[u64]) -> Result<Vec<u64>> {
    let mut words: Vec<OsString> = vec!["subvolume-sync".into(), "--".into()];
    words.extend(ids.iter().map(|id| id.to_string().into()));
    let text = String::from_utf8(answer_at(point, &words)?).context("invalid answer")?;
    text.lines().map(|id| id.parse().context("invalid answer")).collect()
}
