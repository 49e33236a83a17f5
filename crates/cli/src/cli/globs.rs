//! Patterns with wildcards, as glob(7) has them: `*`, `?`, `[...]`, also with classes such as
//! `[:digit:]`, and a backslash before a character that stands for itself.
//!
//! 1. A path that exists is that path, whatever characters it has. In the shell, quotes and
//!    backslashes also keep wildcards from being some.
//! 2. A wildcard in a path matches no slash, and no dot at the start of a name.
//! 3. A path that matches nothing stays as it is, so that the verb reports it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use userbtrfs::{Filesystem, join_path};

use super::quoted::QuotedWords;

/// Returns the paths that match the given ones, sorted for each of them.
pub(in crate::cli) fn expand_all(
    filesystem: &Filesystem,
    paths: &[OsString],
    quoted: &QuotedWords,
) -> Vec<OsString> {
    let expand = |path: &OsString| {
        let path = path.as_encoded_bytes();
        expand(filesystem, path, quoted.pattern_of(path).unwrap_or(path))
    };
    paths.iter().flat_map(expand).collect()
}

/// Returns the paths that match a pattern; `path` if there are none, or if it exists.
fn expand(filesystem: &Filesystem, path: &[u8], pattern: &[u8]) -> Vec<OsString> {
    let as_given = || vec![OsString::from_vec(path.to_vec())];
    if !has_wildcard(pattern) || filesystem.lookup_no_follow(path).is_ok() {
        return as_given();
    }
    let start: &[u8] = if pattern.starts_with(b"/") { b"/" } else { b"" };
    let parts = pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let mut found = parts.fold(vec![start.to_vec()], |dirs, part| {
        dirs.iter().flat_map(|dir| step(filesystem, dir, part)).collect()
    });
    if pattern.ends_with(b"/") {
        for path in &mut found {
            path.push(b'/');
        }
    }
    found.retain(|path| filesystem.lookup_no_follow(path).is_ok());
    if found.is_empty() { as_given() } else { found.into_iter().map(OsString::from_vec).collect() }
}

/// Returns the paths in a directory that match one part of a pattern; the last step checks that
/// those without wildcards exist.
fn step(filesystem: &Filesystem, dir: &[u8], part: &[u8]) -> Vec<Vec<u8>> {
    if !has_wildcard(part) {
        return vec![join_path(dir, &without_backslashes(part))];
    }
    let opened = filesystem.open_dir(if dir.is_empty() { b"." } else { dir });
    let Ok(opened) = opened else { return Vec::new() };
    let mut names: Vec<_> = opened.entries().flatten().map(|entry| entry.name().to_vec()).collect();
    names.retain(|name| (part[0] == b'.' || name[0] != b'.') && is_match(part, name, Case::Exact));
    names.sort();
    names.iter().map(|name| join_path(dir, name)).collect()
}

/// Returns a pattern without wildcards as the text that it matches.
fn without_backslashes(part: &[u8]) -> Vec<u8> {
    let mut bytes = part.iter();
    let mut text = Vec::new();
    while let Some(byte) = bytes.next() {
        let quoted = if *byte == b'\\' { bytes.next() } else { None };
        text.push(*quoted.unwrap_or(byte));
    }
    text
}

/// Returns true for a byte that stands for others in a pattern.
pub(in crate::cli) fn is_wildcard(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[')
}

fn has_wildcard(text: &[u8]) -> bool {
    text.iter().any(|byte| is_wildcard(*byte))
}

/// Whether the case of letters matters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Case {
    Exact,
    /// ASCII letters match in either case.
    Ignored,
}

/// Returns true if a pattern matches all of a text. Wildcards match any bytes, also slashes.
pub(in crate::cli) fn is_match(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let mut rest = pattern;
    let mut left = text;
    // The pattern after the last star, and the text that was left there.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = rest {
            star = Some((after, left));
            rest = after;
            continue;
        }
        if rest.is_empty() && left.is_empty() {
            return true;
        }
        if let Some((after, len)) = first_match(rest, left, case) {
            rest = after;
            left = &left[len..];
            continue;
        }
        // The last star matches one more byte.
        let Some((after, [_, behind @ ..])) = star else { return false };
        star = Some((after, behind));
        rest = after;
        left = behind;
    }
}

