//! Who may do what the kernel does not check: what takes all rights, and what is the owner's; and
//! who may be writing.
//!
//! 1. Who has CAP_SYS_ADMIN where the mount is served may, as in Linux. The kernel says no more of
//!    a caller than which process it is, and whose; the rest stands in `/proc`.
//! 2. The user who mounted may, too, where that takes no privilege: who may read and write the
//!    image itself, and kill the server, can do no worse by asking.

use std::fs;

use nix::libc;
use userbtrfs_fuse::{Caller, Errno};

/// CAP_FOWNER, CAP_FSETID and CAP_SYS_ADMIN, in a set of capabilities.
const FOWNER: u64 = 1 << 3;
const FSETID: u64 = 1 << 4;
const SYS_ADMIN: u64 = 1 << 21;

/// The calls that write from memory.
const WRITES: [libc::c_long; 5] =
    [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_pwritev, libc::SYS_pwritev2];

/// O_ACCMODE and O_RDONLY, in the flags of a descriptor.
const ACCESS_MODE: u32 = 3;
const READ_ONLY: u32 = 0;

/// Refuses whoever has not all rights.
pub(crate) fn admit(caller: &Caller) -> Result<(), Errno> {
    let own = rustix::process::geteuid();
    let is_mounter = !own.is_root() && caller.uid == own.as_raw();
    match is_mounter || is_able(caller, SYS_ADMIN) {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

/// Whether the caller may do what the owner of an inode may.
pub(crate) fn owns(caller: &Caller, owner: u32) -> bool {
    caller.uid == owner || is_able(caller, FOWNER)
}

/// Returns whether a write of the caller keeps the set-id bits of a file.
pub(crate) fn may_keep_set_id(caller: &Caller) -> bool {
    is_able(caller, FSETID)
}

/// Whether the caller is writing to the inode of this number, which it asks about. Where its call
/// is not to be seen, it is whether it has that open for writing; and where not even that is, it
/// is.
pub(crate) fn is_writing(caller: &Caller, number: u64) -> bool {
    if !knows_processes() {
        return true;
    }
    if let Ok(call) = fs::read_to_string(format!("/proc/{}/syscall", caller.pid)) {
        return is_write(&call);
    }
    let Ok(open) = fs::read_dir(format!("/proc/{}/fdinfo", caller.pid)) else { return true };
    // What was closed meanwhile is not the one that is waited with.
    let mut described = open.flatten().flat_map(|entry| fs::read_to_string(entry.path()));
    described.any(|described| writes_to(&described, number))
}

/// Whether a call is one that writes, by what `/proc/PID/syscall` says: its number first.
fn is_write(call: &str) -> bool {
    let number = call.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number| WRITES.contains(&number))
}

/// Whether a descriptor is for writing to the inode of this number, by what `/proc/PID/fdinfo`
/// says.
fn writes_to(described: &str, number: u64) -> bool {
    let value = |key| described.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = value("flags:").and_then(|octal| u32::from_str_radix(octal, 8).ok());
    // Older kernels say no number.
    let is_it = value("ino:").is_none_or(|ino| ino == number.to_string());
    is_it && flags.is_some_and(|flags| flags & ACCESS_MODE != READ_ONLY)
}

/// Whether the caller has a capability, about the same users as the server's.
fn is_able(caller: &Caller, capability: u64) -> bool {
    knows_processes() && has_own_namespace(caller) && capabilities(caller) & capability != 0
}

/// Whether `/proc` numbers processes as the kernel does that asks: it may have been mounted for
/// others.
fn knows_processes() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Whether the caller's capabilities are about the same users as the server's.
fn has_own_namespace(caller: &Caller) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
    of(&caller.pid.to_string()).is_ok_and(|its| of("self").is_ok_and(|own| its == own))
}

fn capabilities(caller: &Caller) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", caller.pid));
    status.map_or(0, |status| effective(&status))
}

/// The capabilities that are in effect, of what `/proc/PID/status` says.
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
    fn who_writes_has_the_file_open_for_that() {
        let described = |flags| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t26\nino:\t257\n");
        assert!(writes_to(&described("0100001"), 257));
        assert!(writes_to(&described("02100002"), 257));
        assert!(!writes_to(&described("0100000"), 257));
        assert!(!writes_to(&described("0100001"), 258));
        assert!(writes_to("flags:\t0100001\n", 258));
        assert!(!writes_to("nonsense", 257));
    }
}
