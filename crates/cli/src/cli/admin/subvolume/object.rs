//! The properties of objects in a mount or an image: subvolumes, files, and the filesystem itself.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::{Value, json};
use userbtrfs::mount::control;
use userbtrfs::{Error, Filesystem, Inode, SubvolumeInfo, XattrMode};

use super::mounted;
use crate::cli::admin::mounted::{answer_at, request_at};
use crate::cli::args::{Format, Global};
use crate::cli::output::{print_json, stdout, with_name_if_any, write_json};
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

/// A property of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Property {
    ReadOnly,
    Label,
    Compression,
}

/// An object that has properties.
pub(super) trait Object {
    /// Returns its name in messages.
    fn name(&self) -> String;
    /// Returns the value of the property `ro`. Fails if it is not the root of a subvolume.
    fn is_read_only(&self) -> Result<bool>;
    /// Returns true if it is the root of the filesystem, which has a label.
    fn has_label(&self) -> bool;
    /// Returns the label of its filesystem.
    fn label(&self) -> Result<Vec<u8>>;
    /// Returns the value of the property `compression`; `None` if it is not set.
    fn compression(&self) -> Result<Option<Vec<u8>>>;
}

/// An object at a path in a mount.
pub(super) struct InMount<'a>(pub(super) &'a Path);

