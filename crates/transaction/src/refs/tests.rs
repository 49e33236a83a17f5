//! References: delayed ones, and their items in the extent tree.

mod delayed;
mod only;
mod run;
