//! References of extents: those that changed, and those that the extent tree knows.
//!
//! 1. A change is kept in memory ([`DelayedRefs`]) until the commit brings it into the extent
//!    tree ([`run`]); who asks about an extent gets the sum of both.
//! 2. An extent has an item in the extent tree exactly as long as it has references there.
//! 3. References stand in the extent's item while it is small, and no reference stands beside
//!    it; then as items of their own. A user's references are counted in one place.
//!
//! What this module does not do: free space, counters of space, checksums. [`Outcome`] tells the
//! caller what is theirs.

mod backrefs;
mod delayed;
mod extent_refs;
mod inline;
mod listed;
mod only;
mod run;
#[cfg(test)]
mod tests;

pub use backrefs::BackrefChanges;
pub use delayed::{DelayedRefs, Head};
pub use listed::{lists_block, lists_range};
pub use only::is_only_user;
pub use run::{Outcome, lookup, run};
