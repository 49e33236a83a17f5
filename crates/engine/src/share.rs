//! Subvolumes and snapshots: `subvolumes` lists them, `changes` makes and changes them, and
//! `cleaner` drops those that were deleted. Their names in directories are in
//! `inode/ops/subvolume`, their roots in the transaction crate.
//!
//! 1. A subvolume without references is being deleted: it is hidden, and kept.
//! 2. Paths of subvolumes are followed upwards with a bound: a loop of references is an error.

mod changes;
mod cleaner;
mod subvolumes;

pub(crate) use changes::Writable;
pub(crate) use cleaner::{Cleaner, Parts as CleanerParts};

pub(crate) use subvolumes::{
    Subvolume, default_subvolume, deleted_subvolumes, path_of, subvolume, subvolumes,
};
