//! Manual pages in the language of man(7).
//!
//! 1. Text that a method takes is in that language: [`plain`], [`bold`] and [`italic`] make it.
//! 2. No line of text begins with the control characters of the language.

/// The name of the command.
pub(super) const NAME: &str = "userbtrfs";

/// Returns text in which no character has a meaning for troff.
pub(super) fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns text in bold face.
pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", plain(text))
}

/// Returns text in italic face.
pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", plain(text))
}

/// A manual page.
pub(super) struct Page(String);

impl Page {
    /// Starts a page with its title and the section NAME. `names` are the names by which it is
    /// found.
    pub(super) fn new(names: &[&str], section: &str, purpose: &str) -> Self {
        let version = concat!("userbtrfs ", env!("CARGO_PKG_VERSION"));
        let title = names[0].to_uppercase();
        let mut page = Self(String::new());
        // Neither hyphens nor spaces are added to lines.
        page.line(&format!(".TH \"{}\" \"{section}\" \"\" \"{version}\"", plain(&title)));
        page.line(".nh\n.ad l");
        page.section("NAME");
        let names: Vec<_> = names.iter().map(|name| plain(name)).collect();
        page.text(&format!("{} \\- {}", names.join(", "), plain(purpose)));
        page
    }

    /// Starts a section; its title is in capitals.
    pub(super) fn section(&mut self, title: &str) {
        self.line(&format!(".SH \"{title}\""));
    }

    /// Starts a part of a section.
    pub(super) fn subsection(&mut self, title: &str) {
        self.line(&format!(".SS \"{title}\""));
    }

    /// Adds a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.line(".PP");
        self.text(text);
    }

    /// Adds a paragraph with a tag at its left, such as an option and its effect.
    pub(super) fn tagged(&mut self, tag: &str, text: &str) {
        self.line(".TP");
        self.text(tag);
        self.text(if text.is_empty() { "\\&" } else { text });
    }

    /// Adds one more paragraph to the one with a tag before it.
    pub(super) fn continued(&mut self, text: &str) {
        self.line(".IP");
        self.text(text);
    }

    /// Adds an item of a list.
    pub(super) fn item(&mut self, text: &str) {
        self.line(".IP \\(bu 2");
        self.text(text);
    }

    /// Adds lines that are kept as they are.
    pub(super) fn verbatim<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        self.line(".PP\n.RS 4\n.nf");
        for line in lines {
            self.text(&if line.is_empty() { "\\&".to_owned() } else { plain(line) });
        }
        self.line(".fi\n.RE");
    }

    /// Returns the page.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Adds a line of text.
    fn text(&mut self, text: &str) {
        for line in text.lines() {
            if line.starts_with(['.', '\'']) {
                self.0.push_str("\\&");
            }
            self.line(line);
        }
    }

    /// Adds a line of requests.
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_be_taken_for_a_request() {
        let mut page = Page::new(&["x"], "1", "does x");
        page.paragraph(&plain(".TH is \\fB text 'x-y'"));
        let expected = ".PP\n\\&.TH is \\efB text \\(aqx\\-y\\(aq\n";
        assert!(page.into_text().ends_with(expected));
    }

    #[test]
    fn page_starts_with_its_names() {
        let text = Page::new(&["a.b", "c"], "8", "do it").into_text();
        assert!(text.starts_with(".TH \"A.B\" \"8\" "), "{text}");
        assert!(text.ends_with(".SH \"NAME\"\na.b, c \\- do it\n"), "{text}");
    }
}
