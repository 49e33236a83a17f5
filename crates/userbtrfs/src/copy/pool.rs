//! Fills several files of the host at the same time: one thread makes the tree, and workers read
//! the content of files and write it. Large files are filled in parts.

mod queue;

use std::sync::Arc;
use std::thread;

use userbtrfs_engine::api::{Error, File, FileReader};

use super::error::{CopyError, source_error};
use super::sink::host::HostSink;
use super::source::Source as _;
use super::source::image_tree::{ImageContent, ImageTree};
use super::tree::{Context, NewFile, Tree};
use queue::{Filling, Job, Left, Queue};

/// Bytes in a part of a large file.
const PART: u64 = 16 << 20;

/// Copies a source with this number of workers.
pub(super) fn copy(mut source: ImageTree, mut tree: Tree<'_, HostSink>, workers: usize) {
    let pool = Pool { context: tree.context, queue: Queue::default() };
    thread::scope(|scope| {
        for started in 0..workers.max(1) {
            match thread::Builder::new().spawn_scoped(scope, || pool.work()) {
                Ok(_) => {}
                // The workers that were started do its work.
                Err(_) if started > 0 => break,
                Err(error) => return pool.context.report(CopyError::NoThread(error)),
            }
        }
        while pool.context.continues()
            && let Some(event) = source.next()
        {
            if let Some((file, content)) = tree.take(event) {
                pool.add(file, content);
            }
        }
        pool.queue.close();
    });
    tree.end();
}

/// The state that the workers and the thread that makes the tree share.
struct Pool<'a> {
    context: &'a Context<'a, HostSink>,
    queue: Queue,
}

impl Pool<'_> {
    /// Fills parts until there are no more.
    fn work(&self) {
        loop {
            let batch = self.queue.take();
            if batch.is_empty() {
                return;
            }
            let readers: Vec<_> = batch.iter().map(open).collect();
            for (job, reader) in batch.iter().zip(readers) {
                self.part_done(&job.file, reader.and_then(|reader| self.fill(&job.file, reader)));
            }
        }
    }

    /// Queues a file: a small one whole, a large one as the parts that hold data.
    fn add(&self, file: NewFile<HostSink>, content: ImageContent) {
        let size = content.size;
        let file = Arc::new(Filling::new(file, content));
        if size <= PART {
            return self.queue.push(Job { file, range: 0..size });
        }
        let queued = self.queue_parts(&file).map_err(source_error(&file.content.path));
        self.part_done(&file, queued.map(|()| Filled::Whole));
    }

    fn queue_parts(&self, file: &Arc<Filling>) -> Result<(), Error> {
        let opened = file.content.inode.open()?;
        let size = file.content.size;
        let mut at = 0;
        while let Some(start) = next_data(&opened, at)? {
            if !self.context.continues() || file.is_failed() {
                break;
            }
            at = size.min(start.saturating_add(PART));
            file.add_part();
            self.queue.push(Job { file: Arc::clone(file), range: start..at });
        }
        Ok(())
    }

    /// Writes the part that `reader` reads into a file that is still empty there; holes stay holes.
    fn fill(&self, file: &Filling, mut reader: FileReader) -> Result<Filled, CopyError> {
        let next =
            |reader: &mut FileReader| reader.next_chunk().map_err(source_error(&file.content.path));
        while let Some(chunk) = next(&mut reader)? {
            if !self.context.continues() || file.is_failed() {
                return Ok(Filled::Stopped);
            }
            if let Some(bytes) = chunk.bytes() {
                self.context.write(&file.new, bytes, chunk.offset())?;
            }
        }
        Ok(Filled::Whole)
    }

    /// Records how a part ended; after the last part, completes or removes the file.
    fn part_done(&self, file: &Filling, filled: Result<Filled, CopyError>) {
        let is_whole = matches!(filled, Ok(Filled::Whole)) && self.context.continues();
        if let Err(error) = filled {
            self.context.report(error);
        }
        match file.part_done(!is_whole) {
            Left::Parts => {}
            Left::Failure => self.context.discard(&file.new.item),
            Left::Nothing => {
                let done = self.context.complete(&file.new, file.content.size);
                self.context.finish(&file.new.item, done);
            }
        }
    }
}

/// The end of filling a part without an error.
enum Filled {
    Whole,
    /// The copy was stopped, or another part of the file failed.
    Stopped,
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
fn open(job: &Job) -> Result<FileReader, CopyError> {
    let content = &job.file.content;
    let reader = || {
        let file = content.inode.open()?;
        let mut reader = file.reader_of(job.range.start, job.range.end);
        reader.prefetch()?;
        Ok(reader)
    };
    reader().map_err(source_error::<Error>(&content.path))
}
