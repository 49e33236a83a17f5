//! Mount options: the argument of `-o`.
//!
//! 1. Names are those of btrfs, of FUSE, and of mount(8); an unknown option is refused by name.
//! 2. Options of Linux's btrfs without effect here are accepted, and listed with `-v`. Options for
//!    mount(8) and fstab alone are accepted silently.

use std::ffi::OsString;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use userbtrfs::mount::MountFlags;
use userbtrfs::{Compress, Compression, IoUring, MethodError, OpenOptions, PendingLog, TreeId};

use crate::cli::host::image::ImageArgs;
use crate::cli::sizes::size;

/// The options of a mount.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a mount option")]
pub(super) struct OptionList {
    /// The kernel always checks permissions.
    pub(super) flags: MountFlags,
    pub(super) threads: Option<usize>,
    /// The source in the mount table, in place of the image.
    pub(super) name: Option<OsString>,
    pub(super) io_uring: IoUring,
    /// Options without effect.
    pub(super) ineffective: Vec<String>,
    subvolume_path: Option<String>,
    subvolume_id: Option<TreeId>,
    /// The offset of the filesystem in the image, as for loop devices.
    image_offset: Option<u64>,
    partition: Option<u32>,
    commit_seconds: Option<u64>,
    memory: Option<u64>,
    tree_log: bool,
    replay: bool,
    discard: bool,
    /// True if an image file is mounted through a loop device.
    pub(super) loop_device: bool,
    /// Whether users may delete their subvolumes by ioctl.
    pub(super) users_delete_subvolumes: bool,
    /// Whether it is unmounted when the server ends, however that does.
    pub(super) auto_unmount: bool,
    /// Options that a security module reads.
    pub(super) security: Vec<String>,
    storage: Storage,
}

/// How data of new files is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Storage {
    /// Data is copied on write.
    cow: bool,
    /// Data has checksums.
    sums: bool,
    /// How data is compressed; not only that of new files.
    compress: Option<Compress>,
}

impl Storage {
    /// Applies an option; returns false if it is not one of these. As in Linux, data that is
    /// overwritten in place has no checksums, and is not compressed.
    fn take(&mut self, word: &str) -> bool {
        match word {
            "datacow" => self.cow = true,
            "datasum" => *self = Self { cow: true, sums: true, ..*self },
            "nodatacow" => *self = Self { cow: false, sums: false, compress: None },
            "nodatasum" => self.sums = false,
            _ => return false,
        }
        true
    }

    /// Applies the option `compress` or `compress-force`. As in Linux, it ends `nodatacow` and
    /// `nodatasum`, and the later one of several counts.
    fn take_compress(&mut self, force: bool, value: Option<&str>) -> Result<(), MethodError> {
        let method = match value {
            Some("no" | "none") => {
                self.compress = None;
                return Ok(());
            }
            Some(method) => method.parse()?,
            None => Compression::Zlib.into(),
        };
        *self = Self { cow: true, sums: true, compress: Some(Compress { method, force }) };
        Ok(())
    }
}

/// The maximum number of server threads.
const THREADS_MAX: usize = 256;

/// Options of btrfs in Linux without effect here, with or without a value. Access times change only
/// when they are set, and access control lists are always checked.
const INEFFECTIVE: &[&str] = &[
    "acl",
    "autodefrag",
    "barrier",
    "diratime",
    "dirsync",
    "enospc_debug",
    "max_inline",
    "metadata_ratio",
    "noacl",
    "noautodefrag",
    "nobarrier",
    "noenospc_debug",
    "noflushoncommit",
    "norelatime",
    "nospace_cache",
    "nossd",
    "nossd_spread",
    "nostrictatime",
    "skip_balance",
    "space_cache",
    "ssd",
    "ssd_spread",
    "thread_pool",
];

/// Options of mount(8) alone, and those that name the only behaviour.
const SILENT: &[&str] = &[
    "auto",
    "default_permissions",
    "defaults",
    "group",
    "iversion",
    "loud",
    "mand",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "noiversion",
    "nomand",
    "nonempty",
    "noowner",
    "nouser",
    "nousers",
    "owner",
    "silent",
    "treelog",
    "user",
    "users",
    "_netdev",
];

