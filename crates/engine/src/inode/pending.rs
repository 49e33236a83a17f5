//! Changes that are in memory and not yet in a tree (Linux: delayed-inode.c).
//!
//! | file                 | holds                                                       |
//! |----------------------|-------------------------------------------------------------|
//! | `delayed_items`      | the changes of one inode: names, xattrs, refs               |
//! | `extents`            | its changed file ranges                                     |
//! | `deferred_dir_items` | DIR_ITEMs that are written later than all else              |
//! | `delayed_inodes`     | the inodes that have delayed items, by transaction          |
//! | `reservation`        | the space that is reserved for them                         |

pub(in crate::inode) mod deferred_dir_items;
pub(in crate::inode) mod delayed_inodes;
pub(in crate::inode) mod delayed_items;
pub(in crate::inode) mod extents;
pub(in crate::inode) mod reservation;