/// Matches the first element of a pattern, which is no star, with the start of a text; returns the
/// pattern after it, and the number of bytes that it matches.
fn first_match<'a>(pattern: &'a [u8], text: &[u8], case: Case) -> Option<(&'a [u8], usize)> {
    let first = *text.first()?;
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some((after, char_len(text))),
        [b'[', inside @ ..] => match set(inside) {
            Some((set, after)) => {
                let len = char_len(text);
                is_in(set, &text[..len], case).then_some((after, len))
            }
            // A bracket that is not closed stands for itself.
            None => (first == b'[').then_some((inside, 1)),
        },
        [b'\\', byte, after @ ..] | [byte, after @ ..] => {
            is_same(*byte, first, case).then_some((after, 1))
        }
    }
}

/// Returns the length of the first character, or 1 if it is not valid UTF-8.
fn char_len(text: &[u8]) -> usize {
    let start = &text[..text.len().min(4)];
    start
        .utf8_chunks()
        .next()
        .and_then(|chunk| chunk.valid().chars().next())
        .map_or(1, char::len_utf8)
}

fn is_same(a: u8, b: u8, case: Case) -> bool {
    a == b || (case == Case::Ignored && a.eq_ignore_ascii_case(&b))
}

/// Splits a pattern after `[` into the content of the brackets and the rest.
fn set(inside: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = usize::from(matches!(inside.first(), Some(b'!' | b'^')));
    let mut end = start;
    loop {
        match inside.get(end..)? {
            [] => return None,
            // A closing bracket at the start is a member.
            [b']', after @ ..] if end > start => return Some((&inside[..end], after)),
            rest => end = inside.len() - class(rest).map_or(&rest[1..], |(_, after)| after).len(),
        }
    }
}

/// Splits the rest of a set that starts with a class, such as `[:digit:]`, into the name of the
/// class and what follows it.
fn class(set: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = set.strip_prefix(b"[:")?;
    let end = inside.iter().position(|byte| !byte.is_ascii_lowercase())?;
    let after = inside[end..].strip_prefix(b":]")?;
    Some((&inside[..end], after))
}

/// Returns true if a character is in a class of the C locale; `None` if there is no such class.
fn is_in_class(name: &[u8], char: &[u8]) -> Option<bool> {
    let is_member: fn(&u8) -> bool = match name {
        b"alpha" => u8::is_ascii_alphabetic,
        b"digit" => u8::is_ascii_digit,
        b"alnum" => u8::is_ascii_alphanumeric,
        b"upper" => u8::is_ascii_uppercase,
        b"lower" => u8::is_ascii_lowercase,
        b"space" => |byte| matches!(byte, b'\t'..=b'\r' | b' '),
        b"blank" => |byte| matches!(byte, b'\t' | b' '),
        b"punct" => u8::is_ascii_punctuation,
        b"xdigit" => u8::is_ascii_hexdigit,
        b"cntrl" => u8::is_ascii_control,
        b"graph" => u8::is_ascii_graphic,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        _ => return None,
    };
    Some(matches!(char, [byte] if is_member(byte)))
}

/// Returns the number of a character; bytes that are not valid UTF-8 have numbers behind those of
/// characters.
fn number(char: &[u8]) -> u32 {
    let known = str::from_utf8(char).ok().and_then(|text| text.chars().next());
    known.map_or_else(|| u32::from(char::MAX) + 1 + u32::from(char[0]), u32::from)
}

/// Takes the first character.
fn take_char<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let (first, rest) = text.split_at(char_len(text));
    *text = rest;
    first
}

