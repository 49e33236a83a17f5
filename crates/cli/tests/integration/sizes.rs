//! `truncate` and `fallocate`: sizes, and the space of files.

use userbtrfs::ExtentKind;

use crate::support::made::Made;
use crate::support::{assert_says, pattern};

/// Makes a filesystem with a file `/f` of this content.
fn with_file(content: &[u8]) -> Made {
    let made = Made::new();
    let source = made.at("f");
    std::fs::write(&source, content).unwrap();
    made.does("put", &[source.to_str().unwrap(), "/"]);
    made
}

fn content(made: &Made) -> Vec<u8> {
    made.open().read("/f").unwrap()
}

/// Returns the extents of the file: their offset, length, and a letter for their kind.
fn extents(made: &Made) -> Vec<(u64, u64, char)> {
    let extents = made.open().open_file("/f").unwrap().extents().unwrap();
    let letter = |kind| match kind {
        ExtentKind::Hole => 'h',
        ExtentKind::Prealloc { .. } => 'p',
        ExtentKind::Inline => 'i',
        ExtentKind::Data { .. } => 'd',
    };
    extents.into_iter().map(|extent| (extent.start, extent.len, letter(extent.kind))).collect()
}

#[test]
fn sizes_change_in_steps_and_content_follows() {
    let whole = pattern(300_000);
    let made = with_file(&whole);
    let mut expected = whole;
    for (size, len) in [
        ("-100000", 200_000),
        ("+50000", 250_000),
        ("<100k", 102_400),
        (">1000", 102_400),
        ("5001", 5001),
        ("%4k", 8192),
        ("/3000", 6000),
        ("1", 1),
        ("3M", 3 << 20),
        ("-4M", 0),
        ("2k", 2048),
    ] {
        made.does(&format!("truncate -s {size}"), &["/f"]);
        expected.resize(len, 0);
        assert!(content(&made) == expected, "{size}");
        made.judge();
    }
}

#[test]
fn files_are_created_unless_disabled() {
    let made = Made::new();
    made.does("truncate -s 1T", &["/f"]);
    assert_eq!(extents(&made), [(0, 1 << 40, 'h')]);
    made.does("truncate -c -s 5", &["/none", "/f"]);
    assert_eq!(made.paths(), ["/f"]);
    assert_eq!(content(&made), [0; 5]);
    made.does("mkdir", &["/dir"]);
    made.does("ln -s", &["nowhere", "/dangling"]);
    let said = made.verb("truncate -s 9", &["/dir", "/x/y", "/f"]).bad();
    assert_says(&said, &["/dir: is a directory", "/x/y: no such file or directory"]);
    assert_eq!(content(&made), [0; 9], "the rest is done");
    for size in ["+8E", "9E"] {
        assert_says(&made.verb(&format!("truncate -s {size}"), &["/f"]).bad(), &["/f: ", "large"]);
    }
    assert_eq!(made.verb("truncate", &["/f"]).code, Some(1));
    assert_eq!(content(&made), [0; 9]);
    made.judge();
}

#[test]
fn space_is_allocated_and_freed() {
    const KIB: u64 = 1 << 10;
    let made = with_file(&pattern(100 << 10));
    made.does("fallocate -n -o 100k -l 50k", &["/f"]);
    assert_eq!(made.open().metadata("/f").unwrap().size, 100 * KIB);
    assert!(made.open().metadata("/f").unwrap().allocated >= 150 * KIB);
    made.judge();
    made.does("fallocate -l 200k", &["/f"]);
    made.does("fallocate -p -o 10k -l 20k", &["/f"]);
    made.does("fallocate -z -o 40000 -l 4200", &["/f"]);
    made.judge();

    let mut expected = pattern(100 << 10);
    expected.resize(200 << 10, 0);
    expected[10 << 10..30 << 10].fill(0);
    expected[40_000..44_200].fill(0);
    assert!(content(&made) == expected);
    let found = extents(&made);
    assert!(found.contains(&(12 * KIB, 16 * KIB, 'h')), "{found:?}");
    assert!(found.iter().any(|&(start, _, kind)| kind == 'p' && start >= 100 * KIB), "{found:?}");
    let aside: u64 = found.iter().filter(|found| found.2 != 'h').map(|found| found.1).sum();
    assert_eq!(aside, 184 * KIB, "{found:?}");
    made.does("fallocate -z -n -o 150k -l 100k", &["/f"]);
    assert!(content(&made) == expected);
    made.judge();
}

#[test]
fn impossible_allocation_is_refused_by_name() {
    let made = Made::new();
    made.does("mkdir", &["/dir"]);
    made.does("fallocate -l 1M", &["/f", "/g"]);
    assert_eq!(extents(&made), [(0, 1 << 20, 'p')]);
    let said = made.verb("fallocate -p -l 1M", &["/none", "/dir"]).bad();
    assert_says(&said, &["/none: no such file or directory", "/dir: is a directory"]);
    assert_says(&made.verb("fallocate -l 0", &["/f"]).bad(), &["/f: "]);
    assert_says(&made.verb("fallocate -l 1T", &["/f"]).bad(), &["/f: no space left"]);
    for words in ["fallocate", "fallocate -p -z -l 1", "fallocate -l x"] {
        assert_eq!(made.verb(words, &["/f"]).code, Some(1), "{words}");
    }
    assert_eq!(made.open().metadata("/f").unwrap().size, 1 << 20);
    made.judge();
}

/// Changes in one session see each other before anything is on disk.
#[test]
fn shell_sees_its_own_changes() {
    use std::io::Write as _;
    let made = with_file(&pattern(50_000));
    let image = made.image();
    let mut shell = crate::support::command::command(["shell".as_ref(), image.as_os_str()]);
    shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let lines = "truncate -s 20000 /f\ncp /f /g\nfallocate -p -o 4k -l 4k /g\ncp -a /g /h\n\
                 truncate -s +3 /h\nsync\ncat /h\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    let mut expected = pattern(50_000);
    expected.truncate(20_000);
    assert!(content(&made) == expected);
    expected[4096..8192].fill(0);
    expected.resize(20_003, 0);
    assert!(ran.stdout == expected);
    made.judge();
}
