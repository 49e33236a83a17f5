//! The images that a crash may leave, from a recording.
//!
//! 1. A prefix is the state of a device that executed everything in order and stopped: one for each
//!    number of completed writes and discards.
//! 2. A reordered state also stops somewhere, and then loses any events that were not durable. An
//!    event is durable if a completed flush covers it, or if it is a completed write with `fua`.
//! 3. A crash may happen while the last batch is in flight: no event of that batch is durable.
//! 4. A cut at a crash point happens with nothing in flight: all events before it are completed.
//! 5. A write that is not durable may be stored in part, in sectors of 4096 bytes.

use std::ops::Range;

use userbtrfs_device::CrashPoint;

use crate::random::Random;

use super::{Event, Recorded, Recording, SparseImage};

/// The unit that a device writes atomically, in bytes.
const ATOMIC: u64 = 4096;

/// Which states are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All prefixes, the empty and the whole one included.
    EveryPrefix,
    /// `count` different prefixes chosen by `seed`; the empty and the whole one come first.
    Sample {
        /// The seed of the choice.
        seed: u64,
        /// The maximum number of prefixes.
        count: usize,
    },
    /// `count` reordered states chosen by `seed`.
    Reordered {
        /// The seed of the choice.
        seed: u64,
        /// The number of states.
        count: usize,
    },
    /// The prefix at each time when a crash point was reached.
    At(CrashPoint),
    /// A reordered state at each time when a crash point was reached, chosen by `seed`.
    ReorderedAt {
        /// The point.
        point: CrashPoint,
        /// The seed of the choice.
        seed: u64,
    },
}

/// The state that a crash left.
#[derive(Clone, Debug)]
pub struct State {
    /// The number of completed events.
    pub completed: usize,
    /// The number of those that were lost, in whole or in part.
    pub lost: usize,
    /// The bytes.
    pub image: SparseImage,
}

/// Returns the states of a choice; prefixes are ascending.
pub fn states(recording: &Recording, choice: Choice) -> Box<dyn Iterator<Item = State> + '_> {
    match choice {
        Choice::EveryPrefix => Box::new(prefixes(recording, ends(recording))),
        Choice::Sample { seed, count } => {
            Box::new(prefixes(recording, sample(ends(recording), seed, count)))
        }
        Choice::Reordered { seed, count } => {
            let mut random = Random::new(seed);
            Box::new((0..count).map(move |_| reordered(recording, &mut random)))
        }
        Choice::At(point) => Box::new(prefixes(recording, ends_at(recording, point))),
        Choice::ReorderedAt { point, seed } => {
            let mut random = Random::new(seed);
            let ends = ends_at(recording, point).into_iter();
            Box::new(ends.map(move |end| lose_some(recording, end, end..end, &mut random)))
        }
    }
}

/// Returns the number of events in each prefix, ascending.
fn ends(recording: &Recording) -> Vec<usize> {
    let events = recording.events.iter().enumerate();
    let changes = events.filter(|(_, recorded)| !matches!(recorded.event, Event::Flush { .. }));
    [0].into_iter().chain(changes.map(|(index, _)| index + 1)).collect()
}

/// Returns the number of events before each time when a point was reached.
fn ends_at(recording: &Recording, point: CrashPoint) -> Vec<usize> {
    let reached = recording.reached.iter().filter(|(reached, _)| *reached == point);
    reached.map(|(_, end)| *end).collect()
}

fn sample(mut ends: Vec<usize>, seed: u64, count: usize) -> Vec<usize> {
    let last = ends.len() - 1;
    if last > 0 {
        ends.swap(1, last);
        Random::new(seed).shuffle(&mut ends[2..]);
    }
    ends.truncate(count);
    ends.sort_unstable();
    ends
}

fn prefixes(recording: &Recording, ends: Vec<usize>) -> impl Iterator<Item = State> + '_ {
    let mut image = recording.base.clone();
    let mut done = 0;
    ends.into_iter().map(move |end| {
        recording.events[done..end].iter().for_each(|recorded| recorded.event.apply(&mut image));
        done = end;
        State { completed: end, lost: 0, image: image.clone() }
    })
}

fn reordered(recording: &Recording, random: &mut Random) -> State {
    let events = &recording.events;
    let last = batch_around(events, random.index(events.len() + 1));
    let completed = if random.one_in(2) { last.start } else { last.end };
    lose_some(recording, completed, last, random)
}

