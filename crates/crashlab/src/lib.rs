//! The judges of userbtrfs: what an image shows, and Linux asked for its opinion.
//!
//! 1. A [`manifest::Manifest`] says all that a tree of files shows: two trees are the same exactly
//!    when their manifests are.
//! 2. [`walk_linux`] makes one from a directory that Linux has mounted.
//! 3. [`linux`] holds the guards under which Linux is asked; whatever is attached or mounted
//!    through them is gone when they are dropped, also in a panic.
//! 4. [`dump_compare`] says where two dumps of an image differ.
//!
//! It does not read images itself.
#![forbid(unsafe_code)]

pub mod dump_compare;
pub mod linux;
pub mod manifest;
pub mod walk_linux;
