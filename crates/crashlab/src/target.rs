//! Filesystems that are held to the model.
//!
//! 1. A [`Target`] starts empty, as mkfs leaves it.
//! 2. [`run`] does the same operations to a target and to a model, and compares how each ends, and
//!    all that is there at each reopening and at the end.

mod linux;

use std::fmt;

use crate::manifest::{Difference, Manifest};
use crate::model::{Model, Outcome};
use crate::operation::Operation;

pub use linux::LinuxTarget;

/// How many differences are printed.
const SHOWN: usize = 20;

/// A filesystem to which operations are done.
pub trait Target {
    /// Does an operation, or says why not. Never asked for [`Operation::Commit`] and
    /// [`Operation::Reopen`].
    fn apply(&mut self, operation: &Operation) -> Outcome;

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
        model: Outcome,
        /// How it ended.
        target: Outcome,
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
                write!(f, "operation {index}: model {model:?}, target {target:?}: {operation}")
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
        step(target, model, operation).map_err(|(model, target)| Mismatch::Outcome {
            index,
            operation: Box::new(operation.clone()),
            model,
            target,
        })?;
        if *operation == Operation::Reopen {
            compare(target, model, index + 1)?;
        }
    }
    compare(target, model, operations.len())
}

/// Does one operation to both; an error with how each ended if they differ.
pub fn step(
    target: &mut dyn Target,
    model: &mut Model,
    operation: &Operation,
) -> Result<(), (Outcome, Outcome)> {
    let expected = model.apply(operation);
    let found = match operation {
        Operation::Commit => {
            target.commit();
            Ok(())
        }
        Operation::Reopen => {
            target.reopen();
            Ok(())
        }
        other => target.apply(other),
    };
    if expected == found { Ok(()) } else { Err((expected, found)) }
}

/// Compares what both show.
pub fn compare(target: &mut dyn Target, model: &Model, after: usize) -> Result<(), Mismatch> {
    let differences = model.differences(&target.manifest());
    if differences.is_empty() { Ok(()) } else { Err(Mismatch::Shown { after, differences }) }
}
