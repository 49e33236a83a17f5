//! `shell`: verbs one after the other on one filesystem that stays open.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use userbtrfs_testkit::test_env::has_program;

use crate::support::command::{Ran, command};
use crate::support::made::Made;
use crate::support::{assert_says, pattern};

/// Runs the shell with these lines as its input.
fn shell(made: &Made, options: &[&str], lines: &[&str]) -> Ran {
    let image = made.image();
    let words = ["shell", image.to_str().unwrap()];
    run_lines(command(words.iter().chain(options)), lines)
}

/// Runs a command, a shell, with these lines as its input.
fn run_lines(mut command: Command, lines: &[&str]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        // A shell that has ended does not read the rest.
        let _ = writeln!(input, "{line}");
    }
    drop(input);
    child.wait_with_output().unwrap().into()
}

#[test]
fn lines_are_run_in_order() {
    let made = Made::new();
    let source = made.at("source");
    std::fs::write(&source, b"content\n").unwrap();
    let put = format!("put {} /a/copied", source.display());
    let lines = [
        "mkdir -p '/a/with blanks' \"/a/b\"   # a comment",
        "",
        &put,
        "ln -s copied /a/link",
        "setfattr -n user.a -v b /a/copied",
        "getfattr -d /a/copied",
        "cat /a/link",
        "mv /a/b /c",
        "find /",
    ];
    let said = shell(&made, &[], &lines).good();
    let found = "/\n/a\n/c\n/a/with blanks\n/a/copied\n/a/link\n";
    let mut sorted: Vec<_> = said.lines().skip(4).collect();
    sorted.sort_unstable();
    let mut expected: Vec<_> = found.lines().collect();
    expected.sort_unstable();
    assert!(said.starts_with("# file: /a/copied\nuser.a=\"b\"\n\ncontent\n"), "{said}");
    assert_eq!(sorted, expected);
    assert_eq!(made.paths().len(), 5);
    made.judge();
}

#[test]
fn home_directory_begins_paths_on_the_host_only() {
    let made = Made::new();
    let home = made.at("home");
    std::fs::create_dir_all(home.join("sub")).unwrap();
    std::fs::write(home.join("a"), "content").unwrap();
    let image = made.image();
    let mut command = command(["shell", image.to_str().unwrap()]);
    command.env("HOME", &home);
    let lines =
        ["put ~/a /b", "get /b ~/c", "lcd ~", "get /b d", "lcd ~/sub", "get /b '~'", "mkdir ~"];
    assert_eq!(run_lines(command, &lines).good(), "");
    for copy in ["c", "d", "sub/~"] {
        assert_eq!(std::fs::read(home.join(copy)).unwrap(), b"content", "{copy}");
    }
    assert_eq!(made.paths(), ["/b", "/~"]);
    made.judge();
}

#[test]
fn error_is_printed_and_the_next_line_is_run() {
    let made = Made::new();
    let lines = [
        "rm /none",
        "no-such-verb",
        "mkdir",
        "'open",
        "fsync /no",
        "ls -Z",
        "mkdir /after",
        "exit",
    ];
    let said = shell(&made, &[], &lines).bad();
    assert_eq!(said.lines().count(), 6, "{said}");
    assert_says(
        &said,
        &["/none: no such file", "no-such-verb", "unterminated single quote", "/no: no such file"],
    );
    assert_eq!(made.paths(), ["/after"]);
    made.judge();
}

#[test]
fn quoted_wildcards_name_files_that_have_them() {
    let made = Made::new();
    let lines = [
        "mkdir /a* /ab /ac /x",
        r#"ls -d "/a*""#,
        "rmdir '/a*'",
        "rmdir \"/a*\"",
        r"ls -d /a\*",
        "ls -d /[a]*",
        "rm -r /a*",
    ];
    let ran = shell(&made, &[], &lines);
    let said = ran.bad();
    assert_says(&said, &["/a*: no such file or directory"]);
    assert_eq!(made.paths(), ["/x"]);
    made.judge();
}

#[test]
fn crash_loses_only_changes_that_were_not_durable() {
    let made = Made::new();
    let lines =
        ["mkdir /a", "mkdir /a/b", "sync", "mkdir /c", "mv /a /d", "rm /none", "crash", "x"];
    let said = shell(&made, &[], &lines).bad();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(made.paths(), ["/a", "/a/b"]);
    made.judge();
    shell(&made, &[], &["mkdir /c", "sync", "crash"]).good();
    shell(&made, &[], &["mkdir /lost", "crash"]).good();
    assert_eq!(made.paths(), ["/a", "/a/b", "/c"]);
    made.judge();
}

