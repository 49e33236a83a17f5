//! The paths of a verb, on which it acts one after the other.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use userbtrfs::{Error, Filesystem, Inode, Quoted, join_path};

use super::report::ExitStatus;
use super::text::shown;

/// Calls `visit` with each path. Errors of the filesystem are reported, and the next path follows.
pub(crate) fn each(
    paths: &[OsString],
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    for path in paths {
        failures.continue_after(visit(path.as_encoded_bytes()).with_context(|| shown(path)))?;
    }
    Ok(failures.code())
}

/// The permissions of new files.
const FILE_MODE: u32 = 0o644;

/// Returns the inode at a path; makes an empty file if there is none.
pub(crate) fn open_or_create(filesystem: &Filesystem, path: &[u8]) -> Result<Inode, Error> {
    match filesystem.lookup(path) {
        Err(Error::NotFound) => {
            let (dir, name) = filesystem.open_parent_of_file(path)?;
            dir.create(&name, FILE_MODE)
        }
        found => found,
    }
}

/// The inodes on which a verb acts, besides those at its paths.
#[derive(Clone, Copy)]
pub(crate) struct Traversal {
    /// Everything below directories too; links there are not followed.
    pub(crate) recursive: bool,
    /// The target instead of a path that is a link.
    pub(crate) follow: bool,
}

/// Calls `visit` with each path and its inode and, if `traversal` says so, with those below it.
pub(crate) fn each_inode(
    filesystem: &Filesystem,
    paths: &[OsString],
    traversal: Traversal,
    visit: impl Fn(&[u8], &Inode) -> Result<()>,
) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    for path in paths {
        let top = || -> Result<()> {
            let bytes = path.as_encoded_bytes();
            let inode = if traversal.follow {
                filesystem.lookup(bytes)?
            } else {
                filesystem.lookup_no_follow(bytes)?
            };
            visit(bytes, &inode)?;
            if traversal.recursive && inode.metadata()?.is_dir() {
                below(filesystem, bytes, &failures, &visit)?;
            }
            Ok(())
        };
        failures.continue_after(top().with_context(|| shown(path)))?;
    }
    Ok(failures.code())
}

fn below(
    filesystem: &Filesystem,
    path: &[u8],
    failures: &ExitStatus,
    visit: impl Fn(&[u8], &Inode) -> Result<()>,
) -> Result<()> {
    // The slash names the directory even if the path is a link.
    for met in filesystem.walk([path, b"/"].concat())?.skip(1) {
        let done = met.map_err(anyhow::Error::from).and_then(|met| {
            visit(&met.path, &met.inode).with_context(|| Quoted(&met.path).to_string())
        });
        failures.continue_after(done)?;
    }
    Ok(())
}

/// The destination of sources: a directory in which each keeps its name, or one new name.
pub(crate) struct Destination<'a> {
    path: &'a [u8],
    into: bool,
}

impl<'a> Destination<'a> {
    /// Splits the destination, which is the last path, from the sources. With `never_into` it is
    /// the new name even if it is a directory.
    pub(crate) fn split(
        filesystem: &Filesystem,
        paths: &'a [OsString],
        never_into: bool,
    ) -> Result<(&'a [OsString], Self)> {
        let (last, sources) = paths.split_last().context("no destination")?;
        let path = last.as_encoded_bytes();
        let into = !never_into && filesystem.metadata(path).is_ok_and(|found| found.is_dir());
        if sources.len() > 1 && !into {
            bail!("{}: not a directory", shown(last));
        }
        Ok((sources, Self { path, into }))
    }

    /// Returns the path to which a source is moved or linked.
    pub(crate) fn of(&self, source: &[u8]) -> Result<Vec<u8>> {
        if !self.into {
            return Ok(self.path.to_vec());
        }
        let name = last_name(source).ok_or_else(|| anyhow!("source has no file name"))?;
        Ok(join_path(self.path, name))
    }
}

/// Returns an error of giving the inode at `source` the name `target`, with the path that it is
/// about.
pub(crate) fn with_path(
    filesystem: &Filesystem,
    source: &[u8],
    target: &[u8],
    error: Error,
) -> anyhow::Error {
    let is_of_target = match &error {
        Error::Exists | Error::NotEmpty | Error::IsADirectory | Error::NameTooLong => true,
        Error::NotFound | Error::NotADirectory | Error::SymlinkLoop => {
            filesystem.symlink_metadata(source).is_ok()
        }
        _ => false,
    };
    let path = if is_of_target { target } else { source };
    anyhow::Error::from(error).context(Quoted(path).to_string())
}

/// Returns the last name of a path; `None` for the root, and if the path ends with `.` or `..`.
pub(crate) fn last_name(path: &[u8]) -> Option<&[u8]> {
    let last = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
    last.filter(|name| *name != b"." && *name != b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_is_one_that_can_be_kept() {
        assert_eq!(last_name(b"/a/b/"), Some(&b"b"[..]));
        assert_eq!(last_name(b"b"), Some(&b"b"[..]));
        for path in [&b"/"[..], b"", b"/a/.", b"..", b"a/../"] {
            assert_eq!(last_name(path), None, "{path:?}");
        }
    }
}