/// Returns a state that lost some of the events that are not durable: `completed` events are
/// completed, and those of `last` may be in flight.
fn lose_some(
    recording: &Recording,
    completed: usize,
    last: Range<usize>,
    random: &mut Random,
) -> State {
    let events = &recording.events;
    let flushes = events[..completed].iter().map(|recorded| match recorded.event {
        Event::Flush { covers } => covers,
        _ => 0,
    });
    let covered = flushes.max().unwrap_or(0);
    let mut state = State { completed, lost: 0, image: recording.base.clone() };
    for (index, recorded) in events[..last.end].iter().enumerate() {
        let written_through = matches!(recorded.event, Event::Write { fua: true, .. });
        if index < covered || written_through && index < completed {
            recorded.event.apply(&mut state.image);
        } else if !maybe(&recorded.event, &mut state.image, random) && index < completed {
            state.lost += 1;
        }
    }
    state
}

/// Returns the range of events in the batch of the event before `end`.
fn batch_around(events: &[Recorded], end: usize) -> Range<usize> {
    let Some(last) = end.checked_sub(1).map(|index| events[index].batch) else { return 0..0 };
    let differs = |recorded: &Recorded| recorded.batch != last;
    let start = events[..end].iter().rposition(differs).map_or(0, |index| index + 1);
    let after = events[end..].iter().position(differs).unwrap_or(events.len() - end);
    start..end + after
}

/// Applies an event that is not durable wholly, partly or not at all; returns whether wholly.
fn maybe(event: &Event, image: &mut SparseImage, random: &mut Random) -> bool {
    match event {
        Event::Flush { .. } => return true,
        Event::Write { offset, bytes, .. } if random.one_in(3) => {
            return tear(*offset, bytes, image, random);
        }
        Event::Write { .. } | Event::Discard { .. } => {}
    }
    let is_done = random.one_in(2);
    if is_done {
        event.apply(image);
    }
    is_done
}

