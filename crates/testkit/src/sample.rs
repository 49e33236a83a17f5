//! Real files to fill an image with: a random subset of a directory of this machine.
//!
//! 1. The subset depends on the seed and the content of the directory.
//! 2. Files are copied by `cp -a` with the same relative paths as in the source; unreadable and
//!    large files are left out.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::random::Random;

/// Larger files are left out, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// The files and symbolic links below a directory.
pub struct Sample {
    source: PathBuf,
    /// Paths relative to the source, and sizes in bytes.
    files: Vec<(PathBuf, u64)>,
}

impl Sample {
    /// Lists `source`, which must not change while the sample is in use.
    pub fn of(source: &Path) -> anyhow::Result<Self> {
        let mut sample = Self { source: source.to_owned(), files: Vec::new() };
        let mut dirs = vec![source.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    dirs.push(path);
                } else if metadata.is_symlink() || metadata.is_file() && metadata.len() <= FILE_MAX
                {
                    let below = path.strip_prefix(source)?.to_owned();
                    sample.files.push((below, metadata.len()));
                }
            }
        }
        ensure!(!sample.files.is_empty(), "no files below {}", source.display());
        sample.files.sort();
        Ok(sample)
    }

    /// Copies random files of about this total size to `target`.
    pub fn copy_some(&self, target: &Path, bytes: u64, random: &mut Random) -> anyhow::Result<()> {
        let mut chosen: Vec<_> = self.files.iter().collect();
        random.shuffle(&mut chosen);
        let mut left = bytes;
        let mut list = Vec::new();
        for (path, size) in chosen {
            if left == 0 {
                break;
            }
            list.extend_from_slice(path.as_os_str().as_bytes());
            list.push(0);
            left = left.saturating_sub(*size);
        }
        self.copy(target, &list)
    }

    /// Copies the files of a list of paths, each terminated by a NUL.
    fn copy(&self, target: &Path, list: &[u8]) -> anyhow::Result<()> {
        let mut copy = Command::new("xargs")
            .args(["-0", "cp", "-a", "--parents", "-t"])
            .arg(target.canonicalize()?)
            .current_dir(&self.source)
            .stdin(Stdio::piped())
            .spawn()
            .context("running xargs")?;
        copy.stdin.take().expect("it is piped").write_all(list)?;
        ensure!(copy.wait()?.success(), "cp failed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_copied_with_its_directories() {
        let [source, target] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir(source.path().join("d")).unwrap();
        for number in 0..20 {
            fs::write(source.path().join(format!("d/{number}")), [7; 100]).unwrap();
        }
        let sample = Sample::of(source.path()).unwrap();
        sample.copy_some(target.path(), 950, &mut Random::new(3)).unwrap();
        assert_eq!(fs::read_dir(target.path().join("d")).unwrap().count(), 10);
        assert!(Sample::of(&target.path().join("nothing")).is_err());
    }
}
