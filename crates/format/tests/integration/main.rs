//! Tests of each check of the format crate: valid structures return the values they were built
//! from, and each error variant is returned for its damage, with all checksums right.

#![forbid(unsafe_code)]

mod block;
mod chunk;
mod encode;
mod item;
mod item_damage;
mod superblock;
