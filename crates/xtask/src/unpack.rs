//! The verb `unpack`: decompresses a golden image to a sparse file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use userbtrfs_testkit::golden::{self, Golden};

/// The options of `unpack`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The golden image: a file `*.img.zst`, or its name in golden/ without that extension.
    name: String,
    /// The file to write.
    dest: PathBuf,
}

/// Unpacks the image that `args` names.
pub(crate) fn run(args: &Args) -> Result<()> {
    let path = Path::new(&args.name);
    if path.exists() {
        golden::unpack(path, &args.dest)
    } else {
        Golden::named(&args.name).unpack(&args.dest)
    }
}
