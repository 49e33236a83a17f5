//! Counts of instructions, at the smallest scale.

use std::fs;
use std::path::Path;
use std::process::Command;

use userbtrfs_testkit::test_env::has_program;

/// The document before the counts of the profile that is tested.
fn document(profile: &str) -> String {
    format!(
        "# Counts\n\n| operation | profile | instructions | commit |\n|---|---|---|---|\n\
         | create | {profile} | 1 | old |\n| create | other | 2 | old |\n\nAfter it.\n"
    )
}

/// Returns the name of the folder of the program, which is that of its profile.
fn profile() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_userbtrfs-bench"));
    program.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn counts_are_compared_with_those_of_a_file_and_replace_them() {
    if !has_program("valgrind") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts.md");
    let profile = profile();
    fs::write(&file, document(&profile)).unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_userbtrfs-bench"));
    bench.args(["instructions", "--operation", "create,read-4k", "--scale", "50"]);
    bench.arg("--compare").arg(&file).arg("--update").arg(&file);
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();

    let changed = fs::read_to_string(&file).unwrap();
    let rows: Vec<Vec<_>> = changed
        .lines()
        .filter(|line| line.starts_with("| create |") || line.starts_with("| read-4k |"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let keys: Vec<_> = rows.iter().map(|row| [row[1], row[2]]).collect();
    assert_eq!(keys, [["create", &*profile], ["create", "other"], ["read-4k", &*profile]]);
    assert_eq!(rows[1][3..5], ["2", "old"], "another profile");
    assert!(changed.ends_with("|\n\nAfter it.\n"), "{changed}");

    // A create allocates, and a read copies 4 KiB.
    for (row, least) in [(&rows[0], 500), (&rows[2], 100)] {
        let count: u64 = row[3].parse().unwrap();
        assert!((least..1_000_000).contains(&count), "{row:?}");
        assert!(text.contains(&format!("| {} | {count} |\n", row[1])), "{text}");
    }
    assert!(text.contains("- create: 1 before, now "), "{text}");
    assert!(text.contains("not counted earlier in this profile"), "{text}");
}
