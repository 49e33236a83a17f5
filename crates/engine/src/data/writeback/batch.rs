//! A batch of writeback: data is allocated, submitted, checksummed while in flight, and then put
//! into its files.
//!
//! 1. Data of several files is written in groups. Two groups are in flight at a time: one is waited
//!    for while the next one is allocated, submitted and checksummed.
//! 2. An extent is put into its file only when all of it is on the device, so that it is durable
//!    after the flush of a later commit. All extents that a group has for a file are put in by one
//!    change.
//! 3. If a log may refer to an extent that fails, the transaction is marked for a full commit
//!    before its space is released.
//! 4. Each extent succeeds or fails alone. A failed one leaves the file as it was, and its space is
//!    released.
//! 5. The writeback locks of all the files are held throughout.
//! 6. Data that is compressed needs more items than were reserved for its run. They are reserved
//!    without waiting; if there is no space for them, the data is written as it is.

use smallvec::SmallVec;
use userbtrfs_codec::Compression;
use userbtrfs_codec::checksum::ChecksumKind;
use userbtrfs_format::{InodeItem, Logical};
use userbtrfs_sync::Arc;
use userbtrfs_transaction::{
    FullCommitReason, Handle, HandleKind, Reservation, TransactionManager,
};
use userbtrfs_volume::{PendingWrites, Slice};

use crate::compression::Recompress;
use crate::data::cache::dirty::{Delta, DirtyRun};
use crate::data::cache::file_pages::FilePages;
use crate::data::cache::reservation::{DelallocReserved, merge};
use crate::data::units::{EXTENT_MAX, Times};
use crate::data::writeback::compress::{
    self, Chunk, Compressed, FileCompression, compression_of, recompression_of,
};
use crate::data::writeback::context::WriteContext;
use crate::data::writeback::nocow;
use crate::data::writeback::write_extent::{
    NeedsAllocation, WriteExtent, WriteExtents, WriteTarget, WriteTargets, cut,
};
use crate::error::{DataError, Error, Result, Unwritten};
use crate::inode::FileChange;
use crate::inode::ops;
use crate::units::SECTOR;

/// The bytes after which a group is closed.
const GROUP_BYTES: u64 = 8 << 20;
/// The runs after which a group is closed.
const GROUP_RUNS: usize = 4096;

/// The groups in flight while the next one is made.
const IN_FLIGHT: usize = 2;

/// The source of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) enum Origin {
    /// The page cache, where the data is marked as being written; `size` is that of the file when
    /// the data was taken.
    Memory { size: u64 },
    /// A caller's buffer; afterwards the file is at least as long as `end`.
    Caller { end: u64, times: Times },
    /// The page cache, where data as it is on disk is marked as being written: it gets extents of
    /// its own, compressed like this.
    Rewritten(Recompress),
}

/// A file whose data is written.
pub(in crate::data) struct FileJob<'a> {
    pages: &'a Arc<FilePages>,
    origin: Origin,
    item: InodeItem,
    checksums: Option<ChecksumKind>,
    reserved: DelallocReserved,
    failed: Option<Unwritten>,
    /// How new extents are compressed.
    compression: Option<FileCompression>,
    /// Whether data was compressed in vain.
    is_incompressible: bool,
}

/// The extents that a group has of one file.
struct FileExtents {
    job: usize,
    write_extents: WriteExtents,
    metadata: Option<Reservation>,
}

/// The extents that a group has of its files, usually of one.
type FilesExtents = SmallVec<[FileExtents; 1]>;

/// Runs, each with the index of its job, or of its [`FileExtents`].
type NumberedRuns = SmallVec<[(usize, DirtyRun); 1]>;

/// A run in compressed form, with the index of its [`FileExtents`].
struct CompressedRun {
    load: usize,
    run: DirtyRun,
    algorithm: Compression,
    stream: Slice,
}

/// A group in flight.
struct InFlight {
    loads: FilesExtents,
    writes: PendingWrites,
}

/// The first failure of each file, if any.
pub(in crate::data) type Failed = SmallVec<[Option<Unwritten>; 1]>;

/// A batch of data of several files that is written to extents.
pub(in crate::data) struct WritebackBatch<'a> {
    context: &'a WriteContext,
    jobs: Vec<FileJob<'a>>,
    /// The groups in flight, oldest first.
    flying: SmallVec<[InFlight; IN_FLIGHT]>,
}

