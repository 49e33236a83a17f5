//! The golden images: their location, how they are unpacked, and what Linux showed of them.
//!
//! 1. An image NAME is stored in the folder as `NAME.img.zst`, next to the files that belong to it
//!    (see README.md there).
//! 2. An unpacked image has holes instead of blocks of zeros, so it uses only as much space as its
//!    content; it has the length of the image, even if that ends in zeros.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::manifest::Manifest;

/// The file name suffix of a golden image.
pub const ENDING: &str = ".img.zst";

const BLOCK_BYTES: usize = 64 * 1024;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Returns the folder of the golden images of this workspace.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

/// A golden image.
#[derive(Clone, Debug)]
pub struct Golden {
    folder: PathBuf,
    name: String,
}

impl Golden {
    /// Returns the image of this name.
    pub fn named(name: &str) -> Self {
        Self { folder: folder(), name: name.to_owned() }
    }

    /// Returns all images of the folder, sorted by name; none if there is no folder.
    pub fn all() -> Result<Vec<Self>> {
        let folder = folder();
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            if let Some(name) = file.strip_suffix(ENDING) {
                all.push(Self { folder: folder.clone(), name: name.to_owned() });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns the name of the image.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the file next to the image with its name and this suffix, e.g.
    /// `manifest`.
    pub fn beside(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// Unpacks the image to the new file `dest`.
    pub fn unpack(&self, dest: &Path) -> Result<()> {
        unpack(&self.folder.join(format!("{}{ENDING}", self.name)), dest)
    }

    /// Returns whether the image has a log to replay.
    pub fn has_log(&self) -> bool {
        self.beside("noreplay.manifest").exists()
    }

    /// Returns what Linux showed of the image, after replaying its log if any; `None` if there is
    /// no such manifest.
    pub fn manifest(&self) -> Result<Option<Manifest>> {
        self.manifest_of("manifest")
    }

    /// Returns what Linux showed of the image without replaying its log; `None` if it has no log.
    pub fn manifest_without_log(&self) -> Result<Option<Manifest>> {
        self.manifest_of("noreplay.manifest")
    }

    fn manifest_of(&self, ending: &str) -> Result<Option<Manifest>> {
        let path = self.beside(ending);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path)?;
        Manifest::from_text(&text).with_context(|| path.display().to_string()).map(Some)
    }
}

/// Writes the image compressed in `source` to the new file `dest`.
pub fn unpack(source: &Path, dest: &Path) -> Result<()> {
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
        if block != ZEROS[..block.len()] {
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
    fn packed_file_unpacks_with_holes() {
        let folder = tempfile::tempdir().unwrap();
        let packed = folder.path().join("a.img.zst");
        let image = folder.path().join("a.img");
        let mut content = vec![0; 5 * BLOCK_BYTES + 1];
        content[3 * BLOCK_BYTES] = 7;
        fs::write(&packed, zstd::encode_all(content.as_slice(), 3).unwrap()).unwrap();

        unpack(&packed, &image).unwrap();

        assert_eq!(fs::read(&image).unwrap(), content);
        assert!(image.metadata().unwrap().blocks() * 512 <= BLOCK_BYTES as u64);
    }

    #[test]
    fn a_damaged_package_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let packed = folder.path().join("a.img.zst");
        fs::write(&packed, b"no zstd").unwrap();
        assert!(unpack(&packed, &folder.path().join("a.img")).is_err());
    }

    #[test]
    fn golden_image_finds_its_files() {
        let image = Golden { folder: PathBuf::from("f"), name: "a-4k".to_owned() };
        assert_eq!(image.beside("tree.zst"), Path::new("f/a-4k.tree.zst"));
    }
}
