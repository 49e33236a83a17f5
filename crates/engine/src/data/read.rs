//! Reads of file data.
//!
//! [`buffered_read`] serves a read from the cache or the device; [`readahead`] reads a whole file
//! in windows. Below them [`get_extent`] finds the extents of a range, [`requests`] splits a
//! read into device requests, [`extent_reader`] does them, and [`checksums`] verifies the sectors.

pub(in crate::data) mod buffered_read;
pub(in crate::data) mod checksums;
pub(in crate::data) mod extent_reader;
pub(in crate::data) mod get_extent;
pub(in crate::data) mod readahead;
pub(in crate::data) mod requests;
