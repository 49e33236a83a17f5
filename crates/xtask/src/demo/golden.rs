//! The golden images in the demo: each is extracted and compared with its manifest.

use anyhow::{Context, Result};
use userbtrfs_testkit::golden::Golden;

use super::command::{Demo, is_superuser};
use super::verify::verify;

/// The image that only the superuser can extract and read.
const PRIVILEGED: &str = "special";

/// Shows every golden image.
pub(super) fn show(demo: &Demo) -> Result<()> {
    for image in &Golden::all()? {
        if image.name() == PRIVILEGED && !is_superuser() {
            println!("\n{PRIVILEGED}: its devices and closed directories are the superuser's.");
            continue;
        }
        show_one(demo, image).with_context(|| image.name().to_owned())?;
    }
    Ok(())
}

/// Unpacks one image and shows it, if it has a manifest: that of a log is after replay, which
/// reading also does.
fn show_one(demo: &Demo, golden: &Golden) -> Result<()> {
    let Some(expected) = golden.manifest()? else { return Ok(()) };
    let image = demo.path(&format!("{}.img", golden.name()));
    golden.unpack(&image)?;
    let extracted = demo.extract(&image)?;
    verify("what Linux showed", &expected, &extracted, i64::MAX)?;
    Ok(std::fs::remove_file(image)?)
}
