//! Opening the library with a former behaviour, by the name of the seed that describes it.

use std::path::Path;

use anyhow::Result;
use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_engine::api::Experiment;

/// Opens a filesystem for writing, with the experiment of this name, such as `s0` (docs/seeds.md),
/// and with these seconds between commits. Fails if there is no such experiment.
pub(crate) fn open(
    image: &Path,
    experiment: Option<&str>,
    commit_seconds: u64,
) -> Result<Filesystem> {
    let mut options = OpenOptions::new();
    options.write(true).commit_seconds(commit_seconds);
    if let Some(name) = experiment {
        options.experiment(name.parse::<Experiment>()?);
    }
    Ok(options.open(image)?)
}
