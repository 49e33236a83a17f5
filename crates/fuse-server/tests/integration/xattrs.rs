//! Extended attributes, and access lists.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, lsetxattr, removexattr, setxattr};
use rustix::io::Errno;
use userbtrfs_testkit::test_env::has_program;

use crate::support::{Site, both, nobody_does, nobody_is_refused, shell};

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 70_000];
    let length = getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

#[test]
fn attributes_of_all_namespaces_are_kept() {
    both(|root| {
        let path = root.join("file");
        File::create(&path).unwrap();
        let set = |name: &str, flags| setxattr(&path, name, b"value", flags);
        for name in ["user.a", "trusted.a", "security.a"] {
            assert_eq!(get(&path, name), Err(Errno::NODATA));
            assert_eq!(set(name, XattrFlags::REPLACE), Err(Errno::NODATA));
            set(name, XattrFlags::CREATE).unwrap();
            assert_eq!(set(name, XattrFlags::CREATE), Err(Errno::EXIST));
            set(name, XattrFlags::REPLACE).unwrap();
            assert_eq!(get(&path, name).unwrap(), b"value");
        }
        for name in ["other.a", "system.a", "a"] {
            assert_eq!(set(name, XattrFlags::empty()), Err(Errno::OPNOTSUPP), "{name}");
            assert_eq!(get(&path, name), Err(Errno::OPNOTSUPP), "{name}");
        }
        let mut short = [0; 2];
        assert_eq!(getxattr(&path, "user.a", &mut short[..]), Err(Errno::RANGE));
        removexattr(&path, "user.a").unwrap();
        assert_eq!(removexattr(&path, "user.a"), Err(Errno::NODATA));
        let mut all = vec![0; 1000];
        let length = rustix::fs::listxattr(&path, &mut all[..]).unwrap();
        let names = all[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        assert_eq!(names.count(), 2);
    });
}

#[test]
fn value_up_to_the_limit_is_kept_and_a_longer_one_refused() {
    both(|root| {
        let path = root.join("file");
        File::create(&path).unwrap();
        for length in [0, 1, 4000, 15_000] {
            setxattr(&path, "user.long", &vec![b'v'; length], XattrFlags::empty()).unwrap();
            assert_eq!(get(&path, "user.long").unwrap().len(), length);
        }
        let longer = vec![b'v'; 17_000];
        assert_eq!(setxattr(&path, "user.long", &longer, XattrFlags::empty()), Err(Errno::NOSPC));
        symlink("file", root.join("link")).unwrap();
        let on_link = |name| lsetxattr(root.join("link"), name, b"v", XattrFlags::empty());
        assert_eq!(on_link("user.a"), Err(Errno::PERM));
        on_link("trusted.a").unwrap();
    });
}

/// Sets the property in every way, and prints the result: the flags, the value, the names.
const COMPRESSION: &str = r"
import errno, fcntl, os, struct

NAME = 'btrfs.compression'
COMPRESS, NOCOMPRESS, NOATIME, NOCOW, IMMUTABLE = 0x4, 0x400, 0x80, 0x800000, 0x10


def tried(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode[error.errno]


def ioctl(path, command, argument):
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.ioctl(file, command, argument)
        return argument[:4].hex()
    finally:
        os.close(file)


def show(what, path, said):
    flags = tried(lambda: ioctl(path, 0x80086601, bytearray(8)))
    value = tried(lambda: os.getxattr(path, NAME, follow_symlinks=False))
    print(what, path, said, flags, value, os.listxattr(path, follow_symlinks=False))


def put(path, value, how=0, name=NAME):
    said = tried(lambda: os.setxattr(path, name, value, how, follow_symlinks=False))
    show('%s=%s %d' % (name, value, how), path, said)


def take(path, name=NAME):
    said = tried(lambda: os.removexattr(path, name, follow_symlinks=False))
    show('no ' + name, path, said)


def flag(path, flags):
    said = tried(lambda: ioctl(path, 0x40086602, struct.pack('<Q', flags)))
    show('flags %x' % flags, path, said)


def new(path, make=lambda path: open(path, 'w').close()):
    make(path)
    show('new', path, None)


new('file')
for value in (b'zlib', b'lzo', b'zstd', b'zstd:3', b'zlibx', b'no', b'none', b'', b'nope', b'ZSTD',
              b'zst'):
    put('file', value)
for name in 'btrfs.', 'btrfs.other':
    put('file', b'zstd', name=name)
    take('file', name)
print(tried(lambda: os.getxattr('file', 'btrfs.other')))
for value, how in ((b'zstd', 2), (b'zstd', 1), (b'lzo', 1), (b'lzo', 2), (b'', 1), (b'', 1),
                   (b'', 2)):
    put('file', value, how)
take('file')
put('file', b'zstd')
for flags in COMPRESS, NOCOMPRESS, 0, COMPRESS | NOATIME, 0, COMPRESS | NOCOMPRESS:
    flag('file', flags)
put('file', b'zstd:5')
flag('file', COMPRESS | NOATIME)

# Of what is no file and no directory it is passed over.
new('link', lambda path: os.symlink('file', path))
new('pipe', os.mkfifo)
for path in 'link', 'pipe':
    for value in b'zstd', b'nope', b'':
        put(path, value)
    take(path)

# A directory passes it on.
new('dir', os.mkdir)
put('dir', b'zstd:5')
new('dir/file')
new('dir/dir', os.mkdir)
new('dir/dir/file')
new('dir/link', lambda path: os.symlink('file', path))
new('dir/pipe', os.mkfifo)
file = os.open('dir', os.O_TMPFILE | os.O_RDWR)
print(os.listxattr(file))
os.close(file)
put('dir', b'none')
new('dir/never')
flag('dir', COMPRESS)
new('dir/by flag')
take('dir')
new('dir/plain')
put('dir', b'lzo')
tried(lambda: ioctl('dir', 0x401c5820, struct.pack('<5I8x', 0x40, 0, 0, 0, 0)))
show('extended', 'dir', None)

# What is overwritten in place has none.
new('in place')
flag('in place', NOCOW)
for value in b'zstd', b'none', b'nope':
    put('in place', value)
take('in place')
put('file', b'none')
for flags in NOCOMPRESS | NOATIME, 0:
    flag('file', flags)
for flags in 0, COMPRESS, NOCOW:
    flag('in place', flags)
new('dir in place', os.mkdir)
flag('dir in place', NOCOW)
put('dir in place', b'zstd')

new('immutable')
flag('immutable', IMMUTABLE)
put('immutable', b'zstd')
take('immutable')
flag('immutable', 0)
put('immutable', b'zstd')
for flags in COMPRESS | IMMUTABLE, COMPRESS | IMMUTABLE | NOATIME, COMPRESS, 0:
    flag('immutable', flags)
";

#[test]
fn compression_property_behaves_as_in_linux() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    let act = |root: &Path| shell(root, &format!("python3 - <<'END'\n{COMPRESSION}\nEND"));
    site.format();
    let linux = site.with_linux("noatime", act);
    site.format();
    let ours = site.with_ours(act);
    for (linux, ours) in linux.lines().zip(ours.lines()) {
        assert_eq!(ours, linux);
    }
    assert_eq!(linux.lines().count(), ours.lines().count());
    assert!(linux.lines().count() > 60, "{linux}");
    // Linux compresses new data by the inherited property.
    let grow = "yes | head -c 1000000 >dir/dir/file; sync; filefrag -v dir/dir/file";
    let extents = site.with_linux("noatime", |root| shell(root, grow));
    assert!(extents.contains("encoded"), "{extents}");
}

#[test]
fn access_lists_are_enforced_and_follow_permissions() {
    if !has_program("setfacl") {
        return;
    }
    both(|root| {
        shell(root, "echo x >file; chmod 600 file; setfacl -m u:65534:r file");
        let mode = || fs::metadata(root.join("file")).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o640);
        nobody_does(root, "cat file");
        nobody_is_refused(root, "echo y >>file");
        shell(root, "setfacl -m u:65534:rw file");
        nobody_does(root, "echo y >>file");
        fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        nobody_is_refused(root, "cat file");
        assert!(shell(root, "getfacl -c file").contains("mask::---"));
        shell(root, "setfacl -m m::r file");
        nobody_does(root, "cat file");
        // A list that expresses no more than the permissions is not stored.
        shell(root, "setfacl -b file; setfacl -m u::rw,g::r,o::- file");
        assert_eq!(mode(), 0o640);
        let list = get(&root.join("file"), "system.posix_acl_access");
        assert_eq!(list, Err(Errno::NODATA));
        shell(root, "setfacl -b file; ! setfacl -d -m u::rwx file 2>error");
    });
}

