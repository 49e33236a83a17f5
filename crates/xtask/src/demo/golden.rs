//! The golden images in the demo: each is extracted and compared with what Linux showed of it.
//!
//! A manifest beside the image, made when the image was, says what Linux showed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use userbtrfs_crashlab::manifest::Manifest;

use super::{Demo, verify};
use crate::unpack;

/// Shows every golden image; how many there were.
pub(super) fn show(demo: &Demo) -> Result<usize> {
    let packed = packed_images()?;
    for path in &packed {
        show_one(demo, path).with_context(|| path.display().to_string())?;
    }
    Ok(packed.len())
}

fn packed_images() -> Result<Vec<PathBuf>> {
    let folder = unpack::golden_folder();
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.to_string_lossy().ends_with(unpack::ENDING));
    paths.sort();
    Ok(paths)
}

/// Unpacks one image and shows it, if a manifest lies beside it.
fn show_one(demo: &Demo, packed: &Path) -> Result<()> {
    let name = unpack::name(packed);
    let Some(expected) = manifest(&packed.with_file_name(&name))? else { return Ok(()) };
    let image = demo.path(&format!("{name}.img"));
    unpack::unpack(packed, &image)?;
    let extracted = demo.extract(&image)?;
    verify("what Linux showed", &expected, &extracted)?;
    Ok(std::fs::remove_file(image)?)
}

/// The manifest of the image whose path without its ending is `stem`: where a log is pending, the
/// one without it, for reading replays none.
fn manifest(stem: &Path) -> Result<Option<Manifest>> {
    let endings = ["noreplay.manifest", "manifest"];
    let path = endings.map(|ending| stem.with_added_extension(ending));
    let Some(path) = path.into_iter().find(|path| path.exists()) else { return Ok(None) };
    Manifest::from_text(&std::fs::read_to_string(path)?).map(Some)
}
