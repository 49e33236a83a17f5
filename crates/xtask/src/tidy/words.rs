//! Rules of style, as far as a search can check them, with a count for each crate that may only
//! fall.
//!
//! 1. Comments contain none of the pronouns that `find` lists; a sentence names its subject.
//! 2. The first line of a doc comment does not begin with one of `OPENINGS`.
//! 3. The name of a test does not begin with one of `TEST_NAMES`; it is subject, condition, result.
//! 4. A `let` of a tuple pattern from a tuple is two statements in one: each unrelated value has a
//!    `let` of its own. The tuple that a call returns may be taken apart.
//! 5. `words.txt` has the allowed counts; they are zero for a crate that is not listed. A higher
//!    count is a finding at the last place that breaks the rule; `--update` writes lower counts.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use syn::visit::Visit;

use super::counts::{self, Counts, crate_of};
use super::finding::Finding;
use super::workspace::{Source, Workspace};

/// The path of the table, from the root of the workspace.
const TABLE: &str = "crates/xtask/words.txt";

/// First words of a doc comment that do not describe the item.
const OPENINGS: &[&str] =
    &["What ", "Of a ", "Of the ", "Nothing where", "The same.", "See the module's text", "Who "];

/// First words of a test's name that do not name its subject.
const TEST_NAMES: &[&str] = &["what_", "who_", "where_", "whoever_"];

/// A rule that is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Who,
    Opening,
    TestName,
    TupleLet,
}

impl Rule {
    const ALL: [Self; 4] = [Self::Who, Self::Opening, Self::TestName, Self::TupleLet];

    fn name(self) -> &'static str {
        match self {
            Self::Who => "who",
            Self::Opening => "opening",
            Self::TestName => "test-name",
            Self::TupleLet => "tuple-let",
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Who => "a comment says \"who\": name the subject",
            Self::Opening => "a doc comment begins with no noun and no verb",
            Self::TestName => "a test is named what_, who_ or where_",
            Self::TupleLet => "a `let` takes apart a tuple that it makes: use one for each value",
        }
    }
}

/// Returns a finding for each count that is higher than in the table.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let allowed = match load(workspace) {
        Ok(allowed) => allowed,
        Err(error) => return vec![Finding::new(TABLE, 1, format!("{error:#}"))],
    };
    let found = workspace.sources.iter().flat_map(find).collect::<Vec<_>>();
    let limit = |key: &str| allowed.get(key).copied().unwrap_or(0);
    let counts = count(&found).into_iter();
    let over = counts.filter(|(key, n)| *n > limit(key));
    over.map(|(key, n)| {
        let last = found.iter().rfind(|it| it.key() == key).expect("it was counted");
        let name = crate_of(last.path);
        let limit = limit(&key);
        let text = format!("{}; {name} has {n}, {TABLE} allows {limit}", last.rule.wanted());
        Finding::new(last.path, last.line, text)
    })
    .collect()
}

/// Writes the current counts into the table; fails if one is higher than in the table.
pub(super) fn update(workspace: &Workspace, root: &Path) -> Result<()> {
    let over = check(workspace);
    ensure!(over.is_empty(), "counts rose: {}", over[0]);
    let found = workspace.sources.iter().flat_map(find).collect::<Vec<_>>();
    let head = "crate, rule, count: see crates/xtask/src/tidy/words.rs";
    counts::write(root, TABLE, head, &count(&found))
}

fn load(workspace: &Workspace) -> Result<Counts> {
    let counts = counts::load(workspace, TABLE)?;
    for key in counts.keys() {
        let rule = key.split_once(' ').with_context(|| format!("not three fields: {key}"))?.1;
        ensure!(Rule::ALL.iter().any(|it| it.name() == rule), "no such rule: {rule}");
    }
    Ok(counts)
}

fn count(found: &[Found<'_>]) -> Counts {
    let mut counts = Counts::new();
    for it in found {
        *counts.entry(it.key()).or_default() += 1;
    }
    counts
}

/// A location that breaks a rule.
struct Found<'a> {
    path: &'a str,
    line: usize,
    rule: Rule,
}

impl Found<'_> {
    /// Returns the crate and the rule, as in the table.
    fn key(&self) -> String {
        format!("{} {}", crate_of(self.path), self.rule.name())
    }
}

