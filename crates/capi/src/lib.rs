//! The functions of `libuserbtrfs`, for programs in C; `include/userbtrfs.h` declares and documents
//! them.
//!
//! | file                                       | holds                                      |
//! |--------------------------------------------|--------------------------------------------|
//! | `filesystem`, `file`, `directory`, `names` | filesystems, files, directories, names     |
//! | `admin`                                    | new filesystems, subvolumes, mounts        |
//! | `failure`                                  | the result of a call, and its error text   |
//! | `pointers`                                 | references and bytes from pointers of C    |
//!
//! 1. A function returns 0 or a count, or the negative errno of its error; `failure` has the text.
//! 2. No panic crosses the boundary: each body runs in `failure::status` or `failure::count`.
//! 3. A pointer is dereferenced only in `pointers`, after a check for NULL.
//! 4. A handle is a `Box` that a function gave to C, and that its last function takes back.
//! 5. The header has the same functions, structures and flags as these files; a test compares them.
//!
//! The crate needs `unsafe`, because a function that C calls has a name without mangling, and
//! because C has only pointers: that they are valid is the duty of the caller.

mod admin;
mod directory;
mod failure;
mod file;
mod filesystem;
mod names;
mod pointers;

/// The statements of the header about threads.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    const fn one_thread_at_a_time<T: Send>() {}
    any_thread::<userbtrfs::Filesystem>();
    any_thread::<userbtrfs::File>();
    any_thread::<userbtrfs::mount::Mounted>();
    one_thread_at_a_time::<userbtrfs::DirEntries>();
};
