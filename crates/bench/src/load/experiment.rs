//! Opening the library with a former behaviour, by the name of the seed that describes it.

use std::path::Path;

use anyhow::{Result, bail};
use userbtrfs::{Filesystem, OpenOptions};

/// Opens a filesystem for writing, with the experiment of this name. Fails if this build does not
/// have it.
pub(crate) fn open(image: &Path, experiment: Option<&str>) -> Result<Filesystem> {
    if let Some(name) = experiment {
        bail!("experiment {name}: this build has none");
    }
    Ok(OpenOptions::new().write(true).open(image)?)
}
