//! What a crash must leave where single files and directories were made durable.
//!
//! Moments are counted in operations: each file, name and attribute has a time line. What an
//! operation was cut in is not known, so a crash may show what was until the last operation that
//! had begun. Something is *settled* at the moment of the last durable commit, or of its own last
//! durable fsync after that.
//!
//! 1. A name leads to what it led to at some moment since its directory was settled, or to nothing
//!    if it led to nothing then.
//! 2. What had changed and was fsynced has all the names that it had at some moment since, and no
//!    others; there is one moment of which this is true for all that was. Content that may have
//!    been dropped may never have changed.
//! 3. What had a name at every moment since it was settled is there.
//! 4. What an inode says of itself, its xattrs, its time and its content are of some moment since
//!    it was settled, each for itself; of content, each sector is ([`crate::history`]).
//! 5. Link counts and the sizes of directories are those of the names that there are, and no
//!    directory has two.
//! 6. Where a device failed, data may be dropped that was not settled. From then on content is
//!    what it was at moments since it had been settled, each byte for itself. If nobody was told of
//!    that before the file, or all, was made durable, nothing was dropped.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use userbtrfs::{Filesystem, Inode, Metadata};

use crate::devices::Recording;
use crate::history::check_content;
use crate::manifest::{Bytes, Kind, Mode, Time};
use crate::model::{Content, Facts, Model, Name, NodeId, ROOT_NODE};
use crate::operation::{Object, Operation, split};
use crate::walk_ours;

/// What something was, from which moments on.
#[derive(Clone, Debug)]
struct TimeLine<T>(Vec<(usize, T)>);

impl<T> Default for TimeLine<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> TimeLine<T> {
    fn note(&mut self, now: usize, value: T) {
        if self.0.last().is_none_or(|(_, last)| *last != value) {
            self.0.push((now, value));
        }
    }

    /// What it was in a span, the last first.
    fn within(&self, (from, to): Span) -> impl Iterator<Item = &T> {
        let first = self.0.partition_point(|(moment, _)| *moment <= from).saturating_sub(1);
        let end = self.0.partition_point(|(moment, _)| *moment <= to).max(first);
        self.0[first..end].iter().rev().map(|(_, value)| value)
    }

    fn changed(&self, (from, to): Span) -> bool {
        self.0.iter().any(|(moment, _)| *moment > from && *moment <= to)
    }

    fn at(&self, moment: usize) -> Option<&T> {
        let end = self.0.partition_point(|(since, _)| *since <= moment);
        end.checked_sub(1).map(|index| &self.0[index].1)
    }
}

/// The first moment and the last.
type Span = (usize, usize);

/// What an inode was.
#[derive(Clone, Debug, Default)]
struct InodeHistory {
    names: TimeLine<BTreeSet<Name>>,
    facts: TimeLine<Facts>,
    modified: TimeLine<Option<Time>>,
    xattrs: TimeLine<BTreeMap<Bytes, Bytes>>,
    contents: TimeLine<Content>,
}

/// What was made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    All,
    Node(NodeId),
    /// What it holds, and its names.
    Data(NodeId),
}

/// Of a file data may have been dropped.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// When it was settled last before that.
    settled: usize,
    /// The moment at which that was.
    since: usize,
    is_told: bool,
}

/// While an operation was done.
#[derive(Clone, Copy, Debug)]
pub struct OpWindow {
    /// How many events there were before it.
    pub before: usize,
    /// And how many after it.
    pub after: usize,
    /// The last commit after it.
    pub generation: u64,
}

/// What was done to a filesystem.
#[derive(Clone, Debug, Default)]
pub struct SyncJournal {
    /// By moments.
    moments: Vec<OpWindow>,
    durable: Vec<(usize, Durable)>,
    losses: BTreeMap<NodeId, Loss>,
    entries: BTreeMap<Name, TimeLine<Option<NodeId>>>,
    lives: BTreeMap<NodeId, InodeHistory>,
    /// By inode numbers, which may be used again.
    numbers: HashMap<u64, Vec<NodeId>>,
    numbered: BTreeSet<NodeId>,
}

