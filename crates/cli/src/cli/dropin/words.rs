//! The options and operands of a command, split as getopt_long(3) does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// The words of a command line after the name of the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) options: Vec<Opt>,
    pub(super) operands: Vec<OsString>,
}

/// An option with its value, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opt {
    /// The letter or the long name.
    pub(super) name: String,
    pub(super) value: Option<OsString>,
}

impl Opt {
    /// Returns the option as one word of a command line.
    pub(super) fn word(&self) -> OsString {
        let is_letter = self.name.chars().nth(1).is_none();
        let dashes = if is_letter { "-" } else { "--" };
        let mut word = OsString::from(format!("{dashes}{}", self.name));
        if let Some(value) = &self.value {
            word.push(if is_letter { "" } else { "=" });
            word.push(value);
        }
        word
    }
}

impl Words {
    /// Returns the value of an option, by its letter or its long name; the last one counts.
    pub(super) fn value(&self, names: [&str; 2]) -> Option<&OsStr> {
        let given = self.options.iter().rev();
        given.filter(|opt| names.contains(&&*opt.name)).find_map(|opt| opt.value.as_deref())
    }

    /// Returns true if an option is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|opt| opt.name == name)
    }

    /// Returns the options without those of these names.
    pub(super) fn options_without(&self, names: &[&str]) -> Vec<OsString> {
        let kept = self.options.iter().filter(|opt| !names.contains(&&*opt.name));
        kept.map(Opt::word).collect()
    }
}

/// Splits words; `valued` are the options that have a value. `None` if the value of an option is
/// missing, or an option has bytes that are not UTF-8.
pub(super) fn split(words: &[OsString], valued: &[&str]) -> Option<Words> {
    let mut split = Words::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        match bytes {
            b"--" => {
                split.operands.extend(words.by_ref().cloned());
            }
            [b'-', b'-', long @ ..] => {
                let end = long.iter().position(|byte| *byte == b'=').unwrap_or(long.len());
                let name = str::from_utf8(&long[..end]).ok()?.to_owned();
                let value = match long.get(end + 1..) {
                    Some(value) => Some(OsString::from_vec(value.to_vec())),
                    None if valued.contains(&&*name) => Some(words.next()?.clone()),
                    None => None,
                };
                split.options.push(Opt { name, value });
            }
            // A number is the size of `resize`, and no option.
            [b'-', first, ..] if !first.is_ascii_digit() => {
                split_letters(&mut split, &bytes[1..], valued, || words.next().cloned())?;
            }
            _ => split.operands.push(word.clone()),
        }
    }
    Some(split)
}

/// Adds the options of a word of letters; `next` returns the next word.
fn split_letters(
    split: &mut Words,
    letters: &[u8],
    valued: &[&str],
    next: impl FnOnce() -> Option<OsString>,
) -> Option<()> {
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_ascii() {
            return None;
        }
        let name = char::from(*letter).to_string();
        // A value of this option can only be attached.
        if valued.contains(&&*format!("{name}?")) {
            let attached = &letters[at + 1..];
            let value = (!attached.is_empty()).then(|| OsString::from_vec(attached.to_vec()));
            split.options.push(Opt { name, value });
            return Some(());
        }
        if valued.contains(&&*name) {
            let value = match &letters[at + 1..] {
                [] => next()?,
                attached => OsString::from_vec(attached.to_vec()),
            };
            split.options.push(Opt { name, value: Some(value) });
            return Some(());
        }
        split.options.push(Opt { name, value: None });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of(words: &str, valued: &[&str]) -> Option<(String, String)> {
        let words: Vec<_> = words.split(' ').map(OsString::from).collect();
        let split = split(&words, valued)?;
        let join = |words: Vec<OsString>| words.join(OsStr::new(" ")).into_string().unwrap();
        Some((join(split.options_without(&[])), join(split.operands)))
    }

    #[test]
    fn options_and_operands_are_mixed() {
        let valued = ["G", "sort", "c?"];
        for (words, options, operands) in [
            ("-tpc a", "-t -p -c", "a"),
            ("a -tG +8 b --sort gen", "-t -G+8 --sort=gen", "a b"),
            ("-G-8 --sort=-gen a", "-G-8 --sort=-gen", "a"),
            ("-rczstd a", "-r -czstd", "a"),
            ("-c -r a", "-c -r", "a"),
            ("-t -- -a --b", "-t", "-a --b"),
            ("-1G +2M - /mnt", "", "-1G +2M - /mnt"),
            ("--subvolid=5 x", "--subvolid=5", "x"),
        ] {
            let expected = Some((options.to_owned(), operands.to_owned()));
            assert_eq!(split_of(words, &valued), expected, "{words}");
        }
    }

    #[test]
    fn missing_value_is_not_ours() {
        assert_eq!(split_of("a -G", &["G"]), None);
        assert_eq!(split_of("a --sort", &["sort"]), None);
    }
}
