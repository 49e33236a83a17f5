//! The state that a crash must leave if single files and directories were made durable.
//!
//! A moment is the index of an operation; each file, name and attribute has a time line of its
//! values. A crash may interrupt an operation at any point, so it may leave values of any moment up
//! to the last operation that had begun. An object is *settled* at the moment of the last durable
//! commit, or of its own last durable fsync after that.
//!
//! 1. A name resolves to the inode to which it resolved at some moment since its directory was
//!    settled. It is missing only if it was missing at one of those moments.
//! 2. An inode that had changed and was fsynced has exactly the names that it had at some moment
//!    since; one moment exists at which this is true for all such inodes. A change of content that
//!    may have been dropped does not count as a change.
//! 3. An inode that had a name at every moment since it was settled exists.
//! 4. The attributes of an inode, its xattrs, its mtime and its content are each from some moment
//!    since it was settled, independently of each other; so is each sector of the content
//!    ([`crate::history`]).
//!    A subvolume is read-only as at some moment since the last durable commit.
//! 5. Link counts and directory sizes match the names that exist, and no directory has two names.
//! 6. The filesystem has a size of some moment since the last durable commit. A resize is a commit,
//!    which writes the content of files only if it shrinks the filesystem.
//! 7. If a device failed, data that was not settled may be dropped. From then on each byte of the
//!    content, independently, is from some moment since the file had been settled before that. If
//!    no error was reported before the file, or everything, was made durable, nothing was dropped.

mod sizes;
#[cfg(test)]
mod tests;
mod time_line;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use userbtrfs::{Filesystem, Inode, InodeId, Metadata};

use crate::devices::Recording;
use crate::history::check_content;
use crate::manifest::{Bytes, Kind, Mode, Time};
use crate::model::{Content, Facts, Model, Name, NodeId, ROOT_NODE};
use crate::operation::{Object, Operation, split};
use crate::walk_ours;

use self::time_line::{Span, TimeLine};

/// The states of an inode over time.
#[derive(Clone, Debug, Default)]
struct InodeHistory {
    names: TimeLine<BTreeSet<Name>>,
    facts: TimeLine<Facts>,
    modified: TimeLine<Option<Time>>,
    xattrs: TimeLine<BTreeMap<Bytes, Bytes>>,
    contents: TimeLine<Content>,
    /// Whether the subvolume with this root directory is read-only.
    read_only: TimeLine<bool>,
}

/// The scope of a commit or sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    All,
    /// All except the content of files, as of a commit that does not write that.
    Metadata,
    Node(NodeId),
    /// Its content and its names, as of fdatasync.
    Data(NodeId),
}

/// A possible loss of data of a file.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// The moment at which the file was last settled before the loss.
    settled: usize,
    /// The moment of the loss.
    since: usize,
    is_told: bool,
}

/// The device events and the generation around one operation.
#[derive(Clone, Copy, Debug)]
pub struct OpWindow {
    /// The number of events before the operation.
    pub before: usize,
    /// The number of events after it.
    pub after: usize,
    /// The generation of the last commit after it.
    pub generation: u64,
}

/// The history of operations, commits and syncs of a filesystem.
#[derive(Clone, Debug, Default)]
pub struct SyncJournal {
    /// One for each moment.
    moments: Vec<OpWindow>,
    durable: Vec<(usize, Durable)>,
    losses: BTreeMap<NodeId, Loss>,
    entries: BTreeMap<Name, TimeLine<Option<NodeId>>>,
    lives: BTreeMap<NodeId, InodeHistory>,
    /// By inode number, which may be reused.
    numbers: HashMap<InodeId, Vec<NodeId>>,
    numbered: BTreeSet<NodeId>,
    sizes: TimeLine<Option<u64>>,
}

impl SyncJournal {
    /// Creates a journal that starts with everything durable.
    pub fn new(model: &Model, meanwhile: OpWindow) -> Self {
        let mut journal = Self::default();
        journal.durable.push((0, Durable::All));
        journal.end(model, meanwhile);
        journal
    }

