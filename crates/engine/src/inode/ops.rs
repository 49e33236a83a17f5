//! The operations on names and inodes.
//!
//! Every change is one [`operation`]: it reserves space, takes the locks, makes every check that
//! can fail, joins the transaction, and only then changes memory. An operation is a function of
//! [`namespace::Namespace`], or of [`crate::inode::Inodes`] if that is all it needs; calls go
//! downwards in this table.
//!
//! | file                                | holds                                               |
//! |-------------------------------------|-----------------------------------------------------|
//! | `rename`                            | rename(2)                                           |
//! | `subvolume`                         | the entries of subvolumes                           |
//! | `create`, `link`, `unlink`          | the calls that add or remove one name               |
//! | `setattr`, `set_xattr`              | setattr and flags; setxattr and removexattr         |
//! | `inherit`                           | what a new inode inherits from its directory        |
//! | `property`                          | the compression property                            |
//! | `targets`                           | the inode to change, checked for its kind and flags |
//! | `orphan`                            | open handles; the deletion of inodes without a name |
//! | `xattr`                             | reads and checks of extended attributes             |
//! | `replay`                            | the changes that the replay of a log makes          |
//! | `clone_space`                       | the space that sharing extents costs                |
//! | `file_extents`                      | changes of the extents and the size of a file       |
//! | `namespace`                         | the state that operations share                     |
//! | `operation`                         | an operation: its handle, its time, its reservation |

pub(in crate::inode) mod clone_space;
pub(in crate::inode) mod create;
pub(in crate::inode) mod file_extents;
pub(in crate::inode) mod inherit;
pub(in crate::inode) mod link;
pub(in crate::inode) mod namespace;
pub(in crate::inode) mod operation;
pub(in crate::inode) mod orphan;
pub(in crate::inode) mod property;
pub(in crate::inode) mod rename;
pub(in crate::inode) mod replay;
pub(in crate::inode) mod set_xattr;
pub(in crate::inode) mod setattr;
pub(in crate::inode) mod subvolume;
pub(in crate::inode) mod subvolume_rename;
pub(in crate::inode) mod targets;
pub(in crate::inode) mod unlink;
pub(in crate::inode) mod xattr;

pub(crate) use clone_space::{reserve_for_clone, try_reserve_for_clone};
pub(crate) use create::{create_opened, create_unnamed};
pub(crate) use file_extents::{change_file, change_file_in};
pub(crate) use link::link;
pub(crate) use orphan::{delete_at_last, delete_later, open, reserve_step, start_of_last};
pub(crate) use property::compression;
pub(crate) use rename::rename;
pub(crate) use replay::{
    replay_bytes, replay_cut, replay_entry, replay_entry_at, replay_file, replay_find,
    replay_has_extent, replay_inode, replay_links, replay_list, replay_name, replay_names,
    replay_unname, replay_xattr,
};
pub(crate) use set_xattr::{remove_xattr, set_xattr};
pub(crate) use setattr::{drop_set_id, set_attributes, set_flags, stored_size, touch};
pub(crate) use subvolume::{
    add_snapshot, create_subvolume, evict_subvolume, forget_subvolume, keep_reserved,
    remove_subvolume, set_read_only,
};
pub(crate) use subvolume_rename::rename_subvolume;
pub(crate) use targets::{clean, file_to_change, file_to_rewrite};
pub(crate) use unlink::{rmdir, unlink};
pub(crate) use xattr::{get_xattr, list_xattrs};
