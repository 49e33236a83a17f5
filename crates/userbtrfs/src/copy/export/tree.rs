//! Walks the source: makes names and directories in order, and hands files to workers.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use userbtrfs_engine::api::{
    Dir, DirEntries, DirEntry, FileKind, Inode, InodeId, Metadata, TreeId, join_path,
};
use userbtrfs_format::Quoted;

use super::attributes::{self, Place};
use super::job::{Filling, NewFile, Queue};
use super::target::TargetDir;
use super::worker::Worker;
use super::{ExportError, Exporter, Progress, Report};

/// Copies a tree; see [`Exporter::extract`].
pub(super) fn copy(
    extractor: &Exporter<'_>,
    source: &Inode,
    path: &[u8],
    target: &Path,
    report: &Report<'_>,
) {
    let queue = Queue::default();
    let failed = Mutex::new(Vec::new());
    let worker = Worker { progress: extractor.progress, queue: &queue, failed: &failed, report };
    let mut names = extractor.names.lock().expect("no one panics with it");
    let mut walk = Copy {
        extractor,
        worker: &worker,
        report,
        subvolume: source.id().subvolume,
        names: &mut names,
        levels: Vec::new(),
    };
    thread::scope(|scope| {
        for started in 0..extractor.options.workers.max(1) {
            match thread::Builder::new().spawn_scoped(scope, || worker.run()) {
                Ok(_) => {}
                // The workers that were started do its work.
                Err(_) if started > 0 => break,
                Err(error) => {
                    Progress::add(&extractor.progress.errors, 1);
                    return report(ExportError::NoThread(error));
                }
            }
        }
        walk.run(source, path, target);
        queue.close();
    });
    // A file that could not be filled is removed under each of its names.
    let failed = std::mem::take(&mut *failed.lock().expect("no one panics with it"));
    for inode in failed {
        for name in walk.names.remove(&inode).unwrap_or_default() {
            let _ = std::fs::remove_file(name);
        }
    }
}

struct Copy<'a> {
    extractor: &'a Exporter<'a>,
    worker: &'a Worker<'a>,
    report: &'a Report<'a>,
    subvolume: TreeId,
    names: &'a mut HashMap<InodeId, Vec<PathBuf>>,
    levels: Vec<Level>,
}

/// A directory that is being filled.
struct Level {
    dir: Dir,
    metadata: Metadata,
    source: Vec<u8>,
    entries: DirEntries,
    target: Arc<TargetDir>,
}

/// An inode to copy, and its destination.
struct Item<'a> {
    inode: Inode,
    source: Vec<u8>,
    parent: &'a Arc<TargetDir>,
    name: CString,
    /// The entry that leads to it; `None` for the root of the copy.
    way: Option<(&'a Dir, &'a DirEntry)>,
}

