//! `dump`: what is on disk.

use std::process::ExitCode;

use anyhow::Result;

use super::args::{DumpVerb, Global};

pub(crate) fn run(_global: &Global, _verb: &DumpVerb) -> Result<ExitCode> {
    anyhow::bail!("dump is being built")
}
