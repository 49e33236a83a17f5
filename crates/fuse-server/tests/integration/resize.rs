//! `BTRFS_IOC_RESIZE`: the answers are those of Linux.

use std::path::Path;

use userbtrfs_testkit::linux::btrfs_check;
use userbtrfs_testkit::test_env::has_program;

use crate::support::{Site, both, nobody_does, shell};

/// Functions for scripts: `resize` returns the error number of a resize; `size` and `statfs` return
/// the size of the filesystem in MiB.
const FUNCTIONS: &str = r"
import fcntl, os, struct

root = os.open('.', os.O_RDONLY)


def resize(text):
    try:
        fcntl.ioctl(root, 0x50009403, bytearray(struct.pack('<q4088s', 0, text)))
        return 0
    except OSError as error:
        return error.errno


def size():
    device = bytearray(struct.pack('<Q4088x', 1))
    fcntl.ioctl(root, 0xd000941e, device)
    return struct.unpack_from('<Q', device, 32)[0] >> 20


def statfs():
    found = os.statvfs('.')
    return found.f_blocks * found.f_frsize >> 20
";

/// Prints the error number of each resize, and the sizes after it.
const ASK: &str = r"
for text in ('max', '-16m', '+16m', '1:-32M', '1:+16m', '300m', '314572800', '0x14000000',
             '1:max', '+1', '2g', '1:1025m', '+18446744073709551615', '2:max', '0:max', 'x:max',
             '', '+', '-', '1:', '12x', 'maximum', '-2g', '-1000m', '255m', '0', 'cancel',
             '1:cancel', '-16m'):
    print(repr(text), resize(text.encode()), size(), statfs())
";

/// The output of `ASK` for a device of 1 GiB.
const ANSWERS: [&str; 29] = [
    "'max' 0 1024 1024",
    "'-16m' 0 1008 1008",
    "'+16m' 0 1024 1024",
    "'1:-32M' 0 992 992",
    "'1:+16m' 0 1008 1008",
    "'300m' 0 300 300",
    "'314572800' 0 300 300",
    "'0x14000000' 0 320 320",
    "'1:max' 0 1024 1024",
    // EFBIG, and ERANGE where the sum does not fit in 64 bits.
    "'+1' 27 1024 1024",
    "'2g' 27 1024 1024",
    "'1:1025m' 27 1024 1024",
    "'+18446744073709551615' 34 1024 1024",
    // ENODEV and EINVAL.
    "'2:max' 19 1024 1024",
    "'0:max' 22 1024 1024",
    "'x:max' 22 1024 1024",
    "'' 22 1024 1024",
    "'+' 22 1024 1024",
    "'-' 22 1024 1024",
    "'1:' 22 1024 1024",
    "'12x' 22 1024 1024",
    "'maximum' 22 1024 1024",
    "'-2g' 22 1024 1024",
    "'-1000m' 22 1024 1024",
    "'255m' 22 1024 1024",
    "'0' 22 1024 1024",
    // ENOTCONN: no resize is running.
    "'cancel' 107 1024 1024",
    "'1:cancel' 22 1024 1024",
    "'-16m' 0 1008 1008",
];

/// Returns a command that runs the functions and then the body.
fn python(body: &str) -> String {
    format!("python3 - <<'END'\n{FUNCTIONS}\n{body}\nEND")
}

#[test]
fn resize_answers_as_linux_and_changes_the_size() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    let ask = |root: &Path| shell(root, &python(ASK));
    site.format();
    let linux = site.with_linux("noatime", ask);
    site.format();
    let length = || site.image().metadata().unwrap().len();
    let before = length();
    let ours = site.with_ours(ask);
    assert_eq!(ours.lines().collect::<Vec<_>>(), ANSWERS);
    assert_eq!(linux.lines().collect::<Vec<_>>(), ANSWERS, "Linux");
    assert_eq!(length(), before, "the image file keeps its length");
    btrfs_check(&site.image()).unwrap();
    let kept = "echo $(($(stat -f -c '%b * %S' .) >> 20))";
    assert_eq!(site.with_linux("ro,noatime", |root| shell(root, kept)), "1008\n");
}

/// Not compared with Linux: for a text without a NUL, some versions fail with ENAMETOOLONG, and
/// others overwrite the last byte.
#[test]
fn resize_text_ends_at_its_nul_or_with_the_argument() {
    const ASK: &str = r"
assert resize(b'-16m\0' + b'x' * 4083) == 0
assert (size(), statfs()) == (1008, 1008)
for text in (b'x' * 4088, b'max' + b'x' * 4085, b'\xff', b'1:\xff'):
    assert resize(text) == 22, text
assert (size(), statfs()) == (1008, 1008)
";
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    site.with_ours(|root| shell(root, &python(ASK)));
    btrfs_check(&site.image()).unwrap();
}

#[test]
fn resize_moves_data_from_behind_the_new_end() {
    const ASK: &str = r"
content = os.urandom(1 << 20)
for number in range(250):
    with open(str(number), 'wb') as file:
        file.write(content)
fcntl.ioctl(root, 0x9408)
for number in range(210):
    os.unlink(str(number))
fcntl.ioctl(root, 0x9408)
assert resize(b'300m') == 0
assert (size(), statfs()) == (300, 300)
for number in range(210, 250):
    assert open(str(number), 'rb').read() == content
assert resize(b'max') == 0
assert (size(), statfs()) == (1024, 1024)
";
    if !has_program("python3") {
        return;
    }
    both(|root| {
        shell(root, &python(ASK));
    });
}

#[test]
fn resize_without_rights_is_refused() {
    if !has_program("python3") {
        return;
    }
    let ask = python("assert [resize(text) for text in (b'max', b'cancel', b'x')] == [1, 1, 1]");
    both(|root| nobody_does(root, &ask));
}
