//! The verbs on a filesystem or a mount: mkfs, mount, log, dump, stats and the like.

pub(in crate::cli) mod df;
pub(in crate::cli) mod dump;
pub(in crate::cli) mod filesystem;
pub(in crate::cli) mod log;
pub(in crate::cli) mod mkfs;
pub(in crate::cli) mod mount;
pub(in crate::cli) mod mounted;
pub(in crate::cli) mod rootdir;
pub(in crate::cli) mod stats;
pub(in crate::cli) mod subvolume;
pub(in crate::cli) mod top;
pub(in crate::cli) mod trace;
pub(in crate::cli) mod umount;