/// Options that are refused, with the reasons.
const REFUSED: &[(&str, &str)] = &[
    ("clear_cache", "\"btrfs rescue clear-space-cache\" does that"),
    ("degraded", "filesystems of several devices are not supported"),
    ("device", "filesystems of several devices are not supported"),
    ("fatal_errors", "not supported"),
    ("flushoncommit", "the server cannot have the kernel write its pages back at a commit"),
    ("recovery", "\"btrfs rescue\" does that"),
    ("rescue", "only rescue=nologreplay is supported"),
    ("usebackuproot", "\"btrfs rescue\" does that"),
];

/// Options that a security module reads.
const SECURITY: &[&str] = &["context", "defcontext", "fscontext", "rootcontext"];

/// Options that set or clear a flag of the mount.
const FLAGS: &[(&str, MountFlags, bool)] = &[
    ("allow_other", MountFlags::ALLOW_OTHER, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("atime", MountFlags::NO_ATIME, false),
    ("dev", MountFlags::NO_DEV, false),
    ("exec", MountFlags::NO_EXEC, false),
    ("lazytime", MountFlags::LAZY_TIME, true),
    ("noatime", MountFlags::NO_ATIME, true),
    ("nodev", MountFlags::NO_DEV, true),
    ("noexec", MountFlags::NO_EXEC, true),
    ("nolazytime", MountFlags::LAZY_TIME, false),
    ("nosuid", MountFlags::NO_SUID, true),
    ("nosymfollow", MountFlags::NO_SYMLINK_FOLLOW, true),
    ("relatime", MountFlags::NO_ATIME, false),
    ("ro", MountFlags::READ_ONLY, true),
    ("rw", MountFlags::READ_ONLY, false),
    ("strictatime", MountFlags::NO_ATIME, false),
    ("suid", MountFlags::NO_SUID, false),
    ("symfollow", MountFlags::NO_SYMLINK_FOLLOW, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
];

/// The help of all options.
pub(super) const HELP: &str = "\
Mount options:
  ro, rw                     Mount read-only; read-write [default]
  subvol=PATH, subvolid=ID   Mount this subvolume (if both are given they must agree)
  commit=SECONDS             Commit interval; 0: only on request [default: 30]
  notreelog, treelog         Make fsync commit; write a tree log [default]
  nologreplay, norecovery, rescue=nologreplay
                             With ro, ignore a pending log
  discard, nodiscard         Discard freed space; do not [default]
  nodatacow                  Overwrite data of new files in place, without checksums
  datacow                    Copy data on write [default]
  nodatasum                  No checksums for data of new files
  datasum                    Checksum data [default]
  compress[=ALGO[:LEVEL]]    Compress data that is written: zlib [default], lzo, zstd; no
  compress-force[=ALGO[:LEVEL]]
                             The same, even if the data looks incompressible
  memory=SIZE                Maximum memory for caches and unwritten data [default: 256M]
  threads=N                  Number of server threads, 1 to 256 [default: one per processor]
  io_uring=auto|on|off       Use io_uring: if available, required, never [default: auto]
  loop                       Mount an image file through a loop device (root); sync and umount
                             then wait for the server
  offset=BYTES, partition=N  Same as --offset and --partition
  auto_unmount               Unmount when the server ends, even if it is killed (not for block
                             devices)
  context=, fscontext=, defcontext=, rootcontext=
                             As in mount(8), for security modules (root)
  allow_other                Allow access by other users
  user_subvol_rm_allowed     Let users delete their own subvolumes by ioctl
  fsname=NAME                Source shown in the mount table
  noatime, nodev, noexec, nosuid, sync, lazytime, nosymfollow, atime, dev, exec, suid, async
                             As in mount(8)

Options of btrfs without effect here (ssd, ...) are accepted, and listed with -v. Options for
mount(8) and fstab alone (defaults, noauto, x-..., ...) are accepted.";

impl OptionList {
    /// Parses lists of options. Of two options that contradict each other the later one counts,
    /// except for a subvolume by path and by ID: see [`Self::check_subvolume`]. With `sloppy`
    /// unknown options are accepted.
    pub(super) fn parse(lists: &[OsString], sloppy: bool) -> Result<Self> {
        let mut option_list = Self {
            flags: MountFlags::DEFAULT_PERMISSIONS,
            threads: None,
            name: None,
            io_uring: IoUring::Auto,
            ineffective: Vec::new(),
            subvolume_path: None,
            subvolume_id: None,
            image_offset: None,
            partition: None,
            commit_seconds: None,
            memory: None,
            tree_log: true,
            replay: true,
            discard: false,
            loop_device: false,
            users_delete_subvolumes: false,
            auto_unmount: false,
            security: Vec::new(),
            storage: Storage { cow: true, sums: true, compress: None },
        };
        for list in lists {
            let list = list.to_str().context("mount options that are not UTF-8")?;
            for option in split(list).filter(|option| !option.is_empty()) {
                if !option_list.take(option)? {
                    ensure!(sloppy, "unknown mount option \"{option}\"");
                    option_list.ineffective.push(option.to_owned());
                }
            }
        }
        ensure!(
            !(option_list.auto_unmount && option_list.loop_device),
            "mount option auto_unmount: not for block devices, nor with loop"
        );
        ensure!(option_list.replay || option_list.is_read_only(), "nologreplay requires ro");
        Ok(option_list)
    }

    /// Returns true if the mount is read-only.
    pub(super) fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::READ_ONLY)
    }

    /// Makes the mount read-only.
    pub(super) fn set_read_only(&mut self) {
        self.flags.insert(MountFlags::READ_ONLY);
    }

    /// Applies an option; returns false if it is unknown.
    fn take(&mut self, option: &str) -> Result<bool> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let "compress" | "compress-force" = name {
            let taken = self.storage.take_compress(name == "compress-force", value);
            taken.with_context(|| format!("mount option {option}"))?;
            return Ok(true);
        }
        ensure!(option != "remount", "remount is not supported");
        if INEFFECTIVE.contains(&name) {
            self.ineffective.push(option.to_owned());
            return Ok(true);
        }
        if option == "rescue=nologreplay" {
            self.replay = false;
            return Ok(true);
        }
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            bail!("mount option {option}: {why}");
        }
        if SECURITY.contains(&name) && value.is_some() {
            self.security.push(option.to_owned());
            return Ok(true);
        }
        match value {
            None => Ok(self.take_word(name)),
            Some(value) => self.take_value(name, value),
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        if let Some((_, flag, is_set)) = FLAGS.iter().find(|(name, ..)| *name == word) {
            self.flags.set(*flag, *is_set);
            return true;
        }
        match word {
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "auto_unmount" => self.auto_unmount = true,
            "loop" => self.loop_device = true,
            "user_subvol_rm_allowed" => self.users_delete_subvolumes = true,
            "notreelog" => self.tree_log = false,
            "nologreplay" | "norecovery" => self.replay = false,
            other => {
                let is_silent = SILENT.contains(&other) || other.starts_with("x-");
                return is_silent || self.storage.take(other);
            }
        }
        true
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "subvol" => self.subvolume_path = Some(value.to_owned()),
            "subvolid" => {
                // As in Linux, 0 is the top level too.
                let number = number(name, value)?;
                self.subvolume_id = Some(if number == 0 { TreeId::FS } else { TreeId(number) });
            }
            "commit" => self.commit_seconds = Some(number(name, value)?),
            "threads" => {
                let threads = number(name, value)?;
                let is_possible = (1..=THREADS_MAX).contains(&threads);
                ensure!(is_possible, "mount option threads={value}: must be 1 to {THREADS_MAX}");
                self.threads = Some(threads);
            }
            "memory" => {
                let bytes = size(value).map_err(|why| anyhow!("mount option memory: {why}"))?;
                self.memory = Some(bytes);
            }
            "offset" => {
                let bytes = size(value).map_err(|why| anyhow!("mount option offset: {why}"))?;
                self.image_offset = Some(bytes);
            }
            "partition" => self.partition = Some(number(name, value)?),
            "fsname" => self.name = Some(value.into()),
            "io_uring" => self.io_uring = io_uring(value)?,
            "discard" => match value {
                "async" | "sync" => self.discard = true,
                other => bail!("mount option discard={other}: must be async or sync"),
            },
            // An option of FUSE for the mount table.
            "subtype" => {}
            other => return Ok(other.starts_with("x-") || other == "comment"),
        }
        Ok(true)
    }

    /// Returns the image with the offset or partition of the options.
    pub(super) fn image(&self, given: &ImageArgs) -> Result<ImageArgs> {
        let mut image = given.clone();
        image.image_offset = image.image_offset.or(self.image_offset);
        image.partition = image.partition.or(self.partition);
        let is_one = image.image_offset.is_none() || image.partition.is_none();
        ensure!(is_one, "offset and partition are mutually exclusive");
        Ok(image)
    }

    /// Returns the options for opening the filesystem.
    pub(super) fn to_open(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(!self.is_read_only()).tree_log(self.tree_log).discard(self.discard);
        options.data_cow(self.storage.cow).data_checksums(self.storage.sums);
        options.compress(self.storage.compress);
        if !self.replay {
            options.pending_log(PendingLog::Leave);
        }
        if let Some(bytes) = self.memory {
            options.memory(bytes);
        }
        if let Some(seconds) = self.commit_seconds {
            options.commit_seconds(seconds);
        }
        match (&self.subvolume_path, self.subvolume_id) {
            (Some(path), _) => {
                options.subvolume_path(path.as_bytes());
            }
            (None, Some(id)) => {
                options.subvolume_id(id);
            }
            (None, None) => {}
        }
        options
    }

    /// Fails if both options for a subvolume were given, and the opened subvolume is not that of
    /// both. Linux shows both in its mount table, from which lines of fstab are copied.
    pub(super) fn check_subvolume(&self, opened: TreeId) -> Result<()> {
        match (&self.subvolume_path, self.subvolume_id) {
            (Some(path), Some(id)) if id != opened => {
                bail!("subvol={path} is subvolume {}, not subvolid={}", opened.0, id.0)
            }
            _ => Ok(()),
        }
    }
}

