//! `shell`: directories, scripts that stop at an error, and the prompt with its editor.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use userbtrfs_testkit::test_env::has_program;

use crate::support::assert_says;
use crate::support::command::{Ran, command};
use crate::support::made::Made;

fn shell(made: &Made, options: &[&str], lines: &[&str]) -> Ran {
    let image = made.image();
    let words = ["shell", image.to_str().unwrap()];
    let mut command = command(words.iter().chain(options));
    command.current_dir(made.at(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        let _ = writeln!(input, "{line}");
    }
    drop(input);
    child.wait_with_output().unwrap().into()
}

#[test]
fn relative_paths_start_in_the_directory_of_cd() {
    let made = Made::new();
    fs::create_dir(made.at("host")).unwrap();
    fs::write(made.at("host/file"), "content\n").unwrap();
    let lines = [
        "mkdir -p /a/b /c",
        "pwd",
        "cd /a/b",
        "lcd host",
        "put file .",
        "cat file ./file ../b/file",
        "ls",
        "find",
        "cd ..",
        "pwd",
        "mv b/file moved",
        "ln -s moved link",
        "mkdir -p x/y",
        "cp moved /c",
        "ls m*",
        "cd -",
        "cd",
        "pwd",
        "stat -c %n c",
        "rm -r a/x",
    ];
    let said = shell(&made, &[], &lines).good();
    let expected = "/\ncontent\ncontent\ncontent\nfile\n.\n./file\n/a\nmoved\n/a/b\n/\nc\n";
    assert_eq!(said, expected);
    assert_eq!(made.paths(), ["/a", "/a/b", "/a/link", "/a/moved", "/c", "/c/moved"]);
    made.judge();
}

#[test]
fn cd_refuses_what_is_no_directory() {
    let made = Made::new();
    let lines = ["truncate -s 0 /f", "cd /f", "cd /none", "lcd /none", "pwd"];
    let ran = shell(&made, &[], &lines);
    assert_eq!((ran.code, &ran.stdout[..]), (Some(1), &b"/\n"[..]));
    assert_says(
        &ran.stderr,
        &["/f: not a directory", "/none: no such file", "/none: No such file"],
    );
}

#[test]
fn script_stops_at_the_first_line_that_fails_if_asked_to() {
    let made = Made::new();
    let lines = ["mkdir /a", "# a comment", "rm /none", "mkdir /b"];
    let said = shell(&made, &["-e"], &lines).bad();
    assert_says(&said, &["/none: no such file", "line 3: failed; remaining lines skipped"]);
    assert_eq!(made.paths(), ["/a"], "what was done before stays");
    let said = shell(&made, &["--stop-on-error"], &["no-such-verb", "mkdir /b"]).bad();
    assert_says(&said, &["line 1: failed"]);
    let said = shell(&made, &[], &lines[2..]).bad();
    assert!(!said.contains("line"), "{said}");
    assert_eq!(made.paths(), ["/a", "/b"]);
    made.judge();
}

#[test]
fn script_is_not_read_as_the_content_of_a_file() {
    let made = Made::new();
    let said = shell(&made, &[], &["put - /file", "mkdir /after"]).bad();
    assert_says(&said, &["-: standard input holds the commands"]);
    assert_eq!(made.paths(), ["/after"]);
}

/// Types lines at a prompt, with completion and history, and prints each prompt.
const PROMPT: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.environ["XDG_STATE_HOME"] = sys.argv[3]
    os.execv(sys.argv[1], [sys.argv[1], "shell", sys.argv[2]])
shown = b""
def wait_for(text):
    global shown
    while text not in shown:
        shown += os.read(terminal, 4096)
    shown = shown.split(text, 1)[1]
wait_for(b"userbtrfs> ")
os.write(terminal, b"mkdi\t/dir '/a b'\r")
wait_for(b"userbtrfs*> ")
os.write(terminal, b"sync\r")
wait_for(b"userbtrfs> ")
os.write(terminal, b"mkdir /d\tmade\r")
wait_for(b"userbtrfs*> ")
os.write(terminal, b"cd /a\t\r")
wait_for(b"userbtrfs:/a b*> ")
os.write(terminal, b"mkdir xx\x7fy\r")
wait_for(b"userbtrfs:/a b*> ")
os.write(terminal, b"\x1b[A\x7fz\r")
wait_for(b"userbtrfs:/a b*> ")
os.write(terminal, b"exit\r")
try:
    while os.read(terminal, 4096): pass
except OSError:
    pass
print(os.waitpid(pid, 0)[1])
"#;

#[test]
fn prompt_completes_words_and_shows_uncommitted_changes() {
    if !has_program("python3") {
        return;
    }
    let made = Made::new();
    let mut python = Command::new("timeout");
    python.args(["600", "python3", "-c", PROMPT, env!("CARGO_BIN_EXE_userbtrfs")]);
    let state = made.at("state");
    let ran = Ran::from(python.arg(made.image()).arg(&state).output().unwrap());
    assert_eq!(ran.good(), "0\n");
    assert_eq!(made.paths(), ["/a b", "/a b/xy", "/a b/xz", "/dir", "/dir/made"]);
    let history = fs::read_to_string(state.join("userbtrfs/history")).unwrap();
    assert_says(&history, &["mkdir /dir '/a b'", "cd /a\\\\ b/", "mkdir xz", "exit"]);
    made.judge();
}
