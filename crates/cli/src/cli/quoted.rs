//! Words in which quotes or backslashes keep wildcards from being some.

use std::collections::BTreeMap;

/// A word of a line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Word {
    pub(in crate::cli) bytes: Vec<u8>,
    /// The word as a pattern of glob(7), in which backslashes precede what was quoted; `None` if it
    /// is the word itself.
    pub(in crate::cli) pattern: Option<Vec<u8>>,
}

/// The words of a line that are not their own patterns, with their patterns.
#[derive(Debug, Default)]
pub(in crate::cli) struct QuotedWords(BTreeMap<Vec<u8>, Vec<u8>>);

impl QuotedWords {
    /// Returns those of a line.
    pub(in crate::cli) fn of(words: &[Word]) -> Self {
        let quoted = words.iter().filter_map(|word| Some((word, word.pattern.clone()?)));
        Self(quoted.map(|(word, pattern)| (word.bytes.clone(), pattern)).collect())
    }

    /// Returns the pattern of a word; `None` if it is the word itself.
    pub(in crate::cli) fn pattern_of(&self, word: &[u8]) -> Option<&[u8]> {
        self.0.get(word).map(Vec::as_slice)
    }
}
