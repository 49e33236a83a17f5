//! Devices for tests of what happens when a machine or a medium fails, and what they leave behind.
//!
//! 1. [`SparseDevice`] is a device in memory that costs what was written to it; a copy of its
//!    bytes ([`SparseImage`]) shares all blocks that do not change.
//! 2. [`RecordingDevice`] passes everything on and remembers, in order of completion, what changed
//!    the device. [`FaultyDevice`] fails a chosen request, [`PausedDevice`] lets all wait. Each
//!    wraps any device, also one of the others.
//! 3. [`cut`] makes, from a recording, the images that a crash may leave.

pub mod cut;
mod faulty;
mod paused;
mod recording;
mod sparse;

pub use faulty::{Fault, FaultyDevice, How};
pub use paused::PausedDevice;
pub use recording::{Event, Recorded, Recording, RecordingDevice};
pub use sparse::{SparseDevice, SparseImage};
