//! Completion of verbs, options and paths at the prompt.
//!
//! 1. The first word is a verb. A word that starts with a dash is an option of the verb; others are
//!    paths in the image, except the first one of `put`, all of `lcd`, and those of `get` after its
//!    first one, which are paths on the host.
//! 2. A completed word is quoted as the shell needs it.

use std::env;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use userbtrfs::{FileKind, Filesystem};

use crate::cli::host::signals::PromptFilesystem;

/// A verb with its options.
struct Verb {
    name: String,
    options: Vec<String>,
}

/// The completer of the prompt.
pub(super) struct ShellHelper {
    verbs: Vec<Verb>,
    filesystem: PromptFilesystem,
}

/// The word before the cursor.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    /// Its place in the line.
    start: usize,
    /// Its text without quotes.
    text: String,
    /// The quote that is open.
    quote: Option<char>,
}

/// A name that completes a word.
struct Found {
    name: String,
    is_dir: bool,
}

impl ShellHelper {
    /// Completes the verbs of `command`, and paths in `filesystem`.
    pub(super) fn new(command: &clap::Command, filesystem: PromptFilesystem) -> Self {
        let options = |verb: &clap::Command| {
            let names = verb.get_arguments().filter(|arg| !arg.is_hide_set());
            names.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
        };
        let verb = |verb: &clap::Command| Verb {
            name: verb.get_name().to_owned(),
            options: options(verb),
        };
        let mut verbs: Vec<_> = command.get_subcommands().map(verb).collect();
        verbs.push(Verb { name: "help".to_owned(), options: Vec::new() });
        Self { verbs, filesystem }
    }

    /// Returns the names that complete the last of the words.
    fn candidates(&self, words: &[Word]) -> Vec<Pair> {
        let Some((word, before)) = words.split_last() else { return Vec::new() };
        let Some(verb) = before.first() else {
            let names = self.verbs.iter().map(|verb| &verb.name);
            return complete(names.filter(|name| name.starts_with(&word.text)), word);
        };
        if word.text.starts_with('-') {
            let verb = self.verbs.iter().find(|it| it.name == verb.text);
            let options = verb.iter().flat_map(|verb| &verb.options);
            return complete(options.filter(|name| name.starts_with(&word.text)), word);
        }
        let is_first = !before[1..].iter().any(|word| !word.text.starts_with('-'));
        let on_host = match verb.text.as_str() {
            "lcd" => true,
            "put" => is_first,
            "get" => !is_first,
            _ => false,
        };
        let slash = word.text.rfind('/').map_or(0, |slash| slash + 1);
        let (dir, prefix) = word.text.split_at(slash);
        let mut found = if on_host { on_the_host(dir) } else { self.in_the_image(dir) };
        found.retain(|it| {
            it.name.starts_with(prefix) && (!it.name.starts_with('.') || prefix.starts_with('.'))
        });
        if matches!(verb.text.as_str(), "cd" | "lcd" | "rmdir") {
            found.retain(|it| it.is_dir);
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let is_only = found.len() == 1;
        let pair = |it: &Found| {
            let end = if it.is_dir { "/" } else { "" };
            let text = quoted(&format!("{dir}{}{end}", it.name), word.quote, is_only && !it.is_dir);
            Pair { display: format!("{}{end}", it.name), replacement: text }
        };
        found.iter().map(pair).collect()
    }

    fn in_the_image(&self, dir: &str) -> Vec<Found> {
        let filesystem = self.filesystem.lock().expect("no holder panics");
        let names = |filesystem: &Filesystem| {
            let dir = filesystem.open_dir(if dir.is_empty() { "." } else { dir }).ok()?;
            let found = dir.entries().flatten().filter_map(|entry| {
                let name = String::from_utf8(entry.name().to_vec()).ok()?;
                Some(Found { name, is_dir: entry.kind() == Some(FileKind::Directory) })
            });
            Some(found.collect())
        };
        filesystem.as_ref().and_then(names).unwrap_or_default()
    }
}

fn on_the_host(dir: &str) -> Vec<Found> {
    let at_home = dir.strip_prefix("~/").zip(env::var_os("HOME"));
    let dir = match at_home {
        Some((rest, home)) => Path::new(&home).join(rest),
        None => PathBuf::from(if dir.is_empty() { "." } else { dir }),
    };
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let found = entries.flatten().filter_map(|entry| {
        let is_dir = Path::new(&entry.path()).is_dir();
        let name = String::from_utf8(entry.file_name().as_bytes().to_vec()).ok()?;
        Some(Found { name, is_dir })
    });
    found.collect()
}

/// Returns the pairs of names that are no paths.
fn complete<'a>(names: impl Iterator<Item = &'a String>, word: &Word) -> Vec<Pair> {
    let names: Vec<_> = names.collect();
    let is_only = names.len() == 1;
    let replacement = |name: &String| quoted(name, word.quote, is_only);
    names.iter().map(|it| Pair { display: (*it).clone(), replacement: replacement(it) }).collect()
}

