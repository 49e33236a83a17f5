//! The judges of userbtrfs: what an image shows, and Linux asked for its opinion.
//!
//! 1. A [`manifest::Manifest`] says all that a tree of files shows: two trees are the same exactly
//!    when their manifests are.
//! 2. [`walk_linux`] makes one from a directory that Linux has mounted, [`walk_ours`] one from a
//!    filesystem that userbtrfs has open.
//! 3. [`linux`] holds the guards under which Linux is asked; whatever is attached or mounted
//!    through them is gone when they are dropped, also in a panic.
//! 4. [`dump_compare`] says where two dumps of an image differ.
//! 5. An [`operation::Operation`] is one change of a tree; [`model`] says how it must end and what
//!    the tree shows afterwards, and a [`target::Target`] is a filesystem that is held to that.
//!    After a crash, [`history`] says what may be left of a file, and [`durability_oracle`] what
//!    must be left of what was fsynced.
//! 6. [`devices`] fail on demand, and make the images that a crash may leave.
//! 7. [`programs`] are what people use, as scripts.
//! 8. [`test_env`] says what there is for tests. [`golden`] knows the golden images. [`sample`] and
//!    [`random_workload`] fill others: with real files, and with random changes by a seed
//!    ([`random`]). [`hash_collisions`] makes names that share an item of the tree.
//!
//! It does not read images itself: userbtrfs and Linux do.
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
pub mod stories;
pub mod target;
pub mod test_env;
pub mod walk_linux;
pub mod walk_ours;
