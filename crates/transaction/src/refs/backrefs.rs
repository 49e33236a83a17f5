//! The changes of an extent's references by backref: usually there is one.
//!
//! 1. Backrefs are in order, each once, and none with a change of 0.

use userbtrfs_btree::Backref;

/// The changes of the references of an extent, by backref.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackrefChanges(Vec<(Backref, i64)>);

impl BackrefChanges {
    /// Adds references of a backref, or removes them.
    pub(super) fn add(&mut self, backref: Backref, by: i64) {
        match self.at(&backref) {
            Ok(at) => {
                self.0[at].1 += by;
                if self.0[at].1 == 0 {
                    self.0.remove(at);
                }
            }
            Err(_) if by == 0 => {}
            Err(at) => {
                if self.0.is_empty() {
                    // There are very many of these lists, and few grow.
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (backref, by));
            }
        }
    }

    /// Returns the change of one backref, if there is one.
    pub fn get(&self, backref: &Backref) -> Option<&i64> {
        self.at(backref).ok().map(|at| &self.0[at].1)
    }

    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the backrefs, in order, and their changes.
    pub fn iter(&self) -> impl Iterator<Item = (&Backref, &i64)> {
        self.0.iter().map(|(backref, by)| (backref, by))
    }

    /// Returns the same as a slice.
    pub(super) fn as_slice(&self) -> &[(Backref, i64)] {
        &self.0
    }

    /// Returns the sum of all changes.
    pub fn net(&self) -> i64 {
        self.0.iter().fold(0, |sum, (_, by)| sum.saturating_add(*by))
    }

    fn at(&self, backref: &Backref) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(backref))
    }
}

impl FromIterator<(Backref, i64)> for BackrefChanges {
    fn from_iter<I: IntoIterator<Item = (Backref, i64)>>(changes: I) -> Self {
        let mut all = Self::default();
        for (backref, by) in changes {
            all.add(backref, by);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_format::{Logical, TreeId};

    use super::*;

    #[test]
    fn opposite_changes_of_each_backref_cancel_out() {
        let backrefs = [Backref::Tree(TreeId::FS), Backref::Parent(Logical(4096))];
        let mut changes = BackrefChanges::default();
        changes.add(backrefs[1], 2);
        changes.add(backrefs[0], 1);
        changes.add(backrefs[1], -1);
        let found: Vec<_> = changes.iter().map(|(backref, by)| (*backref, *by)).collect();
        assert_eq!(found, [(backrefs[0], 1), (backrefs[1], 1)]);
        assert_eq!((changes.net(), changes.get(&backrefs[1])), (2, Some(&1)));
        changes.add(backrefs[1], -1);
        changes.add(backrefs[0], -1);
        assert!(changes.is_empty() && changes.get(&backrefs[0]).is_none());
    }
}
