//! Names: directory entries, lookup and listing.
//!
//! | file          | holds                                                            |
//! |---------------|------------------------------------------------------------------|
//! | `entry`       | directory entries and their targets                              |
//! | `name`        | a name's bytes, inline where they are short                      |
//! | `lookup`      | looking up and listing, over the delayed items and the tree      |
//! | `dcache`      | the known names of a directory, present and absent               |
//! | `name_filter` | sets of name hashes that rule names out without a read           |

pub(in crate::inode) mod dcache;
pub(in crate::inode) mod entry;
pub(in crate::inode) mod lookup;
pub(in crate::inode) mod name;
pub(in crate::inode) mod name_filter;

#[cfg(test)]
pub(crate) use lookup::miscount;
pub(crate) use lookup::{
    behind_damage, check_way_down, end_of, list, list_some_of, lookup, names, names_to_log, parent,
};
