//! The report: the speed of each target, with the losing rows first.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::image::{Contents, Image};
use crate::sample::Spread;
use crate::target::Target;

/// The results, and the description of the machine.
#[derive(Serialize)]
pub struct Report {
    head: Vec<String>,
    images: BTreeMap<String, Contents>,
    rows: Vec<Row>,
}

/// The amount of work of one turn.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Amount {
    /// The number of bytes of content that are read or copied.
    pub bytes: u64,
    /// The number of files copied, names listed or reads made.
    pub items: u64,
    /// The bytes are also written.
    #[serde(skip)]
    pub writes: bool,
}

/// The result of one target.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the case.
    pub case: String,
    /// The target.
    pub target: Target,
    /// The name shared by cases that differ only in the amount of work.
    #[serde(skip)]
    pub series: Option<String>,
    /// The amount of work of one turn.
    pub amount: Amount,
    /// The seconds of the work alone.
    pub work: Spread,
    /// The seconds until the result was durable.
    pub with_sync: Option<Spread>,
    /// The seconds with attaching, mounting, unmounting and detaching, without the sync.
    pub with_mount: Option<Spread>,
    /// The peak memory of the process in bytes, if measured.
    pub peak: Option<u64>,
    /// The maximum number of bytes that reached the device in one turn, if measured.
    pub written: Option<u64>,
    /// The maximum number of bytes that the resulting filesystem uses, if counted.
    pub stored: Option<u64>,
    /// The number of FUSE requests of each kind in one turn, if counted.
    pub requests: BTreeMap<String, u64>,
    /// The cost of one item, relative to the row of the series with the fewest items.
    pub growth: Option<f64>,
    /// The speed relative to each reference, by the medians.
    pub speed: BTreeMap<Target, f64>,
}

impl Row {
    /// Returns the seconds for one item, by the median of the work.
    fn cost(&self) -> Option<f64> {
        (self.amount.items > 0).then(|| self.work.median / float(self.amount.items))
    }

    /// Returns the seconds to compare.
    fn compared(&self, durable: bool) -> Spread {
        self.with_sync.filter(|_| durable).unwrap_or(self.work)
    }

    /// Returns the sort key: our targets, the slowest first, then the references and the disk.
    fn place(&self) -> (bool, f64) {
        let worst = self.speed.values().copied().reduce(f64::min);
        (!self.target.is_ours(), worst.unwrap_or(f64::INFINITY))
    }
}

impl Report {
    pub(crate) fn new(head: Vec<String>) -> Self {
        Self { head, images: BTreeMap::new(), rows: Vec::new() }
    }

    /// Adds a line to the head: a target that cannot run, with the reason.
    pub(crate) fn note(&mut self, line: String) {
        self.head.push(line);
    }

    /// Adds the contents of an image to the head.
    pub(crate) fn describe(&mut self, image: &Image) {
        self.images.insert(image.name().to_owned(), image.contents());
    }

    /// Adds all rows of some cases. The case of a series with the fewest items must be added first.
    pub(crate) fn add(&mut self, mut rows: Vec<Row>, durable: bool) {
        let seconds = |row: &Row| row.compared(durable).median;
        let is_reference = |row: &&Row| Target::REFERENCES.contains(&row.target);
        let case = |row: &Row| (row.case.clone(), row.target, seconds(row));
        let references: Vec<_> = rows.iter().filter(is_reference).map(case).collect();
        for row in &mut rows {
            let own = seconds(row);
            let of_case = references.iter().filter(|(case, ..)| *case == row.case);
            if row.target.is_ours() {
                row.speed = of_case.map(|(_, target, theirs)| (*target, theirs / own)).collect();
            }
            row.growth = self.growth(row);
        }
        self.rows.extend(rows);
    }

    /// Returns the cost of one item relative to the first row of the series.
    fn growth(&self, row: &Row) -> Option<f64> {
        let series = row.series.as_ref()?;
        let is_same =
            |other: &&Row| other.series.as_ref() == Some(series) && other.target == row.target;
        let first = self.rows.iter().find(is_same)?;
        Some(row.cost()? / first.cost()?)
    }

