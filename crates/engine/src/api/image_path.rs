//! Paths in an image.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A path in an image, or the target of a symbolic link: bytes, text, or a path as the host has it.
///
/// Names are bytes without `/` and NUL, in any encoding. As in POSIX, an empty path leads to
/// nothing.
pub trait ImagePath {
    /// Returns the bytes of the path.
    fn path_bytes(&self) -> &[u8];
}

impl<T: ImagePath + ?Sized> ImagePath for &T {
    fn path_bytes(&self) -> &[u8] {
        (**self).path_bytes()
    }
}

impl<const N: usize> ImagePath for [u8; N] {
    fn path_bytes(&self) -> &[u8] {
        self
    }
}

impl<T: ImagePath + ToOwned + ?Sized> ImagePath for Cow<'_, T> {
    fn path_bytes(&self) -> &[u8] {
        (**self).path_bytes()
    }
}

/// Implements it for types that have their bytes by a call.
macro_rules! image_path {
    ($($path:ty: |$it:ident| $bytes:expr,)*) => {
        $(impl ImagePath for $path {
            fn path_bytes(&self) -> &[u8] {
                let $it = self;
                $bytes
            }
        })*
    };
}

image_path! {
    [u8]: |it| it,
    Vec<u8>: |it| it,
    Box<[u8]>: |it| it,
    str: |it| it.as_bytes(),
    String: |it| it.as_bytes(),
    OsStr: |it| it.as_bytes(),
    OsString: |it| it.as_bytes(),
    Path: |it| it.as_os_str().as_bytes(),
    PathBuf: |it| it.as_os_str().as_bytes(),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(path: impl ImagePath) -> Vec<u8> {
        path.path_bytes().to_vec()
    }

    #[test]
    fn paths_of_all_types_have_the_same_bytes() {
        let path = b"/a\xff b";
        let os = OsStr::from_bytes(path);
        let all = [
            bytes(path),
            bytes(&path[..]),
            bytes(path.to_vec()),
            bytes(os),
            bytes(os.to_owned()),
            bytes(Path::new(os)),
            bytes(PathBuf::from(os)),
            bytes(Cow::Borrowed(&path[..])),
            bytes(Box::from(&path[..])),
        ];
        assert!(all.iter().all(|bytes| bytes == path), "{all:?}");
        assert_eq!(bytes("/a/"), b"/a/");
        assert_eq!(bytes("/a/".to_owned()), b"/a/");
    }
}
