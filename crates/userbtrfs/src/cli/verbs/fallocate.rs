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
    /// How many bytes
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    length: u64,
    /// Where they start
    #[arg(short, long, value_name = "SIZE", default_value = "0", value_parser = size)]
    offset: u64,
    /// Leave the size of the file as it is
    #[arg(short = 'n', long)]
    keep_size: bool,
    /// Make it a hole, which gives its space back; the size stays
    #[arg(short, long)]
    punch_hole: bool,
    /// Make it zeros, with space set aside for them
    #[arg(short, long, conflicts_with = "punch_hole")]
    zero_range: bool,
    /// Paths inside the image; files that are not there are made
    #[arg(required = true)]
    paths: Vec<OsString>,
}

impl RunVerb for FallocateArgs {
    fn act(&self, session: &Session) -> Result<ExitCode> {
        each(&self.paths, |path| {
            let filesystem = &session.filesystem;
            let file = match self.punch_hole {
                true => filesystem.open_file(path)?,
                false => open_or_create(filesystem, path)?.open()?,
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