impl SyncJournal {
    /// All that is there is durable.
    pub fn new(model: &Model, meanwhile: OpWindow) -> Self {
        let mut journal = Self::default();
        journal.durable.push((0, Durable::All));
        journal.end(model, meanwhile);
        journal
    }

    /// Notes an operation; the model is as it is after it.
    pub fn note(&mut self, model: &Model, operation: &Operation, meanwhile: OpWindow) {
        let now = self.moments.len();
        match operation {
            Operation::Commit | Operation::Reopen => {
                self.durable.push((now, Durable::All));
                self.losses.retain(|_, loss| loss.is_told);
            }
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

    /// Notes an operation that failed for the device's sake, and what the model would be if it had
    /// not; it may have changed the content of a file in part.
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

    /// Notes what changed nothing that is durable, or failed.
    pub fn note_nothing(&mut self, model: &Model, meanwhile: OpWindow) {
        self.end(model, meanwhile);
    }

    /// A write failed: what is not settled may be dropped, and nobody was told yet.
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

    /// Somebody was told that data was dropped: of this file, or of any.
    pub fn told(&mut self, file: Option<NodeId>) {
        let of = |id: NodeId| file.is_none_or(|file| file == id);
        self.losses.iter_mut().filter(|(id, _)| of(**id)).for_each(|(_, one)| one.is_told = true);
    }

    /// The same, as if nothing was ever fsynced: what is there where no log is found.
    #[must_use]
    pub fn without_logs(&self) -> Self {
        let mut journal = self.clone();
        journal.durable.retain(|(_, what)| *what == Durable::All);
        journal
    }

    /// When an inode was settled last.
    fn settled(&self, id: NodeId) -> usize {
        let of = |what: Durable| match what {
            Durable::All => true,
            Durable::Node(of) | Durable::Data(of) => of == id,
        };
        self.durable.iter().rfind(|(_, what)| of(*what)).map_or(0, |(moment, _)| *moment)
    }

    /// Notes an fsync or fdatasync of something that is there.
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

    fn end(&mut self, model: &Model, meanwhile: OpWindow) {
        let now = self.moments.len();
        self.moments.push(meanwhile);
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

    /// Which inode numbers what is there has.
    pub fn number(&mut self, model: &Model, mut number: impl FnMut(&[u8]) -> u64) {
        for (path, id) in model.paths() {
            if self.numbered.insert(id) {
                self.numbers.entry(number(&path)).or_default().push(id);
            }
        }
    }

    /// What is there after a crash that so many events survived is what must be.
    pub fn check(&self, recording: &Recording, completed: usize, left: &Filesystem) -> Result<()> {
        self.check_below(b"/", recording, completed, left)
    }

    /// The same, where all that was noted is below a directory, which is the root of the model.
    pub fn check_below(
        &self,
        dir: &[u8],
        recording: &Recording,
        completed: usize,
        left: &Filesystem,
    ) -> Result<()> {
        let cut = self.cut(recording, completed);
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

    /// The first moment of which the last commit was that of a moment.
    fn transaction_of(&self, moment: usize) -> usize {
        let generation = self.moments[moment].generation;
        self.moments.partition_point(|one| one.generation < generation)
    }

    fn cut(&self, recording: &Recording, completed: usize) -> Cut {
        let events = &recording.events;
        // The batch that was in flight may be there in part.
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
                    (cut.all, cut.nodes, cut.data) = (*moment, BTreeMap::new(), BTreeMap::new());
                }
                Durable::Node(id) => {
                    cut.nodes.insert(*id, *moment);
                    cut.data.insert(*id, *moment);
                }
                Durable::Data(id) => {
                    cut.data.insert(*id, *moment);
                }
            }
        }
        let dropped = self.losses.iter().filter(|(_, loss)| loss.since <= cut.last);
        cut.dropped = dropped.map(|(id, loss)| (*id, loss.settled)).collect();
        cut
    }
}

impl InodeHistory {
    /// Whether anything but its content changed after the first moment of a span.
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
        if let Some(content) = model.content_of_node(id) {
            self.contents.note(now, content.clone());
        }
    }
}