    /// Sorts the losing rows first.
    pub(crate) fn sort(&mut self) {
        self.rows.sort_by(|a, b| {
            let (theirs_a, speed_a) = a.place();
            let (theirs_b, speed_b) = b.place();
            theirs_a.cmp(&theirs_b).then(speed_a.total_cmp(&speed_b))
        });
    }
}

/// The columns of the table; empty ones are left out.
const COLUMNS: [&str; 21] = [
    "case",
    "target",
    "median s",
    "min..max",
    "with sync",
    "with mount",
    "MB/s",
    "items/s",
    "us each",
    "growth",
    "vs btrfs",
    "vs restore",
    "vs rootdir",
    "vs fuse2fs",
    "vs nothing",
    "vs floor",
    "peak MiB",
    "KiB written each",
    "MB on disk",
    "ratio",
    "requests",
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.head {
            writeln!(f, "- {line}")?;
        }
        for (name, contents) in &self.images {
            let Contents { tally, used } = contents;
            let bytes = float(tally.bytes) / 1e6;
            let used = float(*used) / 1e6;
            writeln!(f, "- {name}: {} files, {bytes:.0} MB, on disk {used:.0} MB", tally.files)?;
        }
        writeln!(f)?;
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        table(f, &rows)
    }
}

/// The number of kinds of requests that are shown.
const KINDS_SHOWN: usize = 5;

/// The text of an empty cell.
const NOTHING: &str = "-";

fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let seconds = row.work.median;
    let rate = |amount: u64, unit: f64| match amount {
        0 => NOTHING.to_owned(),
        _ => format!("{:.0}", float(amount) / unit / seconds),
    };
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
    let time = |spread: Option<Spread>| or_nothing(spread.map(|s| format!("{:.3}", s.median)));
    let times = |times: Option<f64>| or_nothing(times.map(|times| format!("{times:.2}x")));
    let speed = |target| times(row.speed.get(&target).copied());
    [
        row.case.clone(),
        row.target.to_string(),
        time(Some(row.work)),
        format!("{:.3}..{:.3}", row.work.min, row.work.max),
        time(row.with_sync),
        time(row.with_mount),
        rate(row.amount.bytes, 1e6),
        rate(row.amount.items, 1.0),
        or_nothing(row.cost().map(|cost| format!("{:.2}", cost * 1e6))),
        times(row.growth),
        speed(Target::Btrfs),
        speed(Target::Restore),
        speed(Target::Rootdir),
        speed(Target::Fuse2fs),
        speed(Target::Nothing),
        speed(Target::Floor),
        or_nothing(row.peak.map(|peak| format!("{}", peak >> 20))),
        or_nothing(
            row.written.map(|bytes| {
                format!("{:.1}", float(bytes) / 1024.0 / float(row.amount.items.max(1)))
            }),
        ),
        or_nothing(row.stored.map(|bytes| format!("{:.1}", float(bytes) / 1e6))),
        or_nothing(
            row.stored.map(|bytes| format!("{:.2}", float(row.amount.bytes) / float(bytes))),
        ),
        requests(&row.requests),
    ]
}

/// Returns the total number of requests, and the most frequent kinds.
fn requests(counted: &BTreeMap<String, u64>) -> String {
    if counted.is_empty() {
        return NOTHING.to_owned();
    }
    let mut kinds: Vec<_> = counted.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = kinds.iter().take(KINDS_SHOWN).map(|(kind, count)| format!("{kind} {count}"));
    let all: u64 = counted.values().sum();
    format!("{all}: {}", shown.collect::<Vec<_>>().join(", "))
}

