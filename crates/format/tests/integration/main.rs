//! Each check of the format crate: sound structures say what was forged, and every error variant
//! is met by exactly the damage it is for, with all checksums right.

#![forbid(unsafe_code)]

mod block;
mod chunk;
mod encode;
mod item;
mod item_damage;
mod superblock;
