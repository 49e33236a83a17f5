//! Copies trees of files: from the host into an image, from an image to the host.

pub(crate) mod counted;
pub mod export;
pub mod import;
pub(crate) mod progress;
