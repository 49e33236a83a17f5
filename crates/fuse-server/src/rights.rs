//! Checks that the kernel does not make: for operations that take all rights or those of the owner,
//! and whether a caller is writing.
//!
//! 1. A caller with CAP_SYS_ADMIN in the user namespace of the server has all rights, as in Linux.
//!    The kernel passes only the process and the ids of a caller; the rest is read from `/proc`.
//! 2. The user of the server has all rights, too, unless that is root: a user that can read and
//!    write the image itself, and kill the server, can do no worse by a request.

use std::fs;

use nix::libc;
use userbtrfs_fuse::{Caller, Errno};

/// CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID and CAP_SYS_ADMIN, in a set of capabilities.
const DAC_OVERRIDE: u64 = 1 << 1;
const FOWNER: u64 = 1 << 3;
const FSETID: u64 = 1 << 4;
const SYS_ADMIN: u64 = 1 << 21;

/// The calls that write from memory.
const WRITES: [libc::c_long; 5] =
    [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_pwritev, libc::SYS_pwritev2];

/// O_ACCMODE and O_RDONLY, in the flags of a descriptor.
const ACCESS_MODE: u32 = 3;
const READ_ONLY: u32 = 0;
/// O_DSYNC, which O_SYNC contains.
const DATA_SYNC: u32 = 0o10000;

/// The umask of a caller whose own cannot be read.
const UMASK: u32 = 0o022;

/// Fails with EPERM unless the caller has all rights.
pub(crate) fn admit(caller: &Caller) -> Result<(), Errno> {
    if has_all(caller) { Ok(()) } else { Err(Errno::PERM) }
}

/// Returns whether the caller has all rights.
pub(crate) fn has_all(caller: &Caller) -> bool {
    let own = rustix::process::geteuid();
    let is_mounter = !own.is_root() && caller.uid == own.as_raw();
    is_mounter || is_able(caller, SYS_ADMIN)
}

/// Returns whether the permissions of directories do not apply to the caller.
pub(crate) fn overrides_permissions(caller: &Caller) -> bool {
    is_able(caller, DAC_OVERRIDE)
}

/// Returns all groups of the caller; without `/proc` only the first.
pub(crate) fn groups(caller: &Caller) -> Vec<u32> {
    let status = status(caller).unwrap_or_default();
    let others = listed_groups(&status).filter_map(|group| group.parse().ok());
    std::iter::once(caller.gid).chain(others).collect()
}

/// Returns the umask of the caller.
pub(crate) fn umask(caller: &Caller) -> u32 {
    status(caller).as_deref().and_then(listed_umask).unwrap_or(UMASK)
}

/// Returns whether the caller has the rights of the owner of an inode.
pub(crate) fn owns(caller: &Caller, owner: u32) -> bool {
    caller.uid == owner || is_able(caller, FOWNER)
}

/// Returns whether a write of the caller keeps the set-id bits of a file.
pub(crate) fn may_keep_set_id(caller: &Caller) -> bool {
    is_able(caller, FSETID)
}

/// Returns whether the caller, whose request is about the inode of this number, is writing to it.
/// If its system call cannot be read, returns whether it has the inode open for writing; if its
/// descriptors cannot be read either, returns true.
pub(crate) fn is_writing(caller: &Caller, number: u64) -> bool {
    if !knows_processes() {
        return true;
    }
    if let Ok(call) = fs::read_to_string(format!("/proc/{}/syscall", caller.pid)) {
        return is_write(&call);
    }
    described(caller).is_none_or(|mut all| all.any(|one| writes_to(&one, number, 0)))
}

/// Returns whether a change by the caller keeps set-group-id on a file of this group although the
/// group may not execute it: the caller is in the group, or has CAP_FSETID. Without `/proc` only
/// the caller's first group is known.
pub(crate) fn keeps_set_group_id(caller: &Caller, group: u32) -> bool {
    caller.gid == group || is_able(caller, FSETID) || is_supplementary(caller, group)
}

/// Returns whether a group is among the supplementary groups of the caller.
fn is_supplementary(caller: &Caller, group: u32) -> bool {
    status(caller).is_some_and(|status| lists_group(&status, group))
}

/// Returns the text of `/proc/PID/status` of the caller; `None` if it cannot be read.
fn status(caller: &Caller) -> Option<String> {
    let path = format!("/proc/{}/status", caller.pid);
    knows_processes().then(|| fs::read_to_string(path).ok()).flatten()
}

/// Returns whether the text of `/proc/PID/status` lists a supplementary group.
fn lists_group(status: &str, group: u32) -> bool {
    listed_groups(status).any(|one| one == group.to_string())
}

/// Returns the supplementary groups in the text of `/proc/PID/status`.
fn listed_groups(status: &str) -> impl Iterator<Item = &str> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or("");
    groups.split_whitespace()
}