impl Copy<'_> {
    fn run(&mut self, source: &Inode, path: &[u8], target: &Path) {
        if let Err(error) = self.start(source, path, target) {
            return (self.report)(error);
        }
        while let Some(mut level) = self.levels.pop() {
            if self.extractor.progress.is_stopped() {
                return;
            }
            let Some(entry) = level.entries.next() else {
                self.leave(&level);
                continue;
            };
            let (dir, source, parent) =
                (level.dir.clone(), level.source.clone(), Arc::clone(&level.target));
            self.levels.push(level);
            let copied = match entry {
                Ok(entry) => self.copy_entry(&dir, &entry, &source, &parent),
                Err(error) => Err(source_error(&source, error)),
            };
            copied.unwrap_or_else(|error| (self.report)(error));
        }
    }

    fn start(&mut self, source: &Inode, path: &[u8], target: &Path) -> Result<(), ExportError> {
        let no_name = || ExportError::Name { path: target.display().to_string() };
        let name = target.file_name().ok_or_else(no_name)?;
        let name = CString::new(name.as_bytes()).map_err(|_| no_name())?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = Arc::new(TargetDir::open(parent.unwrap_or(Path::new(".")))?);
        let (inode, source) = (source.clone(), path.to_vec());
        self.copy_one(Item { inode, source, parent: &parent, name, way: None })
    }

    fn copy_entry(
        &mut self,
        dir: &Dir,
        entry: &DirEntry,
        dir_source: &[u8],
        parent: &Arc<TargetDir>,
    ) -> Result<(), ExportError> {
        let source = join_path(dir_source, entry.name());
        let refused = || ExportError::Name { path: Quoted(&source).to_string() };
        let name = safe_name(entry.name()).ok_or_else(refused)?;
        let inode = dir.follow(entry).map_err(|error| source_error(&source, error))?;
        self.copy_one(Item { inode, source, parent, name, way: Some((dir, entry)) })
    }

    fn copy_one(&mut self, item: Item<'_>) -> Result<(), ExportError> {
        let metadata = item.inode.metadata().map_err(|error| source_error(&item.source, error))?;
        let path = item.parent.join(&item.name);
        let several = metadata.nlink > 1 && !metadata.is_dir();
        if several && let Some(names) = self.names.get_mut(&item.inode.id()) {
            item.parent.make_hard_link(&item.name, &names[0])?;
            names.push(path);
            return Ok(());
        }
        let id = item.inode.id();
        match metadata.kind {
            FileKind::Directory => self.enter(item, metadata)?,
            FileKind::Regular => self.hand_over(item, metadata)?,
            FileKind::Symlink => {
                let to = item.inode.read_link();
                let to = to.map_err(|error| source_error(&item.source, error))?;
                item.parent.make_symlink(&item.name, &to)?;
                self.complete(&item, &metadata);
            }
            _ => {
                item.parent.make_special(&item.name, &metadata)?;
                self.complete(&item, &metadata);
            }
        }
        if several {
            self.names.insert(id, vec![path]);
        }
        Ok(())
    }

    /// Sets the attributes of a link or special file.
    fn complete(&self, item: &Item<'_>, metadata: &Metadata) {
        let path = item.parent.join(&item.name);
        let place = Place::Named(item.parent, &item.name);
        attributes::apply(self.report, &item.inode, metadata, &place, &path);
        Progress::add(&self.extractor.progress.others, 1);
    }

    fn hand_over(&self, item: Item<'_>, metadata: Metadata) -> Result<(), ExportError> {
        let file = item.parent.make_file(&item.name)?;
        let new = NewFile {
            path: item.parent.join(&item.name),
            source: Quoted(&item.source).to_string(),
            dir: Arc::clone(item.parent),
            inode: item.inode,
            name: item.name,
            metadata,
            file,
        };
        self.worker.hand_over(Arc::new(Filling::new(new)));
        Ok(())
    }

    fn enter(&mut self, item: Item<'_>, metadata: Metadata) -> Result<(), ExportError> {
        let id = item.inode.id();
        if self.levels.iter().any(|level| level.dir.inode().id() == id) {
            let error = userbtrfs_engine::Error::DirectoryLoop(id);
            return Err(source_error(&item.source, error));
        }
        let dir = match item.way {
            Some((dir, entry)) => dir.enter(entry),
            None => item.inode.open_dir(),
        };
        let dir = dir.map_err(|error| source_error(&item.source, error))?;
        let target = Arc::new(item.parent.make_dir(&item.name)?);
        let foreign = id.subvolume != self.subvolume && self.extractor.options.one_subvolume;
        // A subvolume that is left out has its listing start past its end, which finds nothing.
        let entries = dir.entries_from(if foreign { u64::MAX } else { 0 });
        self.levels.push(Level { dir, metadata, source: item.source, entries, target });
        Ok(())
    }

    fn leave(&self, level: &Level) {
        let (inode, target) = (level.dir.inode(), &*level.target);
        let place = Place::Open(target);
        attributes::apply(self.report, inode, &level.metadata, &place, &target.path);
        Progress::add(&self.extractor.progress.others, 1);
    }
}

/// Returns the name if it cannot lead out of its directory.
fn safe_name(name: &[u8]) -> Option<CString> {
    let harmless = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    CString::new(name).ok().filter(|_| harmless)
}

fn source_error(path: &(impl AsRef<[u8]> + ?Sized), error: userbtrfs_engine::Error) -> ExportError {
    ExportError::Source { path: Quoted(path.as_ref()).to_string(), error: Box::new(error) }
}
