//! Filesystems that are compared with the model.
//!
//! 1. A [`Target`] is initially empty, as after mkfs.
//! 2. [`run`] applies the same operations to a target and to a model, and compares the result of
//!    each, and the whole tree before and after each reopening and at the end.

mod directory;
mod linux;

use std::fmt;

use crate::manifest::{Difference, Manifest};
use crate::model::{Answer, End, Model};
use crate::operation::Operation;

pub use directory::Directory;
pub use linux::LinuxTarget;

/// The maximum number of differences that are printed.
const SHOWN: usize = 20;

/// A filesystem that executes operations.
pub trait Target {
    /// Returns whether the target answers an operation as Linux does and the model knows, in the
    /// state of the model. If it does not, the operation is left out.
    fn answers_as_linux(&self, _model: &Model, _operation: &Operation) -> bool {
        true
    }

    /// Executes an operation. Never called for [`Operation::Commit`] and [`Operation::Reopen`].
    fn apply(&mut self, operation: &Operation) -> End;

    /// Returns the visible state.
    fn manifest(&mut self) -> Manifest;

    /// Makes everything durable.
    fn commit(&mut self);

    /// Closes the filesystem cleanly, including handles, and opens it again.
    fn reopen(&mut self);
}

/// A difference between a target and the model.
#[derive(Debug)]
pub enum Mismatch {
    /// An operation had a different result.
    Outcome {
        /// Its index in the list.
        index: usize,
        /// The operation.
        operation: Box<Operation>,
        /// The result in the model.
        model: End,
        /// The result in the target.
        target: End,
    },
    /// The visible states differ.
    Shown {
        /// The number of operations so far.
        after: usize,
        /// The differences, the model on the left.
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

/// Applies operations to an empty target and compares it with the model.
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

/// Applies one operation to both, unless the target answers it unlike Linux; fails if the results
/// differ. `index` is that of the operation in
/// the list.
pub fn step(
    target: &mut dyn Target,
    model: &mut Model,
    operation: &Operation,
    index: usize,
) -> Result<(), Mismatch> {
    if !target.answers_as_linux(model, operation) {
        return Ok(());
    }
    let model = model.apply(operation);
    let target = do_to(target, operation);
    if model == target {
        return Ok(());
    }
    Err(Mismatch::Outcome { index, operation: Box::new(operation.clone()), model, target })
}

/// Applies an operation of any kind to a target.
pub fn do_to(target: &mut dyn Target, operation: &Operation) -> End {
    match operation {
        Operation::Commit => target.commit(),
        Operation::Reopen => target.reopen(),
        other => return target.apply(other),
    }
    Ok(Answer::default())
}

/// Compares the visible states.
pub fn compare(target: &mut dyn Target, model: &Model, after: usize) -> Result<(), Mismatch> {
    let differences = model.differences(&target.manifest());
    if differences.is_empty() { Ok(()) } else { Err(Mismatch::Shown { after, differences }) }
}
