//! `top`: the live view on a terminal, and plain blocks; and the counters that it shows.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use serde_json::Value;
use userbtrfs_testkit::test_env::has_program;

use super::control::{ask, stats};
use super::support::assert_says;
use super::support::command::Ran;
use super::support::site::Site;

/// Runs the view on a terminal while it makes fsyncs in the mount, ends it by `sys.argv[3]`, and
/// prints how it ended and the modes of the terminal.
const WATCHER: &str = r#"
import fcntl, os, re, signal, struct, subprocess, sys, termios
program, point, end = sys.argv[1:]
controller, user = os.openpty()
def set_size(rows, columns):
    fcntl.ioctl(user, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
set_size(20, 70)
before = termios.tcgetattr(user)
os.environ["TERM"] = "xterm"
child = subprocess.Popen([program, "top", "-i", "0.2", point], stdin=user, stdout=user)
shown = b""
def wait_for(pattern, work=lambda: None):
    global shown
    while True:
        found = re.search(pattern, shown)
        if found:
            shown = shown[found.end():]
            return
        work()
        shown += os.read(controller, 65536)
number = 0
def fsync():
    global number
    for _ in range(5):
        number += 1
        with open(point + "/file", "w") as file:
            file.write(str(number))
            file.flush()
            os.fsync(file.fileno())
wait_for(rb"\x1b\[\?1049h.*\x1b\[\?25l")
assert not termios.tcgetattr(user)[3] & (termios.ICANON | termios.ECHO)
wait_for(rb"fsyncs      0\.0/s, mean -")
wait_for(rb"fsyncs      [1-9][0-9.]*/s, mean [0-9.]+ ms; log commits [1-9]", fsync)
wait_for(rb"FSYNC  +[1-9]", fsync)
wait_for(rb"\r\nq: quit")
set_size(2, 200)
wait_for(rb"read-write\x1b\[K\r\nq: quit\x1b\[K\x1b\[J")
os.write(controller, b"xyz")
wait_for(rb"\x1b\[H")
if end == "signal":
    child.send_signal(signal.SIGTERM)
else:
    os.write(controller, end.encode())
print(child.wait())
wait_for(rb"\x1b\[\?25h\x1b\[\?1049l")
assert termios.tcgetattr(user) == before
"#;

fn watch(site: &Site, end: &str) -> String {
    let mut python = Command::new("timeout");
    python.args(["600", "python3", "-c", WATCHER, env!("CARGO_BIN_EXE_userbtrfs")]);
    Ran::from(python.arg(site.point()).arg(end).output().unwrap()).good()
}

#[test]
fn view_shows_fsyncs_and_restores_the_terminal_at_its_end() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.mount(&[]).good();
    for (end, status) in [("q", "0\n"), ("\x03", "0\n"), ("signal", "-15\n")] {
        assert_eq!(watch(&site, end), status, "{end:?}");
    }
    site.umount();
    site.judge();
}

#[test]
fn plain_blocks_are_printed_without_a_terminal() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let once = ask("top --once -i 0.1", &site.point(), &[]).good();
    let point = site.point();
    assert_says(&once, &[&format!("{}: read-write\n", point.display()), "\nfsyncs      0.0/s"]);
    assert!(!once.contains('\x1b') && !once.contains("\n\n"), "{once}");
    let blocks = ask("top -n 3 --interval 0.1", &site.point(), &[]).good();
    assert_eq!(blocks.split("\n\n").count(), 3, "{blocks}");
    let lines = ask("--format json top -n 2 -i 0.1", &site.point(), &[]).good();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["seconds"].as_f64().unwrap() >= 0.1), "{lines:?}");
    assert_eq!(lines[1]["state"], "read-write");
    assert!(lines.iter().all(|line| line["__header"]["version"] == "1"), "{lines:?}");
    for wrong in ["top -n 0", "top -i 0", "top -i x", "top --once -n 1"] {
        assert_eq!(ask(wrong, &site.point(), &[]).code, Some(1), "{wrong}");
    }
    site.umount();
    ask("top --once", &site.point(), &[]).bad();
    site.judge();
}

/// The amounts that are shown follow the changes of the mount.
#[test]
fn stats_show_fsyncs_dirty_data_and_space() {
    let Some(site) = Site::new() else { return };
    site.mount(&["-o", "commit=3600"]).good();
    let before = stats(&site.point());
    assert_eq!((&before["fsyncs"], &before["dirty_data"]), (&0.into(), &0.into()));
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
    assert!(number(&before, "space_available") <= number(&before, "space_free"));
    assert!(number(&before, "space_free") < number(&before, "space_total"));
    let mut file = File::create(site.point().join("file")).unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let synced = stats(&site.point());
    assert_eq!(synced["fsyncs"], 1);
    assert!(number(&synced, "fsync_microseconds") > 0);
    assert!(number(&synced, "dirty_metadata") > 0, "the items are in memory until a commit");
    assert!(number(&synced, "space_free") < number(&before, "space_free"));
    ask("filesystem sync", &site.point(), &[]).good();
    assert_eq!(stats(&site.point())["dirty_metadata"], 0);
    drop(file);
    site.umount();
    site.judge();
}
