//! Markdown within a line, as the documents use it: code, emphasis and links.
//!
//! 1. Of a link the text remains; the name of a document that is a manual page becomes that of the
//!    page.

use super::page::{bold, italic, plain};

/// The documents that are manual pages.
const PAGES: [(&str, &str); 2] = [("command.md", "userbtrfs(7)"), ("mount.md", "userbtrfs(5)")];

/// Converts the Markdown of a paragraph to the language of man(7).
pub(super) fn convert(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[', '\\']) {
        out.push_str(&plain(&rest[..at]));
        rest = &rest[at..];
        rest = [code, strong, emphasis, link, escaped]
            .iter()
            .find_map(|form| form(rest, &mut out))
            .unwrap_or_else(|| {
                out.push_str(&plain(&rest[..1]));
                &rest[1..]
            });
    }
    out.push_str(&plain(rest));
    out
}

/// Converts `` `code` ``, and returns what follows.
fn code<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let (inner, rest) = text.strip_prefix('`')?.split_once('`')?;
    // In a table a vertical bar is written with a backslash.
    out.push_str(&bold(&inner.replace("\\|", "|")));
    Some(rest)
}

fn strong<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let (inner, rest) = text.strip_prefix("**")?.split_once("**")?;
    out.push_str(&bold(inner));
    Some(rest)
}

fn emphasis<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let (inner, rest) = text.strip_prefix('*')?.split_once('*')?;
    let is_emphasis = !inner.is_empty() && !inner.starts_with(' ');
    is_emphasis.then(|| out.push_str(&italic(inner)))?;
    Some(rest)
}

fn link<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let (inner, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (_, rest) = rest.split_once(')')?;
    let page = PAGES.iter().find(|(file, _)| *file == inner);
    out.push_str(&page.map_or_else(|| convert(inner), |(_, page)| plain(page)));
    Some(rest)
}

fn escaped<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let rest = text.strip_prefix('\\')?;
    let character = rest.chars().next().filter(char::is_ascii_punctuation)?;
    out.push_str(&plain(&rest[..character.len_utf8()]));
    Some(&rest[character.len_utf8()..])
}

#[cfg(test)]
mod tests {
    use super::convert;

    #[test]
    fn code_and_emphasis_change_the_face() {
        assert_eq!(convert("use `-o x\\|y` *now*, **so**"), {
            "use \\fB\\-o x|y\\fR \\fInow\\fR, \\fBso\\fR"
        });
    }

    #[test]
    fn of_a_link_the_text_remains() {
        assert_eq!(convert("see [the `x` part](a.md#x), [no"), "see the \\fBx\\fR part, [no");
        assert_eq!(convert("[mount.md](mount.md)"), "userbtrfs(5)");
    }

    #[test]
    fn other_characters_stay() {
        assert_eq!(convert("2 * 3 \\| 4 `open"), "2 * 3 | 4 \\(gaopen");
    }
}
