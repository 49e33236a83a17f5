//! Tips in errors of the command line.

use std::ffi::OsString;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The minimum number of letters at the start of a word that is meant by them.
const PREFIX_MIN: usize = 4;
/// The maximum number of letters in which a word differs from the one that is meant.
const DIFFERENCES_MAX: usize = 2;

/// The words that were not understood, and the tips that name others.
const TIPS: [(ContextKind, ContextKind); 3] = [
    (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    (ContextKind::InvalidValue, ContextKind::SuggestedValue),
];

/// Removes tips that mislead from an error of parsing `words`:
///
/// 1. The tip to pass a word that looks like an option as a value names a path that begins with a
///    dash, where nearly always the option does not exist.
/// 2. The tip that another word exists helps only if that is nearly the same word.
///
/// An unknown option is named as it was typed.
pub(crate) fn without_misleading(
    mut error: clap::Error,
    command: &mut Command,
    words: &[OsString],
) -> clap::Error {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let tips: Vec<_> =
            tips.into_iter().filter(|tip| !tip.to_string().starts_with("to pass ")).collect();
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    let verb = verb_of(command, words);
    if let Some(mut unknown) = unknown_option(&error, verb) {
        unknown.insert(ContextKind::Usage, ContextValue::StyledStr(verb.render_usage()));
        return unknown;
    }
    if verb.get_name() == "find"
        && let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg)
        && let Some(word) = whole_word(typed, words)
    {
        error.insert(ContextKind::InvalidArg, ContextValue::String(word));
    }
    for (invalid, tip) in TIPS {
        let Some(ContextValue::String(typed)) = error.get(invalid).cloned() else { continue };
        let Some(tips) = error.remove(tip) else { continue };
        if let Some(tips) = near(&typed, tips) {
            error.insert(tip, tips);
        } else if tip == ContextKind::SuggestedArg {
            // The usage has the option of the tip, too.
            let usage = usage(command, words);
            error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
        }
    }
    error
}

/// Returns the tips that name nearly the same word; `None` if none does.
fn near(typed: &str, tips: ContextValue) -> Option<ContextValue> {
    match tips {
        ContextValue::String(tip) => is_near(typed, &tip).then_some(ContextValue::String(tip)),
        ContextValue::Strings(mut tips) => {
            tips.retain(|tip| is_near(typed, tip));
            (!tips.is_empty()).then_some(ContextValue::Strings(tips))
        }
        other => Some(other),
    }
}

/// Returns true if a word is the start of another one, or differs from it in few letters.
fn is_near(typed: &str, existing: &str) -> bool {
    let typed = typed.trim_start_matches('-');
    let existing = existing.trim_start_matches('-');
    let len = typed.chars().count();
    let is_start = len >= PREFIX_MIN && existing.starts_with(typed);
    is_start || differences(typed, existing) <= DIFFERENCES_MAX.min(len / 3)
}

/// Returns the number of letters to replace, add, remove or exchange with the next one, until one
/// word is the other.
fn differences(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && *b == one[i - 1] {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Returns the usage of the verb that `words` name.
fn usage(command: &mut Command, words: &[OsString]) -> StyledStr {
    verb_of(command, words).render_usage()
}

/// Returns the definition of the verb that `words` name.
pub(crate) fn verb_of<'a>(command: &'a mut Command, words: &[OsString]) -> &'a mut Command {
    command.build();
    let mut verb = command;
    for word in words {
        if verb.find_subcommand(word).is_some() {
            verb = verb.find_subcommand_mut(word).expect("it was found");
        }
    }
    verb
}

/// Returns the word in which the parser found an unknown option of one letter. The options of
/// `find` have long names after one dash.
fn whole_word(typed: &str, words: &[OsString]) -> Option<String> {
    let letter = typed.strip_prefix('-').filter(|rest| rest.chars().count() == 1)?;
    let words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut long = words.filter(|word| word.len() > 2 && !word.starts_with("--"));
    let word = long.find(|word| word.strip_prefix('-').is_some_and(|it| it.contains(letter)))?;
    Some(word.to_owned())
}

/// Returns the error that an option is unknown if the parser took it for the mode of `chmod`, which
/// may begin with a dash.
fn unknown_option(error: &clap::Error, verb: &Command) -> Option<clap::Error> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    if verb.get_name() != "chmod" || !value.starts_with('-') {
        return None;
    }
    let mut unknown = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(verb);
    unknown.insert(ContextKind::InvalidArg, ContextValue::String(value.clone()));
    Some(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_near_if_few_letters_differ() {
        for (typed, existing) in [
            ("--reflin", "--reflink"),
            ("--recur", "--recursive"),
            ("tuoch", "touch"),
            ("subvolumes", "subvolume"),
            ("jsn", "json"),
            ("crc32", "crc32c"),
        ] {
            assert!(is_near(typed, existing), "{typed}");
        }
        for (typed, existing) in [
            ("--color", "--no-log-replay"),
            ("--dir", "--direct"),
            ("--sort", "--format"),
            ("--sectorsize", "--nodesize"),
            ("delete", "generate"),
            ("show", "chown"),
            ("import", "mount"),
        ] {
            assert!(!is_near(typed, existing), "{typed}");
        }
    }
}
