//! The verbs on files, one file each, in the manner of coreutils and attr.

pub(in crate::cli) mod cat;
pub(in crate::cli) mod chmod;
pub(in crate::cli) mod chown;
pub(in crate::cli) mod copy_target;
pub(in crate::cli) mod cp;
pub(in crate::cli) mod dedupe;
pub(in crate::cli) mod df;
pub(in crate::cli) mod encoding;
pub(in crate::cli) mod fallocate;
pub(in crate::cli) mod find;
pub(in crate::cli) mod get;
pub(in crate::cli) mod getfattr;
pub(in crate::cli) mod ln;
pub(in crate::cli) mod ls;
pub(in crate::cli) mod mkdir;
pub(in crate::cli) mod mv;
pub(in crate::cli) mod put;
pub(in crate::cli) mod rm;
pub(in crate::cli) mod setfattr;
pub(in crate::cli) mod stat;
pub(in crate::cli) mod truncate;
