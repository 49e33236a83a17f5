//! The native part of the Python package `userbtrfs`: files and filesystems by paths of bytes. The
//! modules of Python beside it add the types that programs use.
//!
//! | file         | holds                                        |
//! |--------------|----------------------------------------------|
//! | `filesystem` | an open filesystem, and all calls by path    |
//! | `file`       | an open file, read and written at an offset  |
//! | `directory`  | listings                                     |
//! | `make`       | new filesystems                              |
//! | `mount`      | mounts by FUSE                               |
//! | `stat`       | attributes, as a tuple                       |
//! | `failure`    | errors as `OSError`, and handles that end    |
//!
//! 1. The lock of the interpreter is released during each call of the library.
//! 2. An error of the library is an `OSError` with its errno, its text and the path of the call.
//! 3. A handle that was closed is a `ValueError`, as for files of Python.

#![forbid(unsafe_code)]

mod directory;
mod failure;
mod file;
mod filesystem;
mod make;
mod mount;
mod stat;

/// The native part of `userbtrfs`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::directory::Dir;
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::filesystem::Filesystem;
    #[pymodule_export]
    use crate::make::mkfs;
    #[pymodule_export]
    use crate::mount::Mount;
}
