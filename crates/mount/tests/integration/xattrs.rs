//! Extended attributes, and access lists.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, lsetxattr, removexattr, setxattr};
use rustix::io::Errno;
use userbtrfs_crashlab::here::has_program;

use crate::support::{both, nobody_does, nobody_is_refused, shell};

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
fn values_are_as_long_as_they_may_be() {
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
        // A list that says no more than permissions is none.
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
