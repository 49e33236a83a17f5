//! `FS_IOC_SHUTDOWN`: ends all writing, as a cut of the power would.
//!
//! 1. Who has CAP_SYS_ADMIN where the mount is served may, as in Linux; and the user who mounted,
//!    where that takes no privilege: who may kill the server can do no worse by asking it.
//! 2. The command says that it reads, though it has an argument; so FUSE copies none in, and the
//!    flag is fetched from the caller's memory, who waits. A server that is not root may be
//!    refused that by the kernel, also by a security module (Yama): then the caller gets EPERM, and
//!    nothing ends.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use userbtrfs_engine::api::Shutdown;
use userbtrfs_fuse::{Caller, Errno};

use crate::errno;
use crate::served::Served;

/// `_IOR('X', 125, __u32)`.
pub(crate) const COMMAND: u32 = 0x8004_587d;

/// CAP_SYS_ADMIN, in a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

impl Served {
    /// Does what the word at `argument` in the caller's memory says.
    pub(crate) fn shut_down(&self, caller: &Caller, argument: u64) -> Result<Vec<u8>, Errno> {
        if !may_shut_down(caller) {
            return Err(Errno::PERM);
        }
        let first = match word_of(caller, argument)? {
            0 => Shutdown::Sync,
            1 => Shutdown::Metadata,
            2 => Shutdown::Nothing,
            _ => return Err(Errno::INVAL),
        };
        if first == Shutdown::Sync {
            self.collect();
        }
        self.filesystem.shutdown(first).map(|()| Vec::new()).map_err(errno)
    }
}

fn may_shut_down(caller: &Caller) -> bool {
    let own = rustix::process::geteuid();
    let is_mounter = !own.is_root() && caller.uid == own.as_raw();
    is_mounter || (has_own_namespace(caller) && is_administrator(caller))
}

/// Whether the caller's capabilities are about the same users as the server's.
fn has_own_namespace(caller: &Caller) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/user"));
    of(&caller.pid.to_string()).is_ok_and(|its| of("self").is_ok_and(|own| its == own))
}

fn is_administrator(caller: &Caller) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", caller.pid));
    status.is_ok_and(|status| effective(&status) & SYS_ADMIN != 0)
}

/// The capabilities that are in effect, of what `/proc/PID/status` says.
fn effective(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

fn word_of(caller: &Caller, address: u64) -> Result<u32, Errno> {
    let memory = File::open(format!("/proc/{}/mem", caller.pid)).map_err(|_| Errno::PERM)?;
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, address).map_err(|_| Errno::FAULT)?;
    // A word of this machine's.
    Ok(u32::from_le_bytes(word).to_le())
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
    fn a_word_is_read_from_where_it_is() {
        let word = Box::new(0x1234_5678_u32);
        let address = std::ptr::from_ref(&*word).addr() as u64;
        let caller = Caller { uid: 0, gid: 0, pid: std::process::id(), group_of_parent: None };
        assert_eq!(word_of(&caller, address), Ok(0x1234_5678));
        assert_eq!(word_of(&caller, 0), Err(Errno::FAULT));
        assert_eq!(word_of(&Caller { pid: 0, ..caller }, address), Err(Errno::PERM));
    }
}
