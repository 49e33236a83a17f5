//! Subvolumes in the root tree: their creation, snapshots and deletion.
//!
//! | file        | holds                                                            |
//! |-------------|------------------------------------------------------------------|
//! | `roots`     | ROOT_ITEMs, ROOT_REFs and the default subvolume                  |
//! | `snapshots` | snapshots, which the commit makes                                |
//! | `state`     | ids and names                                                    |
//! | `uuid_tree` | the UUID tree                                                    |
//!
//! Each change is made in the transaction of a handle, and durable with its commit. What a caller
//! can get wrong is checked first; an error after that fails the filesystem.
//!
//! 1. The root tree and the UUID tree are changed at once, in the transaction of the handle; the
//!    entry of the directory is delayed by the caller, in the same transaction.
//! 2. The root items of subvolumes are changed by one thread at a time.
//! 3. A snapshot is made by the commit, when all delayed changes of the transaction are in the
//!    trees and no more are made. Its entry is added after that, and merged into the trees before
//!    the next snapshot is made: a snapshot inside its own source does not contain its name.

mod roots;
mod snapshots;
pub(crate) mod state;
mod uuid_tree;

pub use roots::{
    NewSubvolume, change_root_item, create, default, delete, rename, set_default,
    set_received_uuid, take_id,
};
pub use snapshots::{AddEntry, NewSnapshot};
pub(crate) use snapshots::{PendingSnapshots, create_pending};
pub use state::SubvolumeName;
