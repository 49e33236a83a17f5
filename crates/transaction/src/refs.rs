//! References of extents: delayed changes, and those in the extent tree.
//!
//! 1. A change is kept in memory ([`DelayedRefs`]) until the commit applies it to the extent tree
//!    ([`run`]); a lookup of an extent returns the sum of both.
//! 2. An extent has an item in the extent tree exactly as long as it has references there.
//! 3. References are stored in the extent's item while it is small and no reference is *keyed*;
//!    then as items of their own, the keyed ones. The references of one backref are counted in one
//!    place.
//!
//! This module does not maintain free space, counters of space or checksums: [`Outcome`] returns
//! what the caller has to do for those.

mod backrefs;
mod delayed;
mod exclusive;
mod extent_refs;
mod file_extent;
mod inline;
mod listed;
mod run;
#[cfg(test)]
mod tests;

pub use backrefs::BackrefChanges;
pub use delayed::{DelayedRefs, Head};
pub use exclusive::is_exclusive;
pub use file_extent::FileExtentRef;
pub use listed::{lists_block, lists_range};
pub use run::{Outcome, lookup, run};
