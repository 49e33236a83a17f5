//! Documents as manual pages: the Markdown that the documents of the project use.
//!
//! 1. The title is left out, and the text before the first section is the DESCRIPTION.
//! 2. A row of a table becomes a paragraph with the first cell as its tag; the other cells follow,
//!    each but the first of them after the name of its column.

use super::inline::convert;
use super::page::Page;

/// Converts a document to a manual page.
pub(super) fn page(names: &[&str], section: &str, purpose: &str, text: &str) -> String {
    let mut converter =
        Converter { page: Page::new(names, section, purpose), has_section: false, head: None };
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# ") || line.trim().is_empty() {
            converter.head = None;
        } else if line.trim_start().starts_with("```") {
            let code = lines.by_ref().take_while(|line| line.trim_start() != "```");
            converter.code(&code.collect::<Vec<_>>());
        } else if let Some(title) = line.strip_prefix("## ") {
            converter.section(title);
        } else if let Some(title) = line.strip_prefix("### ").or(line.strip_prefix("#### ")) {
            converter.subsection(title);
        } else if line.starts_with('|') {
            converter.row(line);
        } else {
            let mut block = line.trim().to_owned();
            while let Some(next) = lines.next_if(|next| continues(next)) {
                block.push(' ');
                block.push_str(next.trim());
            }
            converter.block(&block);
        }
    }
    converter.page.into_text()
}

/// Returns true if a line continues the paragraph or item before it.
fn continues(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with(['#', '|']) && !line.starts_with("```") && !is_item(line)
}

fn is_item(line: &str) -> bool {
    item(line).is_some()
}

/// Returns the mark and the text of an item of a list.
fn item(line: &str) -> Option<(&str, &str)> {
    let (mark, text) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (mark == "-" || is_number).then_some((mark, text))
}

struct Converter {
    page: Page,
    has_section: bool,
    /// The names of the columns of the table that is converted.
    head: Option<Vec<String>>,
}

impl Converter {
    fn section(&mut self, title: &str) {
        self.head = None;
        self.has_section = true;
        self.page.section(&convert(&title.to_uppercase()));
    }

    fn subsection(&mut self, title: &str) {
        self.describe();
        self.page.subsection(&convert(title));
    }

    /// Starts the DESCRIPTION if there is no section yet.
    fn describe(&mut self) {
        if !self.has_section {
            self.section("Description");
        }
    }

    fn block(&mut self, text: &str) {
        self.describe();
        match item(text) {
            Some(("-", text)) => self.page.item(&convert(text)),
            Some((number, text)) => self.page.tagged(&convert(number), &convert(text)),
            None => self.page.paragraph(&convert(text)),
        }
    }

    fn code(&mut self, lines: &[&str]) {
        self.describe();
        let indent = |line: &&str| line.len() - line.trim_start().len();
        let filled = lines.iter().filter(|line| !line.trim().is_empty());
        let margin = filled.map(indent).min().unwrap_or_default();
        self.page.verbatim(lines.iter().map(|line| line.get(margin..).unwrap_or_default()));
    }

    fn row(&mut self, line: &str) {
        self.describe();
        let cells = cells(line);
        let Some(head) = &self.head else {
            self.head = Some(cells);
            return;
        };
        if cells.iter().all(|cell| cell.starts_with("--") || cell.starts_with(":-")) {
            return;
        }
        let mut texts = Vec::new();
        for (index, cell) in cells.iter().enumerate().skip(1).filter(|(_, cell)| !cell.is_empty()) {
            let name = head.get(index).filter(|name| index > 1 && !name.is_empty());
            texts.push(name.map_or_else(|| cell.clone(), |name| format!("({name}: {cell})")));
        }
        self.page.tagged(&convert(&cells[0]), &convert(&texts.join(" ")));
    }
}

/// Returns the cells of a row of a table.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|');
    let line = line.strip_suffix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut before = ' ';
    for character in line.chars() {
        if character == '|' && before != '\\' {
            cells.push(String::new());
        } else {
            cells.last_mut().expect("there is one").push(character);
        }
        before = character;
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> String {
        let page = page(&["x"], "5", "p", text);
        page.split_once("x \\- p\n").expect("the section NAME").1.to_owned()
    }

    #[test]
    fn title_becomes_the_description() {
        let text = "# Title\n\nOne\ntwo.\n\n## Next part\n\n### Below\n\nthree\n";
        let expected = ".SH \"DESCRIPTION\"\n.PP\nOne two.\n.SH \"NEXT PART\"\n.SS \"Below\"\n\
            .PP\nthree\n";
        assert_eq!(body(text), expected);
    }

    #[test]
    fn row_of_a_table_becomes_a_tagged_paragraph() {
        let text = "| option | effect | default |\n|---|---|---|\n| `a\\|b` | does | 3 |\n\
            | c | no default | |\n";
        let expected = ".SH \"DESCRIPTION\"\n.TP\n\\fBa|b\\fR\ndoes (default: 3)\n\
            .TP\nc\nno default\n";
        assert_eq!(body(text), expected);
    }

    #[test]
    fn lists_and_code_keep_their_form() {
        let text = "## S\n- one\n  more\n\n  ```sh\n  a -b\n    c\n  ```\n- two\n1. three\n";
        let expected = ".SH \"S\"\n.IP \\(bu 2\none more\n.PP\n.RS 4\n.nf\na \\-b\n  c\n.fi\n.RE\n\
            .IP \\(bu 2\ntwo\n.TP\n1.\nthree\n";
        assert_eq!(body(text), expected);
    }
}