impl<'a> FileJob<'a> {
    /// Returns the job to write data of a file, using the reserved space.
    pub(in crate::data) fn new(
        pages: &'a Arc<FilePages>,
        origin: Origin,
        reserved: DelallocReserved,
    ) -> Self {
        let source = pages.source();
        let kind =
            |transactions: &Arc<TransactionManager>| transactions.volume().geometry().checksum_kind;
        let checksums = source.transactions.as_ref().filter(|_| source.checksummed).map(kind);
        let item = pages.inode().item();
        Self {
            pages,
            origin,
            item,
            checksums,
            reserved,
            failed: None,
            compression: None,
            is_incompressible: false,
        }
    }

    /// Sets how new extents are compressed. Data of a caller's buffer is not.
    fn compressed(self, context: &WriteContext) -> Self {
        let compression = match self.origin {
            Origin::Memory { .. } => compression_of(context, self.pages, &self.item),
            Origin::Caller { .. } => None,
            Origin::Rewritten(how) => recompression_of(context, self.pages, &self.item, how),
        };
        Self { compression, ..self }
    }

    /// Returns the targets of a run: see [`nocow::targets`].
    fn targets(&mut self, context: &WriteContext, run: &DirtyRun) -> Result<WriteTargets> {
        let now = self.pages.size();
        let size = match self.origin {
            Origin::Memory { .. } | Origin::Rewritten(_) => now,
            Origin::Caller { end, .. } => now.max(end),
        };
        let how = self.compression;
        let found = match self.origin {
            Origin::Rewritten(_) => nocow::targets_elsewhere(context, self.pages, run, size, how)?,
            _ => nocow::targets(context, self.pages, &self.item, run, size, how)?,
        };
        if found.is_incompressible {
            self.compressed_in_vain();
        }
        Ok(found.targets)
    }

    /// Returns up to where the file has all the data that it had when this was taken, once these
    /// extents have landed, whatever was written since. Extents land in order.
    fn landed_with(&self, write_extents: &[(WriteExtent, u64)]) -> u64 {
        match (self.origin, &self.failed) {
            (Origin::Memory { size }, None) => {
                let end = write_extents.iter().map(|(write_extent, _)| write_extent.run.end).max();
                end.map_or(0, |end| end.min(size))
            }
            _ => 0,
        }
    }

    /// Allocates at most `len` bytes. Data is rewritten to be in one piece, so that is tried first.
    fn allocate_space(
        &self,
        context: &WriteContext,
        len: u64,
    ) -> userbtrfs_transaction::Result<(Logical, u64)> {
        let transactions = &context.transactions;
        let allocate = || transactions.allocate_data(len, SECTOR);
        match self.origin {
            Origin::Rewritten(_) => transactions.allocate_whole_data(len).or_else(|_| allocate()),
            Origin::Memory { .. } | Origin::Caller { .. } => allocate(),
        }
    }

    /// Records that data did not become smaller: no more of the file is compressed, unless that is
    /// asked for whatever its data looks like.
    fn compressed_in_vain(&mut self) {
        let Some(how) = self.compression else { return };
        self.is_incompressible |= how.marks_files();
        if !how.goes_on() {
            self.compression = None;
        }
    }

    fn fail(&mut self, run: &DirtyRun, why: &Arc<Error>) {
        match self.origin {
            Origin::Memory { .. } => self.pages.failed(run.start, run.end),
            Origin::Caller { .. } => {}
            // The file has the same data on disk.
            Origin::Rewritten(_) => self.pages.written(run.start, run.end),
        }
        let file = self.pages.id();
        let offset = run.start;
        let why = Arc::clone(why);
        self.failed.get_or_insert(Unwritten { file, offset, why });
    }
}

impl<'a> WritebackBatch<'a> {
    pub(in crate::data) fn new(context: &'a WriteContext) -> Self {
        Self { context, jobs: Vec::new(), flying: SmallVec::new() }
    }

    /// Adds a file; returns the index to pass with its runs.
    pub(in crate::data) fn add(&mut self, job: FileJob<'a>) -> usize {
        self.jobs.push(job.compressed(self.context));
        self.jobs.len() - 1
    }

    /// Writes runs of files, file by file; returns the first failure of each file.
    pub(in crate::data) fn run(
        mut self,
        runs: impl IntoIterator<Item = (usize, DirtyRun)>,
    ) -> Failed {
        self.send(runs);
        self.arrive(None)
    }

