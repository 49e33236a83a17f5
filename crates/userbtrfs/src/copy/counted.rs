//! Counts with their nouns.

use std::fmt;

/// A count and the singular of a noun whose plural takes an *s*: `1 file`, `2 files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a>(pub u64, pub &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        let ending = if *count == 1 { "" } else { "s" };
        write!(f, "{count} {what}{ending}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let words = [0, 1, 2].map(|count| Counted(count, "subvolume").to_string());
        assert_eq!(words, ["0 subvolumes", "1 subvolume", "2 subvolumes"]);
    }
}
