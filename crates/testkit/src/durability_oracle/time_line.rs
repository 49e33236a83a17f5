//! The values of something over time. A moment is the index of an operation.

/// The values of something, each with the moment of its start.
#[derive(Clone, Debug)]
pub(super) struct TimeLine<T>(pub(super) Vec<(usize, T)>);

impl<T> Default for TimeLine<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> TimeLine<T> {
    pub(super) fn note(&mut self, now: usize, value: T) {
        if self.0.last().is_none_or(|(_, last)| *last != value) {
            self.0.push((now, value));
        }
    }

    /// Returns the values in a span, the last one first.
    pub(super) fn within(&self, (from, to): Span) -> impl Iterator<Item = &T> {
        let first = self.0.partition_point(|(moment, _)| *moment <= from).saturating_sub(1);
        let end = self.0.partition_point(|(moment, _)| *moment <= to).max(first);
        self.0[first..end].iter().rev().map(|(_, value)| value)
    }

    pub(super) fn changed(&self, (from, to): Span) -> bool {
        self.0.iter().any(|(moment, _)| *moment > from && *moment <= to)
    }

    pub(super) fn at(&self, moment: usize) -> Option<&T> {
        let end = self.0.partition_point(|(since, _)| *since <= moment);
        end.checked_sub(1).map(|index| &self.0[index].1)
    }
}

/// The first moment and the last.
pub(super) type Span = (usize, usize);
