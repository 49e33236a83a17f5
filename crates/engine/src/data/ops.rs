//! The operations on file data, one file a system call or a family of them.
//!
//! [`throttle`] makes writers wait while there is too much dirty data (Linux: balance_dirty_pages).

pub(in crate::data) mod direct;
pub(in crate::data) mod fallocate;
pub(in crate::data) mod throttle;
pub(in crate::data) mod truncate;
pub(in crate::data) mod write;
