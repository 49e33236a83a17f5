//! The manual pages and the completions that the command writes, and the errors of its arguments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use userbtrfs_testkit::test_env::has_program;

use crate::support::assert_says;
use crate::support::command::run;

/// Writes all pages to a directory, and returns their paths.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let words = ["generate", "man", "--docs"].map(Into::into);
    let ran = run(words.into_iter().chain([docs.into_os_string(), dir.as_os_str().to_owned()]));
    assert_eq!(ran.good(), "");
    let mut pages: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
}

#[test]
fn each_verb_of_the_help_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = pages(dir.path());
    let help = run(["--help"]).good();
    let verbs = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let verbs = verbs.lines().map(|line| line.split_whitespace().next().unwrap());
    let verbs: Vec<_> = verbs.filter(|verb| *verb != "help").collect();
    assert!(verbs.len() > 20, "{help}");
    for verb in verbs {
        let page = fs::read_to_string(dir.path().join(format!("userbtrfs-{verb}.1"))).unwrap();
        assert_says(&page, &["SYNOPSIS", "OPTIONS", "\\-\\-verbose"]);
    }
    for other in ["userbtrfs.1", "userbtrfs.5", "userbtrfs.7", "mount.fuse.userbtrfs.8"] {
        assert!(pages.contains(&dir.path().join(other)), "{other}");
    }
}

#[test]
fn second_short_names_are_in_the_pages() {
    let dir = tempfile::tempdir().unwrap();
    pages(dir.path());
    for (verb, names) in [
        ("ls", &["\\-a", "\\-A"][..]),
        ("rm", &["\\-r", "\\-R"]),
        ("cp", &["\\-r", "\\-R"]),
        ("get", &["\\-a", "\\-r", "\\-R"]),
    ] {
        let page = fs::read_to_string(dir.path().join(format!("userbtrfs-{verb}.1"))).unwrap();
        assert_says(&page, names);
    }
}

#[test]
fn verbs_with_another_meaning_of_h_are_documented() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md");
    let document = fs::read_to_string(document).unwrap();
    let list = document.split_once("`-h` has another meaning in ").unwrap().1;
    let list = list.split_once(" |").unwrap().0;
    // The help of `filesystem` itself has it; those of its verbs do not.
    let mut documented: Vec<_> =
        list.split('`').skip(1).step_by(2).filter(|verb| *verb != "filesystem").collect();
    documented.sort_unstable();
    let help = run(["--help"]).good();
    let verbs = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let verbs = verbs.lines().map(|line| line.split_whitespace().next().unwrap());
    let is_other =
        |verb: &&str| *verb != "help" && !run([*verb, "--help"]).good().contains("-h, --help");
    let mut others: Vec<_> = verbs.filter(is_other).collect();
    others.sort_unstable();
    assert_eq!(documented, others);
}

#[test]
fn no_page_has_a_warning() {
    if !has_program("groff") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for page in pages(dir.path()) {
        if fs::read_to_string(&page).unwrap().starts_with(".so ") {
            continue;
        }
        let mut groff = Command::new("groff");
        let output = groff.args(["-man", "-Tutf8", "-Kutf8", "-ww"]).arg(&page).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{page:?}: {output:?}");
        assert!(!output.stdout.is_empty());
    }
}

/// The document and the command explain the same counters in the same words.
#[test]
fn counters_are_explained_in_the_document_as_by_the_command() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let document = fs::read_to_string(docs.join("command.md")).unwrap();
    let table = document.split_once("| counter | meaning |\n|---|---|\n").unwrap().1;
    let table = table.split_once("\n\n").unwrap().0;
    let explained = run(["stats", "--explain"]).good();
    let lines = explained.lines().map(|line| line.split_once(": ").unwrap());
    let (requests, others): (Vec<_>, Vec<_>) =
        lines.partition(|(name, _)| name.starts_with("requests, "));
    let rows = others.iter().map(|(name, text)| format!("| `{name}` | {text} |"));
    let mut expected: Vec<_> = rows.collect();
    let of_requests = table.lines().last().unwrap();
    assert!(of_requests.starts_with("| `requests, KIND` |"), "{of_requests}");
    expected.push(of_requests.to_owned());
    assert_eq!(table.lines().collect::<Vec<_>>(), expected);
    assert!(requests.contains(&("requests, FSYNC", "makes a file durable")), "{requests:?}");
    let dir = tempfile::tempdir().unwrap();
    pages(dir.path());
    let page = fs::read_to_string(dir.path().join("userbtrfs-stats.1")).unwrap();
    for (name, _) in others.iter().chain(&requests) {
        assert_says(&page, &[name]);
    }
}

#[test]
fn shells_can_parse_the_completions() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = run(["generate", "completions", shell]).good();
        assert_says(&script, &["snapshot", "reflink"]);
        if !has_program(shell) {
            continue;
        }
        let path = dir.path().join(shell);
        fs::write(&path, script).unwrap();
        let output = Command::new(shell).arg(check).arg(&path).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

#[test]
fn an_unknown_option_has_no_misleading_tip() {
    for words in ["ls -Z image", "rm --fo image /x", "subvolume --frob list image", "-Z"] {
        let ran = run(words.split(' '));
        assert_eq!(ran.code, Some(1));
        assert_says(&ran.stderr, &["unexpected argument"]);
        assert!(!ran.stderr.contains("as a value"), "{}", ran.stderr);
    }
    // A tip that helps is kept.
    assert_says(&run(["cp", "--reflin", "image", "/a", "/b"]).stderr, &["tip: ", "'--reflink'"]);
}

#[test]
fn an_unknown_word_is_not_taken_for_one_that_differs() {
    for (words, usage) in [
        ("ls --color image", "ls [OPTIONS] <IMAGE> [PATHS]..."),
        ("ls --sort image", "ls [OPTIONS] <IMAGE> [PATHS]..."),
        ("mkfs --sectorsize 4k image", "mkfs [OPTIONS] <IMAGE>"),
        ("delete image", "<COMMAND>"),
        ("show image", "<COMMAND>"),
        ("import image", "<COMMAND>"),
    ] {
        let ran = run(words.split(' '));
        assert_eq!(ran.code, Some(1));
        assert_says(&ran.stderr, &["error: un", usage]);
        assert!(!ran.stderr.contains("tip: "), "{}", ran.stderr);
    }
    for (words, tip) in [
        ("ls --no-log-repay image", "'--no-log-replay'"),
        ("mkdri image /a", "'mkdir'"),
        ("mkfs --csum crc32 image", "'crc32c'"),
    ] {
        assert_says(&run(words.split(' ')).stderr, &["tip: ", tip]);
    }
}

#[test]
fn completions_have_no_hidden_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(["generate", "completions", shell]).good();
        assert!(script.contains("one-file-system") && script.contains("no-log-replay"), "{shell}");
        for hidden in ["raw-names", "as-progs", "not-name"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
}
