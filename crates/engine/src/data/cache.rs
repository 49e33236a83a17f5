//! File data in memory (Linux: the page cache).
//!
//! Read [`file_pages`] first: the blocks of one file, dirty or clean. [`block`] and [`blocks`] are
//! what it is made of. [`page_cache`] bounds the memory of all files, by the lists and counts of
//! [`shared`]. [`dirty`] counts runs of dirty blocks, [`reservation`] accounts for the space that
//! they need, [`range_lock`] locks byte ranges, and [`writeback_errors`] reports failures once to
//! each open file (Linux: errseq_t).

pub(in crate::data) mod block;
pub(in crate::data) mod blocks;
pub(in crate::data) mod dirty;
pub(in crate::data) mod file_pages;
pub(in crate::data) mod page_cache;
pub(in crate::data) mod range_lock;
pub(in crate::data) mod reservation;
pub(in crate::data) mod shared;
pub(in crate::data) mod writeback_errors;