    /// Records an operation; `model` is the state after it.
    pub fn note(&mut self, model: &Model, operation: &Operation, meanwhile: OpWindow) {
        let now = self.moments.len();
        match operation {
            Operation::Commit | Operation::Reopen => {
                self.durable.push((now, Durable::All));
                self.losses.retain(|_, loss| loss.is_told);
            }
            Operation::Resize { bytes } => self.note_resize(model, *bytes),
            Operation::Replace { object, .. } => {
                let is_file = |id: &NodeId| model.content_of_node(*id).is_some();
                if let Some(id) = model.node(object).filter(is_file) {
                    self.lives.entry(id).or_default().contents.note(now, Content::default());
                }
            }
            _ => {}
        }
        self.end(model, meanwhile);
    }

    /// Records an operation that failed because of the device; `tried` is the model as if it had
    /// succeeded. It may have changed part of the content of a file.
    pub fn note_failed(
        &mut self,
        model: &Model,
        tried: &Model,
        operation: &Operation,
        meanwhile: OpWindow,
    ) {
        let now = self.moments.len();
        let id = operation.object().and_then(|object| tried.node(&object));
        if let Some((id, content)) = id.and_then(|id| Some((id, tried.content_of_node(id)?))) {
            let loss = Loss { settled: self.settled(id), since: now, is_told: true };
            self.losses.entry(id).or_insert(loss).is_told = true;
            let contents = &mut self.lives.entry(id).or_default().contents;
            if matches!(operation, Operation::Replace { .. }) {
                contents.note(now, Content::default());
            }
            contents.note(now, content.clone());
        }
        self.end(model, meanwhile);
    }

    /// Records an operation that changed nothing durable, or failed.
    pub fn note_nothing(&mut self, model: &Model, meanwhile: OpWindow) {
        self.end(model, meanwhile);
    }

    /// Records a write error: unsettled data may be dropped; the error is not reported yet.
    pub fn suspect(&mut self) {
        let since = self.moments.len() - 1;
        for (id, life) in &self.lives {
            let settled = self.settled(*id);
            if life.contents.changed((settled, since)) {
                let loss = Loss { settled, since, is_told: false };
                self.losses.entry(*id).or_insert(loss);
            }
        }
    }

    /// Records that an error was reported: for this file, or for all.
    pub fn told(&mut self, file: Option<NodeId>) {
        let of = |id: NodeId| file.is_none_or(|file| file == id);
        self.losses.iter_mut().filter(|(id, _)| of(**id)).for_each(|(_, one)| one.is_told = true);
    }

    /// Returns the journal without its syncs: what must be found if the log is ignored.
    #[must_use]
    pub fn without_logs(&self) -> Self {
        let mut journal = self.clone();
        journal.durable.retain(|(_, what)| matches!(what, Durable::All | Durable::Metadata));
        journal
    }

    /// Returns the moment at which an inode was last settled.
    fn settled(&self, id: NodeId) -> usize {
        let of = |what: Durable| match what {
            Durable::All => true,
            Durable::Metadata => false,
            Durable::Node(of) | Durable::Data(of) => of == id,
        };
        self.durable.iter().rfind(|(_, what)| of(*what)).map_or(0, |(moment, _)| *moment)
    }

    /// Records an fsync or fdatasync of an existing object.
    pub fn note_sync(
        &mut self,
        model: &Model,
        object: &Object,
        data_only: bool,
        meanwhile: OpWindow,
    ) {
        let id = model.node(object).expect("it was synced");
        let what = if data_only { Durable::Data(id) } else { Durable::Node(id) };
        self.durable.push((self.moments.len(), what));
        self.losses.retain(|of, loss| *of != id || loss.is_told);
        self.end(model, meanwhile);
    }

