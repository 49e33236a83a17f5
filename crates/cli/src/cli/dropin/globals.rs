//! The global options of btrfs-progs, before the name of the command.

use std::ffi::OsString;

/// The global options of a command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Globals {
    pub(super) is_quiet: bool,
    pub(super) is_verbose: bool,
    pub(super) is_dry_run: bool,
    /// The format as it was given.
    pub(super) format: Option<String>,
}

impl Globals {
    /// Splits a command line after the global options. `None` if there is another option, such as
    /// `--version`.
    pub(super) fn split(arguments: &[OsString]) -> Option<(Self, &[OsString])> {
        let mut globals = Self::default();
        let mut rest = arguments;
        while let Some((word, after)) = rest.split_first()
            && word.as_encoded_bytes().starts_with(b"-")
        {
            let word = word.to_str()?;
            rest = after;
            match word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))) {
                ("--quiet", None) => globals.is_quiet = true,
                ("--verbose", None) => globals.is_verbose = true,
                ("--dry-run", None) => globals.is_dry_run = true,
                (name @ ("--format" | "--log"), value) => {
                    let value = if let Some(value) = value {
                        value
                    } else {
                        let (value, after) = rest.split_first()?;
                        rest = after;
                        value.to_str()?
                    };
                    globals.set(name, value)?;
                }
                _ => globals.set_letters(word)?,
            }
        }
        Some((globals, rest))
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match (name, value) {
            ("--format", "text" | "json") => self.format = Some(value.to_owned()),
            ("--log", "quiet") => self.is_quiet = true,
            ("--log", "verbose" | "debug") => self.is_verbose = true,
            ("--log", "default" | "info") => {}
            _ => return None,
        }
        Some(())
    }

    fn set_letters(&mut self, word: &str) -> Option<()> {
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
        for letter in letters.chars() {
            match letter {
                'q' => self.is_quiet = true,
                'v' => self.is_verbose = true,
                _ => return None,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(words: &str) -> Option<(Globals, usize)> {
        let words: Vec<_> = words.split(' ').map(OsString::from).collect();
        Globals::split(&words).map(|(globals, rest)| (globals, rest.len()))
    }

    #[test]
    fn global_options_end_at_the_group() {
        let plain = Globals::default();
        assert_eq!(split("subvolume list -q"), Some((plain, 3)));
        let json = Globals { format: Some("json".into()), is_quiet: true, ..Globals::default() };
        assert_eq!(split("-q --format json fi df x"), Some((json, 3)));
        let text = Globals { format: Some("text".into()), is_verbose: true, ..Globals::default() };
        assert_eq!(split("--format=text --log=debug fi"), Some((text, 1)));
        let both = Globals { is_quiet: true, is_verbose: true, ..Globals::default() };
        assert_eq!(split("-qv --log default"), Some((both, 0)));
    }

    #[test]
    fn other_options_are_not_ours() {
        for words in ["--version", "-x fi", "--format xml fi", "--log", "--quiet=1 fi", "-"] {
            assert_eq!(split(words), None, "{words}");
        }
    }
}
