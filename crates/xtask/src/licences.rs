//! The verb `licences`: checks the licences and the sources of all dependencies, as
//! `cargo deny check licenses bans sources` does by the file `deny.toml`, without a tool that takes
//! long to build.
//!
//! 1. The licences that are allowed are those of `deny.toml`, which cargo-deny reads as well.
//! 2. A dependency is a crate of crates.io with a version, or a crate of the workspace.
//! 3. Dependencies of all features count, on each of the targets of `deny.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The registry from which crates may be taken.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the dependencies of the workspace.
pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let config = fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let allowed = list(&config, "allow").context("deny.toml: no list `allow`")?;
    let targets = list(&config, "targets").context("deny.toml: no list `targets`")?;
    let mut packages = BTreeSet::new();
    let mut findings = BTreeSet::new();
    for target in targets {
        let metadata = metadata(&root, target)?;
        for package in used(&metadata)? {
            packages.insert(name(package));
            findings.extend(check(package, &allowed));
        }
    }
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    println!("{} packages, licences and sources ok", packages.len());
    Ok(())
}

/// Returns the strings of a list of a TOML file.
fn list<'a>(config: &'a str, key: &str) -> Option<Vec<&'a str>> {
    let (_, list) = config.split_once(&format!("\n{key} = ["))?;
    let (list, _) = list.split_once(']')?;
    Some(list.split('"').skip(1).step_by(2).collect())
}

/// Returns what cargo says of the workspace and its dependencies on a target.
fn metadata(root: &Path, target: &str) -> Result<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["metadata", "--format-version=1", "--locked", "--all-features"]);
    let output = cargo.args(["--filter-platform", target]).output().context("running cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the packages that are used; cargo also lists those of other targets.
fn used(metadata: &Value) -> Result<Vec<&Value>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("no graph")?;
    let ids: BTreeSet<_> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let packages = metadata["packages"].as_array().context("no packages")?;
    let is_used = |package: &&Value| package["id"].as_str().is_some_and(|id| ids.contains(id));
    let used: Vec<_> = packages.iter().filter(is_used).collect();
    ensure!(used.len() == ids.len(), "{} of {} packages are described", used.len(), ids.len());
    Ok(used)
}

fn name(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or("?");
    format!("{} {}", text("name"), text("version"))
}

/// Returns what is wrong with a package.
fn check(package: &Value, allowed: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |what: String| findings.push(format!("{}: {what}", name(package)));
    match package["license"].as_str() {
        None => find("no licence is stated".to_owned()),
        Some(licence) => match is_allowed(licence, allowed) {
            Some(true) => {}
            Some(false) => find(format!("licence {licence} is not allowed")),
            None => find(format!("licence {licence:?} is no expression")),
        },
    }
    if let Some(source) = package["source"].as_str().filter(|source| *source != REGISTRY) {
        find(format!("source {source} is not allowed"));
    }
    // Other packages choose the versions that they require.
    let own = package["source"].is_null();
    for dependency in package["dependencies"].as_array().into_iter().flatten().filter(|_| own) {
        if dependency["req"] == "*" && dependency["path"].is_null() {
            find(format!("dependency {} has no version", dependency["name"]));
        }
    }
    findings
}

/// Returns whether the licences permit an expression of SPDX to be fulfilled; `None` if it is none.
fn is_allowed(expression: &str, allowed: &[&str]) -> Option<bool> {
    // An old form of OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let result = either(&mut words, allowed)?;
    words.is_empty().then_some(result)
}

/// Reads alternatives from the end of `words`, which are in reverse order.
fn either(words: &mut Vec<&str>, allowed: &[&str]) -> Option<bool> {
    let mut result = both(words, allowed)?;
    while words.pop_if(|word| *word == "OR").is_some() {
        result |= both(words, allowed)?;
    }
    Some(result)
}

fn both(words: &mut Vec<&str>, allowed: &[&str]) -> Option<bool> {
    let mut result = single(words, allowed)?;
    while words.pop_if(|word| *word == "AND").is_some() {
        result &= single(words, allowed)?;
    }
    Some(result)
}

fn single(words: &mut Vec<&str>, allowed: &[&str]) -> Option<bool> {
    let word = words.pop()?;
    if word == "(" {
        let result = either(words, allowed)?;
        return (words.pop()? == ")").then_some(result);
    }
    if ["AND", "OR", "WITH", ")"].contains(&word) {
        return None;
    }
    if words.pop_if(|word| *word == "WITH").is_none() {
        return Some(allowed.contains(&word));
    }
    // An exception is allowed only by its name.
    let with = format!("{word} WITH {}", words.pop()?);
    Some(allowed.contains(&with.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALLOWED: [&str; 2] = ["MIT", "Apache-2.0"];

    #[test]
    fn expression_is_allowed_if_the_allowed_licences_fulfil_it() {
        let is = |expression| is_allowed(expression, &ALLOWED);
        for good in ["MIT", "GPL-2.0 OR MIT", "GPL-2.0/MIT", "(GPL-2.0 OR MIT) AND Apache-2.0"] {
            assert_eq!(is(good), Some(true), "{good}");
        }
        let bad = ["GPL-2.0", "MIT AND GPL-2.0", "MIT AND (GPL-2.0 OR ISC)", "MIT WITH x", "mit"];
        for bad in bad {
            assert_eq!(is(bad), Some(false), "{bad}");
        }
        for none in ["", "MIT OR", "(MIT", "MIT MIT", "MIT)", "AND"] {
            assert_eq!(is(none), None, "{none}");
        }
        assert_eq!(is_allowed("x WITH y OR z", &["x WITH y"]), Some(true));
    }

    #[test]
    fn package_is_checked_for_licence_source_and_versions() {
        let good = json!({"name": "a", "version": "1", "license": "MIT", "source": REGISTRY,
            "dependencies": [{"name": "b", "req": "*"}]});
        assert_eq!(check(&good, &ALLOWED), [""; 0]);
        let bad = json!({"name": "a", "version": "1", "source": "git+https://example.org/a"});
        assert_eq!(
            check(&bad, &ALLOWED),
            ["a 1: no licence is stated", "a 1: source git+https://example.org/a is not allowed"]
        );
        let own = json!({"name": "a", "version": "1", "license": "MIT", "source": null,
            "dependencies": [{"name": "b", "req": "*"}, {"name": "c", "req": "*", "path": "/c"}]});
        assert_eq!(check(&own, &ALLOWED), ["a 1: dependency \"b\" has no version"]);
    }

    #[test]
    fn lists_are_read_from_the_configuration() {
        let config = "[x]\nallow = [\n    \"A\",\n    \"B\",\n]\ntargets = [\"t\"]\n";
        assert_eq!(list(config, "allow"), Some(vec!["A", "B"]));
        assert_eq!(list(config, "targets"), Some(vec!["t"]));
        assert_eq!(list(config, "deny"), None);
    }
}
