//! The host's side of a command: the image, signals, progress, and retries while an image is in
//! use.

pub(in crate::cli) mod image;
pub(in crate::cli) mod meter;
pub(in crate::cli) mod progress;
pub(in crate::cli) mod retry;
pub(in crate::cli) mod signals;
pub(in crate::cli) mod status_line;
pub(in crate::cli) mod totals;