/// Splits a list at its commas, but for those in double quotes, as in a security context.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    list.split(move |c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    })
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| anyhow!("mount option {name}={value}: not a number"))
}

fn io_uring(value: &str) -> Result<IoUring> {
    Ok(match value {
        "auto" => IoUring::Auto,
        "on" => IoUring::On,
        "off" => IoUring::Off,
        other => bail!("mount option io_uring={other}: must be auto, on or off"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<OptionList> {
        OptionList::parse(&[list.into()], false)
    }

    #[test]
    fn options_are_taken_by_name() {
        let option_list =
            parse("rw,nosuid,subvol=a/b,commit=5,memory=64M,threads=3,notreelog").unwrap();
        assert_eq!(option_list.flags, MountFlags::DEFAULT_PERMISSIONS | MountFlags::NO_SUID);
        assert_eq!(option_list.subvolume_path.as_deref(), Some("a/b"));
        assert_eq!((option_list.commit_seconds, option_list.memory), (Some(5), Some(64 << 20)));
        assert_eq!(
            (option_list.threads, option_list.tree_log, option_list.is_read_only()),
            (Some(3), false, false)
        );
        assert!(parse("ro,nologreplay,subvolid=5").unwrap().is_read_only());
        assert_eq!(parse("subvolid=0").unwrap().subvolume_id, Some(TreeId(5)));
        assert!(!parse("ro,rw").unwrap().is_read_only());
        let taken_back = "noexec,nosuid,nodev,sync,noatime,exec,suid,dev,async,strictatime";
        assert_eq!(parse(taken_back).unwrap().flags, MountFlags::DEFAULT_PERMISSIONS);
        assert!(parse("exec,noexec").unwrap().flags.contains(MountFlags::NO_EXEC));
        let lists = ["fsname=x".into(), ",allow_other,".into()];
        let option_list = OptionList::parse(&lists, false).unwrap();
        assert_eq!(option_list.name.as_deref(), Some("x".as_ref()));
        assert!(option_list.flags.contains(MountFlags::ALLOW_OTHER));
    }

    /// Options in the help are accepted, and options with an effect are in the help.
    #[test]
    fn the_help_lists_the_options() {
        let names = HELP.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.flat_map(|line| line[2..].split("  ").next().unwrap().split(", "));
        let names: Vec<_> = names.map(|name| name.split(['=', '[']).next().unwrap()).collect();
        let with_value =
            ["subvol", "subvolid", "commit", "memory", "threads", "io_uring", "fsname", "offset"];
        for name in &names {
            let value = match *name {
                "io_uring" => "=on",
                "partition" => "=1",
                "rescue" => "=nologreplay",
                name if SECURITY.contains(&name) => "=label",
                name if with_value.contains(&name) => "=1",
                _ => "",
            };
            let option_list = parse(&format!("ro,{name}{value}")).unwrap();
            assert!(option_list.ineffective.is_empty(), "{name}");
        }
        let set = FLAGS.iter().filter(|(.., is_set)| *is_set).map(|(name, ..)| name);
        for name in set.chain(&with_value) {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn option_without_effect_is_accepted_and_listed() {
        let option_list = parse("ssd,defaults,x-systemd.automount,space_cache=v2");
        assert_eq!(option_list.unwrap().ineffective, ["ssd", "space_cache=v2"]);
        let of_times = "strictatime,norelatime,diratime,lazytime,nolazytime";
        let others = "noacl,nobarrier,nospace_cache,metadata_ratio=4,skip_balance";
        let option_list =
            parse(&format!("{of_times},{others},owner,silent,iversion,nomand")).unwrap();
        assert_eq!(option_list.ineffective.len(), 7);
        assert_eq!(option_list.flags, MountFlags::DEFAULT_PERMISSIONS);
    }

    /// The results are those that Linux 6.18 shows in /proc/mounts.
    #[test]
    fn compression_and_storage_options_end_each_other_as_in_linux() {
        let zlib = |force| Some(Compress { method: Compression::Zlib.into(), force });
        let given = |method: &str, force| Some(Compress { method: method.parse().unwrap(), force });
        for (list, cow, sums, compress) in [
            ("compress", true, true, zlib(false)),
            ("compress-force", true, true, zlib(true)),
            ("compress=zstd:-15", true, true, given("zstd:-15", false)),
            ("compress-force=lzo", true, true, given("lzo", true)),
            ("compress=no", true, true, None),
            ("compress-force=zstd,compress=none", true, true, None),
            ("compress-force=zstd,compress=lzo", true, true, given("lzo", false)),
            ("nodatacow,compress=zstd", true, true, given("zstd", false)),
            ("compress=zstd,nodatacow", false, false, None),
            ("nodatasum,compress", true, true, zlib(false)),
            ("compress,nodatasum", true, false, zlib(false)),
            ("compress=zstd:5,datacow,datasum", true, true, given("zstd:5", false)),
        ] {
            assert_eq!(parse(list).unwrap().storage, Storage { cow, sums, compress }, "{list}");
        }
    }

    #[test]
    fn quoted_security_context_keeps_its_commas() {
        let option_list = parse("nodev,context=\"system_u:object_r:x:s0:c1,c2\",noexec").unwrap();
        assert_eq!(option_list.security, ["context=\"system_u:object_r:x:s0:c1,c2\""]);
        assert!(option_list.flags.contains(MountFlags::NO_DEV | MountFlags::NO_EXEC));
    }

    #[test]
    fn wrong_option_is_refused_by_name() {
        for (list, says) in [
            (
                "ro,degraded",
                "mount option degraded: filesystems of several devices are not supported",
            ),
            ("device=/dev/sdb", "mount option device=/dev/sdb: filesystems of several devices"),
            ("ro,rescue=all", "mount option rescue=all: only rescue=nologreplay is supported"),
            ("flushoncommit", "mount option flushoncommit: the server cannot"),
            ("clear_cache", "clear-space-cache"),
            ("ro,usebackuproot", "mount option usebackuproot: "),
            ("auto_unmount,loop", "not for block devices"),
            ("ro,degrade", "unknown mount option \"degrade\""),
            ("subvolume=a", "unknown mount option \"subvolume=a\""),
            ("ro=1", "unknown mount option \"ro=1\""),
            ("remount,ro", "remount is not supported"),
            ("commit=soon", "mount option commit=soon: not a number"),
            ("threads=0", "threads=0"),
            ("threads=99999", "mount option threads=99999: must be 1 to 256"),
            ("memory=x", "mount option memory: not a size"),
            ("io_uring=maybe", "io_uring=maybe"),
            ("nologreplay", "nologreplay requires ro"),
            ("compress=gzip", "mount option compress=gzip: unrecognized compression gzip"),
            ("compress=zstd:x", "mount option compress=zstd:x: unrecognized compression zstd:x"),
            ("compress=", "mount option compress=: unrecognized compression"),
            ("ro,compress-force=nope", "mount option compress-force=nope: unrecognized"),
        ] {
            let error = format!("{:#}", parse(list).unwrap_err());
            assert!(error.contains(says), "{error:?} does not say {says:?}");
        }
        let sloppy = OptionList::parse(&["degrade".into()], true).unwrap();
        assert_eq!(sloppy.ineffective, ["degrade"]);
    }
}
