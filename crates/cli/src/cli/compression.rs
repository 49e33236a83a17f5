//! The argument of `--compress`.

use std::str::FromStr;

use userbtrfs::{Compress, CompressionMethod, MethodError};

/// An algorithm and its level, or `no`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompressArg(Option<CompressionMethod>);

impl CompressArg {
    /// Returns the option of a filesystem. As with `mkfs.btrfs`, data is not compressed by force.
    pub(crate) fn option(self) -> Option<Compress> {
        self.0.map(|method| Compress { method, force: false })
    }
}

impl FromStr for CompressArg {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        if let "no" | "none" = text {
            return Ok(Self(None));
        }
        let method: CompressionMethod = text.parse()?;
        method.check_level()?;
        Ok(Self(Some(method)))
    }
}
