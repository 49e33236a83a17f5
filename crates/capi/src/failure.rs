//! The result of a call: a number for C, and a text that the thread keeps.

#![expect(unsafe_code, reason = "a function that C calls has a name without mangling")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use userbtrfs::mkfs::MkfsError;
use userbtrfs::mount::{EndError, MountError, StartError};
use userbtrfs::{Error, PathError};

thread_local! {
    /// The text of the last error of this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// An error as C gets it.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno: errno.raw_os_error(), text: text.into() }
    }

    /// An invalid argument.
    pub(crate) fn invalid(text: &str) -> Self {
        Self::new(Errno::INVAL, text)
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
        Self::new(Errno::IO, format!("error in the library: {text}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<MkfsError> for Failure {
    fn from(error: MkfsError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<EndError> for Failure {
    fn from(error: EndError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

/// Runs the body of a function that returns 0 or a negative errno.
pub(crate) fn status(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match run(body) {
        Ok(()) => 0,
        Err(errno) => -errno,
    }
}

/// Runs the body of a function that returns a count or a negative errno.
pub(crate) fn count(body: impl FnOnce() -> Result<usize, Failure>) -> i64 {
    let body = || i64::try_from(body()?).map_err(|_| Failure::invalid("the count is too large"));
    run(body).unwrap_or_else(|errno| -i64::from(errno))
}

/// Runs a body, and keeps the text of its error. Returns the errno, which is positive.
fn run<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    // What a panic leaves in a wrong state is the filesystem's, whose locks are poisoned or which
    // fails later calls; nothing of this crate is.
    let result = catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)));
    result.map_err(|Failure { errno, text }| {
        // Names in a text may contain NUL only on a damaged filesystem.
        let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
        // A thread that ends may have lost its text already.
        let _ = LAST.try_with(|last| last.replace(text));
        // A caller would take 0 or less for success.
        if errno > 0 { errno } else { Errno::IO.raw_os_error() }
    })
}

#[unsafe(no_mangle)]
extern "C" fn userbtrfs_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        LAST.with_borrow(|text: &CString| CStr::to_string_lossy(text).into_owned())
    }

    #[test]
    fn panic_becomes_eio_with_its_text() {
        let result = status(|| panic!("block {} is odd", 7));
        assert_eq!(result, -Errno::IO.raw_os_error());
        assert_eq!(last(), "error in the library: block 7 is odd");
    }

    #[test]
    fn error_of_the_library_keeps_its_errno_and_text() {
        assert_eq!(count(|| Err(Error::NotEmpty.into())), -39);
        assert_eq!(last(), "directory not empty");
        assert_eq!(count(|| Ok(5)), 5);
        assert_eq!(last(), "directory not empty");
    }

    #[test]
    fn each_thread_has_a_text_of_its_own() {
        status(|| Err(Error::NotFound.into()));
        std::thread::spawn(|| status(|| Err(Error::NotEmpty.into()))).join().expect("no panic");
        assert_eq!(last(), "no such file or directory");
    }
}
