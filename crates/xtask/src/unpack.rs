//! The verb `unpack`: a golden image, from its compressed form to a sparse file.
//!
//! 1. Blocks of zeros become holes, so the file takes no more room than the image has content.
//! 2. The file is as long as the image, also where the image ends in zeros.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// How the name of a golden image ends.
pub(crate) const ENDING: &str = ".img.zst";

const BLOCK_BYTES: usize = 64 * 1024;

/// What `unpack` is told on the command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The golden image: a file `*.img.zst`, or the name of one in golden/ without that ending.
    name: String,
    /// The file to write.
    dest: PathBuf,
}

/// Unpacks the image that `args` names.
pub(crate) fn run(args: &Args) -> Result<()> {
    unpack(&find(&args.name), &args.dest)
}

/// The folder of the golden images.
pub(crate) fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn find(name: &str) -> PathBuf {
    let path = Path::new(name);
    if path.exists() {
        return path.to_owned();
    }
    golden_folder().join(format!("{name}{ENDING}"))
}

/// The name of the golden image that lies at `packed`.
pub(crate) fn name(packed: &Path) -> String {
    let file = packed.file_name().unwrap_or_default().to_string_lossy();
    file.trim_end_matches(ENDING).to_owned()
}

/// Writes the image compressed in `source` to the new file `dest`.
pub(crate) fn unpack(source: &Path, dest: &Path) -> Result<()> {
    let packed = File::open(source).with_context(|| source.display().to_string())?;
    let mut reader = zstd::Decoder::new(packed)?;
    let mut file = File::create(dest).with_context(|| dest.display().to_string())?;
    copy_sparse(&mut reader, &mut file).with_context(|| source.display().to_string())
}

fn copy_sparse(reader: &mut impl Read, file: &mut File) -> Result<()> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut length = 0;
    loop {
        block.clear();
        reader.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if block.is_empty() {
            break;
        }
        if block.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(length))?;
            file.write_all(&block)?;
        }
        length += block.len() as u64;
    }
    file.set_len(length)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_was_packed_comes_back_with_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, image) = (folder.path().join("a.img.zst"), folder.path().join("a.img"));
        let mut content = vec![0; 5 * BLOCK_BYTES + 1];
        content[3 * BLOCK_BYTES] = 7;
        std::fs::write(&packed, zstd::encode_all(content.as_slice(), 3).unwrap()).unwrap();

        unpack(&packed, &image).unwrap();

        assert_eq!(std::fs::read(&image).unwrap(), content);
        assert!(image.metadata().unwrap().blocks() * 512 <= BLOCK_BYTES as u64);
    }

    #[test]
    fn a_damaged_package_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let packed = folder.path().join("a.img.zst");
        std::fs::write(&packed, b"no zstd").unwrap();
        assert!(unpack(&packed, &folder.path().join("a.img")).is_err());
    }
}