/// Writes a random subset of the sectors; returns whether it was all of them.
fn tear(offset: u64, bytes: &[u8], image: &mut SparseImage, random: &mut Random) -> bool {
    let mut at = offset;
    let mut rest = bytes;
    let mut is_whole = true;
    while !rest.is_empty() {
        let to_sector_end = usize::try_from(ATOMIC - at % ATOMIC).expect("at most a sector");
        let (sector, later) = rest.split_at(rest.len().min(to_sector_end));
        if random.one_in(2) {
            image.write(at, sector);
        } else {
            is_whole = false;
        }
        at += sector.len() as u64;
        rest = later;
    }
    is_whole
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use userbtrfs_device::{Buffer, Device, Request};

    use super::*;
    use crate::devices::RecordingDevice;

    fn write(offset: u64, bytes: &[u8], fua: bool) -> Request {
        Request::Write { offset, buffer: Buffer::from(bytes).into(), fua }
    }

    /// Records these batches on a device that holds four dots.
    fn record(batches: Vec<Vec<Request>>) -> Recording {
        let device = RecordingDevice::on(&SparseImage::from_bytes(b"...."));
        for batch in batches {
            assert!(device.submit(batch).wait().iter().all(|end| end.result.is_ok()));
        }
        device.take()
    }

    /// Returns the number of completed events and the bytes of each state.
    fn texts(recording: &Recording, choice: Choice) -> Vec<(usize, String)> {
        let text = |state: State| (state.completed, text(&state.image));
        states(recording, choice).map(text).collect()
    }

    fn text(image: &SparseImage) -> String {
        String::from_utf8(image.to_bytes()).unwrap()
    }

    fn reordered_set(recording: &Recording) -> BTreeSet<(usize, String)> {
        texts(recording, Choice::Reordered { seed: 1, count: 1000 }).into_iter().collect()
    }

    fn set<const N: usize>(list: [(usize, &str); N]) -> BTreeSet<(usize, String)> {
        list.into_iter().map(|(completed, text)| (completed, text.to_owned())).collect()
    }

    fn three_writes() -> Recording {
        let a = write(0, b"a", false);
        let b = write(1, b"b", false);
        record(vec![vec![a, b], vec![Request::Flush], vec![write(0, b"c", false)]])
    }

    #[test]
    fn prefixes_follow_the_order_of_completion() {
        let recording = three_writes();
        let all = texts(&recording, Choice::EveryPrefix);
        let expected = [(0, "...."), (1, "a..."), (2, "ab.."), (4, "cb..")];
        assert_eq!(all, expected.map(|(completed, text)| (completed, text.to_owned())));
        let sample = |count| texts(&recording, Choice::Sample { seed: 5, count });
        assert_eq!(sample(9), all);
        assert_eq!(sample(2), [all[0].clone(), all[3].clone()]);
        let three = sample(3);
        assert!(three.len() == 3 && three.is_sorted() && three.iter().all(|one| all.contains(one)));
        assert_eq!(texts(&record(vec![]), Choice::Sample { seed: 1, count: 3 }).len(), 1);
    }

    #[test]
    fn events_not_covered_by_a_flush_may_be_lost_in_any_order() {
        let recording = record(vec![vec![write(0, b"a", false)], vec![write(1, b"b", false)]]);
        let expected = set([
            (0, "...."),
            (0, "a..."),
            (1, "...."),
            (1, "a..."),
            (1, ".b.."),
            (1, "ab.."),
            (2, "...."),
            (2, "a..."),
            (2, ".b.."),
            (2, "ab.."),
        ]);
        assert_eq!(reordered_set(&recording), expected);
        let states = states(&recording, Choice::Reordered { seed: 2, count: 100 });
        for State { completed, lost, image } in states {
            let there = text(&image).chars().take(completed).filter(|one| *one != '.').count();
            assert_eq!(lost, completed - there);
        }
    }

    #[test]
    fn cut_at_crash_point_keeps_nothing_that_came_later() {
        let device = RecordingDevice::on(&SparseImage::from_bytes(b"...."));
        let point = CrashPoint::LogNodesWritten;
        device.run(write(0, b"a", true)).result.unwrap();
        device.run(write(1, b"b", false)).result.unwrap();
        device.reached(point);
        device.reached(CrashPoint::LogBeforeWake);
        device.run(Request::Flush).result.unwrap();
        device.run(write(2, b"c", false)).result.unwrap();
        device.reached(point);
        let recording = device.take();
        let cuts = [(2, "ab..".to_owned()), (4, "abc.".to_owned())];
        assert_eq!(texts(&recording, Choice::At(point)), cuts);
        assert!(texts(&recording, Choice::At(CrashPoint::LogSealed)).is_empty());
        let lossy = |seed| texts(&recording, Choice::ReorderedAt { point, seed });
        let found: BTreeSet<_> = (0..100).flat_map(lossy).collect();
        assert_eq!(found, set([(2, "a..."), (2, "ab.."), (4, "ab.."), (4, "abc.")]));
        assert!(device.take().reached.is_empty(), "a new recording has no points");
    }

    #[test]
    fn events_covered_by_a_completed_flush_are_kept() {
        let all = reordered_set(&three_writes());
        let covered = set([(3, "ab.."), (3, "cb.."), (4, "ab.."), (4, "cb..")]);
        let (late, early): (BTreeSet<_>, BTreeSet<_>) =
            all.into_iter().partition(|(done, _)| *done >= 3);
        assert_eq!(late, covered);
        let in_flight = set([(2, "...."), (2, "a..."), (2, ".b.."), (2, "ab..")]);
        assert_eq!(early.range((2, String::new())..).cloned().collect::<BTreeSet<_>>(), in_flight);
    }

    #[test]
    fn a_completed_fua_write_stays_and_one_in_flight_may_not() {
        let recording = record(vec![vec![write(0, b"a", true), write(1, b"b", false)]]);
        let expected =
            set([(0, "...."), (0, "a..."), (0, ".b.."), (0, "ab.."), (2, "a..."), (2, "ab..")]);
        assert_eq!(reordered_set(&recording), expected);
    }

    #[test]
    fn a_long_write_tears_at_sectors() {
        let device = RecordingDevice::on(&SparseImage::new(5 * ATOMIC));
        device.run(write(ATOMIC / 2, &[1; 3 * 4096], false)).result.unwrap();
        let recording = device.take();
        let mut seen = BTreeSet::new();
        for state in states(&recording, Choice::Reordered { seed: 3, count: 1000 }) {
            let bytes = state.image.to_bytes();
            let sectors = bytes.chunks(4096).map(|sector| sector[2047..2049].to_vec());
            seen.insert(sectors.collect::<Vec<_>>());
            assert!(bytes.chunks(2048).all(|half| half.iter().all(|byte| *byte == half[0])));
            assert!(bytes[4096..12288].chunks(4096).all(|whole| whole[0] == whole[4095]));
        }
        assert_eq!(seen.len(), 16, "each of four sectors is there or not");
    }
}