    /// Records a sync that committed the transaction instead of writing a log.
    pub fn note_sync_by_commit(
        &mut self,
        model: &Model,
        object: &Object,
        data_only: bool,
        meanwhile: OpWindow,
    ) {
        self.durable.push((self.moments.len(), Durable::Metadata));
        self.note_sync(model, object, data_only, meanwhile);
    }

    fn end(&mut self, model: &Model, meanwhile: OpWindow) {
        let now = self.moments.len();
        self.moments.push(meanwhile);
        self.sizes.note(now, model.size());
        let mut names = model.names();
        let mut all: BTreeMap<NodeId, BTreeSet<Name>> = BTreeMap::new();
        for (name, id) in &names {
            all.entry(*id).or_default().insert(name.clone());
        }
        for (name, line) in &mut self.entries {
            line.note(now, names.remove(name));
        }
        for (name, id) in names {
            let line = self.entries.entry(name).or_default();
            line.note(0, None);
            line.note(now, Some(id));
        }
        for (id, life) in &mut self.lives {
            life.names.note(now, all.remove(id).unwrap_or_default());
        }
        for (id, named) in all {
            let life = self.lives.entry(id).or_default();
            life.names.note(0, BTreeSet::new());
            life.names.note(now, named);
        }
        for id in model.nodes() {
            self.lives.entry(id).or_default().be(now, model, id);
        }
    }

    /// Records the inode numbers of all inodes that have a path.
    pub fn number(&mut self, model: &Model, mut number: impl FnMut(&[u8]) -> InodeId) {
        for (path, id) in model.paths() {
            if self.numbered.insert(id) {
                self.numbers.entry(number(&path)).or_default().push(id);
            }
        }
    }

    /// Checks the filesystem that a crash left after `completed` events.
    pub fn check(&self, recording: &Recording, completed: usize, left: &Filesystem) -> Result<()> {
        self.check_below(b"/", recording, completed, left)
    }

    /// Like [`check`](Self::check), with the root of the model at `dir`.
    pub fn check_below(
        &self,
        dir: &[u8],
        recording: &Recording,
        completed: usize,
        left: &Filesystem,
    ) -> Result<()> {
        let cut = self.cut(recording, completed);
        self.check_size(&cut, left.superblock().total_bytes)?;
        let found = Found::new(self, &cut, left, dir)?;
        found.check_entries()?;
        for (id, life) in &self.lives {
            let check = || {
                found.check_names(*id, life)?;
                found.nodes.get(id).map_or(Ok(()), |node| found.check_node(*id, life, node))
            };
            check().with_context(|| found.describe(*id))?;
        }
        found.check_moment()
    }

    /// Returns the first moment of the transaction of `moment`: the first with its generation.
    fn transaction_of(&self, moment: usize) -> usize {
        let generation = self.moments[moment].generation;
        self.moments.partition_point(|one| one.generation < generation)
    }

    fn cut(&self, recording: &Recording, completed: usize) -> Cut {
        let events = &recording.events;
        // Part of the batch in flight may be stored.
        let batch = events.get(completed).map(|recorded| recorded.batch);
        let rest = events[completed..].iter().take_while(|one| Some(one.batch) == batch);
        let end = completed + rest.count();
        let acknowledged = self.moments.iter().rposition(|one| one.after <= completed);
        let begun = self.moments.iter().rposition(|one| one.before < end);
        let acknowledged = acknowledged.unwrap_or(0);
        let settled = self.durable.iter().filter(|(moment, _)| *moment <= acknowledged);
        let mut cut = Cut { last: begun.unwrap_or(0).max(acknowledged), ..Cut::default() };
        for (moment, what) in settled {
            match what {
                Durable::All => {
                    cut.all = *moment;
                    cut.all_contents = *moment;
                    cut.nodes = BTreeMap::new();
                    cut.data = BTreeMap::new();
                    cut.contents = BTreeMap::new();
                }
                Durable::Metadata => {
                    cut.all = *moment;
                    cut.nodes = BTreeMap::new();
                    cut.data = BTreeMap::new();
                }
                Durable::Node(id) => {
                    cut.nodes.insert(*id, *moment);
                    cut.data.insert(*id, *moment);
                    cut.contents.insert(*id, *moment);
                }
                Durable::Data(id) => {
                    cut.data.insert(*id, *moment);
                    cut.contents.insert(*id, *moment);
                }
            }
        }
        let dropped = self.losses.iter().filter(|(_, loss)| loss.since <= cut.last);
        cut.dropped = dropped.map(|(id, loss)| (*id, loss.settled)).collect();
        cut
    }
}

