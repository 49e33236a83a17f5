//! The drivers that execute operations.

/// The drivers that execute a stream of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drivers {
    /// Linux alone.
    Linux,
    /// userbtrfs, alone or in turns with Linux: no operation that they answer differently.
    Ours,
}
