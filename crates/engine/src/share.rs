//! Subvolumes and snapshots: their list, their paths, the default one.
//!
//! 1. A subvolume without references is being deleted: it is hidden, and kept.
//! 2. Paths of subvolumes are followed upwards with a bound: a loop of references is an error.

mod subvolumes;

pub(crate) use subvolumes::{Subvolume, default_subvolume, path_of, subvolume, subvolumes};
