//! Rule: only exempt files use `unsafe`.
//!
//! 1. `EXEMPT` lists each file that may use `unsafe`, with the reason; such a file also has
//!    `#![expect(unsafe_code, reason = "..")]`.
//! 2. A package without an exempt file forbids `unsafe` in the root file of each of its targets.
//! 3. An exempt file that exists uses `unsafe`, so that the list has no stale entries.

use proc_macro2::{TokenStream, TokenTree};

use super::finding::Finding;
use super::workspace::{Package, Source};

/// The files that may use `unsafe`, and the reasons.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/bench/src/mapping.rs", "a mapped file is what reading without a copy is compared to"),
    ("crates/capi/src/admin.rs", "functions that C calls"),
    ("crates/capi/src/directory.rs", "functions that C calls"),
    ("crates/capi/src/failure.rs", "a function that C calls"),
    ("crates/capi/src/file.rs", "functions that C calls"),
    ("crates/capi/src/filesystem.rs", "functions that C calls"),
    ("crates/capi/src/names.rs", "functions that C calls"),
    ("crates/capi/src/pointers.rs", "pointers from C become references"),
    ("crates/device/src/fiemap.rs", "an ioctl that tells which extents of a file are shared"),
    ("crates/device/src/ring.rs", "the kernel reads and writes the buffers of an io_uring"),
    ("crates/device/src/slab.rs", "the kernel is asked for huge pages"),
    ("crates/fuse/src/clone.rs", "an ioctl of /dev/fuse that makes a second descriptor"),
    ("crates/sync/src/tree_lock.rs", "a lock hands out references by its own count"),
];

/// Checks every file, and the root files of every package.
pub(super) fn check(packages: &[Package], sources: &[Source]) -> Vec<Finding> {
    let files = sources.iter().filter_map(check_file);
    files.chain(packages.iter().flat_map(|package| check_package(package, sources))).collect()
}

fn check_file(source: &Source) -> Option<Finding> {
    let finding = |line, what| Some(Finding::new(source.path(), line, what));
    let tokens: TokenStream = source.text.text.parse().expect("the file was parsed before");
    match (is_exempt(source.path()), unsafe_line(tokens)) {
        (true, None) => finding(1, "is exempt, but says no `unsafe`"),
        (true, Some(_)) if !has_attribute(source, "expect", "unsafe_code") => {
            finding(1, "is exempt, but has no #![expect(unsafe_code, reason)]")
        }
        (false, Some(line)) => finding(line, "`unsafe` in a file that is not exempt"),
        _ => None,
    }
}

fn check_package(package: &Package, sources: &[Source]) -> Vec<Finding> {
    let folder = package.manifest.trim_end_matches("Cargo.toml");
    if EXEMPT.iter().any(|(path, _)| path.starts_with(folder)) {
        return Vec::new();
    }
    let roots = sources.iter().filter(|source| package.roots.iter().any(|r| r == source.path()));
    roots
        .filter(|root| !has_attribute(root, "forbid", "unsafe_code"))
        .map(|root| Finding::new(root.path(), 1, "the target does not forbid `unsafe`"))
        .collect()
}

fn is_exempt(path: &str) -> bool {
    EXEMPT.iter().any(|(exempt, _)| *exempt == path)
}

/// Returns the first line that uses `unsafe`.
fn unsafe_line(tokens: TokenStream) -> Option<usize> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == "unsafe" => Some(ident.span().start().line),
        TokenTree::Group(group) => unsafe_line(group.stream()),
        _ => None,
    })
}

/// Returns true if the file has the attribute `#![level(lint, ..)]`.
fn has_attribute(source: &Source, level: &str, lint: &str) -> bool {
    source.syntax.attrs.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            let first = list.tokens.clone().into_iter().next();
            let is_lint = matches!(first, Some(TokenTree::Ident(ident)) if ident == lint);
            list.path.is_ident(level) && is_lint
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECT: &str = "#![expect(unsafe_code, reason = \"r\")]\n";

    fn findings(path: &str, text: &str) -> Vec<String> {
        let package = Package {
            name: "p".to_owned(),
            manifest: "p/Cargo.toml".to_owned(),
            roots: vec!["p/src/lib.rs".to_owned()],
            dependencies: vec![],
        };
        let sources = [Source::parse(path, text).unwrap()];
        check(&[package], &sources).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn unsafe_outside_the_exempt_files_is_found() {
        for text in ["fn f() { unsafe {} }", "unsafe impl A for B {}", "m!(unsafe {});"] {
            assert_eq!(findings("p/src/a.rs", text), ["`unsafe` in a file that is not exempt"]);
        }
        assert_eq!(findings("p/src/a.rs", "// unsafe\nconst A: &str = \"unsafe\";"), [""; 0]);
    }

    #[test]
    fn exempt_file_without_expect_attribute_is_found() {
        let path = EXEMPT[0].0;
        assert_eq!(findings(path, &format!("{EXPECT}unsafe impl A for B {{}}")), [""; 0]);
        let found = findings(path, "unsafe impl A for B {}");
        assert_eq!(found, ["is exempt, but has no #![expect(unsafe_code, reason)]"]);
    }

    #[test]
    fn exempt_file_without_unsafe_is_found() {
        assert_eq!(findings(EXEMPT[0].0, "fn f() {}"), ["is exempt, but says no `unsafe`"]);
    }

    #[test]
    fn a_root_that_does_not_forbid_unsafe_is_found() {
        assert_eq!(findings("p/src/lib.rs", "#![forbid(unsafe_code)]"), [""; 0]);
        assert_eq!(findings("p/src/lib.rs", ""), ["the target does not forbid `unsafe`"]);
    }
}
