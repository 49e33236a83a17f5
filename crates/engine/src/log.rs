//! The tree log: what is in one, and how it is replayed.
//!
//! | file     | what it is                                                                  |
//! |----------|-----------------------------------------------------------------------------|
//! | `items`  | what a pending log says                                                     |
//! | `replay` | bringing it into the trees, when a filesystem is opened                     |
//! | `sync`, `fsync_tracer` | making an inode durable; what is told of that                         |
//! | `collect`, `exists`, `content` | what must be in the log for that: names, what exists, and |
//! |          | what is in files                                                            |
//! | `draft`  | items of a log that are about to be changed                                 |

mod collect;
mod content;
mod draft;
mod exists;
mod items;
mod replay;
mod sync;
mod trace;

pub(crate) use replay::{ReplayOptions, discard, is_pending, replay};
pub use replay::{Replayed, SkippedItem};
pub(crate) use sync::Log;
pub use trace::{SyncOutcome, SyncRecord};
