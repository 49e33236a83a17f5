//! Devices: batches of reads, writes, flushes and discards on a file, a block device or memory.
//!
//! A caller hands a batch of [`Request`]s to [`Device::submit`] and gets a [`Ticket`]; the same
//! thread exchanges the ticket for the [`Completion`]s with [`Device::wait`]. Completions run in
//! the waiting thread: a device has no threads of its own.
//!
//! Not part of this crate: caching, read-ahead, retries, mirrors, checksums.
//!
//! Invariants:
//! 1. The bytes of a request belong to the request from `submit` to its completion. A read's
//!    buffer is returned in its completion, also when the read failed (its bytes are then
//!    unspecified). A write shares its buffer immutably; nobody can change it meanwhile.
//! 2. The requests of all batches in flight are unordered, also within one batch. Requests in
//!    flight together that overlap, one of them a write or a discard, leave unspecified bytes.
//! 3. A flush covers exactly the writes that completed before the flush was submitted. A write
//!    with `fua` is durable when it completes; it makes no other write durable.
//! 4. A dropped ticket loses the results, not the work: dropping waits for requests in flight.
//! 5. A request is done whole or fails: short transfers are continued. A request that leaves the
//!    device fails before any byte moves.
//! 6. Any offset and any length work on every device; a multiple of 4096 never costs a copy.
//! 7. The engine (io_uring or plain calls) and the mode (direct or buffered) change speed only.
//! 8. A file or block device is open for writing at most once at a time, across all processes;
//!    plain readers never block a writer, and wait for one that is closing.

#![deny(missing_debug_implementations)]

mod batch;
mod buffer;
mod crash_point;
mod device;
mod drop_writes;
mod error;
mod fiemap;
mod file;
mod lock;
mod loop_device;
mod memory;
mod merge_adjacent;
mod open;
mod overlay;
mod partition;
mod partition_table;
mod pread_pwrite;
mod request;
mod ring;
mod slab;
mod slice;
mod ticket;
mod transfer;

pub use buffer::Buffer;
pub use crash_point::CrashPoint;
pub use device::{Device, crash_point};
pub use drop_writes::DropWritesDevice;
pub use error::{Access, DeviceError, Operation};
pub use fiemap::{SharedExtent, shared_extents};
pub use file::FileDevice;
pub use lock::mount_of_holder;
pub use memory::MemoryDevice;
pub use open::{Direct, FileOptions, IoUring, Region, partitions};
pub use overlay::Overlay;
pub use partition::Partition;
pub use request::{Completion, Request};
pub use slice::Slice;
pub use ticket::Ticket;