/// Returns the umask in the text of `/proc/PID/status`.
fn listed_umask(status: &str) -> Option<u32> {
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

/// Returns whether the caller has the inode of this number open for writing with O_DSYNC or O_SYNC;
/// true if its descriptors cannot be read.
pub(crate) fn writes_durably(caller: &Caller, number: u64) -> bool {
    let descriptors = knows_processes().then(|| described(caller)).flatten();
    descriptors.is_none_or(|mut all| all.any(|one| writes_to(&one, number, DATA_SYNC)))
}

/// Returns the text of `/proc/PID/fdinfo` for each descriptor of the caller; `None` if it cannot be
/// read.
fn described(caller: &Caller) -> Option<impl Iterator<Item = String>> {
    let open = fs::read_dir(format!("/proc/{}/fdinfo", caller.pid)).ok()?;
    // A descriptor that was closed meanwhile is not the one that the caller uses.
    Some(open.flatten().flat_map(|entry| fs::read_to_string(entry.path())))
}

/// Returns whether the text of `/proc/PID/syscall`, which begins with the number of the call, shows
/// a call that writes.
fn is_write(call: &str) -> bool {
    let number = call.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| WRITES.contains(&number))
}

/// Returns whether the text of `/proc/PID/fdinfo` shows a descriptor for writing to the inode of
/// this number, with at least the flags `with`.
fn writes_to(described: &str, number: u64, with: u32) -> bool {
    let value = |key| described.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = value("flags:").and_then(|octal| u32::from_str_radix(octal, 8).ok());
    // Older kernels do not show the inode number.
    let is_it = value("ino:").is_none_or(|ino| ino == number.to_string());
    let fits = |flags: u32| flags & ACCESS_MODE != READ_ONLY && flags & with == with;
    is_it && flags.is_some_and(fits)
}

/// Returns whether the caller has a capability in the user namespace of the server.
fn is_able(caller: &Caller, capability: u64) -> bool {
    knows_processes() && has_own_namespace(caller) && capabilities(caller) & capability != 0
}

/// Returns whether `/proc` has the process ids that requests have: it may have been mounted in
/// another PID namespace.
pub(crate) fn knows_processes() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Returns whether the caller is in the user namespace of the server.
fn has_own_namespace(caller: &Caller) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
    of(&caller.pid.to_string()).is_ok_and(|its| of("self").is_ok_and(|own| its == own))
}

fn capabilities(caller: &Caller) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", caller.pid));
    status.map_or(0, |status| effective(&status))
}

/// Returns the effective capabilities in the text of `/proc/PID/status`.
fn effective(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_in_effect() {
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000200000\n";
        assert_eq!(effective(status), SYS_ADMIN);
        assert_eq!(effective("CapPrm:\t000001ffffffffff\n"), 0);
        assert_eq!(effective("CapEff:\tnonsense\n"), 0);
    }

    #[test]
    fn a_call_that_writes_is_known_by_its_number() {
        let call =
            |number: libc::c_long| format!("{number} 0x3 0x7f00 0x1000 0x0 0x0 0x0 0x7ffe\n");
        assert!(is_write(&call(libc::SYS_write)) && is_write(&call(libc::SYS_pwritev2)));
        assert!(!is_write(&call(libc::SYS_read)) && !is_write(&call(libc::SYS_lseek)));
        assert!(!is_write("running\n") && !is_write("-1 0x7ffe 0x7f00\n") && !is_write(""));
    }

    #[test]
    fn descriptor_for_writing_to_the_inode_is_recognized() {
        let described = |flags| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t26\nino:\t257\n");
        assert!(writes_to(&described("0100001"), 257, 0));
        assert!(writes_to(&described("02100002"), 257, 0));
        assert!(!writes_to(&described("0100000"), 257, 0));
        assert!(!writes_to(&described("0100001"), 258, 0));
        assert!(writes_to("flags:\t0100001\n", 258, 0));
        assert!(!writes_to("nonsense", 257, 0));
        assert!(writes_to(&described("0110001"), 257, DATA_SYNC));
        assert!(writes_to(&described("04110002"), 257, DATA_SYNC));
        assert!(!writes_to(&described("0100001"), 257, DATA_SYNC));
        assert!(!writes_to(&described("0110000"), 257, DATA_SYNC));
    }

    #[test]
    fn supplementary_groups_are_those_that_status_lists() {
        let status = "Gid:\t7\t7\t7\t7\nGroups:\t1 20 300 \nNStgid:\t5\n";
        assert!(lists_group(status, 1) && lists_group(status, 300));
        assert!(!lists_group(status, 7) && !lists_group(status, 2) && !lists_group("", 0));
    }

    #[test]
    fn umask_is_that_of_the_status() {
        assert_eq!(listed_umask("Name:\tx\nUmask:\t0027\nState:\tS\n"), Some(0o027));
        assert_eq!(listed_umask("Name:\tx\n"), None);
        assert_eq!(listed_umask("Umask:\t9\n"), None);
    }
}
