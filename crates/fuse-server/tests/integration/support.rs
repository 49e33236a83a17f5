//! Images, mounted by Linux and by us.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use userbtrfs_engine::api::{Filesystem, OpenOptions};
use userbtrfs_fuse_server::{Mount, MountFlags, MountOptions, Mounted, Options};
use userbtrfs_testkit::linux::{self, Linux, btrfs_check, run};
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::test_env::{NOBODY, fuse_or_skip, set_own_umask, skip, until};
use userbtrfs_testkit::walk_linux;

/// The size of an image, of which most is a hole.
const IMAGE_BYTES: u64 = 1 << 30;

/// A folder for an image and its mount point.
///
/// Only one test on the whole machine uses a mount by Linux at a time, and for no longer than it
/// takes.
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    /// Creates a site; `None` if nothing can be mounted.
    pub(crate) fn new() -> Option<Self> {
        if !linux::available_or_skip() || !fuse_or_skip() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Users other than root must be able to reach the mounts in it.
        open_to_all(folder.path());
        set_own_umask(0o022);
        Some(Self { folder })
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.at("image")
    }

    /// Formats a new image.
    pub(crate) fn format(&self) {
        self.format_with(&[]);
    }

    pub(crate) fn format_with(&self, options: &[&str]) {
        self.format_sized(IMAGE_BYTES, options);
    }

    pub(crate) fn format_sized(&self, bytes: u64, options: &[&str]) {
        File::create(self.image()).unwrap().set_len(bytes).unwrap();
        run(Command::new("mkfs.btrfs").args(["-q", "-f"]).args(options).arg(self.image())).unwrap();
    }

    /// Mounts the image by Linux and runs `work` in it; Linux must not complain.
    pub(crate) fn with_linux<R>(&self, options: &str, work: impl FnOnce(&Path) -> R) -> R {
        Self::with_image_in_linux(&self.image(), options, work)
    }

    /// Like `with_linux`, with another image.
    pub(crate) fn with_image_in_linux<R>(
        image: &Path,
        options: &str,
        work: impl FnOnce(&Path) -> R,
    ) -> R {
        let linux = Linux::lock().unwrap();
        let mount = linux.mount(image, options).unwrap();
        open_to_all(mount.path());
        let result = work(mount.path());
        drop(mount);
        linux.assert_no_complaints().unwrap();
        result
    }

    /// Mounts the image, runs `work` in it, and ends the mount in order.
    pub(crate) fn with_ours<R>(&self, work: impl FnOnce(&Path) -> R) -> R {
        let ours = Ours::new(self, OpenOptions::new().write(true));
        let result = work(ours.path());
        ours.end();
        result
    }

    /// Runs `work` in a mount by Linux and in one of ours; afterwards Linux must show what ours
    /// showed.
    pub(crate) fn both(&self, work: impl Fn(&Path)) {
        self.both_sized(IMAGE_BYTES, &[], work);
    }

    /// Like `both`, in images of `bytes` bytes that mkfs makes with these options.
    pub(crate) fn both_sized(&self, bytes: u64, options: &[&str], work: impl Fn(&Path)) {
        self.format_sized(bytes, options);
        self.with_linux("noatime", &work);
        self.format_sized(bytes, options);
        let shown = self.with_ours(|root| {
            work(root);
            walk_linux::walk(root).unwrap()
        });
        self.judge(&shown);
    }

    /// Asserts that `btrfs check` finds no error in the image, and that Linux shows `shown`.
    pub(crate) fn judge(&self, shown: &Manifest) {
        btrfs_check(&self.image()).unwrap();
        let linux = self.with_linux("ro,noatime", |root| walk_linux::walk(root).unwrap());
        let differences = diff(shown, &linux, &[]);
        assert!(differences.is_empty(), "the mount's first: {:#?}", &differences);
    }
}

/// Runs the test `work` in both kinds of mount.
pub(crate) fn both(work: impl Fn(&Path)) {
    if let Some(site) = Site::new() {
        site.both(work);
    }
}

/// The image, mounted by us.
pub(crate) struct Ours {
    pub(crate) mounted: Mounted,
}

impl Ours {
    pub(crate) fn new(site: &Site, options: &OpenOptions) -> Self {
        let filesystem = options.open(site.image()).unwrap();
        Self::of(site, filesystem, &mount_options())
    }

    pub(crate) fn of(site: &Site, filesystem: Filesystem, options: &MountOptions) -> Self {
        let point = site.at("point");
        // It may be there from the last time.
        let _ = std::fs::create_dir(&point);
        let mount = Mount::new(&point, options).unwrap();
        let options = Options { threads: Some(2), device: site.image(), ..Options::default() };
        Self { mounted: Mounted::start(mount, filesystem, &options).unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.mounted.point()
    }

    /// Unmounts it, and retries while it is busy: a program that another test is just starting may
    /// have copies of open descriptors for a moment.
    pub(crate) fn end(self) {
        let unmount_handle = self.mounted.unmount_handle();
        until("nobody to use the mount", || match unmount_handle.unmount() {
            Err(error) if error.is_busy() => false,
            done => done.is_ok(),
        });
        drop(unmount_handle);
        self.mounted.end().unwrap();
    }
}

/// The mount options of most tests.
pub(crate) fn mount_options() -> MountOptions {
    MountOptions {
        source: "image".into(),
        subtype: "userbtrfs".to_owned(),
        flags: MountFlags::DEFAULT_PERMISSIONS | MountFlags::ALLOW_OTHER,
        ..MountOptions::default()
    }
}

/// Makes a directory accessible to all users.
fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Ok(metadata) = path.metadata() {
        let mode = metadata.permissions().mode() | 0o755;
        // This fails on a read-only mount, which is accessible already.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    }
}

/// Runs a shell script in a directory and returns its output; panics if it fails.
pub(crate) fn shell(directory: &Path, script: &str) -> String {
    let output = run(Command::new("sh").args(["-ec", script]).current_dir(directory)).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a script in a directory as a user without rights.
pub(crate) fn as_nobody(directory: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(directory).uid(NOBODY).gid(NOBODY);
    command.output().unwrap()
}

/// Runs a script like `as_nobody`; it must succeed.
#[track_caller]
pub(crate) fn nobody_does(directory: &Path, script: &str) {
    let output = as_nobody(directory, script);
    assert!(output.status.success(), "{output:?}");
}

/// Runs a script like `as_nobody`; it must fail for lack of permission.
#[track_caller]
pub(crate) fn nobody_is_refused(directory: &Path, script: &str) {
    let output = as_nobody(directory, &format!("LC_ALL=C; {script}"));
    let said = String::from_utf8_lossy(&output.stderr);
    let is_refused = ["not permitted", "ermission denied"].iter().any(|words| said.contains(words));
    assert!(!output.status.success() && is_refused, "{output:?}");
}

/// Returns the path of a test suite that scripts/install-test-deps built beside what cargo builds;
/// if it does not exist, prints that a test is skipped.
pub(crate) fn tool_or_skip(name: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().unwrap();
    let mut there = this.ancestors().map(|folder| folder.join("test-tools/bin").join(name));
    let found = there.find(|program| program.is_file());
    if found.is_none() {
        skip(&format!("no {name}"));
    }
    found
}

/// Bytes that repeat in no page.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 251).unwrap()).collect()
}
