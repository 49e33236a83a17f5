//! References: delayed ones, and their items in the extent tree.

mod delayed;
mod exclusive;
mod run;