/// Returns a word as it is typed, with the quote that was open; a word that ends is followed by a
/// blank.
fn quoted(text: &str, quote: Option<char>, ends: bool) -> String {
    let mut word = String::new();
    word.extend(quote);
    for letter in text.chars() {
        let needs_escape = match quote {
            None => letter.is_whitespace() || "'\"\\;#&|<>".contains(letter),
            Some('"') => matches!(letter, '"' | '\\'),
            Some(_) => false,
        };
        word.extend(needs_escape.then_some('\\'));
        word.push(letter);
    }
    if ends {
        word.extend(quote);
        word.push(' ');
    }
    word
}

/// Splits a line into words; the last one, which may be empty, ends at the end of the line.
fn split(line: &str) -> Vec<Word> {
    let mut words = vec![Word { start: 0, text: String::new(), quote: None }];
    let mut letters = line.char_indices();
    let mut is_between = true;
    while let Some((at, letter)) = letters.next() {
        let word = words.last_mut().expect("there is always one");
        match (word.quote, letter) {
            (None, blank) if blank.is_whitespace() => {
                let start = at + blank.len_utf8();
                if is_between {
                    word.start = start;
                } else {
                    words.push(Word { start, text: String::new(), quote: None });
                }
                is_between = true;
                continue;
            }
            (None, '\'' | '"') => word.quote = Some(letter),
            (Some(quote), letter) if quote == letter => word.quote = None,
            (None | Some('"'), '\\') => word.text.extend(letters.next().map(|(_, next)| next)),
            _ => word.text.push(letter),
        }
        is_between = false;
    }
    words
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let words = split(&line[..pos]);
        let start = words.last().map_or(pos, |word| word.start);
        Ok((start, self.candidates(&words)))
    }
}

impl Hinter for ShellHelper {
    type Hint = String;
}

impl Highlighter for ShellHelper {}
impl Validator for ShellHelper {}
impl Helper for ShellHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(line: &str) -> Word {
        split(line).pop().unwrap()
    }

    #[test]
    fn last_word_is_the_one_before_the_cursor() {
        let word = |start, text: &str, quote| Word { start, text: text.to_owned(), quote };
        assert_eq!(last(""), word(0, "", None));
        assert_eq!(last("ls  /a"), word(4, "/a", None));
        assert_eq!(last("ls "), word(3, "", None));
        assert_eq!(last("cat 'a b"), word(4, "a b", Some('\'')));
        assert_eq!(last(r"cat a\ b"), word(4, "a b", None));
        assert_eq!(split("put x /y").len(), 3);
    }

    #[test]
    fn completed_words_are_quoted() {
        assert_eq!(quoted("a b", None, true), "a\\ b ");
        assert_eq!(quoted("a b", Some('\''), true), "'a b' ");
        assert_eq!(quoted("a\"b", Some('"'), false), "\"a\\\"b");
    }

    #[test]
    fn verbs_and_their_options_are_completed() {
        let option = clap::Arg::new("long").long("long");
        let verb = clap::Command::new("list").arg(option);
        let command = clap::Command::new("").subcommand(verb).subcommand(clap::Command::new("put"));
        let helper = ShellHelper::new(&command, PromptFilesystem::default());
        let found = |line: &str| -> Vec<String> {
            helper.candidates(&split(line)).into_iter().map(|pair| pair.replacement).collect()
        };
        assert_eq!(found("li"), ["list "]);
        assert_eq!(found("list --l"), ["--long "]);
        assert_eq!(found("x"), [""; 0]);
        assert_eq!(found("list /a"), [""; 0]);
    }
}
