//! Rule: the links of Markdown files inside the project are not broken.
//!
//! 1. A link is `](target)`; one with a scheme, or to a fragment of its own file, is not checked.
//! 2. The target is a file, relative to the file that links; a `#fragment` after it is not checked.

use std::path::Path;

use super::finding::Finding;
use super::workspace::Text;

/// Checks the links of every Markdown file among `texts`, to files among `texts`.
pub(super) fn check(texts: &[Text]) -> Vec<Finding> {
    let documents = texts.iter().filter(|text| is_document(text));
    documents.flat_map(|document| check_document(document, texts)).collect()
}

fn is_document(text: &Text) -> bool {
    Path::new(&text.path).extension() == Some("md".as_ref())
}

fn check_document(document: &Text, texts: &[Text]) -> Vec<Finding> {
    let is_broken = |target: &&str| {
        let path = resolve(&document.path, target);
        !texts.iter().any(|text| text.path == path)
    };
    let lines = document.text.lines().enumerate();
    lines
        .flat_map(|(index, line)| targets(line).map(move |target| (index + 1, target)))
        .filter(|(_, target)| is_broken(target))
        .map(|(line, target)| Finding::new(&document.path, line, format!("no file `{target}`")))
        .collect()
}

/// Returns the files that a line links to.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = links.filter_map(|link| link.split('#').next());
    files.filter(|file| !file.is_empty() && !file.contains(':'))
}

/// Returns the path from the root of a `target` to which the file `document` links.
fn resolve(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(link: &str) -> Vec<String> {
        let text = |path: &str, text: String| Text { path: path.to_owned(), text };
        let document = text("docs/a.md", format!("# A\nSee [it]({link}).\n"));
        let texts = [document, text("docs/b.md", String::new()), text("c.rs", String::new())];
        check(&texts).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn link_to_existing_file_is_no_finding() {
        for link in ["b.md", "./b.md#place", "../c.rs", "#place", "https://example.org/x.md"] {
            assert_eq!(findings(link), [""; 0], "{link}");
        }
    }

    #[test]
    fn broken_link_is_found() {
        assert_eq!(findings("c.rs"), ["docs/a.md:2: no file `c.rs`"]);
        assert_eq!(findings("../b.md"), ["docs/a.md:2: no file `../b.md`"]);
    }
}
