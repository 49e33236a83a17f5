//! The report of the seeds, at the smallest scale.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::test_env::{fuse_or_skip, has_program};

/// Runs seeds, and returns the figures and the text of the report.
fn seeds(folder: &Path, arguments: &[&str]) -> (Value, String) {
    let images = folder.join("images");
    let out = folder.join("report");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_userbtrfs-bench"));
    bench.args(["seeds", "--runs", "1", "--warm"]).args(arguments);
    let output = bench.arg("--dir").arg(&images).arg("--out").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(images.read_dir().unwrap().count(), 0);
    let text = fs::read_to_string(out.join("README.md")).unwrap();
    assert_eq!(text, String::from_utf8(output.stdout).unwrap());
    let figures = fs::read(out.join("figures.json")).unwrap();
    (serde_json::from_slice(&figures).unwrap(), text)
}

/// The variants of a load.
const VARIANTS: [&str; 5] = ["before", "lib", "fuse", "btrfs", "loader"];

/// Checks that each variant of each load ran once; returns the names and the numbers of clients of
/// the loads.
fn check_ran(section: &Value) -> Vec<(String, u64)> {
    let cases = section["cases"].as_array().unwrap().iter();
    let check = |case: &Value| {
        for variant in VARIANTS {
            let outcomes = &case["variants"][variant]["outcomes"];
            let one = &outcomes.as_array().unwrap_or_else(|| panic!("{variant}: {case}"))[0];
            assert!(one["rate"].as_f64().unwrap() > 0.0, "{one}");
        }
        let clients = case["case"]["clients"].as_u64().unwrap();
        (case["case"]["load"].as_str().unwrap().to_owned(), clients)
    };
    cases.map(check).collect()
}

#[test]
fn jobs_run_on_the_disk_and_on_a_slow_device() {
    skip_unless_linux!();
    if !fuse_or_skip() || !has_program("fio") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = ["--seed", "s2", "--jobs", "1,2", "--mebibytes", "1"];
    let slow = ["--device", "disk,100:3000"];
    let (figures, text) = seeds(folder.path(), &[&options[..], &slow].concat());
    let sections = figures["sections"].as_array().unwrap();
    assert_eq!(sections.len(), 2);
    for section in sections {
        let expected = [1, 2].map(|jobs| ("fio".to_owned(), jobs));
        assert_eq!(check_ran(section), expected);
    }
    // An fsync has at least one flush: for the library and for the kernel alike.
    for variant in VARIANTS {
        let outcome = &sections[1]["cases"][0]["variants"][variant]["outcomes"][0];
        let sync = outcome["operations"][0]["average"].as_f64().unwrap();
        assert!(sync >= 3.0, "{variant}: {sync} ms");
    }
    assert!(text.contains("### write 100 us, flush 3000 us"));
    let plots = ["fio-disk", "fio-100-3000", "ratios-disk", "ratios-100-3000"];
    for plot in plots {
        assert!(text.contains(&format!("({plot}.svg)")), "{plot}");
        let svg = fs::read_to_string(folder.path().join("report").join(format!("{plot}.svg")));
        assert!(svg.unwrap().starts_with("<svg "));
    }
}

#[test]
fn clients_of_a_file_server_have_latencies() {
    skip_unless_linux!();
    if !fuse_or_skip() || !has_program("dbench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = ["--seed", "s1", "--seconds", "3", "--device", "disk"];
    let (figures, text) = seeds(folder.path(), &options);
    let section = &figures["sections"][0];
    assert_eq!(check_ran(section), [("dbench".to_owned(), 16)]);
    for variant in VARIANTS {
        let operations = &section["cases"][0]["variants"][variant]["outcomes"][0]["operations"];
        let names: Vec<_> = operations.as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert!(names.contains(&&Value::from("Flush")), "{variant}: {names:?}");
    }
    assert!(text.contains("| dbench 16 | Rename average, ms |"));
    assert!(text.contains("(latency-s1-16-disk.svg)"));
}
