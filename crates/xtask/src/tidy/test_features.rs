//! Rule: only testkit asks for features that exist for tests.
//!
//! 1. `FOR_TESTS` lists each such feature with the manifest that defines it.
//! 2. No other manifest names it, except that of testkit, and no feature turns it on: so a build of
//!    the command or of the library, without its tests, never has it.

use super::finding::Finding;
use super::workspace::Text;

/// The features, and the manifests that define them.
const FOR_TESTS: &[(&str, &str)] = &[("crash-points", "crates/device/Cargo.toml")];

/// The manifest that may ask for them.
const ASKS: &str = "crates/testkit/Cargo.toml";

/// Checks all manifests.
pub(super) fn check(texts: &[Text]) -> Vec<Finding> {
    let manifests = texts.iter().filter(|text| text.path.ends_with("Cargo.toml"));
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(manifest: &Text) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (feature, definer) in FOR_TESTS.iter().filter(|_| manifest.path != ASKS) {
        let definition = format!("{feature} = []");
        let is_allowed =
            |line: &str| line.starts_with('#') || (manifest.path == *definer && line == definition);
        for (index, line) in manifest.text.lines().enumerate() {
            if line.contains(feature) && !is_allowed(line) {
                let what = format!("the feature `{feature}` is for {ASKS} alone");
                findings.push(Finding::new(&manifest.path, index + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let text = Text { path: path.to_owned(), text: text.to_owned() };
        check(&[text]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn feature_for_tests_in_another_manifest_is_found() {
        let asks = "[dependencies]\nd = { path = \"d\", features = [\"crash-points\"] }\n";
        assert_eq!(lines("crates/engine/Cargo.toml", asks), [2]);
        assert_eq!(lines("crates/device/Cargo.toml", asks), [2]);
        assert_eq!(lines(ASKS, asks), [0; 0]);
        assert_eq!(lines("crates/engine/README.md", asks), [0; 0]);
    }

    #[test]
    fn feature_for_tests_that_is_on_by_default_is_found() {
        let path = FOR_TESTS[0].1;
        let defined = "# crash-points: for tests\ncrash-points = []\n";
        assert_eq!(lines(path, defined), [0; 0]);
        assert_eq!(lines(path, &format!("{defined}default = [\"crash-points\"]\n")), [3]);
        assert_eq!(lines("crates/volume/Cargo.toml", defined), [2]);
    }
}
