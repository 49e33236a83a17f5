//! The workers, which fill files part by part and complete them.

use std::sync::{Arc, Mutex};

use userbtrfs_engine::api::{Error, File, FileReader, InodeId};

use super::attributes::{self, Place};
use super::content::{self, source_error};
use super::job::{Filling, Job, Left, Queue};
use super::{ExportError, Progress, Report};

/// Bytes in a part of a large file.
const PART: u64 = 16 << 20;

/// The state that the workers and the walker share.
pub(super) struct Worker<'a> {
    pub(super) progress: &'a Progress,
    pub(super) queue: &'a Queue,
    /// Files that could not be filled.
    pub(super) failed: &'a Mutex<Vec<InodeId>>,
    pub(super) report: &'a Report<'a>,
}

impl Worker<'_> {
    /// Fills parts until there are no more.
    pub(super) fn run(&self) {
        loop {
            let batch = self.queue.take();
            if batch.is_empty() {
                return;
            }
            let readers: Vec<_> = batch.iter().map(open).collect();
            for (job, reader) in batch.iter().zip(readers) {
                let fill = |reader| content::fill(self.progress, reader, &job.file);
                self.part_done(&job.file, reader.and_then(fill));
            }
        }
    }

    /// Queues a file: a small one whole, a large one as the parts that hold data.
    pub(super) fn hand_over(&self, file: Arc<Filling>) {
        let size = file.new.metadata.size;
        if size <= PART {
            return self.queue.push(Job { file, range: 0..size });
        }
        let queued = self.queue_parts(&file).map_err(|error| source_error(&file, error));
        self.part_done(&file, queued);
    }

    fn queue_parts(&self, file: &Arc<Filling>) -> Result<(), Error> {
        let opened = file.new.inode.open()?;
        let size = file.new.metadata.size;
        let mut at = 0;
        while let Some(start) = next_data(&opened, at)? {
            if self.progress.is_stopped() || file.is_failed() {
                break;
            }
            at = size.min(start.saturating_add(PART));
            file.add_part();
            self.queue.push(Job { file: Arc::clone(file), range: start..at });
        }
        Ok(())
    }

    /// Records how a part ended; after the last part, completes or discards the file.
    fn part_done(&self, file: &Filling, filled: Result<(), ExportError>) {
        let left = file.part_done(filled.is_err() || self.progress.is_stopped());
        if let Err(error) = filled
            && !matches!(error, ExportError::Stopped)
        {
            (self.report)(error);
        }
        match left {
            Left::Parts => {}
            Left::Failure => self.discard(file),
            Left::Nothing => match content::set_size(file) {
                Ok(()) => {
                    complete(file, self.report);
                    Progress::add(&self.progress.files, 1);
                }
                Err(error) => {
                    (self.report)(error);
                    self.discard(file);
                }
            },
        }
    }

    fn discard(&self, file: &Filling) {
        file.new.dir.remove(&file.new.name);
        self.failed.lock().expect("no one panics with it").push(file.new.inode.id());
    }
}

/// Returns the start of the next data at or after an offset; `None` if there is none.
fn next_data(file: &File, offset: u64) -> Result<Option<u64>, Error> {
    match file.seek_data(offset) {
        Ok(start) => Ok(Some(start)),
        Err(Error::NoMoreData) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the source of a part and starts to read it.
fn open(job: &Job) -> Result<FileReader, ExportError> {
    let reader = || {
        let file = job.file.new.inode.open()?;
        let mut reader = file.reader_of(job.range.start, job.range.end);
        reader.prefetch()?;
        Ok(reader)
    };
    reader().map_err(|error| source_error(&job.file, error))
}

/// Sets the attributes of a file that was filled.
fn complete(file: &Filling, report: &Report<'_>) {
    let place = Place::Open(&file.new.file);
    attributes::apply(report, &file.new.inode, &file.new.metadata, &place, &file.new.path);
}