/// When what was settled, at a crash.
#[derive(Clone, Debug, Default)]
struct Cut {
    all: usize,
    nodes: BTreeMap<NodeId, usize>,
    data: BTreeMap<NodeId, usize>,
    /// Of what data may have been dropped, and the first moment of which it may be then.
    dropped: BTreeMap<NodeId, usize>,
    /// The last moment of which there may be anything.
    last: usize,
}

impl Cut {
    fn of_node(&self, id: NodeId) -> Span {
        (self.nodes.get(&id).copied().unwrap_or(self.all), self.last)
    }

    fn of_data(&self, id: NodeId) -> Span {
        (self.data.get(&id).copied().unwrap_or(self.all), self.last)
    }

    /// The same, where data may have been dropped.
    fn since_dropped(&self, id: NodeId, (first, last): Span) -> Span {
        (self.dropped.get(&id).map_or(first, |dropped| first.min(*dropped)), last)
    }
}

/// What a crash left.
struct Found<'a> {
    journal: &'a SyncJournal,
    cut: &'a Cut,
    nodes: BTreeMap<NodeId, FoundNode>,
    entries: BTreeMap<Name, NodeId>,
}

struct FoundNode {
    inode: Inode,
    metadata: Metadata,
    names: BTreeSet<Name>,
}

impl<'a> Found<'a> {
    fn new(journal: &'a SyncJournal, cut: &'a Cut, left: &Filesystem, root: &[u8]) -> Result<Self> {
        let (nodes, entries) = (BTreeMap::new(), BTreeMap::new());
        let mut found = Self { journal, cut, nodes, entries };
        let mut dirs: HashMap<Vec<u8>, NodeId> = HashMap::new();
        for entry in left.walk(root)? {
            let entry = entry.context("walking")?;
            let path = entry.path.strip_prefix(root).unwrap_or(&entry.path);
            let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
            let metadata = entry.inode.metadata()?;
            let id = found.id(metadata.id.number);
            let id = id.with_context(|| format!("{} is unknown", Bytes::from(path.clone())))?;
            ensure!(entry.kind == metadata.kind, "{id:?}: its name is of another kind");
            let name = split(&path).map(|(dir, name)| (dirs[dir], name.to_vec()));
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

    /// Who has this number, of those that may be there.
    fn id(&self, number: u64) -> Option<NodeId> {
        let candidates = self.journal.numbers.get(&number)?;
        let may_be = |id: &&NodeId| {
            let names = &self.journal.lives[*id].names;
            **id == ROOT_NODE
                || names.within((self.cut.all, self.cut.last)).any(|one| !one.is_empty())
        };
        candidates.iter().find(may_be).copied()
    }

    fn check_entries(&self) -> Result<()> {
        for (name, id) in &self.entries {
            ensure!(self.journal.entries.contains_key(name), "{name:?} never was, but is {id:?}");
        }
        for (name, line) in &self.journal.entries {
            if !self.nodes.contains_key(&name.0) {
                continue;
            }
            let (found, span) = (self.entries.get(name).copied(), self.cut.of_node(name.0));
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

    /// Whether something was fsynced, and had to be logged for that: what had not changed since a
    /// commit, or had no name, did not.
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

    /// There is one moment of which all names are that were logged.
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
        let mut was = life.modified.within(self.cut.since_dropped(id, span));
        ensure!(was.any(|one| one.is_none() || *one == modified), "modified {modified:?}");
        self.check_counts(id, node)?;
        if facts.kind == Kind::File {
            self.check_content(id, life, node)?;
        }
        Ok(())
    }

    fn check_counts(&self, id: NodeId, node: &FoundNode) -> Result<()> {
        let (links, names) = (node.metadata.nlink, node.names.len());
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

    fn check_content(&self, id: NodeId, life: &InodeHistory, node: &FoundNode) -> Result<()> {
        let span = self.cut.since_dropped(id, self.cut.of_data(id));
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