impl InodeHistory {
    /// Returns whether anything except the content changed after the first moment of a span.
    fn changed_beside_content(&self, span: Span) -> bool {
        self.names.changed(span) || self.facts.changed(span) || self.xattrs.changed(span)
    }

    fn be(&mut self, now: usize, model: &Model, id: NodeId) {
        if self.names.0.is_empty() {
            self.names.note(0, BTreeSet::new());
        }
        self.facts.note(now, model.facts(id));
        self.modified.note(now, model.modified(id));
        self.xattrs.note(now, model.xattrs_of(id).clone());
        if let Some(is_read_only) = model.read_only(id) {
            self.read_only.note(now, is_read_only);
        }
        if let Some(content) = model.content_of_node(id) {
            self.contents.note(now, content.clone());
        }
    }
}

/// The moments at which everything was settled when the crash happened.
#[derive(Clone, Debug, Default)]
struct Cut {
    all: usize,
    all_contents: usize,
    nodes: BTreeMap<NodeId, usize>,
    data: BTreeMap<NodeId, usize>,
    contents: BTreeMap<NodeId, usize>,
    /// The files that may have lost data, with the first moment that their content may be from.
    dropped: BTreeMap<NodeId, usize>,
    /// The last moment whose changes may be present.
    last: usize,
}

impl Cut {
    fn of_node(&self, id: NodeId) -> Span {
        (self.nodes.get(&id).copied().unwrap_or(self.all), self.last)
    }

    fn of_data(&self, id: NodeId) -> Span {
        (self.data.get(&id).copied().unwrap_or(self.all), self.last)
    }

    fn of_content(&self, id: NodeId) -> Span {
        (self.contents.get(&id).copied().unwrap_or(self.all_contents), self.last)
    }

    /// Extends a span of content to the past if data may have been dropped.
    fn since_dropped(&self, id: NodeId, (first, last): Span) -> Span {
        (self.dropped.get(&id).map_or(first, |dropped| first.min(*dropped)), last)
    }
}

/// The filesystem that a crash left.
struct Found<'a> {
    journal: &'a SyncJournal,
    cut: &'a Cut,
    left: &'a Filesystem,
    nodes: BTreeMap<NodeId, FoundNode>,
    entries: BTreeMap<Name, NodeId>,
}

struct FoundNode {
    inode: Inode,
    metadata: Metadata,
    names: BTreeSet<Name>,
}

impl<'a> Found<'a> {
    fn new(
        journal: &'a SyncJournal,
        cut: &'a Cut,
        left: &'a Filesystem,
        root: &[u8],
    ) -> Result<Self> {
        let nodes = BTreeMap::new();
        let entries = BTreeMap::new();
        let mut found = Self { journal, cut, left, nodes, entries };
        let mut dirs: HashMap<Vec<u8>, NodeId> = HashMap::new();
        for entry in left.walk(root)? {
            let entry = entry.context("walking")?;
            let path = entry.path.strip_prefix(root).unwrap_or(&entry.path);
            let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
            let metadata = entry.inode.metadata()?;
            let name = split(&path).map(|(dir, name)| (dirs[dir], name.to_vec()));
            let id = found.id(metadata.id, name.as_ref());
            let id = id.with_context(|| format!("{} is unknown", Bytes::from(path.clone())))?;
            ensure!(entry.kind == metadata.kind, "{id:?}: its name is of another kind");
            let kind = walk_ours::kind(metadata.kind);
            let node = FoundNode { inode: entry.inode, metadata, names: BTreeSet::new() };
            let node = found.nodes.entry(id).or_insert(node);
            if let Some(name) = name {
                node.names.insert(name.clone());
                found.entries.insert(name, id);
            }
            if kind == Kind::Dir {
                dirs.insert(path, id);
            }
        }
        Ok(found)
    }