fn table(f: &mut fmt::Formatter<'_>, rows: &[[String; COLUMNS.len()]]) -> fmt::Result {
    let is_used = |column: &usize| rows.iter().any(|row| row[*column] != NOTHING);
    let used: Vec<_> = (0..COLUMNS.len()).filter(is_used).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let mut line = |cell: &dyn Fn(usize) -> String| {
        let padded: Vec<_> =
            used.iter().map(|at| format!("{:<width$}", cell(*at), width = width(*at))).collect();
        writeln!(f, "| {} |", padded.join(" | "))
    };
    line(&|column| COLUMNS[column].to_owned())?;
    line(&|column| "-".repeat(width(column)))?;
    rows.iter().try_for_each(|row| line(&|column| row[column].clone()))
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn float(amount: u64) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, target: Target, seconds: f64, synced: f64) -> Row {
        let spread = |seconds| Spread { median: seconds, min: seconds, max: seconds };
        Row {
            case: case.to_owned(),
            target,
            series: None,
            amount: Amount { bytes: 2_000_000, items: 10, writes: true },
            work: spread(seconds),
            with_sync: Some(spread(synced)),
            with_mount: None,
            peak: None,
            written: None,
            stored: None,
            requests: BTreeMap::new(),
            growth: None,
            speed: BTreeMap::new(),
        }
    }

    fn rows(case: &str, lib: f64) -> Vec<Row> {
        vec![row(case, Target::Lib, lib, 8.0), row(case, Target::Btrfs, 2.0, 2.0)]
    }

    fn order(report: &Report) -> Vec<(&str, Target)> {
        report.rows.iter().map(|row| (row.case.as_str(), row.target)).collect()
    }

    #[test]
    fn losing_rows_come_first() {
        let mut report = Report::new(vec![]);
        report.add(rows("won", 1.0), false);
        report.add(rows("lost", 4.0), false);
        report.sort();
        let lib = Target::Lib;
        let btrfs = Target::Btrfs;
        assert_eq!(order(&report), [("lost", lib), ("won", lib), ("won", btrfs), ("lost", btrfs)]);
        assert_eq!(report.rows[0].speed, BTreeMap::from([(btrfs, 0.5)]));
        assert_eq!(report.rows[1].speed, BTreeMap::from([(btrfs, 2.0)]));
        assert_eq!(report.rows[2].speed, BTreeMap::new());
    }

    #[test]
    fn durable_copies_are_compared_when_asked_for() {
        let mut report = Report::new(vec![]);
        report.add(rows("case", 1.0), true);
        assert_eq!(report.rows[0].speed, BTreeMap::from([(Target::Btrfs, 0.25)]));
    }

    #[test]
    fn only_rows_of_one_case_are_compared() {
        let mut report = Report::new(vec![]);
        let both = [rows("one", 1.0), vec![row("other", Target::Lib, 1.0, 1.0)]].concat();
        report.add(both, false);
        assert_eq!(report.rows[0].speed, BTreeMap::from([(Target::Btrfs, 2.0)]));
        assert_eq!(report.rows[2].speed, BTreeMap::new());
    }

    #[test]
    fn the_cost_of_one_item_is_compared_with_the_first_of_a_series() {
        let mut report = Report::new(vec![]);
        for (items, seconds) in [(8, 1.0), (64, 12.0), (512, 80.0)] {
            let mut row = row(&items.to_string(), Target::Lib, seconds, seconds);
            row.series = Some("series".to_owned());
            row.amount.items = items;
            report.add(vec![row], false);
        }
        let growths: Vec<_> = report.rows.iter().map(|row| row.growth).collect();
        assert_eq!(growths, [None, Some(1.5), Some(1.25)]);
    }

    #[test]
    fn most_frequent_kinds_of_requests_are_shown() {
        let counted = (1..=7).map(|n| (format!("K{n}"), n * n)).collect();
        assert_eq!(requests(&counted), "140: K7 49, K6 36, K5 25, K4 16, K3 9");
        assert_eq!(requests(&BTreeMap::new()), NOTHING);
    }

    #[test]
    fn the_text_is_a_markdown_table() {
        let mut report = Report::new(vec!["head".to_owned()]);
        report.add(rows("case", 1.0), false);
        let text = report.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "- head");
        assert_eq!(lines.len(), 6);
        let cells: Vec<_> = lines[4].split('|').map(str::trim).collect();
        let expected =
            ["case", "lib", "1.000", "1.000..1.000", "8.000", "2", "10", "100000.00", "2.00x", ""];
        assert_eq!(cells[1..], expected);
    }
}
