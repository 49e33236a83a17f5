//! The verb `unpack`: a golden image, from its compressed form to a sparse file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use userbtrfs_testkit::golden::{self, Golden};

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
    let path = Path::new(&args.name);
    match path.exists() {
        true => golden::unpack(path, &args.dest),
        false => Golden::named(&args.name).unpack(&args.dest),
    }
}
