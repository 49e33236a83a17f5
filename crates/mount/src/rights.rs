//! Who may do what the kernel does not check: what takes all rights, and what is the owner's.
//!
//! 1. Who has CAP_SYS_ADMIN where the mount is served may, as in Linux. The kernel says no more of
//!    a caller than which process it is, and whose; the rest stands in `/proc`.
//! 2. The user who mounted may, too, where that takes no privilege: who may read and write the
//!    image itself, and kill the server, can do no worse by asking.

use std::fs;

use userbtrfs_fuse::{Caller, Errno};

/// CAP_FOWNER and CAP_SYS_ADMIN, in a set of capabilities.
const FOWNER: u64 = 1 << 3;
const SYS_ADMIN: u64 = 1 << 21;

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
}
