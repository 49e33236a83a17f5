//! The paths of a verb, on which it acts one after the other.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use userbtrfs::{Dir, Error, Filesystem, Inode, PathError, PathResult, Quoted, join_path};

use super::report::ExitStatus;
use super::text::shown;

/// Calls `visit` with each path. Errors of the filesystem are reported, and the next path follows.
pub(crate) fn each(
    paths: &[OsString],
    mut visit: impl FnMut(&[u8]) -> Result<()>,
) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    for path in paths {
        let bytes = path.as_encoded_bytes();
        let done = check_named(bytes).map_err(anyhow::Error::from).and_then(|()| visit(bytes));
        failures.continue_after(done.with_context(|| shown(path)))?;
    }
    Ok(failures.code())
}

/// Fails if a path is empty: it names nothing, not the directory in which relative paths start.
fn check_named(path: &[u8]) -> Result<(), Error> {
    if path.is_empty() { Err(Error::NotFound) } else { Ok(()) }
}

/// Returns true if nothing was found at a path.
pub(crate) fn is_missing<T>(found: &PathResult<T>) -> bool {
    matches!(found, Err(PathError { error: Error::NotFound, .. }))
}

/// The permissions of new files.
const FILE_MODE: u32 = 0o644;
/// The maximum number of symbolic links that are followed.
const LINKS_MAX: usize = 40;

/// Returns the inode at a path; makes an empty file if there is none. At a symbolic link that leads
/// to nothing, its target is made.
pub(crate) fn open_or_create(filesystem: &Filesystem, path: &[u8]) -> Result<Inode, Error> {
    let mut path = path.to_vec();
    for _ in 0..=LINKS_MAX {
        match filesystem.lookup(&path) {
            Err(PathError { error: Error::NotFound, .. }) => {}
            found => return Ok(found?),
        }
        let (dir, name) = filesystem.open_parent_of_file(&path)?;
        match dir.lookup(&name) {
            Err(Error::NotFound) => return dir.create(&name, FILE_MODE),
            link => path = target_of_link(&path, link?.read_link()?),
        }
    }
    Err(Error::SymlinkLoop)
}

