//! Devices for tests of failing machines and media, and the images that such failures leave.
//!
//! 1. [`SparseDevice`] is a device in memory that costs what was written to it; a copy of its bytes
//!    ([`SparseImage`]) shares all unchanged blocks.
//! 2. [`RecordingDevice`] forwards every request and records, in order of completion, what changed
//!    the device. [`FaultyDevice`] fails a chosen request, [`PausedDevice`] blocks requests. Each
//!    is a [`LayeredDevice`] on any device, also on one of the others.
//! 3. [`cut`] makes, from a recording, the images that a crash may leave.

pub mod cut;
mod faulty;
mod layered;
mod paused;
mod recording;

pub use faulty::{Fault, Faults, FaultyDevice, How};
pub use layered::{Layer, LayeredDevice};
pub use paused::{Gate, PausedDevice};
pub use recording::{Event, Recorded, Recorder, Recording, RecordingDevice};
pub use userbtrfs_image_builder::{SparseDevice, SparseImage};