#[test]
fn default_lists_are_inherited() {
    if !has_program("setfacl") {
        return;
    }
    both(|root| {
        shell(root, "mkdir dir; setfacl -d -m u:65534:rwx,g::rx,o::r dir");
        shell(root, "umask 077; echo x >dir/file; mkdir dir/below; mkfifo -m 600 dir/pipe");
        shell(root, "ln -s x dir/link; mkdir dir/below/again; chmod 755 dir dir/below");
        let mode = |path: &str| fs::symlink_metadata(root.join(path)).unwrap().mode() & 0o777;
        assert_eq!((mode("dir/file"), mode("dir/pipe")), (0o664, 0o600));
        assert_eq!(mode("dir/below/again"), 0o774);
        nobody_does(root, "echo y >>dir/file");
        shell(root, "getfacl -R dir >shown");
        let shown = fs::read_to_string(root.join("shown")).unwrap();
        assert_eq!(shown.matches("default:user:nobody:rwx").count(), 3, "{shown}");
        // A plain default list is inherited as permissions.
        shell(root, "mkdir plain; setfacl -d -m u::rwx,g::-,o::- plain; echo x >plain/file");
        assert_eq!(mode("plain/file"), 0o600);
        shell(root, "setfacl -k dir; umask 022; echo x >dir/other");
        assert_eq!(mode("dir/other"), 0o644);
    });
}
