//! The test oracles of userbtrfs: what an image shows, and how Linux judges it.
//!
//! 1. A [`manifest::Manifest`] describes everything visible in a tree of files: two trees are the
//!    same exactly when their manifests are equal.
//! 2. [`walk_linux`] makes one from a directory that Linux has mounted, [`walk_ours`] one from a
//!    filesystem that userbtrfs has open.
//! 3. [`linux`] has the guards for using Linux; everything attached or mounted through them is
//!    released when they are dropped, also in a panic.
//! 4. [`dump_compare`] finds the differences between two dumps of an image.
//! 5. An [`operation::Operation`] is one change of a tree; [`model`] predicts its result and the
//!    tree afterwards, and a [`target::Target`] is a filesystem that is compared with that.
//!    [`history`] determines what a crash may leave of a file, and [`durability_oracle`] what it
//!    must leave of fsynced files.
//! 6. [`devices`] fail on demand, and produce the images that a crash may leave.
//! 7. [`programs`] are scripts that use common programs.
//! 8. [`test_env`] describes the test environment, and [`time_limit`] ends tests that hang.
//!    [`sleeping_threads`] waits until threads wait.
//!    [`golden`] finds the golden images. [`sample`] and [`random_workload`] fill other images:
//!    with real files, and with random changes from a seed ([`random`]). [`hash_collisions`] makes
//!    names that share an item of the tree.
//!
//! This crate does not read images itself: userbtrfs and Linux do.
#![forbid(unsafe_code)]

pub mod devices;
pub mod dump_compare;
pub mod durability_oracle;
pub mod engine_target;
pub mod golden;
pub mod hash_collisions;
pub mod history;
pub mod linux;
pub mod manifest;
pub mod model;
pub mod operation;
pub mod pattern;
pub mod programs;
pub mod random;
pub mod random_workload;
pub mod sample;
pub mod sleeping_threads;
pub mod stories;
pub mod target;
pub mod test_env;
pub mod time_limit;
pub mod walk_linux;
pub mod walk_ours;

/// The size of a sector in bytes.
pub use userbtrfs_format::SECTOR;
