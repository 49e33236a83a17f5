//! References and bytes from pointers of C.
//!
//! 1. NULL is an error here, never a crash.
//! 2. What the header demands of other pointers is the condition of safety of these functions.

#![expect(unsafe_code, reason = "C has only pointers")]

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::Failure;

/// Borrows the object of a handle.
///
/// # Safety
/// The pointer is NULL or a handle that was not ended, and is not ended during `'a`.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: by the condition of this function.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid("the handle is NULL"))
}

/// Borrows the object of a handle that only one thread uses at a time.
///
/// # Safety
/// As for [`borrow`]; no other thread uses the handle during `'a`.
pub(crate) unsafe fn borrow_mut<'a, T>(handle: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: by the condition of this function.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::invalid("the handle is NULL"))
}

/// Takes the object of a handle, which ends.
///
/// # Safety
/// The pointer is NULL or a handle that [`give`] stored and that was not ended; nothing uses it any
/// more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Result<Box<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::invalid("the handle is NULL"));
    }
    // SAFETY: `give` made it of a box, and nobody else has it, by the condition of this function.
    Ok(unsafe { Box::from_raw(handle) })
}

/// Stores a new handle at `place`, or NULL if `make` fails.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn give<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    // SAFETY: by the condition of this function.
    unsafe { store(place, std::ptr::null_mut()) }?;
    let handle = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { store(place, handle) }
}

/// Stores a value at `place`.
///
/// # Safety
/// `place` is NULL or may be written.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid("the place of the result is NULL"));
    }
    // SAFETY: it may be written, by the condition of this function; what was there has no drop.
    unsafe { place.write(value) };
    Ok(())
}

/// Returns the bytes of a string, without its NUL.
///
/// # Safety
/// The pointer is NULL or a string that ends with NUL and is not changed during `'a`.
pub(crate) unsafe fn text<'a>(string: *const c_char) -> Result<&'a [u8], Failure> {
    if string.is_null() {
        return Err(Failure::invalid("the string is NULL"));
    }
    // SAFETY: by the condition of this function.
    Ok(unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// Returns a path of the host.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn host_path<'a>(string: *const c_char) -> Result<&'a Path, Failure> {
    // SAFETY: by the condition of this function.
    let bytes = unsafe { text(string) }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the bytes that C wants to write.
///
/// # Safety
/// The pointer is NULL or that of `len` bytes that are not changed during `'a`.
pub(crate) unsafe fn bytes<'a>(start: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check_buffer(start, len)?;
    // SAFETY: by the condition of this function, and the length was checked.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

/// Returns a buffer of C that is to be filled, with zeros in it.
///
/// # Safety
/// The pointer is NULL or that of `len` bytes that nothing else uses during `'a`.
pub(crate) unsafe fn buffer<'a>(start: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    check_buffer(start, len)?;
    // SAFETY: by the condition of this function. C need not have initialised the bytes, and a slice
    // of bytes must be.
    unsafe { start.write_bytes(0, len) };
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

fn check_buffer(start: *const u8, len: usize) -> Result<(), Failure> {
    if start.is_null() {
        return Err(Failure::invalid("the buffer is NULL"));
    }
    isize::try_from(len).map(|_| ()).map_err(|_| Failure::invalid("the buffer is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_an_error() {
        // SAFETY: NULL is allowed.
        unsafe {
            assert!(borrow(std::ptr::null::<u8>()).is_err());
            assert!(borrow_mut(std::ptr::null_mut::<u8>()).is_err());
            assert!(take(std::ptr::null_mut::<u8>()).is_err());
            assert!(give(std::ptr::null_mut(), || Ok(1_u8)).is_err());
            assert!(text(std::ptr::null()).is_err());
            assert!(bytes(std::ptr::null(), 1).is_err());
            assert!(buffer(std::ptr::null_mut(), 1).is_err());
        }
    }

    #[test]
    fn no_bytes_need_no_buffer() {
        // SAFETY: no byte is accessed.
        assert!(unsafe { bytes(std::ptr::null(), 0) }.is_ok_and(<[u8]>::is_empty));
    }
}
