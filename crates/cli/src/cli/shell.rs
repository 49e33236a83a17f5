//! The shell: the verbs on one filesystem that stays open.

mod completion;
mod input;
pub(in crate::cli) mod prompt;
pub(in crate::cli) mod words;
