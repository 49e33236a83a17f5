//! The operations on a tree that is copied into.

pub(super) mod host;
pub(super) mod image;

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use userbtrfs_engine::api::{Attributes, InodeId};

use super::error::SideError;
use super::options::Keep;
use super::shared::SharedRange;
use super::source::{Entry, Origin};

/// An entry of the source, and the name of its copy.
pub(super) struct Item<S: Sink> {
    pub(super) entry: Entry,
    /// The directory of the copy.
    pub(super) dir: Arc<S::Dir>,
    /// The name of the copy; empty if the copy is the directory itself.
    pub(super) name: CString,
    /// The name of the copy until it replaces what is at `name`; `None` if nothing is there.
    pub(super) temporary: Option<CString>,
    /// The path of the copy, for messages.
    pub(super) path: PathBuf,
    /// The file at the name that gets the content of the new one, which has no name then.
    pub(super) existing: Option<S::File>,
}

impl<S: Sink> Item<S> {
    /// Returns the name at which the copy is made.
    fn made_name(&self) -> &CStr {
        self.temporary.as_deref().unwrap_or(&self.name)
    }

    /// Returns the path at which the copy is made.
    fn made_path(&self) -> PathBuf {
        let temporary = self.temporary.as_ref();
        temporary.map_or_else(
            || self.path.clone(),
            |name| self.path.with_file_name(OsStr::from_bytes(name.to_bytes())),
        )
    }
}

/// A kind of tree that is copied into. Each operation acts on one name of an opened directory, and
/// follows no symbolic link.
pub(super) trait Sink: Sized {
    /// An open directory.
    type Dir;
    /// An open file.
    type File;
    /// The result of making a file without content.
    type Other;
    /// An inode that gets attributes.
    type Object<'a>: Copy;
    /// The names that an inode has so far, from which more are made.
    type Links;

    /// True if new inodes inherit ACLs of their directory although the mode of the source is kept.
    const INHERITS_ACLS: bool;

    /// Makes a directory, or opens an existing one; returns true if it is new. `keep` decides
    /// whether inodes that are made in it inherit ACLs.
    fn make_dir(item: &Item<Self>, mode: u32, keep: Keep) -> Result<(Self::Dir, bool), SideError>;

    /// Makes an empty file. Fails with EEXIST if the name exists, as the functions below do.
    fn make_file(item: &Item<Self>, mode: u32) -> Result<Self::File, SideError>;

    /// Opens the regular file at the name, if it is one that gets the content of a new file.
    fn open_existing(item: &Item<Self>) -> Result<Option<Self::File>, SideError>;

    /// Makes an empty file without a name, in the directory of the copy.
    fn make_unnamed(item: &Item<Self>, mode: u32) -> Result<Self::File, SideError>;

    /// Gives an existing file the content of another one.
    fn replace_content(existing: &Self::File, new: &Self::File) -> Result<(), SideError>;

    /// Makes a symbolic link or a special file; `mode` has the type of the latter.
    fn make_other(item: &Item<Self>, mode: u32) -> Result<Self::Other, SideError>;

    /// Returns the first name of an item that was made.
    fn links(item: &Item<Self>, object: Self::Object<'_>) -> Self::Links;

    /// Makes a hard link, unless the name already leads to the same inode.
    fn make_link(item: &Item<Self>, links: &mut Self::Links) -> Result<(), SideError>;

    /// Removes the names that still exist.
    fn remove_links(links: &Self::Links);

    /// Removes the name at which an item was made.
    fn remove(item: &Item<Self>) -> Result<(), SideError>;

    /// Fails if a directory is at the name of an item.
    fn check_replaceable(item: &Item<Self>) -> Result<(), SideError>;

    /// Moves what was made at the temporary name of an item to its name, and replaces what is
    /// there.
    fn replace(item: &Item<Self>) -> Result<(), SideError>;

    /// Records that an item has its name instead of the temporary one.
    fn rename_link(item: &Item<Self>, links: &mut Self::Links);

    /// Returns true if the name of an item is that of the image file with this device and inode
    /// number.
    fn is_image(item: &Item<Self>, image: (u64, u64)) -> Result<bool, SideError>;

    /// Returns true if the name of an item leads to the source itself, or to what the source leads
    /// to as a symbolic link.
    fn is_source(item: &Item<Self>) -> Result<bool, SideError>;

    /// Returns true if a directory is this inode of a source.
    fn is_dir(dir: &Self::Dir, origin: Origin) -> bool;

    fn object_of_dir(dir: &Self::Dir) -> Self::Object<'_>;
    fn object_of_file(file: &Self::File) -> Self::Object<'_>;
    fn object_of_other<'a>(item: &'a Item<Self>, other: &'a Self::Other) -> Self::Object<'a>;

    /// Makes an empty file share the data of an inode of the source, and returns its size; `None`
    /// if they are in different filesystems.
    fn share(file: &Self::File, origin: Origin) -> Result<Option<u64>, SideError>;

    /// Makes a file share data with another copy, and returns the length of the part that it
    /// shares now.
    fn share_range(file: &Self::File, copy: InodeId, range: SharedRange) -> Result<u64, SideError>;

    /// Returns the identity of a file for [`Self::share_range`]; `None` if it cannot share data.
    fn id(file: &Self::File) -> Option<InodeId>;

    fn write(file: &Self::File, bytes: &[u8], offset: u64) -> Result<(), SideError>;
    fn set_len(file: &Self::File, size: u64) -> Result<(), SideError>;
    fn sync(file: &Self::File) -> Result<(), SideError>;

    /// Makes the names in a directory durable.
    fn sync_dir(dir: &Self::Dir) -> Result<(), SideError>;

    fn close(file: Self::File) -> Result<(), SideError>;

    /// Sets the owner, if the attributes below have to follow it.
    fn set_owner(object: Self::Object<'_>, attributes: &Attributes) -> Result<(), SideError>;

    fn set_xattr(object: Self::Object<'_>, name: &[u8], value: &[u8]) -> Result<(), SideError>;

    /// Removes an extended attribute, if there is one.
    fn remove_xattr(object: Self::Object<'_>, name: &[u8]) -> Result<(), SideError>;

    /// Sets the mode, the times, and the owner if [`Self::set_owner`] did not.
    fn set_attributes(object: Self::Object<'_>, attributes: &Attributes) -> Result<(), SideError>;
}
