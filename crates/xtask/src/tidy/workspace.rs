//! The input of `tidy`: the packages, the parsed source files, and all other text files.
//!
//! 1. Paths are relative to the root of the workspace, with `/` between their parts.
//! 2. The files are those that git tracks or would add; ignored files are not checked.
//! 3. Cargo.lock is left out: a tool writes it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A text file.
pub(super) struct Text {
    pub(super) path: String,
    pub(super) text: String,
}

/// A Rust file, as text and as a syntax tree.
pub(super) struct Source {
    pub(super) text: Text,
    pub(super) syntax: syn::File,
}

impl Source {
    pub(super) fn parse(path: &str, text: &str) -> Result<Self> {
        let syntax = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        Ok(Self { text: Text { path: path.to_owned(), text: text.to_owned() }, syntax })
    }

    pub(super) fn path(&self) -> &str {
        &self.text.path
    }
}

/// A dependency of one package of the workspace on another.
pub(super) struct Dependency {
    pub(super) name: String,
    /// Only for tests.
    pub(super) dev: bool,
}

/// One package of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest: String,
    /// The root file of each target.
    pub(super) roots: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// The packages and files to check.
pub(super) struct Workspace {
    pub(super) packages: Vec<Package>,
    pub(super) sources: Vec<Source>,
    pub(super) texts: Vec<Text>,
}

impl Workspace {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut packages = packages(root, "Cargo.toml")?;
        if root.join("fuzz/Cargo.toml").exists() {
            packages.extend(self::packages(root, "fuzz/Cargo.toml")?);
        }
        let mut sources = Vec::new();
        let mut texts = Vec::new();
        for path in tracked(root)?.lines().filter(|path| *path != "Cargo.lock") {
            let Some(text) = read_text(&root.join(path))? else { continue };
            if Path::new(path).extension() == Some("rs".as_ref()) {
                sources.push(Source::parse(path, &text)?);
            }
            texts.push(Text { path: path.to_owned(), text });
        }
        Ok(Self { packages, sources, texts })
    }
}

/// Returns the text of a file; `None` if it is missing in the work tree, or is not UTF-8.
fn read_text(path: &Path) -> Result<Option<String>> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8(bytes).ok())
}

fn tracked(root: &Path) -> Result<String> {
    let args = ["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    output(Command::new("git").current_dir(root).args(args))
}

fn packages(root: &Path, manifest: &str) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["metadata", "--no-deps", "--offline"]);
    command.args(["--format-version", "1", "--manifest-path", manifest]);
    let metadata: Value = serde_json::from_str(&output(&mut command)?)?;
    Ok(array(&metadata["packages"]).iter().map(|value| package(root, value)).collect())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn package(root: &Path, value: &Value) -> Package {
    let ours = |dependency: &&Value| dependency["path"].is_string();
    Package {
        name: string(&value["name"]),
        manifest: relative(root, &value["manifest_path"]),
        roots: array(&value["targets"]).iter().map(|t| relative(root, &t["src_path"])).collect(),
        dependencies: array(&value["dependencies"]).iter().filter(ours).map(dependency).collect(),
    }
}

fn dependency(value: &Value) -> Dependency {
    Dependency { name: string(&value["name"]), dev: value["kind"] == "dev" }
}

fn relative(root: &Path, value: &Value) -> String {
    let path = string(value);
    let prefix = format!("{}/", root.display());
    path.strip_prefix(&prefix).unwrap_or(&path).to_owned()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_read_from_cargo_metadata() {
        let value = serde_json::json!({
            "name": "p",
            "manifest_path": "/r/crates/p/Cargo.toml",
            "targets": [{"src_path": "/r/crates/p/src/lib.rs"}],
            "dependencies": [
                {"name": "q", "kind": null, "path": "/r/crates/q"},
                {"name": "t", "kind": "dev", "path": "/r/crates/t"},
                {"name": "anyhow", "kind": null},
            ],
        });
        let package = package(Path::new("/r"), &value);
        assert_eq!(package.manifest, "crates/p/Cargo.toml");
        assert_eq!(package.roots, ["crates/p/src/lib.rs"]);
        let names: Vec<_> = package.dependencies.iter().map(|d| (d.name.as_str(), d.dev)).collect();
        assert_eq!(names, [("q", false), ("t", true)]);
    }

    #[test]
    fn file_that_does_not_parse_is_an_error() {
        assert!(Source::parse("a.rs", "fn {").is_err());
    }
}
