//! A list that usually has one element, which is then stored inline.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::slice;

/// A list that stores a single element inline.
pub(in crate::inode) enum Few<T> {
    One(T),
    /// None, or several, or the last of several.
    More(Vec<T>),
}

impl<T> Few<T> {
    pub(in crate::inode) fn push(&mut self, new: T) {
        self.insert(self.len(), new);
    }

    /// Inserts an element before the one at `at`.
    pub(in crate::inode) fn insert(&mut self, at: usize, new: T) {
        *self = match mem::take(self) {
            Self::More(list) if list.is_empty() => Self::One(new),
            Self::One(one) if at == 0 => Self::More(vec![new, one]),
            Self::One(one) => Self::More(vec![one, new]),
            Self::More(mut list) => {
                list.insert(at, new);
                Self::More(list)
            }
        };
    }

    pub(in crate::inode) fn remove(&mut self, at: usize) -> T {
        match self {
            Self::More(list) => list.remove(at),
            Self::One(_) => match mem::take(self) {
                Self::One(one) if at == 0 => one,
                _ => unreachable!("there is one element"),
            },
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut few = Self::default();
        all.into_iter().for_each(|one| few.push(one));
        few
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => slice::from_ref(one),
            Self::More(list) => list,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => slice::from_mut(one),
            Self::More(list) => list,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_order_over_insert_and_remove() {
        let mut few = Few::default();
        for (at, new) in [(0, 'b'), (0, 'a'), (2, 'c')] {
            few.insert(at, new);
        }
        assert_eq!(*few, ['a', 'b', 'c']);
        assert_eq!((few.remove(1), few.remove(0), few.remove(0)), ('b', 'a', 'c'));
        assert!(few.is_empty());
        few.push('d');
        assert_eq!((few.remove(0), few.len()), ('d', 0));
    }
}
