//! Tests with damaged and hostile images, through the library's API and through the command.
//!
//! 1. Damage is forged with right checksums, unless the checksum itself is what is damaged.
//! 2. No test needs privilege. If the host does not support something, a line with SKIPPED is
//!    printed.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod block_devices;
mod chunks;
mod cli;
mod closed_pipes;
mod control;
mod copies;
mod cp;
mod data;
mod defragment;
mod devices;
mod dirs;
mod discard;
mod dropin;
mod editing;
mod encode;
mod examples;
mod filesystem;
mod filters;
mod forged;
mod get;
mod get_attributes;
mod habits;
mod install;
mod json;
mod listing;
mod manual;
mod memory;
mod messages;
mod mkfs;
mod mount;
mod mount_durable;
mod mount_kills;
mod mount_memory;
mod mount_options;
mod mount_refusals;
mod mount_shared;
mod mount_waits;
mod pending_logs;
mod progress;
mod put;
mod put_data;
mod put_shared;
mod readme;
mod refusals;
mod rootdir;
mod shell;
mod shell_prompt;
mod sizes;
mod slashes;
mod subvolume;
mod subvolume_mounted;
mod superblocks;
mod support;
mod surroundings;
mod top;
mod tree_blocks;
mod umount;
mod verbose;
mod whole_disks;
mod worsening;
mod writing;
