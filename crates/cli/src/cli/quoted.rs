//! Words in which quotes or backslashes keep wildcards from being some, and words that begin with
//! the home directory.

use std::collections::{BTreeMap, BTreeSet};

/// A word of a line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Word {
    pub(in crate::cli) bytes: Vec<u8>,
    /// The word as a pattern of glob(7), in which backslashes precede what was quoted; `None` if it
    /// is the word itself.
    pub(in crate::cli) pattern: Option<Vec<u8>>,
    /// True if it begins with an unquoted `~`, which is the home directory in a path on the host.
    pub(in crate::cli) is_home: bool,
}

/// The words of a line that quotes make others than they look.
#[derive(Debug, Default)]
pub(in crate::cli) struct QuotedWords {
    /// The words that are not their own patterns, with their patterns.
    patterns: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The words that begin with the home directory.
    homes: BTreeSet<Vec<u8>>,
}

impl QuotedWords {
    /// Returns those of a line.
    pub(in crate::cli) fn of(words: &[Word]) -> Self {
        let quoted = words.iter().filter_map(|word| Some((word, word.pattern.clone()?)));
        let homes = words.iter().filter(|word| word.is_home);
        Self {
            patterns: quoted.map(|(word, pattern)| (word.bytes.clone(), pattern)).collect(),
            homes: homes.map(|word| word.bytes.clone()).collect(),
        }
    }

    /// Returns the pattern of a word; `None` if it is the word itself.
    pub(in crate::cli) fn pattern_of(&self, word: &[u8]) -> Option<&[u8]> {
        self.patterns.get(word).map(Vec::as_slice)
    }

    /// Returns true if a path on the host begins with the home directory.
    pub(in crate::cli) fn is_home(&self, word: &[u8]) -> bool {
        self.homes.contains(word)
    }
}
