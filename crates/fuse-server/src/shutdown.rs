//! `FS_IOC_SHUTDOWN`: ends all writing, as a power failure would.
//!
//! 1. `rights` checks whether a caller may shut down.
//! 2. The command is encoded as one that reads, though it has an argument; so FUSE copies none in,
//!    and the flag is read from the memory of the caller, which waits. The kernel may refuse that
//!    to a server that is not root, also by a security module (Yama): then the caller gets EPERM,
//!    and nothing is shut down.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use userbtrfs_engine::api::Shutdown;
use userbtrfs_fuse::{Caller, Errno};

use crate::context::Context;
use crate::errno;
use crate::rights::admit;

/// `_IOR('X', 125, __u32)`.
pub(crate) const COMMAND: u32 = 0x8004_587d;

/// Shuts down by the flag at `argument` in the caller's memory.
pub(crate) fn shut_down(
    context: &Context,
    caller: &Caller,
    argument: u64,
) -> Result<Vec<u8>, Errno> {
    admit(caller)?;
    let first = match word_of(caller, argument)? {
        0 => Shutdown::Sync,
        1 => Shutdown::Metadata,
        2 => Shutdown::Nothing,
        _ => return Err(Errno::INVAL),
    };
    if first == Shutdown::Sync {
        context.write_back();
    }
    context.filesystem.shutdown(first).map(|()| Vec::new()).map_err(errno)
}

fn word_of(caller: &Caller, address: u64) -> Result<u32, Errno> {
    let memory = File::open(format!("/proc/{}/mem", caller.pid)).map_err(|_| Errno::PERM)?;
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, address).map_err(|_| Errno::FAULT)?;
    // The word is in the byte order of this machine.
    Ok(u32::from_le_bytes(word).to_le())
}

#[cfg(test)]
mod tests {
    use super::*;

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
