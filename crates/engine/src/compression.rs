//! The options that tell how data is compressed when it is written.

use userbtrfs_codec::CompressionMethod;

/// The compression of data that is written (Linux: the mount options `compress` and
/// `compress-force`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compress {
    /// The algorithm and the level. A level out of range stands for the nearest one.
    pub method: CompressionMethod,
    /// Whether data is also compressed if a sample of it looks incompressible, or if the file has
    /// the flag NOCOMPRESS.
    pub force: bool,
}

/// The compression of data that [`File::defragment`](crate::api::File::defragment) rewrites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompress {
    /// That of written data: by the option of the filesystem, and the property and the flags of the
    /// file.
    #[default]
    Usual,
    /// None.
    Never,
    /// This one, also if the file has the flag NOCOMPRESS.
    With(CompressionMethod),
}
