//! The drivers that execute operations.

use crate::model::Model;

/// The drivers that execute a stream of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drivers {
    /// Linux alone.
    Linux,
    /// userbtrfs alone: no operation that it answers unlike Linux.
    Ours,
    /// Both in turns: also no snapshot that they make differently.
    Both,
}

impl Drivers {
    /// Returns the model of an empty filesystem that these drivers use.
    pub(super) fn model(self, node_size: u32) -> Model {
        match self {
            Self::Linux => Model::of_linux(node_size),
            Self::Ours | Self::Both => Model::new(node_size),
        }
    }
}
