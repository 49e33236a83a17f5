//! The descriptors of the FUSE device of one mount.
#![expect(unsafe_code, reason = "rustix has no call for this ioctl")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// The FUSE device.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`: attaches a new descriptor to the mount of the
/// given one.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Opens the device.
pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
    open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Returns another descriptor of the same mount. Requests received from it are answered through it.
pub(crate) fn clone(device: impl AsFd) -> Result<OwnedFd, Errno> {
    let descriptor = u32::try_from(device.as_fd().as_raw_fd()).map_err(|_| Errno::BADF)?;
    let new = open_device()?;
    // SAFETY: the kernel reads a u32 from the argument, whatever the direction in the number says,
    // and that is what a `Setter` of a u32 points to.
    unsafe {
        let setter = Setter::<CLONE, u32>::new(descriptor);
        ioctl(&new, setter)?;
    }
    Ok(new)
}

/// Returns true if a descriptor of the FUSE device is connected to a mount.
pub(crate) fn is_connected(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().contains(PollFlags::ERR)
}