fn find(source: &Source) -> Vec<Found<'_>> {
    let path = source.path();
    let mut found = Vec::new();
    let mut above = None;
    for (index, line) in source.text.text.lines().enumerate() {
        let line_number = index + 1;
        let Some((mark, comment)) = comment(line) else {
            above = None;
            continue;
        };
        let words = comment.split(|c: char| !c.is_alphanumeric());
        let whos = words.filter(|word| matches!(*word, "who" | "Who" | "whoever" | "Whoever"));
        found.extend(whos.map(|_| Found { path, line: line_number, rule: Rule::Who }));
        let is_first = mark != "//" && above != Some(mark);
        if is_first && OPENINGS.iter().any(|words| comment.starts_with(words)) {
            found.push(Found { path, line: line_number, rule: Rule::Opening });
        }
        above = Some(mark);
    }
    let mut syntax = Syntax { path, found };
    syntax.visit_file(&source.syntax);
    syntax.found
}

/// Returns the comment marker and the text of a line that is a comment.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let marks = ["///", "//!", "//"];
    marks.into_iter().find_map(|mark| Some((mark, line.strip_prefix(mark)?.trim_start())))
}

/// Collects the names of tests and the statements that break a rule.
struct Syntax<'a> {
    path: &'a str,
    found: Vec<Found<'a>>,
}

impl<'ast> Visit<'ast> for Syntax<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let is_test = item.attrs.iter().any(|it| it.path().is_ident("test"));
        let name = item.sig.ident.to_string();
        if is_test && TEST_NAMES.iter().any(|start| name.starts_with(start)) {
            let line = item.sig.ident.span().start().line;
            self.found.push(Found { path: self.path, line, rule: Rule::TestName });
        }
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let pattern = match &local.pat {
            syn::Pat::Type(typed) => &*typed.pat,
            pattern => pattern,
        };
        let init = local.init.as_ref().filter(|init| init.diverge.is_none());
        let is_tuple = init.is_some_and(|init| matches!(*init.expr, syn::Expr::Tuple(_)));
        if is_tuple && matches!(pattern, syn::Pat::Tuple(_)) {
            let line = local.let_token.span.start().line;
            self.found.push(Found { path: self.path, line, rule: Rule::TupleLet });
        }
        syn::visit::visit_local(self, local);
    }
}

#[cfg(test)]
mod tests {
    use super::super::workspace::Text;
    use super::*;

    fn workspace(source: &str, table: &str) -> Workspace {
        let sources = vec![Source::parse("crates/a/src/lib.rs", source).unwrap()];
        let texts = vec![Text { path: TABLE.to_owned(), text: table.to_owned() }];
        Workspace { packages: Vec::new(), sources, texts }
    }

    fn findings(source: &str, table: &str) -> Vec<usize> {
        check(&workspace(source, table)).iter().map(|it| it.line).collect()
    }

    #[test]
    fn comment_that_says_who_is_found() {
        assert_eq!(findings("//! A head.\n// For those who read.\nfn f() {}\n", ""), [2]);
        assert!(findings("//! A head.\n// For readers.\nfn f() {}\n", "").is_empty());
    }

    #[test]
    fn doc_comment_that_begins_with_what_is_found() {
        let text = "//! A head.\n\n/// What it is.\n/// What follows.\nfn f() {}\n";
        assert_eq!(findings(text, ""), [3]);
    }

    #[test]
    fn test_named_what_is_found() {
        let text = "//! A head.\n#[test]\nfn what_is_there() {}\nfn what_is_no_test() {}\n";
        assert_eq!(findings(text, ""), [3]);
    }

    #[test]
    fn let_of_a_tuple_from_a_tuple_is_found() {
        let function = |body: &str| format!("//! A head.\nfn f() {{\n    {body}\n}}\n");
        let broken = [
            "let (a, b) = (1, 2);",
            "let (mut a, _): (u8, u8) = (1, 2);",
            "let f = || { let (a, b) = (1, 2); };",
        ];
        for body in broken {
            assert_eq!(findings(&function(body), ""), [3], "{body}");
        }
        let sound = [
            "let (a, b) = pair();",
            "let pair = (1, 2);",
            "let (Some(a), Some(b)) = (c, d) else { return };",
            "if let (Some(a), Some(b)) = (c, d) {}",
        ];
        for body in sound {
            assert!(findings(&function(body), "").is_empty(), "{body}");
        }
    }

    #[test]
    fn count_within_the_table_is_allowed() {
        let text = "//! A head.\n// Who reads.\nfn f() {}\n";
        assert!(findings(text, "a who 1\n").is_empty());
        assert_eq!(findings(text, "b who 1\n"), [2]);
    }

    #[test]
    fn table_that_cannot_be_read_is_found() {
        assert_eq!(findings("//! A head.\n", "a who\n"), [1]);
    }
}
