//! What is forged must be sound, by the judgement of `volume` and of btrfs-progs.

#![forbid(unsafe_code)]

mod editor;
mod image;