    /// Starts to write runs of files, file by file; the last groups are in flight afterwards.
    pub(in crate::data) fn send(&mut self, runs: impl IntoIterator<Item = (usize, DirtyRun)>) {
        let mut runs = runs.into_iter().peekable();
        while runs.peek().is_some() {
            let mut group = NumberedRuns::new();
            let mut bytes = 0;
            while bytes < GROUP_BYTES && group.len() < GROUP_RUNS {
                let Some(run) = runs.next() else { break };
                bytes += run.1.len();
                group.push(run);
            }
            let unfinished = runs.peek().map(|(job, _)| *job);
            let loads = self.load(group, unfinished);
            self.depart(loads);
            while self.flying.len() >= IN_FLIGHT {
                self.land(None);
            }
        }
    }

    /// Waits for all groups, and puts their extents into the files; returns the first failure of
    /// each file. `logged` is the caller's transaction, whose log may refer to data in flight.
    pub(in crate::data) fn arrive(mut self, logged: Option<&Handle<'_>>) -> Failed {
        while !self.flying.is_empty() {
            self.land(logged);
        }
        self.jobs.into_iter().map(|job| job.failed).collect()
    }

    /// Returns true if a write has failed.
    pub(in crate::data) fn has_failed(&self) -> bool {
        self.jobs.iter().any(|job| job.failed.is_some())
    }

    /// Returns the extents in flight.
    pub(in crate::data) fn on_its_way(&self) -> impl Iterator<Item = &WriteExtent> {
        self.flying.iter().flat_map(|flight| &flight.loads).flat_map(|load| &load.write_extents)
    }

    /// Finds targets for the runs of a group; runs without one fail. The job `unfinished` has more
    /// runs in the next group.
    fn load(&mut self, group: NumberedRuns, unfinished: Option<usize>) -> FilesExtents {
        let mut loads = FilesExtents::new();
        let mut needs_allocation = NumberedRuns::new();
        for (job, run) in group {
            if loads.last().is_none_or(|load| load.job != job) {
                loads.push(FileExtents { job, write_extents: WriteExtents::new(), metadata: None });
            }
            let at = loads.len() - 1;
            let load = &mut loads[at];
            self.share(load, &run);
            let places = self.jobs[job].targets(self.context, &run);
            let mut without = NeedsAllocation::new();
            match places {
                Ok(places) => cut(run, places, &mut load.write_extents, &mut without),
                Err(error) => self.jobs[job].fail(&run, &Arc::new(error)),
            }
            needs_allocation.extend(without.into_iter().map(|run| (at, run)));
        }
        for load in loads.iter_mut().filter(|load| Some(load.job) != unfinished) {
            merge(&mut load.metadata, self.jobs[load.job].reserved.metadata.take());
        }
        let plain = self.compress(needs_allocation, &mut loads);
        self.allocate(plain, &mut loads);
        loads
    }

    /// Compresses runs of files that are compressed, and allocates space for what became shorter;
    /// returns the runs that are written as they are.
    fn compress(&mut self, runs: NumberedRuns, loads: &mut [FileExtents]) -> NumberedRuns {
        let mut chunks = Vec::new();
        let mut plain = NumberedRuns::new();
        for (load, run) in runs {
            match self.jobs[loads[load].job].compression {
                Some(how) => compress::split(load, run, how, &mut chunks),
                None => plain.push((load, run)),
            }
        }
        if chunks.is_empty() {
            return plain;
        }
        let results = compress::compress(self.context, &chunks);
        let mut counts = vec![0; loads.len()];
        for (chunk, result) in chunks.iter().zip(&results) {
            counts[chunk.file] += u64::from(matches!(result, Compressed::Stream(..)));
        }
        let has_space: Vec<bool> =
            loads.iter_mut().zip(counts).map(|(load, n)| self.reserve_extents(load, n)).collect();
        let mut streams = Vec::new();
        for (chunk, result) in chunks.into_iter().zip(results) {
            let Chunk { file: load, run, .. } = chunk;
            match result {
                Compressed::Stream(algorithm, stream) if has_space[load] => {
                    streams.push(CompressedRun { load, run, algorithm, stream });
                }
                Compressed::Incompressible => {
                    self.jobs[loads[load].job].compressed_in_vain();
                    add_run(&mut plain, load, run);
                }
                Compressed::Plain | Compressed::Stream(..) => add_run(&mut plain, load, run),
            }
        }
        self.allocate_compressed(streams, loads, &mut plain);
        plain
    }

