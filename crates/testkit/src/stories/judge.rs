//! Checks of the image that a story left.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use userbtrfs_sync::Arc;

use super::Seen;
use super::folder::folder;
use crate::devices::SparseImage;
use crate::engine_target::EngineTarget;
use crate::linux::{Linux, btrfs_check, run};

/// Returns the state that Linux shows after it opened the image and replayed the log. Fails if
/// Linux complains, `btrfs check` finds errors afterwards, or not everything can be removed.
pub fn judge_by_linux(linux: &Linux, image: &SparseImage) -> Result<Seen> {
    let folder = folder()?;
    let file = folder.path().join("image");
    image.write_to(&file)?;
    let seen = {
        let mount = linux.mount(&file, "noatime,subvolid=5").context("replaying")?;
        Seen::by_linux(mount.path())?
    };
    check(&file)?;
    {
        let mount = linux.mount(&file, "noatime,subvolid=5")?;
        make_writable(mount.path(), &seen)?;
        remove_all(mount.path()).context("removing all")?;
    }
    linux.assert_no_complaints()?;
    Ok(seen)
}

fn check(file: &Path) -> Result<()> {
    let said = btrfs_check(file)?;
    ensure!(!said.to_lowercase().contains("warning"), "{said}");
    Ok(())
}

/// Makes all subvolumes writable.
fn make_writable(root: &Path, seen: &Seen) -> Result<()> {
    let subvolumes = seen.manifest.entries().iter().skip(1).filter(|entry| entry.subvolume);
    for entry in subvolumes {
        let path = entry.path.as_slice();
        let path = root.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)));
        let mut set = Command::new("btrfs");
        run(set.args(["property", "set"]).arg(path).args(["ro", "false"]))?;
    }
    Ok(())
}

fn remove_all(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let is_dir = entry.file_type()?.is_dir();
        let path = entry.path();
        if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the state that userbtrfs shows after it opened the image and replayed the log. Fails if
/// `btrfs check` finds errors, afterwards or once everything is removed; nothing is removed if
/// there are subvolumes.
pub fn judge_by_us(image: &SparseImage) -> Result<Seen> {
    let device = Arc::new(image.to_device());
    let target = EngineTarget::on_device(device.clone()).context("opening")?;
    let seen = Seen::by_us(target.filesystem())?;
    check_image(&device.image()).context("after replay")?;
    if !seen.manifest.entries().iter().skip(1).any(|entry| entry.subvolume) {
        target.filesystem().root().remove_content().context("removing all")?;
    }
    target.close()?;
    check_image(&device.image()).context("after all was removed")?;
    Ok(seen)
}

fn check_image(image: &SparseImage) -> Result<()> {
    let folder = folder()?;
    let file = folder.path().join("image");
    image.write_to(&file)?;
    check(&file)
}
