//! Rule: the files of one crate have no cycle of imports, with a count for each crate that may only
//! fall.
//!
//! 1. `imports` decides which paths are imports, `modules` to which file a path leads.
//! 2. Each file of a target counts, a parent and its child as well; files for tests only do not,
//!    unless the target itself is a test.
//! 3. `FACADES` lists the files whose imports are not counted, each with a reason.
//! 4. `cycles.txt` has the number of files in cycles that a crate may have; it is zero for a crate
//!    that is not listed. A higher number is a finding for each of its cycles; `--update` writes
//!    lower numbers.

mod imports;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;

use anyhow::{Result, ensure};
use imports::Imports;

use super::counts::{self, Counts, crate_of};
use super::finding::Finding;
use super::modules::Modules;
use super::workspace::Workspace;

/// The path of the table, from the root of the workspace.
const TABLE: &str = "crates/xtask/cycles.txt";

/// Each facade, with the reason why its imports are not counted.
const FACADES: &[(&str, &str)] = &[
    (
        "crates/engine/src/api/filesystem.rs",
        "a filesystem leads to inodes, and an inode to its filesystem, as handles of an API do",
    ),
    (
        "crates/engine/src/api/inode.rs",
        "an inode opens files and walks, and these lead to inodes, as handles of an API do",
    ),
];

/// The files of one target that each of its files imports, with the line of the first import.
type Graph = BTreeMap<String, BTreeMap<String, usize>>;

/// A cycle of imports.
struct Cycle {
    /// All files that share a cycle with the first one.
    files: BTreeSet<String>,
    /// The files of a shortest cycle, in the order of the imports.
    shortest: Vec<String>,
    line: usize,
}

/// Returns a finding for each cycle of a crate that has more files in cycles than allowed.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let allowed = match counts::load(workspace, TABLE) {
        Ok(allowed) => allowed,
        Err(error) => return vec![Finding::new(TABLE, 1, format!("{error:#}"))],
    };
    let cycles = cycles(workspace, FACADES);
    let limit = |name: &str| allowed.get(name).copied().unwrap_or(0);
    let mut findings = Vec::new();
    for (name, n) in count(&cycles).into_iter().filter(|(name, n)| *n > limit(name)) {
        for cycle in cycles.iter().filter(|cycle| crate_of(&cycle.shortest[0]) == name) {
            let path = &cycle.shortest[0];
            let around = cycle.shortest.iter().chain([path]);
            let around = around.map(|path| short(path)).collect::<Vec<_>>().join(" -> ");
            let limit = limit(&name);
            let text = format!(
                "cycle of imports: {around}; {n} files in cycles of {name}, {limit} allowed"
            );
            findings.push(Finding::new(path, cycle.line, text));
        }
    }
    findings
}

/// Writes the current counts into the table; fails if one is higher than in the table.
pub(super) fn update(workspace: &Workspace, root: &Path) -> Result<()> {
    let over = check(workspace);
    ensure!(over.is_empty(), "counts rose: {}", over[0]);
    let head = "crate, files in cycles of imports: see crates/xtask/src/tidy/cycles.rs";
    counts::write(root, TABLE, head, &count(&cycles(workspace, FACADES)))
}

/// Returns the path below the folder of the target.
fn short(path: &str) -> &str {
    path.split_once("/src/").or_else(|| path.split_once("/tests/")).map_or(path, |it| it.1)
}

fn count(cycles: &[Cycle]) -> Counts {
    let files: BTreeSet<&String> = cycles.iter().flat_map(|cycle| &cycle.files).collect();
    let mut counts = Counts::new();
    for file in files {
        *counts.entry(crate_of(file).to_owned()).or_default() += 1;
    }
    counts
}

/// Returns the cycles of all targets.
fn cycles(workspace: &Workspace, facades: &[(&str, &str)]) -> Vec<Cycle> {
    let roots = workspace.packages.iter().flat_map(|package| &package.roots);
    let roots: BTreeSet<&String> = roots.collect();
    roots.into_iter().flat_map(|root| find(&graph(workspace, root, facades))).collect()
}