#[test]
fn fsynced_files_survive_a_crash() {
    let made = Made::new();
    let source = made.at("source");
    std::fs::write(&source, pattern(100_000)).unwrap();
    let source = source.display();
    let each = format!("put --fsync {source} /each");
    let later = format!("put {source} /later");
    shell(&made, &[], &[&each, "crash"]).good();
    shell(&made, &[], &[&later, "fsync /later /", "truncate -s 0 /each", "crash"]).good();
    let filesystem = made.open();
    for path in ["/each", "/later"] {
        assert!(filesystem.read(path).unwrap() == pattern(100_000), "{path}");
    }
    // `judge` gives Linux no write access, and Linux could not replay the log.
    shell(&made, &[], &["sync"]).good();
    made.judge();
}

#[test]
fn fsyncs_are_traced_until_the_trace_is_stopped() {
    let made = Made::new();
    let lines = [
        "mkdir /a",
        "trace fsync",
        "fsync /a /a",
        "trace fsync --format json",
        "mkdir /a/b",
        "fsync /a",
        "trace fsync --stop",
        "mkdir /a/c",
        "fsync /a",
    ];
    let said = shell(&made, &[], &lines).good();
    let said: Vec<_> = said.lines().collect();
    assert_eq!(said.len(), 3, "{said:?}");
    let logged: Vec<_> = said[0].split("; ").collect();
    assert!(logged[0].ends_with(": log") && logged[1].starts_with("inodes 1, "), "{said:?}");
    assert!(said[1].contains(": unchanged; inodes 0, items 0, bytes 0; us: "), "{said:?}");
    let traced: Value = serde_json::from_str(said[2]).unwrap();
    assert_eq!((&traced["how"], &traced["reason"]), (&json!("log"), &Value::Null), "{traced}");
    assert_eq!(traced["__header"]["version"], "1", "{traced}");
    for amount in ["inodes", "items", "bytes", "device_us"] {
        assert!(traced[amount].as_u64().unwrap() > 0, "{amount}: {traced}");
    }
}

#[test]
fn stats_shows_counters() {
    let made = Made::new();
    let said = shell(&made, &[], &["mkdir /a", "fsync /a", "fsync /a", "stats"]).good();
    assert!(said.lines().any(|line| line == "log groups: 1"), "{said}");
    assert!(!said.contains("commits"), "{said}");
    let said = shell(&made, &[], &["--format json stats"]).good();
    let stats: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(stats["stats"]["log_groups"], 0, "{stats}");
    assert_eq!(stats["stats"]["commits_for_syncs"]["no_space_for_the_log"], 0, "{stats}");
}

#[test]
fn a_shell_that_reads_changes_nothing() {
    let made = Made::new();
    let before = std::fs::read(made.image()).unwrap();
    let said = shell(&made, &["--read-only"], &["ls -a /", "mkdir /a", "sync"]).bad();
    assert_says(&said, &["/a: read-only"]);
    assert!(std::fs::read(made.image()).unwrap() == before);
}

/// Makes two directories at a prompt, with a SIGINT between them, and ends it by SIGTERM.
const PROMPT: &str = r#"
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "shell", sys.argv[2]])
shown = b""
def wait_for(text):
    global shown
    while text not in shown:
        shown += os.read(terminal, 4096)
    shown = shown.split(text, 1)[1]
wait_for(b"userbtrfs> ")
os.write(terminal, b"mkdir /first\n")
wait_for(b"userbtrfs*> ")
os.kill(pid, signal.SIGINT)
wait_for(b"commits and ends")
os.write(terminal, b"mkdir /second\npwd\n")
wait_for(b"\n/\r\n")
os.kill(pid, signal.SIGTERM)
print(os.waitpid(pid, 0)[1])
"#;

#[test]
fn signal_at_a_prompt_loses_nothing() {
    if !has_program("python3") {
        return;
    }
    let made = Made::new();
    let mut python = Command::new("timeout");
    python.args(["600", "python3", "-c", PROMPT, env!("CARGO_BIN_EXE_userbtrfs")]);
    let ran = Ran::from(python.arg(made.image()).output().unwrap());
    assert_eq!(ran.good(), "15\n", "it is ended by the signal");
    assert_eq!(made.verb("ls", &[]).good(), "first\nsecond\n");
    made.judge();
}
