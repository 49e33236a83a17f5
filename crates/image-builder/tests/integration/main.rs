//! Built structures must be valid according to `volume` and btrfs-progs.

#![forbid(unsafe_code)]

mod editor;
mod image;