    /// Reserves metadata for a number of compressed extents, and as many others between them.
    /// Returns whether there is space. The caller holds locks, so it must not wait for space.
    fn reserve_extents(&self, load: &mut FileExtents, count: u64) -> bool {
        let bytes = self.context.costs.of_extents(2 * count);
        if bytes == 0 {
            return true;
        }
        let reserved = self.context.transactions.space().reserve(bytes).ok();
        let has_space = reserved.is_some();
        merge(&mut load.metadata, reserved);
        has_space
    }

    /// Allocates space for compressed runs, in one allocation for several if they fit. Runs without
    /// space for their streams are added to `plain`: they need no contiguous space.
    fn allocate_compressed(
        &mut self,
        runs: Vec<CompressedRun>,
        loads: &mut [FileExtents],
        plain: &mut NumberedRuns,
    ) {
        let mut left = runs.iter().map(|run| run.stream.len() as u64).sum::<u64>();
        let mut at = 0;
        let mut room = 0;
        for CompressedRun { load, run, algorithm, stream } in runs {
            let len = stream.len() as u64;
            if len > room {
                self.give_back(at, room);
                let most = left.min(EXTENT_MAX);
                (at, room) = match self.context.transactions.allocate_data(most, len) {
                    Ok((logical, len)) => (logical.0, len),
                    Err(_) => (0, 0),
                };
            }
            left -= len;
            if len > room {
                plain.push((load, run));
                continue;
            }
            let file = &mut loads[load];
            self.jobs[file.job].reserved.spend(run.len());
            let place = WriteTarget::Compressed { logical: Logical(at), algorithm, stream };
            file.write_extents.push(WriteExtent::new(run, place));
            (at, room) = (at + len, room - len);
        }
        self.give_back(at, room);
    }

    /// Frees the rest of an allocation.
    fn give_back(&self, at: u64, len: u64) {
        if len > 0 {
            self.context.transactions.give_back_data(Logical(at), len);
        }
    }

    /// Moves a run's share of the file's reservation to the group.
    fn share(&mut self, load: &mut FileExtents, run: &DirtyRun) {
        let sectors = i64::try_from(run.len() / SECTOR).expect("of data in memory");
        let costs = self.context.costs;
        let items = costs.need(Delta { sectors, runs: 1 }).items;
        let share = self.jobs[load.job].reserved.split_metadata(items, costs);
        merge(&mut load.metadata, share);
    }

    /// Allocates space for runs, in one allocation for several if they fit.
    fn allocate(&mut self, mut runs: NumberedRuns, loads: &mut [FileExtents]) {
        let mut left = runs.iter().map(|(_, run)| run.len()).sum::<u64>();
        let mut at = 0;
        let mut room = 0;
        // Runs are popped from the end.
        runs.reverse();
        while let Some((load, mut run)) = runs.pop() {
            let job = &mut self.jobs[loads[load].job];
            if room == 0 {
                match job.allocate_space(self.context, left.min(EXTENT_MAX)) {
                    Ok((logical, len)) => (at, room) = (logical.0, len),
                    Err(error) => {
                        job.fail(&run, &Arc::new(error.into()));
                        left -= run.len();
                        continue;
                    }
                }
            }
            if run.len() > room {
                runs.push((load, run.split_off(run.start + room)));
            }
            let len = run.len();
            job.reserved.spend(len);
            loads[load].write_extents.push(WriteExtent::new(run, WriteTarget::New(Logical(at))));
            (at, room, left) = (at + len, room - len, left - len);
        }
        assert!(room == 0, "no more is allocated than there are runs for");
    }

    /// Submits a group, and computes its checksums while it is in flight.
    fn depart(&mut self, mut loads: FilesExtents) {
        let parts =
            loads.iter().flat_map(|load| load.write_extents.iter().flat_map(WriteExtent::parts));
        let writes = self.context.transactions.volume().submit_data(parts);
        for load in &mut loads {
            if let Some(kind) = self.jobs[load.job].checksums {
                load.write_extents
                    .iter_mut()
                    .for_each(|write_extent| write_extent.compute_sums(kind));
            }
        }
        self.flying.push(InFlight { loads, writes });
    }

