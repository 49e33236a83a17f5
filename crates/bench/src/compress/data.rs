//! The data of a file: a pool of at most 64 MiB, repeated.
//!
//! An extent of compressed data has at most 128 KiB, so the repetition of a larger pool makes
//! nothing smaller.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use userbtrfs_testkit::random::Random;

use crate::args::Data;

/// The size of one write and of one part of the pool, in bytes.
pub(crate) const PART: usize = 1 << 20;
/// The maximum number of parts in the pool.
const PARTS_MAX: u64 = 64;
const SEED: u64 = 0x7573_6572_6274_7266;
/// The folders of this project that have text, and the extensions of the files with it.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const TEXT_FOLDERS: [&str; 2] = ["crates", "docs"];
const TEXT_EXTENSIONS: [&str; 2] = ["rs", "md"];
/// The folder of programs, and the bytes that a binary program begins with.
const PROGRAMS: &str = "/usr/bin";
const ELF: &[u8] = b"\x7fELF";

/// The pool of data of one kind.
pub(crate) struct Pool {
    /// A number of parts that is not 0.
    bytes: Vec<u8>,
}

impl Pool {
    /// Collects data for a file of this number of parts.
    pub(crate) fn new(data: Data, parts: u64) -> Result<Self> {
        let len = usize::try_from(parts.clamp(1, PARTS_MAX))? * PART;
        let bytes = match data {
            Data::Text => text(len),
            Data::Binary => binary(len),
            Data::Random => Ok(random(len)),
        };
        let bytes = bytes.with_context(|| format!("{} data", data.name()))?;
        Ok(Self { bytes: repeated(bytes, len)? })
    }

    /// Returns a part of the file.
    pub(crate) fn part(&self, number: u64) -> &[u8] {
        let parts = self.bytes.len() / PART;
        let number = number % parts as u64;
        let start = usize::try_from(number).expect("below the number of parts") * PART;
        &self.bytes[start..start + PART]
    }
}

/// Returns `len` bytes: those given, repeated.
fn repeated(mut bytes: Vec<u8>, len: usize) -> Result<Vec<u8>> {
    ensure!(!bytes.is_empty(), "there is none on this machine");
    while bytes.len() < len {
        let more = bytes.len().min(len - bytes.len());
        bytes.extend_from_within(..more);
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn text(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for folder in TEXT_FOLDERS {
        let has_text = |path: &Path| {
            let extension = path.extension().and_then(|it| it.to_str());
            extension.is_some_and(|it| TEXT_EXTENSIONS.contains(&it))
        };
        collect(&Path::new(PROJECT).join(folder), len, &has_text, &mut bytes)?;
    }
    Ok(bytes)
}

fn binary(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    collect(Path::new(PROGRAMS), len, &is_program, &mut bytes)?;
    Ok(bytes)
}

fn is_program(path: &Path) -> bool {
    let mut first = [0; ELF.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == ELF
}

fn random(len: usize) -> Vec<u8> {
    let mut random = Random::new(SEED);
    (0..len.div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).collect()
}

/// Appends the content of the wanted files below a directory, in the order of their names, until
/// there are `len` bytes. Symbolic links are not followed.
fn collect(
    dir: &Path,
    len: usize,
    is_wanted: &dyn Fn(&Path) -> bool,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<PathBuf>, _>>()?;
    paths.sort();
    for path in paths {
        if bytes.len() >= len {
            break;
        }
        let kind = path.symlink_metadata()?.file_type();
        if kind.is_dir() {
            collect(&path, len, is_wanted, bytes)?;
        } else if kind.is_file() && is_wanted(&path) {
            bytes.extend(fs::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_repeat_the_pool() {
        let pool = Pool::new(Data::Random, 2).unwrap();
        assert_ne!(pool.part(0), pool.part(1));
        assert_eq!(pool.part(0), pool.part(2));
        assert_eq!(pool.part(7).len(), PART);
    }

    #[test]
    fn short_data_is_repeated() {
        assert_eq!(repeated(b"abc".to_vec(), 8).unwrap(), b"abcabcab");
        assert_eq!(repeated(b"abc".to_vec(), 2).unwrap(), b"ab");
        assert!(repeated(Vec::new(), 2).is_err());
    }

    #[test]
    fn text_is_that_of_the_project() {
        let pool = Pool::new(Data::Text, 1).unwrap();
        let printable =
            pool.part(0).iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
        assert!(printable.count() > PART / 10 * 9);
    }
}
