//! Paths in an image that are worked on one after the other.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use userbtrfs::{Error, Filesystem, Inode, Quoted, join_path};

use super::report::ExitStatus;
use super::text::shown;

/// Does `act` to each path. What the filesystem refuses is said, and the rest goes on.
pub(crate) fn each(
    paths: &[OsString],
    mut act: impl FnMut(&[u8]) -> Result<()>,
) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    for path in paths {
        failures.note(act(path.as_encoded_bytes()).with_context(|| shown(path)))?;
    }
    Ok(failures.code())
}

/// The permissions of files that are made without a word about them.
const FILE_MODE: u32 = 0o644;

/// What is at a path; an empty file, if nothing is.
pub(crate) fn open_or_create(filesystem: &Filesystem, path: &[u8]) -> Result<Inode, Error> {
    match filesystem.lookup(path) {
        Err(Error::NotFound) => {
            let (dir, name) = filesystem.open_parent_of_file(path)?;
            dir.create(&name, FILE_MODE)
        }
        found => found,
    }
}

/// How a verb goes about what it is given.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// It goes on to everything below; links there are taken as they are.
    pub(crate) recursive: bool,
    /// A path that is a link means what it leads to.
    pub(crate) follow: bool,
}

/// Does `act` to each path, and to what is below it where it shall reach that.
pub(crate) fn each_inode(
    filesystem: &Filesystem,
    paths: &[OsString],
    reach: Reach,
    act: impl Fn(&Inode) -> Result<()>,
) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    for path in paths {
        let top = || -> Result<()> {
            let bytes = path.as_encoded_bytes();
            let inode = match reach.follow {
                true => filesystem.lookup(bytes)?,
                false => filesystem.lookup_no_follow(bytes)?,
            };
            act(&inode)?;
            if reach.recursive && inode.metadata()?.is_dir() {
                below(filesystem, bytes, &failures, &act)?;
            }
            Ok(())
        };
        failures.note(top().with_context(|| shown(path)))?;
    }
    Ok(failures.code())
}

fn below(
    filesystem: &Filesystem,
    path: &[u8],
    failures: &ExitStatus,
    act: impl Fn(&Inode) -> Result<()>,
) -> Result<()> {
    // With the slash it is the directory, also where the path is that of a link.
    for met in filesystem.walk([path, b"/"].concat())?.skip(1) {
        let done = met
            .map_err(anyhow::Error::from)
            .and_then(|met| act(&met.inode).with_context(|| Quoted(&met.path).to_string()));
        failures.note(done)?;
    }
    Ok(())
}

/// Where sources of a verb go: to names of their own in a directory, or one to a new name.
pub(crate) struct Destination<'a> {
    path: &'a [u8],
    into: bool,
}

impl<'a> Destination<'a> {
    /// The last of the paths. `never_into`: it is a name even where a directory has it.
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

    /// Where a source goes.
    pub(crate) fn of(&self, source: &[u8]) -> Result<Vec<u8>> {
        if !self.into {
            return Ok(self.path.to_vec());
        }
        let name = last_name(source).ok_or_else(|| anyhow!("it has no name to keep"))?;
        Ok(join_path(self.path, name))
    }
}

/// The last name of a path; none of the root, and of what ends with `.` or `..`.
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
