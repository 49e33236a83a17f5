//! The report: who was how fast, the losing rows first.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::image::{Contents, Image};
use crate::sample::Spread;
use crate::target::Target;

/// What was measured, and where.
#[derive(Serialize)]
pub struct Report {
    head: Vec<String>,
    images: BTreeMap<String, Contents>,
    rows: Vec<Row>,
}

/// What is done in one turn.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Amount {
    /// Bytes of content that are read, or copied.
    pub bytes: u64,
    /// Files that are copied, names that are listed, reads that are made.
    pub items: u64,
    /// Whether the bytes are also written.
    #[serde(skip)]
    pub writes: bool,
}

/// How fast one target was.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub case: String,
    /// Who did it.
    pub target: Target,
    /// What was done in one turn.
    pub amount: Amount,
    /// Seconds of the work alone.
    pub work: Spread,
    /// Seconds until its result was durable.
    pub with_sync: Option<Spread>,
    /// Seconds with attaching, mounting, unmounting and detaching, but not the sync.
    pub with_mount: Option<Spread>,
    /// How many times as fast as a reference it was, by the medians.
    pub speed: BTreeMap<Target, f64>,
}

impl Row {
    /// The seconds that are compared.
    fn compared(&self, durable: bool) -> Spread {
        self.with_sync.filter(|_| durable).unwrap_or(self.work)
    }

    /// Ours that lose most come first, then others of ours, then the references and the disk.
    fn place(&self) -> (bool, f64) {
        let worst = self.speed.values().copied().reduce(f64::min);
        (!self.target.is_ours(), worst.unwrap_or(f64::INFINITY))
    }
}

impl Report {
    pub(crate) fn new(head: Vec<String>) -> Self {
        Self { head, images: BTreeMap::new(), rows: Vec::new() }
    }

    /// Says in the head what an image holds.
    pub(crate) fn describe(&mut self, image: &Image) {
        self.images.insert(image.name().to_owned(), image.contents());
    }

    /// Adds the rows of a case.
    pub(crate) fn add(&mut self, mut rows: Vec<Row>, durable: bool) {
        let seconds = |row: &Row| row.compared(durable).median;
        let is_reference = |row: &&Row| Target::REFERENCES.contains(&row.target);
        let references: Vec<_> =
            rows.iter().filter(is_reference).map(|row| (row.target, seconds(row))).collect();
        for row in rows.iter_mut().filter(|row| row.target.is_ours()) {
            let own = seconds(row);
            row.speed = references.iter().map(|(target, theirs)| (*target, theirs / own)).collect();
        }
        self.rows.extend(rows);
    }

    /// Puts the losing rows first.
    pub(crate) fn sort(&mut self) {
        self.rows.sort_by(|a, b| {
            let ((theirs_a, speed_a), (theirs_b, speed_b)) = (a.place(), b.place());
            theirs_a.cmp(&theirs_b).then(speed_a.total_cmp(&speed_b))
        });
    }
}

const COLUMNS: [&str; 10] = [
    "case",
    "target",
    "median s",
    "min..max",
    "with sync",
    "with mount",
    "MB/s",
    "items/s",
    "vs btrfs",
    "vs restore",
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.head {
            writeln!(f, "- {line}")?;
        }
        for (name, contents) in &self.images {
            let Contents { tally, used } = contents;
            let (bytes, used) = (float(tally.bytes) / 1e6, float(*used) / 1e6);
            writeln!(f, "- {name}: {} files, {bytes:.0} MB, on disk {used:.0} MB", tally.files)?;
        }
        writeln!(f)?;
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        table(f, &rows)
    }
}

fn cells(row: &Row) -> [String; 10] {
    let seconds = row.work.median;
    let rate = |amount: u64, unit: f64| match amount {
        0 => "-".to_owned(),
        _ => format!("{:.0}", float(amount) / unit / seconds),
    };
    let time = |spread: Option<Spread>| spread.map_or("-".into(), |s| format!("{:.3}", s.median));
    let speed = |target| row.speed.get(&target).map_or("-".into(), |speed| format!("{speed:.2}x"));
    [
        row.case.clone(),
        row.target.to_string(),
        time(Some(row.work)),
        format!("{:.3}..{:.3}", row.work.min, row.work.max),
        time(row.with_sync),
        time(row.with_mount),
        rate(row.amount.bytes, 1e6),
        rate(row.amount.items, 1.0),
        speed(Target::Btrfs),
        speed(Target::Restore),
    ]
}

fn table(f: &mut fmt::Formatter<'_>, rows: &[[String; 10]]) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..COLUMNS.len()).map(width).collect();
    let mut line = |cells: &[String]| {
        let padded: Vec<_> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(f, "| {} |", padded.join(" | "))
    };
    line(&COLUMNS.map(str::to_owned))?;
    line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>())?;
    rows.iter().try_for_each(|row| line(row))
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
            amount: Amount { bytes: 2_000_000, items: 10, writes: true },
            work: spread(seconds),
            with_sync: Some(spread(synced)),
            with_mount: None,
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
    fn what_loses_comes_first() {
        let mut report = Report::new(vec![]);
        report.add(rows("won", 1.0), false);
        report.add(rows("lost", 4.0), false);
        report.sort();
        let (lib, btrfs) = (Target::Lib, Target::Btrfs);
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
    fn the_text_is_a_markdown_table() {
        let mut report = Report::new(vec!["head".to_owned()]);
        report.add(rows("case", 1.0), false);
        let text = report.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "- head");
        assert_eq!(lines.len(), 6);
        let cells: Vec<_> = lines[4].split('|').map(str::trim).collect();
        let expected =
            ["case", "lib", "1.000", "1.000..1.000", "8.000", "-", "2", "10", "2.00x", "-"];
        assert_eq!(cells[1..11], expected);
    }
}
