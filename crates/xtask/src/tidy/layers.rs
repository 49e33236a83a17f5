//! Rule: a crate depends only on the crates named for it.
//!
//! 1. The table below contains the layers of ARCHITECTURE.md; a crate not in it is a finding.
//! 2. As dev-dependencies, testkit, the image builder and mkfs are allowed as well.
//! 3. The development crates may depend on anything; nothing else depends on them.

use super::finding::Finding;
use super::workspace::{Dependency, Package};

const LAB: &str = "userbtrfs-testkit";
const FORGE: &str = "userbtrfs-image-builder";
const MKFS: &str = "userbtrfs-mkfs";
/// The crates that tests may depend on.
const FOR_TESTS: &[&str] = &[LAB, FORGE, MKFS];
const MODELS: &str = "userbtrfs-loom-models";
const DEVELOPMENT: &[&str] =
    &[LAB, FORGE, MODELS, "userbtrfs-bench", "userbtrfs-fuzzing", "userbtrfs-fuzz", "xtask"];

/// Each crate, lowest first, and the crates it may depend on, all without their `userbtrfs-`.
const LAYERS: &[(&str, &[&str])] = &[
    ("codec", &[]),
    ("sync", &[]),
    ("format", &["codec"]),
    ("device", &["sync"]),
    ("fuse", &["sync"]),
    ("volume", &["format", "device", "codec", "sync"]),
    ("btree", &["volume", "format", "device", "sync"]),
    ("mkfs", &["volume", "format", "device", "codec", "sync"]),
    ("transaction", &["btree", "volume", "format", "device", "sync", "codec"]),
    ("engine", &["transaction", "btree", "volume", "format", "device", "sync", "codec"]),
    ("fuse-server", &["engine", "fuse", "sync"]),
    (
        "userbtrfs",
        &[
            "fuse-server",
            "engine",
            "mkfs",
            "transaction",
            "btree",
            "volume",
            "format",
            "device",
            "sync",
            "codec",
        ],
    ),
    ("cli", &["userbtrfs", "volume", "format", "device", "codec"]),
    ("capi", &["userbtrfs"]),
    ("python", &["userbtrfs"]),
];

/// Checks every package's dependencies on the others.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    if DEVELOPMENT.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let finding = |what: String| Finding::new(&package.manifest, 1, what);
    let name = short(&package.name);
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        return vec![finding(format!("crate `{}` has no place in the house", package.name))];
    };
    let bad = package.dependencies.iter().filter(|dependency| !is_allowed(dependency, allowed));
    bad.map(|dependency| finding(format!("`{name}` may not call `{}`", dependency.name))).collect()
}

fn is_allowed(dependency: &Dependency, allowed: &[&str]) -> bool {
    allowed.contains(&short(&dependency.name))
        || (dependency.dev && FOR_TESTS.contains(&dependency.name.as_str()))
}

fn short(name: &str) -> &str {
    name.strip_prefix("userbtrfs-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, dependencies: &[(&str, bool)]) -> Vec<String> {
        let dependency = |&(name, dev): &(&str, bool)| Dependency { name: name.to_owned(), dev };
        let package = Package {
            name: name.to_owned(),
            manifest: "m".to_owned(),
            roots: vec![],
            dependencies: dependencies.iter().map(dependency).collect(),
        };
        check(&[package]).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn each_layer_calls_only_layers_before_it() {
        for (index, (_, allowed)) in LAYERS.iter().enumerate() {
            let below = |name: &&str| LAYERS[..index].iter().any(|(layer, _)| layer == name);
            assert!(allowed.iter().all(below));
        }
    }

    #[test]
    fn allowed_dependency_is_no_finding() {
        assert_eq!(findings("userbtrfs-format", &[("userbtrfs-codec", false)]), [""; 0]);
        assert_eq!(findings("userbtrfs-codec", &[(LAB, true), (FORGE, true)]), [""; 0]);
        assert_eq!(findings("xtask", &[(LAB, false)]), [""; 0]);
    }

    #[test]
    fn dependency_on_higher_layer_is_found() {
        let found = findings("userbtrfs-format", &[("userbtrfs-engine", false)]);
        assert_eq!(found, ["`format` may not call `userbtrfs-engine`"]);
    }

    #[test]
    fn dependency_on_testkit_outside_tests_is_found() {
        let found = findings("userbtrfs-engine", &[(LAB, false)]);
        assert_eq!(found, [format!("`engine` may not call `{LAB}`")]);
    }

    #[test]
    fn dev_dependency_on_higher_layer_is_found() {
        assert_eq!(findings("userbtrfs-codec", &[("userbtrfs-format", true)]).len(), 1);
    }

    #[test]
    fn an_unknown_crate_is_found() {
        let found = findings("userbtrfs-new", &[]);
        assert_eq!(found, ["crate `userbtrfs-new` has no place in the house"]);
    }
}
