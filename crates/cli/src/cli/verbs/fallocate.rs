//! `fallocate`: allocates space for files, or frees it.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::Allocate;

use crate::cli::paths::{each, open_or_create};
use crate::cli::session::{RunVerb, Session};
use crate::cli::sizes::size;

#[derive(clap::Args)]
pub(crate) struct FallocateArgs {
    /// Length of the range
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    length: u64,
    /// Offset of the range
    #[arg(short, long, value_name = "SIZE", default_value = "0", value_parser = size)]
    offset: u64,
    /// Keep the file size
    #[arg(short = 'n', long)]
    keep_size: bool,
    /// Punch a hole; implies --keep-size
    #[arg(short, long)]
    punch_hole: bool,
    /// Zero the range and allocate it
    #[arg(short, long, conflicts_with = "punch_hole")]
    zero_range: bool,
    /// Paths inside the image; missing files are created
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl RunVerb for FallocateArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        each(&self.paths, |path| {
            let filesystem = &session.filesystem;
            let file = if self.punch_hole {
                filesystem.open_file(path)?
            } else {
                open_or_create(filesystem, path)?.open()?
            };
            Ok(file.allocate(self.offset, self.length, self.how())?)
        })
    }
}

impl FallocateArgs {
    fn how(&self) -> Allocate {
        let keep_size = self.keep_size;
        match (self.punch_hole, self.zero_range) {
            (true, _) => Allocate::PunchHole,
            (false, true) => Allocate::ZeroRange { keep_size },
            (false, false) => Allocate::Reserve { keep_size },
        }
    }
}
