//! Two changes of names, then an fsync: our log keeps at least as much as that of Linux.
//!
//! 1. Each case is executed by Linux and by userbtrfs up to a crash, and Linux replays both logs.
//! 2. A *fact* is that a name exists, that a name is removed, or that a name has the xattrs of the
//!    time of the crash. Each fact that holds after a replay of the log of Linux also holds for
//!    ours, which may keep more.
//! 3. The cases are all pairs of changes in [`CHANGES`] that can be made one after the other, with
//!    each inode of [`Case::synced`]. A normal run executes some of them, a torture run all.

use std::collections::BTreeSet;

use userbtrfs::mkfs::Options;
use userbtrfs_testkit::devices::SparseImage;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::stories::{
    Acted, Seen, act_by_linux, act_by_us, judge_by_linux, judge_by_us, read,
};

use super::made::{MIB, Made};
use super::{is_torture, seed};

/// The committed tree: a file with a name in each of two directories, files with one name, and a
/// directory in each. `%1` to `%3` are handles of the files.
const BASE: &str = "mkdir A; mkdir B; mkdir C; file A/f 4k; link A/f B/f; file A/g 4k; file B/h \
                    4k; mkdir A/s; file A/s/k 10; mkdir B/t; file B/t/k 10; setxattr A/f user.x \
                    1; setxattr B/h user.x 1; open %1 A/f; open %2 A/g; open %3 B/h; sync";

/// The names of files and directories in [`BASE`].
const NAMES: &[&str] = &["A/f", "B/f", "A/g", "B/h", "A/s", "B/t"];

/// The changes; each creates a unique name or removes one.
const CHANGES: &[&str] = &[
    "link A/f A/f1",
    "link A/f C/f2",
    "link B/h A/h1",
    "link B/h B/h2",
    "unlink A/f",
    "unlink B/f",
    "unlink A/g",
    "unlink B/h",
    "rename A/f A/f3",
    "rename B/f C/f4",
    "rename A/g A/g1",
    "rename A/g B/g2",
    "rename B/h A/h3",
    "rename A/g B/h",
    "rename A/s A/s1",
    "rename A/s B/s2",
    "rename B/t C/t1",
    "create A/n1",
    "create B/n2",
    "create A/f",
    "create A/g",
    "mkdir A/m; create A/m/n",
    "symlink B/l target",
    "exchange A/f A/g",
    "exchange A/g B/h",
    "exchange A/s B/t",
    "removexattr B/f user.x",
    "setxattr A/g user.y 2",
    "setxattr B/h user.x 2",
];

/// The number of cases in a normal run.
const SHARE: usize = 40;

/// Two changes and an fsync.
#[derive(Clone, Debug)]
struct Case {
    changes: String,
    synced: String,
}

impl Case {
    fn story(&self) -> String {
        let Self { changes, synced } = self;
        format!("- **order** Done: `{BASE}; {changes}; fsync {synced}`. There: `all is now`.")
    }
}

/// All cases.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for first in CHANGES {
        for second in CHANGES {
            let mut names: BTreeSet<_> = NAMES.iter().map(|name| (*name).to_owned()).collect();
            if first == second || !change(&mut names, first) || !change(&mut names, second) {
                continue;
            }
            let made = names.into_iter().filter(|name| !NAMES.contains(&name.as_str()));
            let synced = ["%1", "%2", "%3", "A", "B"].map(str::to_owned).into_iter().chain(made);
            let changes = format!("{first}; {second}");
            cases.extend(synced.map(|synced| Case { changes: changes.clone(), synced }));
        }
    }
    cases
}

/// Applies a change to a set of names; returns whether it is possible.
fn change(names: &mut BTreeSet<String>, change: &str) -> bool {
    for step in change.split("; ") {
        let words: Vec<&str> = step.split(' ').collect();
        let made = match words[..] {
            ["link", from, to] => names.contains(from) && names.insert(to.to_owned()),
            ["unlink", name] => names.remove(name),
            ["rename", from, to] => {
                let is_there = names.remove(from);
                names.insert(to.to_owned());
                is_there
            }
            ["exchange", from, to] => names.contains(from) && names.contains(to),
            ["create" | "mkdir", name] | ["symlink", name, _] => {
                // A symbolic link cannot be synced by its path.
                words[0] == "symlink" || names.insert(name.to_owned())
            }
            ["setxattr" | "removexattr", name, ..] => names.contains(name),
            _ => panic!("no change: {step}"),
        };
        if !made {
            return false;
        }
    }
    true
}

/// Returns the facts that hold in the state after a replay.
fn facts(acted: &Acted, seen: &Seen) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for now in acted.now.manifest.entries() {
        let found = seen.get(now.path.as_slice()).filter(|found| found.inode == now.inode);
        if let Some(found) = found {
            facts.insert(format!("{} is there", now.path));
            if found.xattrs == now.xattrs {
                facts.insert(format!("{} has its attributes", now.path));
            }
        }
    }
    let before = acted.before.as_ref().expect("the base ends with a sync");
    for was in before.manifest.entries() {
        let path = was.path.as_slice();
        if acted.now.get(path).is_none() && seen.get(path).is_none() {
            facts.insert(format!("{} is gone", was.path));
        }
    }
    facts
}

/// Runs a case; returns the facts that Linux keeps and we lose.
fn missing(base: &SparseImage, case: &Case) -> Vec<String> {
    let story = &read(&case.story()).unwrap()[0];
    let steps = &story.ways[0];
    let linux = Linux::lock().unwrap();
    let theirs =
        act_by_linux(&linux, base, steps).unwrap_or_else(|error| panic!("{case:?}: {error:#}"));
    let by_linux = judge_by_linux(&linux, &theirs.image).unwrap();
    let kept = facts(&theirs, &by_linux);
    drop(linux);
    let ours = act_by_us(base, steps).unwrap_or_else(|error| panic!("{case:?}: {error:#}"));
    let image = ours.durable.as_ref().unwrap_or(&ours.image);
    let linux = Linux::lock().unwrap();
    let judged = judge_by_linux(&linux, image);
    drop(linux);
    let ours_kept = match &judged {
        Ok(seen) => facts(&ours, seen),
        Err(error) => return vec![format!("{case:?}: Linux: {error:#}")],
    };
    let mut found = Vec::new();
    match judge_by_us(image) {
        Ok(seen) if facts(&ours, &seen) != ours_kept => {
            found.push(format!("{case:?}: the replays differ"));
        }
        Ok(_) => {}
        Err(error) => found.push(format!("{case:?}: we: {error:#}")),
    }
    let less: Vec<_> = kept.difference(&ours_kept).cloned().collect();
    if !less.is_empty() {
        let how = if theirs.has_log() { "by a log" } else { "by a commit" };
        found.push(format!(
            "{}; fsync {}: Linux keeps {how}: {}",
            case.changes,
            case.synced,
            less.join(", ")
        ));
    }
    found
}

#[test]
fn two_changes_of_names_and_an_fsync_keep_what_linux_keeps() {
    skip_unless_linux!();
    let base = Made::new("plain", 128 * MIB, Options::default()).image();
    let all = cases();
    let step = if is_torture() { 1 } else { all.len() / SHARE };
    let first = usize::try_from(seed()).unwrap_or_default() % step;
    let mut failures = Vec::new();
    for case in all.iter().skip(first).step_by(step) {
        let found = missing(&base, case);
        for line in &found {
            println!("LESS {line}");
        }
        failures.extend(found);
    }
    println!("{} cases of {}", all.len() / step, all.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