    /// Returns the inode with this number, among those that may exist; if there are several, as of
    /// the directories in place of subvolumes, the one that had the name.
    fn id(&self, number: InodeId, name: Option<&Name>) -> Option<NodeId> {
        let candidates = self.journal.numbers.get(&number)?;
        let span = (self.cut.all, self.cut.last);
        let names = |id: &NodeId| self.journal.lives[id].names.within(span);
        let had_name = |id: &&NodeId| names(id).any(|one| name.is_some_and(|it| one.contains(it)));
        let may_be = |id: &&NodeId| **id == ROOT_NODE || names(id).any(|one| !one.is_empty());
        candidates.iter().find(had_name).or_else(|| candidates.iter().find(may_be)).copied()
    }

    fn check_entries(&self) -> Result<()> {
        for (name, id) in &self.entries {
            ensure!(self.journal.entries.contains_key(name), "{name:?} never was, but is {id:?}");
        }
        for (name, line) in &self.journal.entries {
            if !self.nodes.contains_key(&name.0) {
                continue;
            }
            let found = self.entries.get(name).copied();
            let span = self.cut.of_node(name.0);
            let was: Vec<_> = line.within(span).collect();
            ensure!(was.contains(&&found), "{name:?} is {found:?}, in {span:?} {was:?}");
        }
        Ok(())
    }

    fn check_names(&self, id: NodeId, life: &InodeHistory) -> Result<()> {
        let none = BTreeSet::new();
        let names = self.nodes.get(&id).map_or(&none, |node| &node.names);
        let span = self.cut.of_data(id);
        let mut was = life.names.within(span);
        if self.is_logged(id) {
            let was: Vec<_> = was.collect();
            ensure!(was.contains(&names), "names {names:?}, in {span:?} {was:?}");
        } else if id != ROOT_NODE {
            ensure!(!names.is_empty() || was.any(BTreeSet::is_empty), "lost");
        }
        Ok(())
    }

    /// Returns whether an inode was fsynced and the fsync had to log it: it had a name, and it had
    /// changed since the last commit.
    fn is_logged(&self, id: NodeId) -> bool {
        let Some(synced) = self.cut.data.get(&id).copied() else { return false };
        let life = &self.journal.lives[&id];
        let start = self.journal.transaction_of(self.cut.last);
        let is_named = life.names.at(synced).is_some_and(|names| !names.is_empty());
        let is_whole = !self.cut.dropped.contains_key(&id);
        let has_changed =
            |span| life.changed_beside_content(span) || is_whole && life.contents.changed(span);
        is_named && has_changed((start, synced))
    }

    /// Checks that the names of all logged inodes are from one common moment.
    fn check_moment(&self) -> Result<()> {
        let none = BTreeSet::new();
        let names = |id: &NodeId| self.nodes.get(id).map_or(&none, |node| &node.names);
        let logged = self.cut.data.keys().filter(|id| self.is_logged(**id));
        let logged: Vec<_> = logged.map(|id| (names(id), &self.journal.lives[id])).collect();
        let is_of = |moment: usize| {
            logged.iter().all(|(names, life)| life.names.at(moment).unwrap_or(&none) == *names)
        };
        let some = (self.cut.all..=self.cut.last).rev().any(is_of);
        ensure!(some, "names of several moments: {:?}", self.cut);
        Ok(())
    }

