//! `get`: ACLs that the destination would add.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use userbtrfs_testkit::test_env::skip;

use crate::support::command::Bench;
use crate::support::{access_list, small};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn has(path: &Path, name: &str) -> bool {
    match getxattr(path, name, &mut [0; 256][..]) {
        Ok(_) => true,
        Err(Errno::NODATA) => false,
        Err(error) => panic!("{}: {name}: {error}", path.display()),
    }
}

/// The default ACL of a directory grants another user access to new files; the image does not.
#[test]
fn copy_does_not_inherit_acls_of_the_destination() {
    let bench = Bench::new(&small());
    let copy = bench.at("copy");
    fs::create_dir(&copy).unwrap();
    if setxattr(&copy, DEFAULT, &access_list(), XattrFlags::empty()).is_err() {
        return skip("no access lists");
    }
    fs::create_dir(copy.join("sub")).unwrap();
    assert!(has(&copy.join("sub"), ACCESS) && has(&copy.join("sub"), DEFAULT));
    bench.get_all("copy").good();
    for name in ["", "small", "large", "pipe", "empty", "sub", "sub/inner"] {
        let path = copy.join(name);
        assert!(!has(&path, ACCESS) && !has(&path, DEFAULT), "{name}");
    }
    assert_eq!(fs::metadata(copy.join("small")).unwrap().mode() & 0o7777, 0o644);
}
