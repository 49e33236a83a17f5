//! `--exclude` and `--include`: the files that `get` and `put` copy.
//!
//! 1. A pattern without a slash is matched with the name; one with a slash with the path from the
//!    source, or with the end of it that begins after a slash. A slash at its start means the whole
//!    path, one at its end directories only.
//! 2. What matches `--exclude` is left out with everything below it, unless it matches `--include`.
//! 3. With `--include` alone, files that match none are left out. Directories are entered.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use userbtrfs::copy::Filter;

use crate::cli::globs::{Case, is_match};

#[derive(Clone, clap::Args)]
pub(crate) struct FilterArgs {
    /// Leave out files and directories that match PATTERN, with the wildcards *, ? and [
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Copy what matches PATTERN although it matches --exclude; without --exclude, only such files
    #[arg(long, value_name = "PATTERN")]
    include: Vec<OsString>,
}

impl FilterArgs {
    /// Returns the filter for everything below the sources; `None` if all is copied.
    pub(crate) fn filter(&self) -> Option<Filter> {
        if self.exclude.is_empty() && self.include.is_empty() {
            return None;
        }
        let args = self.clone();
        Some(Filter::new(move |path, is_dir| args.takes(path, is_dir)))
    }

    /// Returns true if a file or directory at a path from its source is copied. The source itself
    /// has its name as the path.
    pub(crate) fn takes(&self, path: &Path, is_dir: bool) -> bool {
        let path = path.as_os_str().as_bytes();
        let matches = |patterns: &[OsString]| {
            patterns.iter().any(|pattern| is_path_match(pattern.as_encoded_bytes(), path, is_dir))
        };
        if matches(&self.include) {
            return true;
        }
        if self.exclude.is_empty() {
            is_dir || self.include.is_empty()
        } else {
            !matches(&self.exclude)
        }
    }
}

fn is_path_match(pattern: &[u8], path: &[u8], is_dir: bool) -> bool {
    let (pattern, dirs_only) = match pattern {
        [pattern @ .., b'/'] if !pattern.is_empty() => (pattern, true),
        pattern => (pattern, false),
    };
    if dirs_only && !is_dir {
        return false;
    }
    if let [b'/', whole @ ..] = pattern {
        return is_match(whole, path, Case::Exact);
    }
    if !pattern.contains(&b'/') {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        return is_match(pattern, name, Case::Exact);
    }
    let after_slash = (0..path.len()).filter(|at| path[*at] == b'/').map(|at| &path[at + 1..]);
    std::iter::once(path).chain(after_slash).any(|end| is_match(pattern, end, Case::Exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(exclude: &[&str], include: &[&str]) -> FilterArgs {
        let list = |patterns: &[&str]| patterns.iter().map(OsString::from).collect();
        FilterArgs { exclude: list(exclude), include: list(include) }
    }

    #[test]
    fn patterns_match_names_paths_or_directories() {
        for (pattern, path, is_dir) in [
            ("*.o", "a/b.o", false),
            ("b", "a/b", true),
            ("a/b", "x/a/b", false),
            ("/a/*", "a/b", false),
            ("b/", "a/b", true),
        ] {
            assert!(!args(&[pattern], &[]).takes(Path::new(path), is_dir), "{pattern} {path}");
        }
        for (pattern, path, is_dir) in [
            ("*.o", "a.o/b", false),
            ("a/b", "xa/b", false),
            ("/b", "a/b", false),
            ("b/", "b", false),
        ] {
            assert!(args(&[pattern], &[]).takes(Path::new(path), is_dir), "{pattern} {path}");
        }
    }

    #[test]
    fn include_selects_or_makes_exceptions() {
        let only = args(&[], &["*.txt"]);
        assert!(only.takes(Path::new("dir"), true) && only.takes(Path::new("dir/a.txt"), false));
        assert!(!only.takes(Path::new("dir/a.o"), false));
        let but = args(&["*.txt"], &["a.*"]);
        assert!(but.takes(Path::new("a.txt"), false) && but.takes(Path::new("b.o"), false));
        assert!(!but.takes(Path::new("b.txt"), false));
        assert!(args(&[], &[]).filter().is_none());
    }
}
