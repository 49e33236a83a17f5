//! The use of space, as BTRFS_IOC_SPACE_INFO and `btrfs filesystem df` show it.

use userbtrfs_testkit::linux::btrfs_check;
use userbtrfs_testkit::test_env::has_program;

use crate::subvolume_ioctls::preload;
use crate::support::{Site, shell};

/// Returns the lines of `btrfs filesystem df` without that of the global reserve, which has another
/// size in Linux.
fn types(text: &str) -> Vec<&str> {
    let (reserve, types): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with("GlobalReserve, single: total="));
    assert_eq!(reserve.len(), 1, "{text}");
    types
}

#[test]
fn btrfs_command_shows_the_space_of_a_mount_as_on_linux() {
    let Some(site) = Site::new() else { return };
    let Some(preload) = preload(&site) else { return };
    site.format();
    let ours = site.with_ours(|root| {
        shell(root, "head -c 30000000 /dev/urandom >file; btrfs filesystem sync .");
        let library = preload.display();
        shell(root, &format!("LD_PRELOAD={library} btrfs filesystem df -b ."))
    });
    btrfs_check(&site.image()).unwrap();
    let linux = site.with_linux("ro,noatime", |root| shell(root, "btrfs filesystem df -b ."));
    assert_eq!(types(&ours), types(&linux));
    assert!(ours.contains("Data, single: total=") && ours.contains("used=30003200\n"), "{ours}");
}

/// Calls the ioctl with each size and number of slots, and prints the answer.
const CALLS: &str = r"
import fcntl, os, struct

file = os.open('.', os.O_RDONLY)
for size, slots in (16, 0), (16, 1), (64, 2), (64, 3), (112, 4), (136, 5), (8, 0):
    argument = bytearray(struct.pack('<QQ', slots, 99).ljust(size, b'\1')[:size])
    try:
        fcntl.ioctl(file, 0xc0009414 | size << 16, argument)
        words = struct.unpack('<%dQ' % (size // 8), argument)
        print(size, slots, words[:2], [hex(word) for word in words[2::3]])
    except OSError as error:
        print(size, slots, error.errno)
";

#[test]
fn space_info_returns_as_many_entries_as_its_number_has_bytes_for() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    let said = site.with_ours(|root| shell(root, &format!("python3 -c \"{CALLS}\"")));
    // Data, system and metadata with DUP, and the global reserve.
    let expected = [
        "16 0 (0, 4) []",
        "16 1 95",
        "64 2 (2, 2) ['0x1', '0x22']",
        "64 3 95",
        "112 4 (4, 4) ['0x1', '0x22', '0x24', '0x2000000000000']",
        "136 5 (5, 4) ['0x1', '0x22', '0x24', '0x2000000000000', '0x0']",
        "8 0 22",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}