/// Returns the imports between the files of the target with this root.
fn graph(workspace: &Workspace, root: &str, facades: &[(&str, &str)]) -> Graph {
    let sources = &workspace.sources;
    let sources: HashMap<_, _> = sources.iter().map(|source| (source.path(), source)).collect();
    let modules = Modules::load(root, &sources);
    let is_facade = |path: &str| facades.iter().any(|(facade, _)| *facade == path);
    let mut graph = Graph::new();
    for id in (0..modules.all.len()).filter(|id| modules.is_file(*id)) {
        let path = &modules.all[id].path;
        let found = Imports::of(&sources[path.as_str()].syntax, &modules, id).found;
        let to = found.iter().map(|(to, line)| (&modules.all[*to].path, *line));
        for (to, line) in to.filter(|(to, _)| *to != path && !is_facade(path) && !is_facade(to)) {
            let first = graph.entry(path.clone()).or_default().entry(to.clone()).or_insert(line);
            *first = line.min(*first);
        }
    }
    graph
}

/// Returns a cycle for each group of files that import each other.
fn find(graph: &Graph) -> Vec<Cycle> {
    let reach: BTreeMap<_, _> = graph.keys().map(|path| (path, reachable(graph, path))).collect();
    let mut done = BTreeSet::new();
    let mut cycles = Vec::new();
    for (path, below) in &reach {
        if !below.contains(*path) || done.contains(*path) {
            continue;
        }
        let back = |other: &&String| reach.get(*other).is_some_and(|it| it.contains(*path));
        let files: BTreeSet<String> = below.iter().copied().filter(back).cloned().collect();
        done.extend(files.iter().cloned());
        let shortest = shortest(graph, path);
        let line = graph[*path][shortest.get(1).unwrap_or(path)];
        cycles.push(Cycle { files, shortest, line });
    }
    cycles
}

