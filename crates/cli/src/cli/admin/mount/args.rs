//! The arguments of `mount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::options;
use crate::cli::host::image::ImageArgs;

#[derive(clap::Args)]
#[command(after_help = options::HELP)]
pub(in crate::cli) struct MountArgs {
    /// Mount options, comma-separated
    #[arg(short, long, value_name = "OPTS")]
    pub(super) options: Vec<OsString>,
    /// Run in the foreground until unmounted
    #[arg(short, long)]
    pub(super) foreground: bool,
    /// Print a line on stdout when mounted, and detach from the terminal
    #[arg(long, hide = true)]
    pub(super) notify_ready: bool,
    /// Accept unknown options
    #[arg(long, hide = true)]
    pub(super) sloppy: bool,
    #[command(flatten)]
    pub(super) image: ImageArgs,
    /// Mount point
    pub(super) dir: PathBuf,
}

impl MountArgs {
    /// Returns the words of a command line for another server that mounts the same at `dir`.
    pub(super) fn words(&self, dir: &Path) -> Vec<OsString> {
        let list = |list: &OsString| {
            let mut option = OsString::from("--options=");
            option.push(list);
            option
        };
        let mut words: Vec<OsString> = self.options.iter().map(list).collect();
        words.extend(self.sloppy.then(|| "--sloppy".into()));
        words.extend(self.image.words());
        words.extend(["--".into(), self.image.image.clone().into_os_string(), dir.into()]);
        words
    }
}

/// Returns the image as the mount table shows it.
pub(super) fn source(image: &Path) -> OsString {
    image.canonicalize().map_or_else(|_| image.into(), PathBuf::into_os_string)
}
