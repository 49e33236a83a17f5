//! The predicates of `find`: options whose long names have one dash, as in find(1), and which an
//! operator before them negates.
//!
//! 1. The parser gets `-name X` as `--name=X`, so that X may begin with a dash, and `! -name X` as
//!    `--not-name=X`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The predicates that can be negated; all but the last take a value.
const TESTS: [&str; 5] = ["name", "iname", "path", "type", "empty"];
/// The other options with a value, and those without.
const WITH_VALUE: [&str; 2] = ["maxdepth", "mindepth"];
const WITHOUT_VALUE: [&str; 4] = ["print", "print0", "xdev", "mount"];

/// Returns the words after `find` as the parser has them, or a message if there is an operator that
/// is not supported.
pub(crate) fn with_long_names(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut words = words.into_iter();
    let mut converted = Vec::new();
    // Whether the operators before the next word negate it; `None` if there are none.
    let mut negates: Option<bool> = None;
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"!" | b"-not" => {
                negates = Some(!negates.unwrap_or(false));
                continue;
            }
            b"(" | b")" => {
                return Err(format!(
                    "'{}' is not supported: all predicates must match",
                    word.display()
                ));
            }
            _ => {}
        }
        let predicate = Predicate::parse(&word);
        if negates.is_some() && !predicate.as_ref().is_some_and(|it| TESTS.contains(&it.name)) {
            return Err(needs_test());
        }
        let is_negated = negates.take() == Some(true);
        match predicate {
            Some(predicate) => converted.push(predicate.option(is_negated, &mut words)),
            None if word == "--" => {
                converted.push(word);
                converted.extend(words.by_ref());
            }
            None => converted.push(word),
        }
    }
    if negates.is_some() { Err(needs_test()) } else { Ok(converted) }
}

fn needs_test() -> String {
    "'!' must be followed by -name, -iname, -path, -type or -empty".to_owned()
}

/// A predicate on the command line.
struct Predicate<'a> {
    name: &'static str,
    /// The value after `=` in the same word.
    value: Option<&'a [u8]>,
}

impl<'a> Predicate<'a> {
    /// Parses `-name`, `--name` or `--name=VALUE`; `None` if the word is no predicate.
    fn parse(word: &'a OsStr) -> Option<Self> {
        let word = word.as_bytes();
        let text = word.strip_prefix(b"--").or_else(|| word.strip_prefix(b"-"))?;
        let mut parts = text.splitn(2, |byte| *byte == b'=');
        let given = parts.next()?;
        let mut names = TESTS.into_iter().chain(WITH_VALUE).chain(WITHOUT_VALUE);
        let name = names.find(|name| name.as_bytes() == given)?;
        Some(Self { name, value: parts.next() })
    }

    /// Returns the option for the parser; its value may be the next word.
    fn option(&self, is_negated: bool, rest: &mut impl Iterator<Item = OsString>) -> OsString {
        let mut option = OsString::from(if is_negated { "--not-" } else { "--" });
        option.push(self.name);
        let takes_value = self.name != "empty" && !WITHOUT_VALUE.contains(&self.name);
        let value = match self.value {
            Some(value) => Some(OsStr::from_bytes(value).to_owned()),
            None if takes_value => rest.next(),
            None => None,
        };
        if let Some(value) = value {
            option.push("=");
            option.push(value);
        }
        option
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from);
        let words = with_long_names(words.collect())?;
        let words = words.iter().map(|word| word.to_str().expect("it is text"));
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn predicates_get_two_dashes_and_their_value() {
        for (line, expected) in [
            ("i / -name -x -empty", "i / --name=-x --empty"),
            ("-xdev i --type=f -print0", "--xdev i --type=f --print0"),
            ("i -not -type d ! ! -empty", "i --not-type=d --empty"),
            ("i ! --path=*=", "i --not-path=*="),
            ("i -maxdepth 1 -name", "i --maxdepth=1 --name"),
            ("i -- ! -name", "i -- ! -name"),
        ] {
            assert_eq!(long(line), Ok(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn operators_that_are_not_supported_are_refused() {
        for line in ["i ( -name x )", "i !", "i ! /", "i ! -maxdepth 1"] {
            assert!(long(line).is_err(), "{line}");
        }
    }
}