/// Returns the files that a file imports, also by others; the file itself only if in a cycle.
fn reachable<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&String> = graph[from].keys().collect();
    while let Some(path) = waiting.pop() {
        if reached.insert(path) {
            waiting.extend(graph.get(path).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

/// Returns the files of a shortest cycle, `from` first; `from` is in one.
fn shortest(graph: &Graph, from: &str) -> Vec<String> {
    let mut came: HashMap<&str, &str> = HashMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(path) = waiting.pop_front() {
        for next in graph.get(path).into_iter().flat_map(BTreeMap::keys) {
            if next == from {
                let back = std::iter::successors(Some(path), |it| came.get(it).copied());
                let mut files: Vec<String> = back.map(str::to_owned).collect();
                files.reverse();
                return files;
            }
            if !came.contains_key(next.as_str()) {
                came.insert(next, path);
                waiting.push_back(next);
            }
        }
    }
    vec![from.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{Package, Source, Text};
    use super::*;

    fn workspace(files: &[(&str, &str)], table: &str) -> Workspace {
        let path = |name: &str| format!("crates/a/src/{name}");
        let roots = vec![path("lib.rs")];
        let package =
            Package { name: "a".into(), manifest: String::new(), roots, dependencies: vec![] };
        let parse = |(name, text): &(&str, &str)| Source::parse(&path(name), text).unwrap();
        let texts = vec![Text { path: TABLE.to_owned(), text: table.to_owned() }];
        Workspace { packages: vec![package], sources: files.iter().map(parse).collect(), texts }
    }

    /// Returns the cycles of a crate with these files, besides a root file that declares `b`, `c`
    /// and `d`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![("lib.rs", "mod b; mod c; mod d;")];
        all.extend(files);
        let cycles = cycles(&workspace(&all, ""), &[]);
        let files = cycles.iter().map(|cycle| cycle.shortest.iter().map(|it| short(it)));
        files.map(|files| files.collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn imports_in_one_direction_are_no_cycle() {
        let files = [
            ("b.rs", "use crate::c::C; use super::d::{self, D}; fn f() { d::g(); }"),
            ("c.rs", "use crate::d::D; pub struct C;"),
            ("d.rs", "pub struct D; pub fn g() {}"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn every_way_to_import_closes_the_cycle() {
        let c = "use crate::b::B; pub struct C; impl C { pub const N: u8 = 0; } pub fn f() {}";
        let imports = [
            "use crate::c::C;",
            "use super::c::C;",
            "use crate::{d::D, c::{self as other, C}};",
            "use crate::c; fn g() { c::f(); }",
            "use crate::c::*; fn g() { f(); }",
            "fn g() { crate::c::f(); }",
            "fn g() { use crate::c; c::f(); }",
            "const N: u8 = crate::c::C::N;",
            "fn g() { println!(\"{}\", crate::c::f()); }",
            "mod inner { use super::super::c::C; }",
            "fn g(c: Option<super::c::C>) {}",
            "pub use crate::c::C;",
        ];
        for import in imports {
            let b = format!("{import} pub struct B;");
            let files = [("b.rs", b.as_str()), ("c.rs", c), ("d.rs", "pub struct D;")];
            assert_eq!(found(&files), ["b.rs c.rs"], "{import}");
        }
    }

    #[test]
    fn a_longer_cycle_is_found_once() {
        let files = [
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::d::D; pub struct C;"),
            ("d.rs", "use crate::b::B; pub struct D;"),
        ];
        assert_eq!(found(&files), ["b.rs c.rs d.rs"]);
    }

    #[test]
    fn item_of_the_parent_is_an_import_of_the_parent() {
        let b = "mod inner; use inner::I; pub struct B;";
        assert_eq!(
            found(&[("b.rs", b), ("b/inner.rs", "use super::B; pub struct I;")]),
            ["b.rs b/inner.rs"]
        );
        let inner = "use super::super::b::B; pub struct I;";
        assert_eq!(found(&[("b.rs", b), ("b/inner.rs", inner)]), ["b.rs b/inner.rs"]);
    }

    #[test]
    fn declaring_and_reexporting_a_child_imports_nothing() {
        let inner = ("b/inner.rs", "use super::B; pub struct I;");
        let b = "pub mod inner; pub(crate) use inner::I; pub struct B;";
        assert_eq!(found(&[("b.rs", b), inner]), [""; 0]);
        let b = "mod inner; pub use inner::I; pub struct B(I);";
        assert_eq!(found(&[("b.rs", b), inner]), ["b.rs b/inner.rs"]);
        let b = "mod inner; pub use inner::*; pub struct B; fn f() { vec![I]; }";
        assert_eq!(found(&[("b.rs", b), inner]), ["b.rs b/inner.rs"]);
    }

    #[test]
    fn reexported_item_is_an_import_of_its_own_file() {
        let files = [
            ("b.rs", "mod inner; mod other; pub use inner::I;"),
            ("b/inner.rs", "pub struct I;"),
            ("b/other.rs", "use super::I; use crate::b::I as Same;"),
            ("c.rs", "use crate::b::I;"),
        ];
        assert_eq!(found(&files), [""; 0]);
        let renamed = [
            ("b.rs", "mod inner; pub use inner::I as J; use crate::c::C;"),
            ("b/inner.rs", "use crate::c::C; pub struct I;"),
            ("c.rs", "use crate::b::J; pub struct C;"),
        ];
        assert_eq!(found(&renamed), ["b/inner.rs c.rs"]);
    }

    #[test]
    fn items_for_tests_may_import_the_users_of_their_file() {
        let files = [
            ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::c::C; use super::*; }"),
            ("c.rs", "use crate::b::B; pub struct C; #[cfg(test)] mod tests;"),
            ("c/tests.rs", "use super::C;"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn reexports_in_a_cycle_end_the_search() {
        let files = [
            ("b.rs", "pub use crate::c::X; pub use crate::c::*;"),
            ("c.rs", "pub use crate::b::X; pub use crate::b::*; fn f() { Y; }"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn imports_of_a_facade_are_not_counted() {
        let files = [
            ("lib.rs", "mod b; mod c;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::b::B; pub struct C;"),
        ];
        let workspace = workspace(&files, "");
        assert_eq!(cycles(&workspace, &[]).len(), 1);
        assert!(cycles(&workspace, &[("crates/a/src/b.rs", "a reason")]).is_empty());
    }

    #[test]
    fn count_within_the_table_is_allowed() {
        let files = [
            ("lib.rs", "mod b; mod c;"),
            ("b.rs", "pub struct B;\nuse crate::c::C;"),
            ("c.rs", "use crate::b::B; pub struct C;"),
        ];
        assert!(check(&workspace(&files, "a 2\n")).is_empty());
        let findings = check(&workspace(&files, "# a\na 1\nb 2\n"));
        let text = "cycle of imports: b.rs -> c.rs -> b.rs; 2 files in cycles of a, 1 allowed";
        assert_eq!(findings, [Finding::new("crates/a/src/b.rs", 2, text)]);
        assert_eq!(check(&workspace(&files, "a\n")), [Finding::new(TABLE, 1, "no key: a")]);
    }

    #[test]
    fn every_facade_is_a_file_with_a_reason() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for (facade, reason) in FACADES {
            assert!(root.join(facade).is_file() && !reason.is_empty(), "{facade}");
        }
    }
}
