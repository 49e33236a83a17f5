//! Errors of a copy.
//!
//! An error names the path on the side where it happened: the source, or the copy.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use thiserror::Error;
use userbtrfs_engine::api::Error;
use userbtrfs_format::Quoted;

/// A callback for each failure; any thread of a copy calls it.
pub type Report<'a> = dyn Fn(CopyError) + Sync + 'a;

/// An error of a copy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source cannot be read.
    #[error("{}: {error}", quoted(path))]
    Source {
        /// The path in the source.
        path: PathBuf,
        /// The error.
        error: SideError,
    },
    /// The copy cannot be made, written or completed.
    #[error("{}: {error}", quoted(path))]
    Target {
        /// The path of the copy.
        path: PathBuf,
        /// The error.
        error: SideError,
    },
    /// The copy would replace that of another source: see
    /// [`CopyOptions::keep_made`](super::CopyOptions::keep_made).
    #[error("{}: will not overwrite what was just created", quoted(path))]
    JustCreated {
        /// The path of the copy.
        path: PathBuf,
    },
    /// The file is the image that is copied into, or out of.
    #[error("{}: is the image itself; skipped", quoted(path))]
    Itself {
        /// The path on the host.
        path: PathBuf,
    },
    /// A name that would lead out of its directory.
    #[error("{}: refused: the name is not one that a directory can hold", quoted(path))]
    Name {
        /// The path in the source.
        path: PathBuf,
    },
    /// The file changed while it was read. It is kept as it was read.
    #[error("{}: it changed while it was read; kept as it was read", quoted(path))]
    Changed {
        /// The path in the source.
        path: PathBuf,
    },
    /// An extended attribute of the source that is listed but cannot be read; it is left out.
    #[error("{}: {what} could not be read: {error}", quoted(path))]
    NotRead {
        /// The path in the source.
        path: PathBuf,
        /// The attribute.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// An attribute that the destination or the user's rights do not allow to keep.
    #[error("{}: {what} could not be kept: {}", quoted(path), error.reason())]
    NotKept {
        /// The path of the copy.
        path: PathBuf,
        /// The attribute: the owner, or the name of an extended attribute.
        what: String,
        /// The error.
        error: SideError,
    },
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
}

/// An error of an operation on the host or in an image.
#[derive(Clone, Debug, Error)]
pub enum SideError {
    /// An operation of the host failed.
    #[error("{doing}: {}", self.reason())]
    Host {
        /// The operation.
        doing: &'static str,
        /// The number of the error.
        errno: i32,
    },
    /// An operation of the filesystem in the image failed.
    #[error("{0}")]
    Image(Arc<Error>),
}

impl CopyError {
    /// Returns true if only an owner or attribute is missing, for lack of privilege or support.
    pub fn is_of_attribute(&self) -> bool {
        matches!(self, Self::NotKept { .. } | Self::NotRead { .. })
    }

    /// Returns true if nothing can succeed after this error: the image became read-only.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Target { error: error @ SideError::Image(_), .. }
            if error.is(Errno::ROFS))
    }
}

impl SideError {
    /// Returns true if the error has this number.
    pub(super) fn is(&self, errno: Errno) -> bool {
        let found = match self {
            Self::Host { errno, .. } => *errno,
            Self::Image(error) => error.errno(),
        };
        found == errno.raw_os_error()
    }

    /// Returns true if the destination does not support or permit an extended attribute.
    pub(super) fn refuses_xattr(&self) -> bool {
        match self {
            // Every error of setting one, as in cp(1): each filesystem has its own limits.
            Self::Host { .. } => true,
            Self::Image(error) => matches!(
                **error,
                Error::Unsupported(_)
                    | Error::BadAttributeName(_)
                    | Error::Invalid(_)
                    | Error::AttributeTooLong
            ),
        }
    }

    /// Returns the error as one of the operation during which `other` happened.
    pub(super) fn during(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Host { errno, .. }, Self::Host { doing, .. }) => Self::Host { doing, errno },
            (error, _) => error,
        }
    }

    /// Returns the text of the error without the operation.
    fn reason(&self) -> String {
        match self {
            Self::Host { errno, .. } => io::Error::from_raw_os_error(*errno).to_string(),
            Self::Image(error) => error.to_string(),
        }
    }

    /// Returns the error of an operation of the host.
    pub(super) fn host(doing: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::Host { doing, errno: error.raw_os_error() }
    }
}

impl From<Error> for SideError {
    fn from(error: Error) -> Self {
        Self::Image(Arc::new(error))
    }
}

/// Returns an error of reading the source at a path.
pub(super) fn source_error<E: Into<SideError>>(path: &Path) -> impl Fn(E) -> CopyError {
    move |error| CopyError::Source { path: path.to_path_buf(), error: error.into() }
}

/// Returns an error of an operation of the host on the source at a path.
pub(super) fn host_error(path: &Path, doing: &'static str) -> impl Fn(Errno) -> CopyError {
    let failed = source_error(path);
    move |error| failed(SideError::host(doing)(error))
}

fn quoted(path: &Path) -> Quoted<'_> {
    Quoted(path.as_os_str().as_bytes())
}
