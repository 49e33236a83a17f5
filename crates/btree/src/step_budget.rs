//! The bound of a step of a drop.

/// The bound of a step, in references.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepBudget {
    max: u64,
    changed: u64,
    visited: u64,
    /// Whether the step got further: the next one would not only repeat it.
    advanced: bool,
}

impl StepBudget {
    /// Returns the bound of a step of `max` references.
    pub(crate) fn new(max: u64) -> Self {
        Self { max, ..Self::default() }
    }

    /// Returns whether the step should end.
    pub(crate) fn is_spent(&self) -> bool {
        self.advanced && self.changed.saturating_add(self.visited) >= self.max
    }

    /// Returns whether `cost` more changes fit; anything fits into a step that changed nothing
    /// yet: after a crash it may have to visit the same blocks again.
    pub(crate) fn fits(&self, cost: u64) -> bool {
        self.changed == 0 || self.changed.saturating_add(cost) <= self.max
    }

    /// Counts changes of references.
    pub(crate) fn spend(&mut self, cost: u64) {
        self.changed = self.changed.saturating_add(cost);
        self.advanced = true;
    }

    /// Records that the step got further.
    pub(crate) fn advance(&mut self) {
        self.advanced = true;
    }

    /// Counts a block that is only looked at.
    pub(crate) fn visit(&mut self) {
        self.visited = self.visited.saturating_add(1);
    }
}
