//! Rules on the length of functions and files.
//!
//! 1. A function, from `fn` to its closing brace, has at most 70 lines.
//! 2. A file has at most 600 lines, not counting its inline `#[cfg(test)]` modules.
//! 3. A file of tests has at most 1000 lines, and so has any file with its inline tests.

use proc_macro2::{Span, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::finding::Finding;
use super::workspace::Source;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const TEST_FILE_LINES_MAX: usize = 1000;

/// Checks one file and the functions in it.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut functions = Functions { path: source.path(), findings: check_file(source) };
    functions.visit_file(&source.syntax);
    functions.findings
}

fn check_file(source: &Source) -> Vec<Finding> {
    let lines_all = source.text.text.lines().count();
    let lines_test = if is_test_file(source.path()) { lines_all } else { test_lines(source) };
    let lines_code = lines_all - lines_test;
    let mut findings = Vec::new();
    if lines_code > FILE_LINES_MAX {
        let what = format!("{lines_code} lines without tests, over {FILE_LINES_MAX}");
        findings.push(Finding::new(source.path(), 1, what));
    }
    if lines_all > TEST_FILE_LINES_MAX {
        let what = format!("{lines_all} lines, over {TEST_FILE_LINES_MAX}");
        findings.push(Finding::new(source.path(), 1, what));
    }
    findings
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Returns the number of lines of the modules that are only compiled for tests.
fn test_lines(source: &Source) -> usize {
    let modules = source.syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.attrs.iter().any(is_cfg_test) => Some(module),
        _ => None,
    });
    modules.map(|module| lines(module.span(), module.span())).sum()
}

/// Returns true for `#[cfg(test)]`, or a `cfg` that contains `test` among other conditions.
pub(super) fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let is_test = |token| matches!(token, TokenTree::Ident(ident) if ident == "test");
    let mut tokens = list.tokens.clone().into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => group.stream().into_iter().collect::<Vec<_>>(),
        token => vec![token],
    });
    list.path.is_ident("cfg") && tokens.any(is_test)
}

fn lines(first: Span, last: Span) -> usize {
    last.end().line - first.start().line + 1
}

struct Functions<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn check(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = lines(signature.span(), block.span());
        if lines > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            let what = format!("function `{name}` has {lines} lines, over {FUNCTION_LINES_MAX}");
            self.findings.push(Finding::new(self.path, signature.span().start().line, what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.check(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let source = Source::parse(path, text).unwrap();
        check(&source).iter().map(Finding::to_string).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "let _ = 1;\n".repeat(lines - 2))
    }

    #[test]
    fn long_function_is_found_in_any_item() {
        let what = "function `f` has 71 lines, over 70";
        let long = function(71);
        assert_eq!(findings("a.rs", &function(70)), [""; 0]);
        assert_eq!(findings("a.rs", &long), [format!("a.rs:1: {what}")]);
        assert_eq!(findings("a.rs", &format!("impl A {{\n{long}}}")), [format!("a.rs:2: {what}")]);
        assert_eq!(findings("a.rs", &format!("trait A {{\n{long}}}")), [format!("a.rs:2: {what}")]);
        let nested = format!("mod m {{\n#[test]\n{long}}}");
        assert_eq!(findings("a.rs", &nested), [format!("a.rs:3: {what}")]);
    }

    #[test]
    fn a_long_file_is_found() {
        let code = "struct A;\n".repeat(601);
        assert_eq!(findings("a.rs", &code), ["a.rs:1: 601 lines without tests, over 600"]);
        assert_eq!(findings("a/tests.rs", &code), [""; 0]);
    }

    #[test]
    fn inline_tests_count_only_towards_the_upper_bound() {
        let code = "struct A;\n".repeat(600);
        let tests = |lines: usize| {
            let body = "struct A;\n".repeat(lines - 3);
            format!("{code}#[cfg(all(test, not(loom)))]\nmod tests {{\n{body}}}\n")
        };
        assert_eq!(findings("a.rs", &tests(400)), [""; 0]);
        assert_eq!(findings("a.rs", &tests(401)), ["a.rs:1: 1001 lines, over 1000"]);
    }

    #[test]
    fn a_very_long_test_file_is_found() {
        let code = "struct A;\n".repeat(1001);
        assert_eq!(findings("a/tests/b.rs", &code), ["a/tests/b.rs:1: 1001 lines, over 1000"]);
    }
}
