//! The properties of objects in a mount: subvolumes, files, and the filesystem itself.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use userbtrfs::mount::control;

use super::mounted;
use crate::cli::admin::mounted::{answer_at, request_at};
use crate::cli::args::Global;
use crate::cli::output::stdout;
use crate::cli::text::shown;

/// The attribute that holds the property `compression`.
const COMPRESSION: &str = "btrfs.compression";
/// The longest value of the property `compression` that is read.
const COMPRESSION_LEN_MAX: usize = 64;

/// The type of an object that has properties.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    #[value(name = "s", aliases = ["subvol", "subvolume"])]
    Subvolume,
    #[value(name = "i", alias = "inode")]
    Inode,
    #[value(name = "f", alias = "filesystem")]
    Filesystem,
    Any,
}

/// A property of an object in a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Property {
    ReadOnly,
    Label,
    Compression,
}

/// All properties, in the order of btrfs-progs.
const ALL: [Property; 3] = [Property::ReadOnly, Property::Label, Property::Compression];

impl Property {
    fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::Label => "label",
            Self::Compression => "compression",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only status of a subvolume",
            Self::Label => "label of the filesystem",
            Self::Compression => "compression algorithm for the file or directory",
        }
    }

    fn is_of(self, kind: Kind, path: &Path) -> bool {
        match (self, kind) {
            (Self::ReadOnly, Kind::Any) => read_only(path).is_ok(),
            (Self::Label, Kind::Any) => control::check(path).is_ok(),
            (Self::Compression, Kind::Any) => true,
            (Self::ReadOnly, _) => kind == Kind::Subvolume,
            (Self::Label, _) => kind == Kind::Filesystem,
            (Self::Compression, _) => kind == Kind::Inode,
        }
    }

    /// Returns the line about the property; empty if it is not set.
    fn line(self, path: &Path) -> Result<Vec<u8>> {
        match self {
            Self::ReadOnly => read_only(path),
            Self::Label => {
                let label = answer_at(path, &["property-label".into()])?;
                Ok([b"label=", &label[..], b"\n"].concat())
            }
            Self::Compression => {
                let mut value = [0; COMPRESSION_LEN_MAX];
                match getxattr(path, COMPRESSION, &mut value) {
                    Ok(len) => Ok([b"compression=", &value[..len], b"\n"].concat()),
                    Err(Errno::NODATA) => Ok(Vec::new()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

/// Returns the line about the property `ro`. Fails if the path is not that of a subvolume.
fn read_only(path: &Path) -> Result<Vec<u8>> {
    answer_at(path, &mounted::about("property-get", path)?)
}

/// Returns the property of an object with a name.
fn named(name: &OsStr, kind: Kind, path: &Path) -> Result<Property> {
    let Some(property) = ALL.into_iter().find(|property| name == property.name()) else {
        bail!("unknown property: {}", shown(name));
    };
    if !property.is_of(kind, path) {
        bail!("object is not compatible with property: {}", property.name());
    }
    Ok(property)
}

/// Prints a property of an object, or all.
pub(super) fn get(path: &Path, kind: Kind, name: Option<&OsStr>) -> Result<ExitCode> {
    let properties = match name {
        Some(name) => vec![named(name, kind, path)?],
        None => ALL.into_iter().filter(|property| property.is_of(kind, path)).collect(),
    };
    let mut out = stdout();
    for property in properties {
        out.write_all(&property.line(path).with_context(|| path.display().to_string())?)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the properties of an object.
pub(super) fn list(path: &Path, kind: Kind) -> Result<ExitCode> {
    let mut out = stdout();
    for property in ALL.into_iter().filter(|property| property.is_of(kind, path)) {
        writeln!(out, "{:<20}{}", property.name(), property.description())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Sets a property of an object; `set_read_only` sets `ro`.
pub(super) fn set(
    global: &Global,
    path: &Path,
    kind: Kind,
    name: &OsStr,
    value: &OsStr,
    set_read_only: impl FnOnce() -> Result<ExitCode>,
) -> Result<ExitCode> {
    match named(name, kind, path)? {
        Property::ReadOnly => set_read_only(),
        Property::Label => {
            let words = ["property-set-label".into(), "--".into(), value.to_owned()];
            request_at(global, path, &words)
        }
        Property::Compression => {
            let set = setxattr(path, COMPRESSION, value.as_encoded_bytes(), XattrFlags::empty());
            set.with_context(|| format!("failed to set compression for {}", path.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
