//! Commands whose stdout is closed: operations complete, and failures are still reported.

use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;

use crate::support::assert_says;
use crate::support::command::{Ran, command};
use crate::support::made::Made;

/// Runs a command with some input, and with a closed pipe as stdout.
fn unread(made: &Made, words: &str, rest: &[&str], input: &str) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let image = made.image();
    let words = words.split(' ').chain([image.to_str().unwrap()]);
    let mut command = command(words.chain(rest.iter().copied()));
    let mut child =
        command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    // A command that has ended does not read all of it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}

fn pending_log(made: &Made) -> String {
    made.verb("dump log", &[]).good()
}

#[test]
fn log_discard_with_closed_stdout_discards() {
    let made = Made::new();
    let lines = "truncate -s 1M /file\nfsync /file\ncrash\n";
    unread(&made, "shell", &[], lines).good();
    assert!(!pending_log(&made).contains("no log is pending"));
    unread(&made, "log discard", &[], "").good();
    assert_says(&pending_log(&made), &["no log is pending"]);
    assert!(made.paths().is_empty());
}

#[test]
fn failure_before_closed_stdout_sets_exit_code() {
    let made = Made::new();
    made.does("mkdir", &["/there"]);
    for words in ["ls", "stat", "ls --format json", "stat --format json"] {
        assert_says(&unread(&made, words, &["/none", "/"], "").bad(), &["/none: no such file"]);
        unread(&made, words, &["/"], "").good();
    }
}

/// The output of a verb that writes is not its purpose.
#[test]
fn copy_with_closed_stdout_keeps_its_exit_code() {
    let made = Made::new();
    let source = made.at("source");
    let copy = made.at("copy");
    std::fs::write(&source, b"content").unwrap();
    let source = source.to_str().unwrap();
    let copy = copy.to_str().unwrap();
    assert_says(&unread(&made, "put --format json", &["/none", "/"], "").bad(), &["put: /none: "]);
    unread(&made, "put --format json", &[source, "/"], "").good();
    unread(&made, "get --format json", &["/source", copy], "").good();
    assert_says(&unread(&made, "get --format json", &["/none", copy], "").bad(), &["/none: "]);
    assert_eq!(std::fs::read(copy).unwrap(), b"content");
}

#[test]
fn script_cut_short_by_closed_stdout_fails() {
    let made = Made::new();
    unread(&made, "shell", &[], "mkdir /a\nls /\n\n # nothing is left\n").good();
    let said = unread(&made, "shell", &[], "mkdir /b\nls /\n\nmkdir /c\n").bad();
    assert_says(&said, &["stdout closed; remaining commands skipped"]);
    unread(&made, "shell", &[], "ls /none /").bad();
    assert_eq!(made.paths(), ["/a", "/b"]);
}

#[test]
fn help_that_cannot_be_printed_is_a_failure() {
    for words in [&["--help"][..], &["--version"], &["ls", "--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = Ran::from(command(words).stdout(full).output().unwrap());
        assert_says(&ran.bad(), &["No space left on device"]);
    }
}