/// Returns the path to which the symbolic link at a path leads.
pub(crate) fn target_of_link(path: &[u8], target: Vec<u8>) -> Vec<u8> {
    let parent = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    if target.starts_with(b"/") { target } else { [&path[..parent], &target].concat() }
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
    mut visit: impl FnMut(&[u8], &Inode) -> Result<()>,
) -> Result<ExitCode> {
    let failures = ExitStatus::default();
    for path in paths {
        let mut top = || -> Result<()> {
            let bytes = path.as_encoded_bytes();
            let inode = if traversal.follow {
                filesystem.lookup(bytes)?
            } else {
                filesystem.lookup_no_follow(bytes)?
            };
            failures.continue_after(visit(bytes, &inode).with_context(|| shown(path)))?;
            if traversal.recursive && inode.metadata()?.is_dir() {
                below(filesystem, bytes, &failures, &mut visit)?;
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
    visit: &mut impl FnMut(&[u8], &Inode) -> Result<()>,
) -> Result<()> {
    // The slash names the directory even if the path is a link.
    for met in filesystem.walk(join_path(path, b""))?.skip(1) {
        let done = met.map_err(anyhow::Error::from).and_then(|met| {
            visit(&met.path, &met.inode).with_context(|| Quoted(&met.path).to_string())
        });
        failures.continue_after(done)?;
    }
    Ok(())
}

/// The destination of sources: a directory in which each keeps its name, or one new name. `D` is
/// the directory, as the verb needs it.
pub(crate) struct Destination<'a, D = ()> {
    path: &'a OsStr,
    /// The directory that the path leads to, if it leads to one.
    dir: Option<D>,
}

/// The place of one source at a destination.
pub(crate) enum Placement<'a, D> {
    /// The new name that the path of the destination is.
    New,
    /// A name in the directory: that of the source, with the path.
    Within { dir: &'a D, name: &'a [u8], path: Vec<u8> },
    /// The directory itself, since the source has no name to keep.
    Directory(&'a D),
}

impl<'a, D> Destination<'a, D> {
    /// Splits the destination, which is the last path, from the sources; `dir_at` returns the
    /// directory that it leads to, if it leads to one. There must be one for several sources.
    pub(crate) fn split_by(
        paths: &'a [OsString],
        dir_at: impl FnOnce(&'a OsStr) -> Result<Option<D>>,
    ) -> Result<(&'a [OsString], Self)> {
        if paths.iter().any(|path| path.is_empty()) {
            bail!("'': {}", Error::NotFound);
        }
        let (path, sources) = paths.split_last().context("no destination")?;
        let dir = dir_at(path)?;
        if sources.len() > 1 && dir.is_none() {
            bail!("{}: not a directory", shown(path));
        }
        Ok((sources, Self { path, dir }))
    }

    /// Returns the path as it was given.
    pub(crate) fn path(&self) -> &'a OsStr {
        self.path
    }

    /// Returns the place of a source.
    pub(crate) fn place_of<'s>(&'s self, source: &'s [u8]) -> Placement<'s, D> {
        match (&self.dir, last_name(source)) {
            (None, _) => Placement::New,
            (Some(dir), None) => Placement::Directory(dir),
            (Some(dir), Some(name)) => {
                let path = join_path(self.path.as_encoded_bytes(), name);
                Placement::Within { dir, name, path }
            }
        }
    }
}

impl<'a> Destination<'a> {
    /// Splits the destination in the image, which is the last path, from the sources. With
    /// `never_into` it is the new name even if it is a directory.
    pub(crate) fn split(
        filesystem: &Filesystem,
        paths: &'a [OsString],
        never_into: bool,
    ) -> Result<(&'a [OsString], Self)> {
        Self::split_by(paths, |path| {
            let is_dir = || {
                let found = filesystem.metadata(path.as_encoded_bytes());
                found.is_ok_and(|found| found.is_dir())
            };
            Ok((!never_into && is_dir()).then_some(()))
        })
    }

    /// Returns the path to which a source is moved or linked; fails if it has no name to keep.
    pub(crate) fn of(&self, source: &[u8]) -> Result<Vec<u8>> {
        match self.place_of(source) {
            Placement::New => Ok(self.path.as_encoded_bytes().to_vec()),
            Placement::Within { path, .. } => Ok(path),
            Placement::Directory(()) => bail!("source has no file name"),
        }
    }
}

/// Returns true if different sources have one last name, so that their copies in a directory would
/// replace each other.
pub(crate) fn have_namesakes(sources: &[OsString]) -> bool {
    let mut seen = HashMap::new();
    sources.iter().any(|source| {
        let path = source.as_encoded_bytes();
        let other = last_name(path).and_then(|name| seen.insert(name, path));
        other.is_some_and(|other| other != path)
    })
}

/// The paths at which a call has placed its sources, with those sources.
#[derive(Default)]
pub(crate) struct Placed(HashMap<Vec<u8>, Vec<u8>>);

impl Placed {
    /// Records the path at which a source is now.
    pub(crate) fn record(&mut self, source: &[u8], path: Vec<u8>) {
        self.0.insert(path, source.to_vec());
    }

    /// Fails if a non-directory that another source became is at a path: as in coreutils, it is
    /// not replaced, since it may be all that is left of that source.
    pub(crate) fn check_free(
        &self,
        filesystem: &Filesystem,
        source: &[u8],
        path: &[u8],
    ) -> Result<()> {
        let is_of_other = self.0.get(path).is_some_and(|other| other != source);
        if is_of_other && filesystem.symlink_metadata(path).is_ok_and(|there| !there.is_dir()) {
            bail!("{}: will not overwrite what was just created", Quoted(path));
        }
        Ok(())
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
    // A link to a directory is no directory, although a path with a slash leads through it.
    let is_sound = || {
        let is_link = |(dir, name): (Dir, Vec<u8>)| {
            dir.lookup(&name).and_then(|it| it.metadata()).is_ok_and(|it| it.is_symlink())
        };
        filesystem.symlink_metadata(source).is_ok()
            && !(source.ends_with(b"/") && filesystem.open_parent(source).is_ok_and(is_link))
    };
    let is_of_target = match &error {
        Error::Exists | Error::NotEmpty | Error::IsADirectory | Error::NameTooLong => true,
        Error::NotFound | Error::NotADirectory | Error::SymlinkLoop => is_sound(),
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
    fn different_sources_with_one_name_are_namesakes() {
        let are = |sources: &[&str]| {
            have_namesakes(&sources.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert!(are(&["/a/x", "/c", "/b/x/"]));
        assert!(!are(&["/a/x", "/a/x", "/a/y"]), "a source that is given twice is one source");
        assert!(!are(&["/a/.", "/b/."]), "they have no name to keep");
    }

    #[test]
    fn the_last_name_is_one_that_can_be_kept() {
        assert_eq!(last_name(b"/a/b/"), Some(&b"b"[..]));
        assert_eq!(last_name(b"b"), Some(&b"b"[..]));
        for path in [&b"/"[..], b"", b"/a/.", b"..", b"a/../"] {
            assert_eq!(last_name(path), None, "{path:?}");
        }
    }
}
