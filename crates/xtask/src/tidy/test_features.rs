//! Rule: only the named development crates ask for features that exist for tests and benchmarks.
//!
//! 1. `FEATURES` lists each such feature, the lines by which manifests define it, and the manifests
//!    that may ask for it.
//! 2. No other manifest names it, and no other line of these: so a build of the command or of the
//!    library, without its tests, never has it.

use super::finding::Finding;
use super::workspace::Text;

/// A feature that no build of a user has.
struct Feature {
    name: &'static str,
    /// The manifests that define it, and the line that does.
    definitions: &'static [(&'static str, &'static str)],
    /// The manifests that may ask for it.
    asks: &'static [&'static str],
}

const TESTKIT: &str = "crates/testkit/Cargo.toml";
const BENCH: &str = "crates/bench/Cargo.toml";

const FEATURES: &[Feature] = &[
    Feature {
        name: "crash-points",
        definitions: &[("crates/device/Cargo.toml", "crash-points = []")],
        asks: &[TESTKIT],
    },
    Feature {
        name: "experiments",
        definitions: &[
            ("crates/sync/Cargo.toml", "experiments = []"),
            ("crates/btree/Cargo.toml", "experiments = [\"userbtrfs-sync/experiments\"]"),
            ("crates/transaction/Cargo.toml", "experiments = [\"userbtrfs-btree/experiments\"]"),
            ("crates/engine/Cargo.toml", "experiments = [\"userbtrfs-transaction/experiments\"]"),
        ],
        asks: &[TESTKIT, BENCH],
    },
];

/// Checks all manifests.
pub(super) fn check(texts: &[Text]) -> Vec<Finding> {
    let manifests = texts.iter().filter(|text| text.path.ends_with("Cargo.toml"));
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(manifest: &Text) -> Vec<Finding> {
    let mut findings = Vec::new();
    for feature in FEATURES.iter().filter(|feature| !feature.asks.contains(&&*manifest.path)) {
        let is_definition = |line: &str| feature.definitions.contains(&(&manifest.path, line));
        for (index, line) in manifest.text.lines().enumerate() {
            if line.contains(feature.name) && !line.starts_with('#') && !is_definition(line) {
                let what = format!(
                    "the feature `{}` is for {} alone",
                    feature.name,
                    feature.asks.join(", ")
                );
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
        assert_eq!(lines(TESTKIT, asks), [0; 0]);
        assert_eq!(lines("crates/engine/README.md", asks), [0; 0]);
    }

    #[test]
    fn feature_for_tests_that_is_on_by_default_is_found() {
        let path = "crates/device/Cargo.toml";
        let defined = "# crash-points: for tests\ncrash-points = []\n";
        assert_eq!(lines(path, defined), [0; 0]);
        assert_eq!(lines(path, &format!("{defined}default = [\"crash-points\"]\n")), [3]);
        assert_eq!(lines("crates/volume/Cargo.toml", defined), [2]);
    }

    #[test]
    fn feature_for_experiments_outside_its_chain_of_definitions_is_found() {
        let passes_on = "experiments = [\"userbtrfs-transaction/experiments\"]\n";
        assert_eq!(lines("crates/engine/Cargo.toml", passes_on), [0; 0]);
        assert_eq!(lines("crates/userbtrfs/Cargo.toml", passes_on), [1]);
        let asks = "userbtrfs-engine = { workspace = true, features = [\"experiments\"] }\n";
        assert_eq!(lines("crates/bench/Cargo.toml", asks), [0; 0]);
        assert_eq!(lines("crates/fuse-server/Cargo.toml", asks), [1]);
    }
}
