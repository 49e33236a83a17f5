//! The operations on file data.
//!
//! [`file_ops`] has the type whose methods they are. Each of [`mod@write`], [`direct`],
//! [`truncate`], [`fallocate`], [`mod@clone`], [`dedupe`] and [`defragment`] has those of one
//! system call, or of a family of them. Below them are [`share`], [`extend`] and [`punch`], then
//! [`delalloc`], which reserves space, and [`throttle`], which makes writers wait while there is
//! too much dirty data (Linux: balance_dirty_pages). [`buffered_write`] copies a caller's bytes
//! into the page cache.

pub(in crate::data) mod buffered_write;
pub(in crate::data) mod clone;
pub(in crate::data) mod dedupe;
pub(in crate::data) mod defragment;
pub(in crate::data) mod delalloc;
pub(in crate::data) mod direct;
pub(in crate::data) mod extend;
pub(in crate::data) mod fallocate;
pub(in crate::data) mod file_ops;
pub(in crate::data) mod punch;
pub(in crate::data) mod share;
pub(in crate::data) mod throttle;
pub(in crate::data) mod truncate;
pub(in crate::data) mod write;