/// Returns true if a character is in a set: the content of brackets.
fn is_in(set: &[u8], char: &[u8], case: Case) -> bool {
    let (is_negated, mut rest) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let is_within = |low: &[u8], high: &[u8]| {
        let cases = [char.to_vec(), char.to_ascii_lowercase(), char.to_ascii_uppercase()];
        let tried = if case == Case::Ignored { &cases[..] } else { &cases[..1] };
        tried.iter().any(|char| (number(low)..=number(high)).contains(&number(char)))
    };
    let mut found = false;
    while !rest.is_empty() {
        if let Some((name, after)) = class(rest) {
            // As in glibc, a set with an unknown class matches nothing.
            let Some(is_member) = is_in_class(name, char) else { return false };
            found |= is_member;
            rest = after;
            continue;
        }
        let low = take_char(&mut rest);
        let high = match rest {
            [b'-', _, ..] => {
                rest = &rest[1..];
                take_char(&mut rest)
            }
            _ => low,
        };
        found |= is_within(low, high);
    }
    found != is_negated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        is_match(pattern.as_bytes(), text.as_bytes(), Case::Exact)
    }

    #[test]
    fn wildcards_match_as_glob_says() {
        for (pattern, text) in [
            ("*", ""),
            ("*.txt", "a.b.txt"),
            ("a*b*c", "a--b-b-c"),
            ("?", "\u{e9}"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]x]", "]"),
            ("[!]]", "x"),
            ("[", "["),
            ("a[", "a["),
            (r"\*", "*"),
            ("[a-]", "-"),
            ("[\u{e0}-\u{e9}]x", "\u{e8}x"),
            ("[!a]x", "\u{e9}x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("?", "ab"),
            ("*.txt", "a.txt~"),
            (r"\*", "a"),
            ("[a-c]", "d"),
            ("[!a-c]", "b"),
            ("a*b", "ba"),
            ("[\u{e9}]", "\u{ea}"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    /// Compares with what find(1) matches in the C locale.
    #[test]
    fn sets_have_the_classes_of_the_c_locale() {
        let ascii: Vec<char> = (1..128_u8).map(char::from).collect();
        for (class, count) in [
            ("alpha", 52),
            ("digit", 10),
            ("alnum", 62),
            ("upper", 26),
            ("lower", 26),
            ("space", 6),
            ("blank", 2),
            ("punct", 32),
            ("xdigit", 22),
            ("cntrl", 32),
            ("graph", 94),
            ("print", 95),
        ] {
            let counted = |pattern: String| {
                ascii.iter().filter(|char| matches(&pattern, &char.to_string())).count()
            };
            assert_eq!(counted(format!("[[:{class}:]]")), count, "{class}");
            assert_eq!(counted(format!("[![:{class}:]]")), 127 - count, "{class}");
            assert_eq!(counted(format!("[^[:{class}:]]")), 127 - count, "{class}");
            assert!(!matches(&format!("[[:{class}:]]"), "\u{e9}"), "{class}");
        }
        for (pattern, text) in [
            ("*[[:digit:]]", "a1"),
            ("[[:digit:]_[:upper:]]", "_"),
            ("[[:digit:]_[:upper:]]", "A"),
            ("[]a[:digit:]]x", "]x"),
            ("[[:digit:]-]", "-"),
            ("[[:]", ":"),
            ("[[:DIGIT:]x]", "Dx]"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("*[[:digit:]]", "ab"),
            ("[[:digit:]", "1"),
            ("[[:none:]]", "n"),
            ("[![:none:]]", "a"),
            ("[[::]]", ":"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        assert!(!is_match(b"[[:upper:]]", b"a", Case::Ignored));
    }

    #[test]
    fn case_is_ignored_only_if_asked() {
        assert!(!matches("A*", "ab"));
        assert!(is_match(b"A[X-Z]", b"ay", Case::Ignored));
    }

    #[test]
    fn many_stars_take_little_time() {
        let pattern = "*a".repeat(50);
        assert!(!matches(&pattern, &"a".repeat(49)));
        assert!(!matches(&format!("{pattern}b"), &"a".repeat(5000)));
    }
}
