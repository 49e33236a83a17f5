//! Making an inode durable.
//!
//! 1. Data is on the device before anything that leads to it is logged; both are durable with the
//!    flush that comes before the superblock.
//! 2. What did not change in the running transaction is durable with the one before.
//! 3. What cannot be logged is committed: nothing is ever left out silently.
//! 4. Who waits for a group is in its transaction until the group is durable, so that the commit
//!    of the transaction comes after.

use userbtrfs_format::FileKind;
use userbtrfs_ledger::{CommitReason, Handle, HandleKind, Ledger, LogFailure, LogGroup};
use userbtrfs_sync::Arc;

use super::collect::{self, Collector, Whole};
use super::trace::{Clock, Listener, Phase, SyncHow, Trace};
use crate::data::{Contents, Writer};
use crate::error::{Error, Result};
use crate::node::{Inode, Mode, Nodes};

/// What makes inodes durable.
pub(crate) struct Log {
    nodes: Arc<Nodes>,
    writer: Arc<Writer>,
    ledger: Arc<Ledger>,
    trace: Trace,
}

/// What is left to be done for an inode to be durable.
enum Next<'a> {
    /// This transaction must be.
    Wait(u64),
    /// Its group must be, for which so many items were changed.
    Group(Handle<'a>, LogGroup, usize),
    /// The running transaction must be.
    Commit(Handle<'a>, CommitReason),
}

impl Log {
    pub(crate) fn new(nodes: &Arc<Nodes>, writer: &Arc<Writer>, ledger: &Arc<Ledger>) -> Self {
        let (nodes, writer) = (Arc::clone(nodes), Arc::clone(writer));
        Self { nodes, writer, ledger: Arc::clone(ledger), trace: Trace::new() }
    }

    /// Who is told of each sync from now on.
    pub(crate) fn listen(&self, listener: Option<Listener>) {
        self.trace.set(listener);
    }

    /// Makes a file durable, its data and its attributes; tells what could not be written of it.
    pub(crate) fn sync_file(&self, contents: &Arc<Contents>) -> Result<()> {
        let whole = Whole { inode: contents.inode(), contents: Some(contents) };
        let mut clock = self.trace.clock();
        let next = self.writer.write_back_then(contents, || {
            clock.lap(Phase::WriteBack);
            self.log(&whole)
        });
        self.writer.take_failure(contents)?;
        self.finish(whole.inode, next??, clock)
    }

    /// Makes an inode durable that is no file; of a directory, its entries, too.
    pub(crate) fn sync(&self, inode: &Arc<Inode>) -> Result<()> {
        assert!(inode.kind() != FileKind::Regular, "a file has data");
        let clock = self.trace.clock();
        let next = self.log(&Whole { inode, contents: None })?;
        self.finish(inode, next, clock)
    }

    fn log(&self, whole: &Whole<'_>) -> Result<Next<'_>> {
        let (inode, traces) = (whole.inode, self.nodes.traces());
        let handle = self.ledger.start(HandleKind::Operation)?;
        let (running, item) = (handle.generation(), inode.item());
        if item.transid < running {
            return Ok(Next::Wait(item.transid));
        }
        if item.nlink == 0 && !inode.is_linkable() && !traces.lost_any(running, inode.id()) {
            // Nobody will ever find it.
            return Ok(Next::Wait(0));
        }
        let logged = traces.logged(running, inode.id()).filter(|it| it.mode == Mode::All);
        if let Some((stamp, group)) = logged.and_then(|logged| logged.whole)
            && inode.stamp(running) == Some(stamp)
        {
            return Ok(Next::Group(handle, group, 0));
        }
        let collected = self.ledger.logs(&handle).and_then(|mut writer| {
            Collector::new(&self.nodes, &mut writer, inode.id().subvolume).run(whole)
        });
        Ok(match collected {
            Ok(collected) => Next::Group(handle, collected.group, collected.items),
            Err(reason) => Next::Commit(handle, reason),
        })
    }

    fn sync_group(
        &self,
        handle: Handle<'_>,
        group: LogGroup,
    ) -> std::result::Result<(), LogFailure> {
        self.ledger.sync_log(handle, group, |writer| collect::complete(&self.nodes, writer))
    }

    /// Commits a transaction that was running when its logs were given up.
    fn commit(&self, generation: u64) -> Result<()> {
        self.ledger.commit_transaction(generation).map_err(Error::from)
    }

    /// Waits until it is durable.
    fn finish(&self, inode: &Inode, next: Next<'_>, mut clock: Clock<'_>) -> Result<()> {
        clock.lap(Phase::Collect);
        let (how, items, done) = match next {
            Next::Wait(generation) => {
                (SyncHow::Unchanged, 0, self.ledger.wait_durable(generation).map_err(Error::from))
            }
            Next::Group(handle, group, items) => match self.sync_group(handle, group) {
                Ok(()) if items == 0 => (SyncHow::Unchanged, 0, Ok(())),
                Ok(()) => (SyncHow::Logged, items, Ok(())),
                Err(failure) => {
                    let how = SyncHow::Committed(failure.reason());
                    let failed = match failure {
                        LogFailure::Commit(_) => Ok(()),
                        LogFailure::Failed(error) => Err(Error::LogUnwritten(error)),
                    };
                    (how, items, self.commit(group.transaction()).and(failed))
                }
            },
            Next::Commit(handle, reason) => {
                self.ledger.require_commit(&handle, reason);
                let generation = handle.generation();
                drop(handle);
                (SyncHow::Committed(reason), 0, self.commit(generation))
            }
        };
        clock.end(inode.id(), how, items);
        done
    }
}
