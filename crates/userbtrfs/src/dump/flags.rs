//! Flags with their names.

/// Flags: their bits, and the names of those that have one.
pub(super) struct Flags {
    pub(super) bits: u64,
    pub(super) names: Vec<&'static str>,
}

impl Flags {
    /// Creates flags with the names that the bits have in the format.
    pub(super) fn of<F: bitflags::Flags<Bits = u64>>(flags: &F) -> Self {
        let names = flags.iter_names().map(|(name, _)| name);
        Self { bits: flags.bits(), names: names.collect() }
    }

    /// Creates flags with the names that the bits have in `table`.
    pub(super) fn new(bits: u64, table: &[(u64, &'static str)]) -> Self {
        let names = table.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
        Self { bits, names: names.collect() }
    }

    /// Returns the names with bars between them.
    pub(super) fn joined(&self) -> String {
        self.names.join("|")
    }
}