impl Object for InMount<'_> {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn is_read_only(&self) -> Result<bool> {
        Ok(answer_at(self.0, &mounted::about("property-get", self.0)?)? == line_about_ro(true))
    }

    fn has_label(&self) -> bool {
        control::check(self.0).is_ok()
    }

    fn label(&self) -> Result<Vec<u8>> {
        answer_at(self.0, &["property-label".into()])
    }

    fn compression(&self) -> Result<Option<Vec<u8>>> {
        let mut value = [0; COMPRESSION_LEN_MAX];
        match getxattr(self.0, COMPRESSION, &mut value) {
            Ok(len) => Ok(Some(value[..len].to_vec())),
            Err(Errno::NODATA) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// An object at a path in an image.
pub(super) struct InImage<'a> {
    filesystem: &'a Filesystem,
    inode: Inode,
    path: &'a OsStr,
}

impl<'a> InImage<'a> {
    /// Returns the object at a path.
    pub(super) fn at(filesystem: &'a Filesystem, path: &'a OsStr) -> Result<Self> {
        let inode = filesystem.lookup(path.as_encoded_bytes()).with_context(|| shown(path))?;
        Ok(Self { filesystem, inode, path })
    }

    /// Sets a property that is not `ro`.
    pub(super) fn set(&self, property: Property, value: &OsStr) -> Result<()> {
        let bytes = value.as_encoded_bytes();
        match property {
            Property::ReadOnly => unreachable!("it is a property of the subvolume"),
            Property::Label => Ok(self.filesystem.set_label(bytes)?),
            Property::Compression => {
                let set = self.inode.set_xattr(COMPRESSION.as_bytes(), bytes, XattrMode::Either);
                set.with_context(|| format!("failed to set compression for {}", self.name()))
            }
        }
    }
}

impl Object for InImage<'_> {
    fn name(&self) -> String {
        shown(self.path)
    }

    fn is_read_only(&self) -> Result<bool> {
        Ok(self.filesystem.subvolume_at(&self.inode)?.is_read_only())
    }

    fn has_label(&self) -> bool {
        self.inode.id() == self.filesystem.root().inode().id()
    }

    fn label(&self) -> Result<Vec<u8>> {
        Ok(self.filesystem.superblock().label.clone())
    }

    fn compression(&self) -> Result<Option<Vec<u8>>> {
        match self.inode.xattr(COMPRESSION.as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the line about the property `ro`, which is also the answer of a server about it.
fn line_about_ro(read_only: bool) -> Vec<u8> {
    format!("ro={read_only}\n").into_bytes()
}

/// Writes whether a subvolume is read-only.
pub(in crate::cli) fn write_read_only(
    out: &mut dyn Write,
    subvolume: &SubvolumeInfo,
    format: Format,
) -> Result<()> {
    let read_only = subvolume.is_read_only();
    match format {
        Format::Text => out.write_all(&line_about_ro(read_only))?,
        Format::Json => write_json(out, "property-get", &json!({ "ro": read_only }))?,
    }
    Ok(())
}

/// Returns true if a word is the name of a property.
pub(in crate::cli) fn is_name(word: &OsStr) -> bool {
    ALL.iter().any(|property| word == property.name())
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

    fn is_of(self, kind: Kind, object: &dyn Object) -> bool {
        match (self, kind) {
            (Self::ReadOnly, Kind::Any) => object.is_read_only().is_ok(),
            (Self::Label, Kind::Any) => object.has_label(),
            (Self::Compression, Kind::Any) => true,
            (Self::ReadOnly, _) => kind == Kind::Subvolume,
            (Self::Label, _) => kind == Kind::Filesystem,
            (Self::Compression, _) => kind == Kind::Inode,
        }
    }

    /// Returns the line about the property; empty if it is not set.
    fn line(self, object: &dyn Object) -> Result<Vec<u8>> {
        let line = |value: &[u8]| [self.name().as_bytes(), b"=", value, b"\n"].concat();
        match self {
            Self::ReadOnly => Ok(line_about_ro(object.is_read_only()?)),
            Self::Label => Ok(line(&object.label()?)),
            Self::Compression => Ok(object.compression()?.map_or(Vec::new(), |it| line(&it))),
        }
    }

    /// Adds the property to a JSON object; `null` if it is not set.
    fn add_to(self, mut document: Value, object: &dyn Object) -> Result<Value> {
        let value = match self {
            Self::ReadOnly => {
                document[self.name()] = json!(object.is_read_only()?);
                return Ok(document);
            }
            Self::Label => Some(object.label()?),
            Self::Compression => object.compression()?,
        };
        Ok(with_name_if_any(document, self.name(), value.as_deref()))
    }
}

/// Returns the property of an object with a name.
pub(super) fn named(name: &OsStr, kind: Kind, object: &dyn Object) -> Result<Property> {
    let Some(property) = ALL.into_iter().find(|property| name == property.name()) else {
        bail!("unknown property: {}", shown(name));
    };
    if !property.is_of(kind, object) {
        bail!("object is not compatible with property: {}", property.name());
    }
    Ok(property)
}

/// Prints a property of an object, or all.
pub(super) fn get(
    global: &Global,
    object: &dyn Object,
    kind: Kind,
    name: Option<&OsStr>,
) -> Result<ExitCode> {
    let properties = match name {
        Some(name) => vec![named(name, kind, object)?],
        None => ALL.into_iter().filter(|property| property.is_of(kind, object)).collect(),
    };
    if global.format == Format::Json {
        let document = properties
            .into_iter()
            .try_fold(json!({}), |document, property| property.add_to(document, object))
            .with_context(|| object.name())?;
        print_json("property-get", &document)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = stdout();
    for property in properties {
        out.write_all(&property.line(object).with_context(|| object.name())?)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the properties of an object.
pub(super) fn list(global: &Global, object: &dyn Object, kind: Kind) -> Result<ExitCode> {
    let properties = ALL.into_iter().filter(|property| property.is_of(kind, object));
    if global.format == Format::Json {
        let one = |property: Property| {
            let description = property.description();
            json!({ "name": property.name(), "description": description })
        };
        print_json("property-list", &properties.map(one).collect())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = stdout();
    for property in properties {
        writeln!(out, "{:<20}{}", property.name(), property.description())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Sets a property of an object in a mount; `set_read_only` sets `ro`.
pub(super) fn set(
    global: &Global,
    path: &Path,
    kind: Kind,
    name: &OsStr,
    value: &OsStr,
    set_read_only: impl FnOnce() -> Result<ExitCode>,
) -> Result<ExitCode> {
    match named(name, kind, &InMount(path))? {
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
