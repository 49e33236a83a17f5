//! Rules on text, line by line.
//!
//! In Rust files:
//! 1. A line has at most 100 characters, unless it contains a URL.
//! 2. The file begins with a `//!` comment that describes it.
//! 3. Only ASCII: other characters are written as escapes.
//! 4. No marker of unfinished work, no ignored test, no debugging print.
//!
//! In every file:
//! 5. No path of one developer's machine, no host of a package registry.
//!
//! The forbidden words are concatenated from halves here, so that this file passes its own rules.

use super::finding::Finding;
use super::workspace::Text;

const COLUMNS_MAX: usize = 100;

/// Marks of unfinished work, or of a test that does not run.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("#[", "ignore"),
];

/// Text specific to one machine; a path only matches if it is absolute.
const MACHINE_WORDS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("index.cr", "ates"),
    concat!("static.cr", "ates"),
    concat!("registry.np", "mjs"),
    concat!("files.python", "hosted"),
    concat!("proxy.go", "lang"),
];

/// Checks one Rust file.
pub(super) fn check(text: &Text) -> Vec<Finding> {
    let finding = |line, what: String| Finding::new(&text.path, line, what);
    let mut findings = Vec::new();
    if !text.text.starts_with("//!") {
        findings.push(finding(1, "the file does not begin with a //! comment".to_owned()));
    }
    for (line, content) in numbered(text) {
        let columns = content.chars().count();
        if columns > COLUMNS_MAX && !content.contains("://") {
            findings.push(finding(line, format!("{columns} columns, over {COLUMNS_MAX}")));
        }
        if !content.is_ascii() {
            findings.push(finding(line, "a character that is not ASCII".to_owned()));
        }
        for word in LEFTOVERS.iter().filter(|word| has_word(content, word)) {
            findings.push(finding(line, format!("leftover `{word}`")));
        }
    }
    findings
}

/// Checks any file for words that must not be committed.
pub(super) fn check_words(text: &Text) -> Vec<Finding> {
    let words = |(line, content): (usize, &str)| {
        let found = MACHINE_WORDS.iter().filter(|word| has_word(content, word));
        found
            .map(|word| Finding::new(&text.path, line, format!("names a machine: `{word}`")))
            .collect::<Vec<_>>()
    };
    numbered(text).flat_map(words).collect()
}

fn numbered(text: &Text) -> impl Iterator<Item = (usize, &str)> {
    text.text.lines().enumerate().map(|(index, content)| (index + 1, content))
}

/// Returns true if `content` contains `word`, not as part of a longer word.
fn has_word(content: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    content.match_indices(word).any(|(at, _)| {
        let before = content[..at].chars().next_back();
        let after = content[at + word.len()..].chars().next();
        let open_end = !word.ends_with(char::is_alphanumeric);
        let joined =
            before.is_some_and(|c| part(c) || c == '.') || (!open_end && after.is_some_and(part));
        !joined
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(check: fn(&Text) -> Vec<Finding>, text: &str) -> Vec<String> {
        let text = Text { path: "a.rs".to_owned(), text: text.to_owned() };
        check(&text).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_in_order_has_no_findings() {
        let url = format!("//! Head.\n// See https://example.org/{}\n", "a".repeat(100));
        assert!(findings(check, &url).is_empty());
        assert!(findings(check_words, &url).is_empty());
    }

    #[test]
    fn a_long_line_is_found() {
        let text = format!("//! Head.\n// {}\n", "a".repeat(98));
        assert_eq!(findings(check, &text), ["a.rs:2: 101 columns, over 100"]);
    }

    #[test]
    fn a_missing_head_comment_is_found() {
        let found = findings(check, "fn f() {}\n");
        assert_eq!(found, ["a.rs:1: the file does not begin with a //! comment"]);
    }

    #[test]
    fn a_character_beyond_ascii_is_found() {
        let found = findings(check, "//! Caf\u{e9}.\n");
        assert_eq!(found, ["a.rs:1: a character that is not ASCII"]);
    }

    #[test]
    fn each_leftover_is_found() {
        for word in LEFTOVERS {
            let found = findings(check, &format!("//! Head.\n// {word} later\n"));
            assert_eq!(found, [format!("a.rs:2: leftover `{word}`")]);
        }
    }

    #[test]
    fn a_longer_word_is_no_leftover() {
        let text = format!("//! Head.\nconst {}_COUNT: u8 = 1;\n", LEFTOVERS[2]);
        assert!(findings(check, &text).is_empty());
    }

    #[test]
    fn each_machine_word_is_found() {
        for word in MACHINE_WORDS {
            let found = findings(check_words, &format!("see {word}\n"));
            assert_eq!(found.len(), 1, "{word}");
        }
    }

    #[test]
    fn a_path_inside_the_project_names_no_machine() {
        let text = format!("see docs{}notes\n", MACHINE_WORDS[0]);
        assert!(findings(check_words, &text).is_empty());
    }
}
