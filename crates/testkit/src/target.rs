//! Filesystems that are held to the model.
//!
//! 1. A [`Target`] starts empty, as mkfs leaves it.
//! 2. [`run`] does the same operations to a target and to a model, and compares how each ends, and
//!    all that is there before and after each reopening and at the end.

mod directory;
mod linux;

use std::fmt;

use crate::manifest::{Difference, Manifest};
use crate::model::{Answer, End, Model};
use crate::operation::Operation;

pub use directory::Directory;
pub use linux::LinuxTarget;

/// How many differences are printed.
const SHOWN: usize = 20;

/// A filesystem to which operations are done.
pub trait Target {
    /// Does an operation, or says why not. Never asked for [`Operation::Commit`] and
    /// [`Operation::Reopen`].
    fn apply(&mut self, operation: &Operation) -> End;

    /// All that it shows now.
    fn manifest(&mut self) -> Manifest;

    /// Makes all that was done durable.
    fn commit(&mut self);

    /// Closes it in order, handles included, and opens it again.
    fn reopen(&mut self);
}

/// Where a target was not what the model is.
#[derive(Debug)]
pub enum Mismatch {
    /// An operation ended in another way.
    Outcome {
        /// Its place in the list.
        index: usize,
        /// The operation.
        operation: Box<Operation>,
        /// How the model says it must end.
        model: End,
        /// How it ended.
        target: End,
    },
    /// What is there differs.
    Shown {
        /// How many operations were done.
        after: usize,
        /// The model's first.
        differences: Vec<Difference>,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcome { index, operation, model, target } => {
                write!(f, "operation {index}: model {model:?}, target {target:?}: {operation}")?;
                let (Ok(model), Ok(target)) = (model, target) else { return Ok(()) };
                let differs = model.0.iter().zip(&target.0).position(|(a, b)| a != b);
                differs.map_or(Ok(()), |at| write!(f, "\nthe first byte that differs: {at}"))
            }
            Self::Shown { after, differences } => {
                let count = differences.len();
                write!(f, "after {after} operations: {count} differences, the model's first")?;
                differences.iter().take(SHOWN).try_for_each(|one| write!(f, "\n{one}"))
            }
        }
    }
}

/// Does operations to an empty target and compares.
pub fn run(
    target: &mut dyn Target,
    model: &mut Model,
    operations: &[Operation],
) -> Result<(), Mismatch> {
    for (index, operation) in operations.iter().enumerate() {
        if *operation == Operation::Reopen {
            compare(target, model, index)?;
        }
        step(target, model, operation, index)?;
        if *operation == Operation::Reopen {
            compare(target, model, index + 1)?;
        }
    }
    compare(target, model, operations.len())
}

/// Does one operation to both; an error if they do not end alike. The index is its place in the
/// list.
pub fn step(
    target: &mut dyn Target,
    model: &mut Model,
    operation: &Operation,
    index: usize,
) -> Result<(), Mismatch> {
    let (model, target) = (model.apply(operation), do_to(target, operation));
    if model == target {
        return Ok(());
    }
    Err(Mismatch::Outcome { index, operation: Box::new(operation.clone()), model, target })
}

/// Does an operation to a target, whatever it is.
pub fn do_to(target: &mut dyn Target, operation: &Operation) -> End {
    match operation {
        Operation::Commit => target.commit(),
        Operation::Reopen => target.reopen(),
        other => return target.apply(other),
    }
    Ok(Answer::default())
}

/// Compares what both show.
pub fn compare(target: &mut dyn Target, model: &Model, after: usize) -> Result<(), Mismatch> {
    let differences = model.differences(&target.manifest());
    if differences.is_empty() { Ok(()) } else { Err(Mismatch::Shown { after, differences }) }
}
