//! Splits a line into words, as a shell does.
//!
//! 1. Blanks separate words. Single quotes keep everything; double quotes keep everything but a
//!    backslash before a double quote or a backslash; elsewhere a backslash keeps the next byte.
//! 2. A `#` at the start of a word begins a comment.
//! 3. Quotes end on the line on which they begin.
//! 4. What is quoted is no wildcard.
//! 5. An unquoted `~` at the start of a word is the home directory in paths on the host; the verbs
//!    replace it, since only they know which paths are in the image.
//! 6. A line is one command: an unquoted `;`, `<` or `>`, and the words `&&`, `||`, `|` and `&`,
//!    are refused.

use anyhow::{Result, bail};
use userbtrfs::Quoted;

use crate::cli::globs::is_wildcard;
use crate::cli::quoted::Word;

/// Words that mean something to shells, and nothing here.
const OPERATORS: [&[u8]; 4] = [b"&&", b"||", b"|", b"&"];

/// Returns the words of a line.
pub(in crate::cli) fn words(line: &[u8]) -> Result<Vec<Word>> {
    let mut rest = line;
    let mut words = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        match rest.first() {
            None | Some(b'#') => return Ok(words),
            Some(_) => {
                let start = rest;
                let word = word(&mut rest)?;
                let is_bare = word.bytes.len() == start.len() - rest.len();
                if is_bare && OPERATORS.contains(&word.bytes.as_slice()) {
                    bail!("\"{}\" is not supported: one command a line", Quoted(&word.bytes));
                }
                words.push(word);
            }
        }
    }
}

/// A word of which a part was taken.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    pattern: Vec<u8>,
    /// True if the first byte is an unquoted `~`.
    is_home: bool,
}

impl Taken {
    fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.pattern.push(byte);
    }

    fn push_quoted(&mut self, byte: u8) {
        if is_wildcard(byte) || byte == b'\\' {
            self.pattern.push(b'\\');
        }
        self.push(byte);
    }

    fn end(self) -> Word {
        let Self { bytes, pattern, is_home } = self;
        let pattern = (pattern != bytes).then_some(pattern);
        // `~name` is a name.
        let is_home = is_home && matches!(bytes.get(1), None | Some(b'/'));
        Word { bytes, pattern, is_home }
    }
}

/// Takes the first word from `rest`.
fn word(rest: &mut &[u8]) -> Result<Word> {
    let mut word = Taken::default();
    while let Some((&byte, after)) = rest.split_first() {
        if byte.is_ascii_whitespace() {
            break;
        }
        *rest = after;
        match byte {
            b'\'' => single_quoted(rest)?.iter().for_each(|byte| word.push_quoted(*byte)),
            b'"' => double_quoted(rest, &mut word)?,
            b'\\' => word.push_quoted(next(rest)?),
            b';' => bail!("\";\" is not supported: one command a line"),
            b'<' | b'>' => {
                let sign = char::from(byte);
                bail!("\"{sign}\" is not supported: put and get copy files, and quotes keep it");
            }
            byte => {
                word.is_home |= byte == b'~' && word.bytes.is_empty();
                word.push(byte);
            }
        }
    }
    Ok(word.end())
}

fn single_quoted<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let Some(end) = rest.iter().position(|byte| *byte == b'\'') else {
        bail!("unterminated single quote");
    };
    let quoted = &rest[..end];
    let after = &rest[end + 1..];
    *rest = after;
    Ok(quoted)
}

fn double_quoted(rest: &mut &[u8], word: &mut Taken) -> Result<()> {
    while let Some((&byte, after)) = rest.split_first() {
        *rest = after;
        match (byte, after.first()) {
            (b'"', _) => return Ok(()),
            (b'\\', Some(b'"' | b'\\')) => word.push_quoted(next(rest)?),
            (byte, _) => word.push_quoted(byte),
        }
    }
    bail!("unterminated double quote")
}

fn next(rest: &mut &[u8]) -> Result<u8> {
    match rest.split_first() {
        Some((&byte, after)) if byte != b'\n' => {
            *rest = after;
            Ok(byte)
        }
        _ => bail!("trailing backslash"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Vec<String> {
        let words = words(line.as_bytes()).unwrap();
        words.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect()
    }

    #[test]
    fn blanks_separate_words_and_quotes_join_them() {
        assert_eq!(split("  ls  -l /a\t/b\n"), ["ls", "-l", "/a", "/b"]);
        assert_eq!(split(r#"a 'b c'"d e"f g\ h"#), ["a", "b cd ef", "g h"]);
        assert_eq!(split(r#"'a\b' "a\b" "\"\\" '' """#), [r"a\b", r"a\b", r#""\"#, "", ""]);
    }

    #[test]
    fn quoted_wildcards_stand_for_themselves() {
        let pattern = |line: &str| {
            let word = words(line.as_bytes()).unwrap().remove(0);
            word.pattern.map(|pattern| String::from_utf8(pattern).unwrap())
        };
        assert_eq!(pattern("/a*"), None);
        assert_eq!(pattern("'/a b'"), None);
        assert_eq!(pattern(r"'/a*'").unwrap(), r"/a\*");
        assert_eq!(pattern(r#""a*"*\?[x]"#).unwrap(), r"a\**\?[x]");
        assert_eq!(pattern(r"'\'").unwrap(), r"\\");
    }

    #[test]
    fn home_is_an_unquoted_tilde_at_the_start() {
        let is_home = |line: &str| words(line.as_bytes()).unwrap().remove(0).is_home;
        for home in ["~", "~/", "~/a", "~/'a b'"] {
            assert!(is_home(home), "{home}");
        }
        for other in ["~a", "a~", "'~'", r"\~/a", "\"~/a\"", "/~", "~~/a"] {
            assert!(!is_home(other), "{other}");
        }
    }

    #[test]
    fn operators_of_shells_are_refused_unless_quoted() {
        for bad in ["mkdir /a; ls", "mkdir /a;ls", "ls && sync", "ls | cat", "ls &", ";"] {
            let error = words(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("not supported: one command a line"), "{error}");
        }
        assert_eq!(split(r#"a\;b 'c;' "&&" \| d&e"#), ["a;b", "c;", "&&", "|", "d&e"]);
        for bad in ["cat /a > b", "cat /a >b", "ls>b", "ls >> b", "put - /a < b"] {
            let error = words(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("not supported: put and get"), "{error}");
        }
        assert_eq!(split(r#"a\>b '<c' ">""#), ["a>b", "<c", ">"]);
    }

    #[test]
    fn comments_end_a_line() {
        assert_eq!(split("# all"), [""; 0]);
        assert_eq!(split("ls a#b '#' # rest"), ["ls", "a#b", "#"]);
    }

    #[test]
    fn unterminated_quote_or_backslash_is_refused() {
        for bad in ["'a", "\"a", "\"a\\\"", "a\\", "a\\\n"] {
            assert!(words(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
