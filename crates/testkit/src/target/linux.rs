//! Linux as a target.

use std::path::{Path, PathBuf};

use crate::linux::{Linux, Mount};
use crate::manifest::Manifest;
use crate::model::{End, Model, Outcome};
use crate::operation::{Object, Operation};
use crate::walk_linux;

use super::{Directory, Target};

/// A mounted image. Creating one clears the umask of the thread.
pub struct LinuxTarget<'a> {
    linux: &'a Linux,
    image: PathBuf,
    options: String,
    /// `None` only during a reopen.
    mounted: Option<Mounted>,
}

/// Fields are dropped in this order: open descriptors would prevent unmounting.
struct Mounted {
    directory: Directory,
    mount: Mount,
}

impl<'a> LinuxTarget<'a> {
    /// Mounts an empty filesystem.
    pub fn new(linux: &'a Linux, image: &Path) -> anyhow::Result<Self> {
        Self::with_options(linux, image, "noatime")
    }

    /// Mounts it with these options, as for [`Linux::mount`].
    pub fn with_options(linux: &'a Linux, image: &Path, options: &str) -> anyhow::Result<Self> {
        let mounted = Some(Mounted::new(linux, image, options)?);
        Ok(Self { linux, image: image.to_owned(), options: options.to_owned(), mounted })
    }

    /// Calls fsync(2), or fdatasync(2), on a file or directory.
    pub fn sync(&self, object: &Object, data_only: bool) -> Outcome {
        self.mounted().directory.sync(object, data_only)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        self.mounted().mount.path()
    }

    fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().expect("mounted but while it is reopened")
    }
}

impl Target for LinuxTarget<'_> {
    /// A resize is left out: Linux needs more free space for a relocation than the model knows.
    fn answers_as_linux(&self, _model: &Model, operation: &Operation) -> bool {
        !matches!(operation, Operation::Resize { .. })
    }

    fn apply(&mut self, operation: &Operation) -> End {
        let mounted = self.mounted.as_mut().expect("mounted but while it is reopened");
        mounted.directory.apply(operation)
    }

    fn manifest(&mut self) -> Manifest {
        walk_linux::walk(self.path()).expect("a mounted tree can be read")
    }

    fn commit(&mut self) {
        self.mounted().directory.commit().expect("Linux commits");
    }

    fn reopen(&mut self) {
        self.mounted = None;
        let mounted = Mounted::new(self.linux, &self.image, &self.options);
        self.mounted = Some(mounted.expect("Linux mounts it again"));
    }
}

impl Mounted {
    fn new(linux: &Linux, image: &Path, options: &str) -> anyhow::Result<Self> {
        let mount = linux.mount(image, options)?;
        Ok(Self { directory: Directory::open(mount.path())?, mount })
    }
}
