//! The options of `compress`.

use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use userbtrfs::{Compress, CompressionMethod, MethodError};

use super::common::Common;

/// A compression of written data, with its level, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method(Option<CompressionMethod>);

impl Method {
    /// Returns the option of the library.
    pub(crate) fn option(self) -> Option<Compress> {
        self.0.map(|method| Compress { method, force: false })
    }

    /// Returns the options of the kernel's mount.
    pub(crate) fn mount_options(self) -> String {
        self.0.map_or("noatime".to_owned(), |method| format!("noatime,compress={method}"))
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        if text == "none" {
            return Ok(Self(None));
        }
        let method: CompressionMethod = text.parse()?;
        method.check_level()?;
        Ok(Self(Some(method)))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(method) => method.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// The data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Data {
    /// The sources and documents of this project
    Text,
    /// The programs in /usr/bin
    Binary,
    /// Random bytes, which no algorithm makes smaller
    Random,
}

impl Data {
    /// Returns the name, as in the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Binary => "binary",
            Self::Random => "random",
        }
    }
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// One large file, written and read back
    File,
    /// A real tree, copied into a new filesystem
    Tree,
}

/// The options of `compress`.
#[derive(Clone, clap::Args)]
pub struct CompressArgs {
    /// The parts to run
    #[arg(long = "part", value_enum, value_delimiter = ',', default_value = "file,tree")]
    pub parts: Vec<Part>,
    /// The data of the file
    #[arg(long, value_enum, value_delimiter = ',', default_value = "text,binary,random")]
    pub data: Vec<Data>,
    /// The compressions of the file: `none`, or an algorithm and its level
    #[arg(long, value_delimiter = ',', default_value = METHODS, value_name = "ALGO[:LEVEL]")]
    pub compress: Vec<Method>,
    /// The size of the file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = SIZE)]
    pub mebibytes: NonZeroU64,
    /// The tree to copy; it is only read
    #[arg(long, value_name = "DIR", default_value = TREE)]
    pub tree: PathBuf,
    /// The compression of the tree
    #[arg(long, default_value = TREE_METHOD, value_name = "ALGO[:LEVEL]")]
    pub tree_compress: Method,
    /// Options common to all verbs
    #[command(flatten)]
    pub common: Common,
}

/// The default compressions of the file, its size in MiB, and the default tree with its
/// compression.
const METHODS: &str = "none,zlib:3,lzo,zstd:1,zstd:3,zstd:9";
const SIZE: NonZeroU64 = NonZeroU64::new(512).expect("not 0");
const TREE: &str = "/usr";
const TREE_METHOD: &str = "zstd:3";

impl CompressArgs {
    /// Returns the options for the verb `all`.
    pub(crate) fn all(common: &Common) -> Self {
        let method = |text: &str| text.parse().expect("a default is a method");
        Self {
            parts: Part::value_variants().to_vec(),
            data: Data::value_variants().to_vec(),
            compress: METHODS.split(',').map(method).collect(),
            mebibytes: SIZE,
            tree: TREE.into(),
            tree_compress: method(TREE_METHOD),
            common: common.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_is_an_option_of_the_mount() {
        let options = |text: &str| text.parse::<Method>().map(Method::mount_options).ok();
        assert_eq!(options("none").as_deref(), Some("noatime"));
        assert_eq!(options("lzo").as_deref(), Some("noatime,compress=lzo"));
        assert_eq!(options("zstd:9").as_deref(), Some("noatime,compress=zstd:9"));
        assert_eq!(options("zstd:99"), None);
        assert_eq!(options("zip"), None);
    }
}
