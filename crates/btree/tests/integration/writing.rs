//! Changes of trees, compared with maps of the expected items and with a count of references.

mod dirty_leaves;
mod edits;
mod filling;
mod grove;
mod lengths;
mod random;
mod removing;
mod snapshots;
