//! The names of copies: temporary ones, and those of an inode that has several.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::SideError;
use super::sink::{Item, Sink};
use super::source::Origin;

/// The copies of inodes with several names.
pub(super) type Links<S> = Mutex<HashMap<Origin, Linked<S>>>;

/// The copy of an inode with several names.
pub(super) struct Linked<S: Sink> {
    pub(super) names: S::Links,
    /// Whether the content and the attributes are there.
    pub(super) is_complete: bool,
    /// The names that replace others when it is complete.
    pub(super) waiting: Vec<Item<S>>,
}

/// Moves a copy from its temporary name to its own, if it has one; removes it if that fails.
/// `names` are those of its inode.
pub(super) fn replace_name<S: Sink>(
    item: &Item<S>,
    names: Option<&mut S::Links>,
) -> Result<(), SideError> {
    if item.temporary.is_none() {
        return Ok(());
    }
    // If this fails, too, the error before it is the one to report.
    S::replace(item).inspect_err(|_| drop(S::remove(item)))?;
    if let Some(names) = names {
        S::rename_link(item, names);
    }
    Ok(())
}

/// Returns a name for an incomplete file, which no other copy of this process has.
pub(super) fn temporary_name() -> CString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!(".userbtrfs.{}.{number}", std::process::id());
    CString::new(name).expect("it has no NUL")
}