    fn check_node(&self, id: NodeId, life: &InodeHistory, node: &FoundNode) -> Result<()> {
        let span = self.cut.of_node(id);
        let facts = facts(node)?;
        let was: Vec<_> = life.facts.within(span).collect();
        ensure!(was.contains(&&facts), "{facts:?}, in {span:?} {was:?}");
        let xattrs = walk_ours::xattrs(&node.inode).context("reading xattrs")?;
        let was: Vec<_> = life.xattrs.within(span).collect();
        ensure!(was.contains(&&xattrs), "xattrs {xattrs:?}, in {span:?} {was:?}");
        let modified = Some(walk_ours::time(node.metadata.modified));
        // The time changes together with the content.
        let of_content = (span.0.min(self.cut.of_content(id).0), span.1);
        let mut was = life.modified.within(self.cut.since_dropped(id, of_content));
        ensure!(was.any(|one| one.is_none() || *one == modified), "modified {modified:?}");
        self.check_counts(id, node)?;
        self.check_read_only(life, node)?;
        if facts.kind == Kind::File {
            self.check_content(id, life, node)?;
        }
        Ok(())
    }

    fn check_counts(&self, id: NodeId, node: &FoundNode) -> Result<()> {
        let links = node.metadata.nlink;
        let names = node.names.len();
        let is_dir = node.metadata.kind == userbtrfs::FileKind::Directory;
        ensure!(usize::try_from(links)? == names.max(1), "{links} links, {names} names");
        if is_dir {
            ensure!(names <= 1, "a directory with names {:?}", node.names);
            let within =
                self.entries.range((id, Vec::new())..).take_while(|(name, _)| name.0 == id);
            let size = 2 * within.map(|((_, name), _)| name.len() as u64).sum::<u64>();
            ensure!(node.metadata.size == size, "a size of {}, not {size}", node.metadata.size);
        }
        Ok(())
    }

    /// Checks whether a subvolume is read-only: only a commit makes that durable.
    fn check_read_only(&self, life: &InodeHistory, node: &FoundNode) -> Result<()> {
        let mut was = life.read_only.within((self.cut.all, self.cut.last)).peekable();
        if was.peek().is_none() {
            return Ok(());
        }
        let subvolume = self.left.subvolume(node.metadata.id.subvolume)?;
        let is_read_only = subvolume.is_read_only();
        ensure!(was.any(|one| *one == is_read_only), "read-only: {is_read_only}");
        Ok(())
    }

    fn check_content(&self, id: NodeId, life: &InodeHistory, node: &FoundNode) -> Result<()> {
        let span = self.cut.since_dropped(id, self.cut.of_content(id));
        let by_bytes = self.cut.dropped.contains_key(&id);
        let mut contents: Vec<_> = life.contents.within(span).cloned().collect();
        if life.contents.0.first().is_none_or(|(first, _)| *first > span.0) {
            contents.push(Content::default());
        }
        check_content(&contents, &node.inode.open()?, by_bytes).with_context(|| format!("{span:?}"))
    }

    fn describe(&self, id: NodeId) -> String {
        let life = &self.journal.lives[&id];
        format!("{id:?}, {:?}", life.names.at(self.cut.last))
    }
}

fn facts(node: &FoundNode) -> Result<Facts> {
    let metadata = &node.metadata;
    let kind = walk_ours::kind(metadata.kind);
    let target = match kind {
        Kind::Symlink => Some(node.inode.read_link()?.into()),
        _ => None,
    };
    Ok(Facts {
        kind,
        mode: Mode::new(metadata.mode),
        uid: metadata.uid,
        gid: metadata.gid,
        flags: match kind {
            Kind::File | Kind::Dir => walk_ours::flags(metadata.flags),
            _ => 0,
        },
        rdev: matches!(kind, Kind::Block | Kind::Char).then_some(metadata.device),
        target,
    })
}