    /// Waits for the oldest group, and puts the extents that were written into their files.
    fn land(&mut self, logged: Option<&Handle<'_>>) {
        let InFlight { loads, writes } = self.flying.remove(0);
        let mut results = self.context.transactions.volume().wait_writes(writes).into_iter();
        for FileExtents { job, write_extents, metadata } in loads {
            let mut good: SmallVec<[_; 1]> = SmallVec::new();
            for write_extent in write_extents {
                let count = write_extent.parts().count();
                let ended = results.by_ref().take(count).fold(Ok(()), Result::and);
                let file = self.jobs[job].pages.id();
                let offset = write_extent.run.start;
                let failed = |error| Error::Data { file, offset, error: DataError::Write(error) };
                match ended.map_err(failed).and_then(|()| self.replaced_bytes(job, &write_extent)) {
                    Ok(bytes) => good.push((write_extent, bytes)),
                    Err(error) => self.give_up(job, &write_extent, &Arc::new(error), logged),
                }
            }
            if let Err(error) = self.finish(job, &good, metadata, logged) {
                let why = Arc::new(error);
                for (write_extent, _) in &good {
                    self.give_up(job, write_extent, &why, logged);
                }
            }
        }
    }

    /// Puts written extents into their file.
    fn finish(
        &self,
        job: usize,
        good: &[(WriteExtent, u64)],
        metadata: Option<Reservation>,
        logged: Option<&Handle<'_>>,
    ) -> Result<()> {
        let context = self.context;
        let FileJob { pages, origin, .. } = &self.jobs[job];
        let landed = self.jobs[job].landed_with(good);
        let mut dropped = Vec::new();
        let put = |change: &mut FileChange<'_>| {
            for (write_extent, replaced) in good {
                write_extent.put(change, *replaced);
                write_extent.add_sums(&context.transactions, change.handle());
                let start = write_extent.run.start;
                let end = write_extent.run.end;
                match origin {
                    Origin::Memory { .. } | Origin::Rewritten(_) => pages.written(start, end),
                    Origin::Caller { .. } => dropped.push(pages.discard(start, end)),
                }
            }
            if let Origin::Caller { end, times } = origin {
                let written =
                    good.iter().map(|(write_extent, _)| write_extent.run.end).max().unwrap_or(0);
                change.set_size(change.size().max(written.min(*end)));
                times.touch(change);
            }
            if self.jobs[job].is_incompressible {
                change.set_incompressible();
            }
            pages.advance_size(change, landed);
        };
        let nodes = &context.nodes;
        let inode = pages.inode();
        match logged {
            Some(handle) => ops::change_file_in(nodes, handle, inode, metadata, put)?,
            None => ops::change_file(nodes, inode, HandleKind::Finish, metadata, put)?,
        }
        for delta in dropped {
            pages.account.settle(DelallocReserved::default(), delta, context.costs);
        }
        Ok(())
    }

    /// Returns the bytes that the file counts for what an extent replaces.
    fn replaced_bytes(&self, job: usize, write_extent: &WriteExtent) -> Result<u64> {
        match write_extent.place {
            WriteTarget::Prealloc { .. } | WriteTarget::Same { .. } => Ok(write_extent.run.len()),
            WriteTarget::Inline(_) | WriteTarget::New(_) | WriteTarget::Compressed { .. } => {
                let range = write_extent.run.start..write_extent.run.end;
                self.context.bytes_of(self.jobs[job].pages, range)
            }
        }
    }

    /// Fails an extent, which is not put into its file.
    fn give_up(
        &mut self,
        job: usize,
        write_extent: &WriteExtent,
        why: &Arc<Error>,
        logged: Option<&Handle<'_>>,
    ) {
        if let Some(handle) = logged {
            // Before its space may be reused.
            self.context.transactions.require_commit(handle, FullCommitReason::DataFailed);
        }
        if let Some((logical, len)) = write_extent.allocated() {
            self.context.transactions.give_back_data(logical, len);
        }
        self.jobs[job].fail(&write_extent.run, why);
    }
}

/// Adds a run, to the last one if it continues that.
fn add_run(runs: &mut NumberedRuns, load: usize, run: DirtyRun) {
    match runs.last_mut() {
        Some((last, before)) if *last == load && before.end == run.start => before.append(run),
        _ => runs.push((load, run)),
    }
}

/// Records the failures for their files; returns the first one that matters.
pub(in crate::data) fn record_failures<'a>(
    files: impl IntoIterator<Item = &'a Arc<FilePages>>,
    failed: Failed,
) -> Result<()> {
    let mut result = Ok(());
    for (pages, failed) in files.into_iter().zip(failed) {
        if let Some(failed) = failed.filter(|failed| is_missed(pages, failed)) {
            pages.add_failure(failed.clone());
            result = result.and(Err(failed.into()));
        }
    }
    result
}

/// Returns true if a failed write matters, that is unless the file has been deleted.
fn is_missed(pages: &FilePages, failed: &Unwritten) -> bool {
    !pages.account.is_dead() && !matches!(*failed.why, Error::NoInode(_))
}
