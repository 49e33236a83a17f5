//! Outcomes of calls of the library.

use rustix::io::Errno;
use userbtrfs::Error;

use crate::model::Outcome;

/// Returns the errno of an error of the library.
pub fn errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Returns the outcome of a call.
pub(super) fn outcome<T>(result: Result<T, Error>) -> Outcome<T> {
    result.map_err(|error| errno(&error))
}
