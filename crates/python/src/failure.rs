//! Errors of Python from those of the library, and handles that can be closed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use userbtrfs::{Error, Result};

/// Returns a path as Python has it, which keeps bytes that are not UTF-8.
fn name(path: &[u8]) -> OsString {
    OsStr::from_bytes(path).to_os_string()
}

/// Runs a call about one path, without the lock of the interpreter.
pub(crate) fn run<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    path: &[u8],
    call: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    py.detach(call).map_err(|error| os_error(&error.into(), path))
}

/// Runs a call about two paths, without the lock of the interpreter.
pub(crate) fn run_two<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    from: &[u8],
    to: &[u8],
    call: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    let fail = |error: E| {
        let windows_error: Option<i32> = None;
        let error = error.into();
        let text = error.reason().to_string();
        PyOSError::new_err((error.errno(), text, name(from), windows_error, name(to)))
    };
    py.detach(call).map_err(fail)
}

/// Returns the error for a call about a path.
pub(crate) fn os_error(error: &Error, path: &[u8]) -> PyErr {
    PyOSError::new_err((error.errno(), error.reason().to_string(), name(path)))
}

/// An object of the library until it is closed.
///
/// The lock is held only while the object is cloned or taken, never during a call of the library,
/// so that a thread that waits for it cannot block another that waits for the interpreter.
pub(crate) struct Handle<T>(Mutex<Option<T>>);

impl<T: Clone> Handle<T> {
    pub(crate) fn new(object: T) -> Self {
        Self(Mutex::new(Some(object)))
    }

    /// Returns the object.
    pub(crate) fn get(&self) -> PyResult<T> {
        self.lock().clone().ok_or_else(|| PyValueError::new_err("operation on a closed handle"))
    }

    /// Takes the object; `None` if it was closed before.
    pub(crate) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
