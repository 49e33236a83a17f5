//! The memory of a mount stays near its bound under any load.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Child;

use userbtrfs_testkit::test_env::is_torture;

use super::support::command::Ran;
use super::support::site::Site;

const MIB: u64 = 1 << 20;
/// The memory of a mount beyond a small bound: the program, and the messages in flight, at most a
/// few more than the 64 background requests, of 1 MiB each. A bound of 256 MiB has room for that.
const BESIDE: u64 = 96 * MIB;
/// Returns the peak memory of a process, in bytes.
fn peak(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn many_files_are_made_listed_and_removed_within_the_bound() {
    let Some(site) = Site::new() else { return };
    let (memory, files) = if is_torture() { (256, 1_000_000) } else { (16, 30_000) };
    site.made.format("8G");
    let server = site.serve(&["-o", &format!("memory={memory}M")]);
    let dir = site.point().join("dir");
    fs::create_dir(&dir).unwrap();
    let name = |number: u64| dir.join(format!("a file with a name and a number {number}"));
    (0..files).for_each(|number| drop(File::create_new(name(number)).unwrap()));
    assert_eq!(fs::read_dir(&dir).unwrap().count() as u64, files);
    let sizes = (0..files).map(|number| fs::metadata(name(number)).unwrap().len());
    assert_eq!(sizes.sum::<u64>(), 0);
    (0..files).for_each(|number| fs::remove_file(name(number)).unwrap());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_within(&server, memory * MIB);
    site.umount();
    Ran::from(server.wait_with_output().unwrap()).good();
    site.judge();
}

#[test]
fn a_large_file_is_written_and_read_within_the_bound() {
    let Some(site) = Site::new() else { return };
    let (memory, size) = if is_torture() { (256, 10 << 30) } else { (16, 256 * MIB) };
    site.made.format("16G");
    let server = site.serve(&["-o", &format!("memory={memory}M")]);
    let path = site.point().join("file");
    let block = |number: u64| number.to_le_bytes().repeat(1 << 17);
    let mut file = File::create_new(&path).unwrap();
    (0..size / MIB).for_each(|number| file.write_all(&block(number)).unwrap());
    file.sync_all().unwrap();
    drop(file);
    assert_within(&server, memory * MIB);
    site.umount();
    Ran::from(server.wait_with_output().unwrap()).good();

    // A new mount, so that the kernel has none of it cached.
    let server = site.serve(&["-o", &format!("memory={memory}M")]);
    let mut file = File::open(&path).unwrap();
    let mut found = vec![0; 1 << 20];
    for number in 0..size / MIB {
        file.read_exact(&mut found).unwrap();
        assert!(found == block(number), "{number}");
    }
    assert_eq!(file.read(&mut found).unwrap(), 0);
    drop(file);
    assert_within(&server, memory * MIB);
    site.umount();
    Ran::from(server.wait_with_output().unwrap()).good();
    site.judge();
}

fn assert_within(server: &Child, bound: u64) {
    let beside = if is_torture() { 0 } else { BESIDE };
    let peak = peak(server) / MIB;
    let bound = (bound + beside) / MIB;
    println!("at most {peak} MiB, of {bound}");
    assert!(peak <= bound, "{peak} MiB, over {bound}");
}
