//! The report: a table for each seed and device, and plots.
//!
//! 1. Each figure is the median of all runs, with minimum and maximum.
//! 2. A ratio says how many times as good the later one is; below 1 it loses. If the ranges of both
//!    overlap, the ratio is called noise.
//! 3. The library is compared with both loads on the kernel: that of the real program, and that of
//!    our loader, which is the one that the library has. The rows in which it loses most against
//!    either come first.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::case::{Case, Load, Scale};
use super::figure::Figure;
use super::published;
use super::turns::{CaseRan, Ran, Variant};
use crate::args::Seed;
use crate::load::outcome::Outcome;
use crate::plot::{self, Axis, Series};
use crate::sample::Spread;

/// The text of an unknown value.
const UNKNOWN: &str = "-";

/// The columns of a table.
const COLUMNS: [&str; 11] = [
    "load",
    "figure",
    "before",
    "now",
    "ratio",
    "seed",
    "fuse",
    "btrfs",
    "now to btrfs",
    "btrfs, loader",
    "now to loader",
];

/// The whole report.
#[derive(Serialize)]
pub(crate) struct Report {
    head: Vec<String>,
    scale: Scale,
    sections: Vec<Section>,
}

/// The results on one device.
#[derive(Serialize)]
pub(crate) struct Section {
    /// The name of the device.
    pub(crate) medium: String,
    /// The results of each load.
    pub(crate) cases: Vec<CaseRan>,
}

impl Report {
    /// Makes a report without results.
    pub(crate) fn new(head: Vec<String>, scale: Scale) -> Self {
        Self { head, scale, sections: Vec::new() }
    }

    /// Adds the results on a device.
    pub(crate) fn add(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// Writes the report into a folder; returns its text.
    pub(crate) fn write(&self, folder: &Path) -> Result<String> {
        fs::create_dir_all(folder)?;
        let plots: Vec<_> = self.sections.iter().flat_map(plots).collect();
        for plot in &plots {
            fs::write(folder.join(&plot.file), &plot.svg)?;
        }
        let text = self.text(&plots);
        fs::write(folder.join("README.md"), &text)?;
        fs::write(folder.join("figures.json"), serde_json::to_string_pretty(self)? + "\n")?;
        Ok(text)
    }

    fn text(&self, plots: &[Plot]) -> String {
        let mut text = "# Seeds: before and now\n\n".to_owned();
        for line in &self.head {
            let _ = writeln!(text, "- {line}");
        }
        let _ = writeln!(text, "- commit interval: {} s", self.scale.commit_seconds);
        text.push_str(
            "- before, now: the library in process, with the former behaviour and without; fuse, \
             btrfs: dbench, fio and fs_mark on our mount and on the kernel's; btrfs, loader: the \
             load of before and now on the kernel's mount, which shows how like the program it is; \
             now to loader: now to that\n\
             - cells: median (minimum to maximum) of all runs; seed: the published ratio\n\n",
        );
        let mut seeds: Vec<_> = self.cases().map(|it| it.case.seed).collect();
        seeds.sort();
        seeds.dedup();
        for seed in seeds {
            let _ = writeln!(text, "## {seed:?}: {}\n", published::subject(seed));
            let _ = writeln!(text, "Published on: {}.\n", published::machine(seed));
            for section in &self.sections {
                section.add_seed(&mut text, seed);
            }
        }
        text.push_str("## Plots\n\n");
        for Plot { file, title, .. } in plots {
            let _ = writeln!(text, "![{title}]({file})\n");
        }
        text
    }

    fn cases(&self) -> impl Iterator<Item = &CaseRan> {
        self.sections.iter().flat_map(|section| &section.cases)
    }
}

impl Section {
    fn add_seed(&self, text: &mut String, seed: Seed) {
        let cases: Vec<_> = self.cases.iter().filter(|it| it.case.seed == seed).collect();
        let floors = cases.iter().map(|it| format!("{} before {}", spread(it.floor), it.case));
        let floors: Vec<_> = floors.collect();
        let _ = writeln!(text, "### {}\n", self.name());
        let _ = writeln!(text, "Write of 4 KiB and flush, ms: {}.\n", floors.join(", "));
        let works: Vec<_> = cases.iter().map(|it| format!("{}: {}", it.case, it.work)).collect();
        let _ = writeln!(text, "Scale: {}.\n", works.join("; "));
        let mut rows: Vec<_> = cases.iter().flat_map(|it| rows(it)).collect();
        rows.sort_by(|a, b| a.against_kernel().total_cmp(&b.against_kernel()));
        let _ = writeln!(text, "| {} |", COLUMNS.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(COLUMNS.len()));
        for row in &rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        text.push('\n');
        for it in &cases {
            for (variant, ran) in &it.variants {
                if let Ran::Not(reason) = ran {
                    let _ = writeln!(text, "- {}, {variant:?}: not run: {reason}", it.case);
                }
            }
        }
        text.push('\n');
    }

    /// Returns the name of the device in headings.
    fn name(&self) -> String {
        match self.medium.split_once(':') {
            None => self.medium.clone(),
            Some((write, flush)) => format!("write {write} us, flush {flush} us"),
        }
    }
}

/// A figure of a load, by all variants.
struct Row {
    case: Case,
    figure: Figure,
    before: Option<Spread>,
    now: Option<Spread>,
    fuse: Option<Spread>,
    btrfs: Option<Spread>,
    loader: Option<Spread>,
}

fn rows(ran: &CaseRan) -> Vec<Row> {
    let row = |figure: &Figure| {
        let of = |variant| of_variant(ran, variant, *figure);
        Row {
            case: ran.case,
            figure: *figure,
            before: of(Variant::Before),
            now: of(Variant::Lib),
            fuse: of(Variant::Fuse),
            btrfs: of(Variant::Btrfs),
            loader: of(Variant::Loader),
        }
    };
    Figure::of(ran.case.load).iter().map(row).collect()
}

fn outcomes(ran: &CaseRan, variant: Variant) -> &[Outcome] {
    match ran.variants.get(&variant) {
        Some(Ran::Outcomes(outcomes)) => outcomes,
        _ => &[],
    }
}

fn of_variant(ran: &CaseRan, variant: Variant, figure: Figure) -> Option<Spread> {
    let figures = outcomes(ran, variant).iter().filter_map(|outcome| figure.get(outcome));
    let figures: Vec<_> = figures.collect();
    (!figures.is_empty()).then(|| Spread::of_figures(figures))
}

impl Row {
    fn cells(&self) -> [String; COLUMNS.len()] {
        let cell = |value: Option<Spread>| value.map_or(UNKNOWN.to_owned(), spread);
        let published = published::of(&self.case, self.figure);
        let published = published.map(|it| self.figure.gain(it.before, it.after));
        [
            self.case.to_string(),
            self.figure.to_string(),
            cell(self.before),
            cell(self.now),
            self.ratio(self.before, self.now),
            published.map_or(UNKNOWN.to_owned(), |ratio| format!("{ratio:.2}x")),
            cell(self.fuse),
            cell(self.btrfs),
            self.ratio(self.btrfs, self.now),
            cell(self.loader),
            self.ratio(self.loader, self.now),
        ]
    }

    /// Returns the text of a ratio, which is noise if the ranges overlap.
    fn ratio(&self, from: Option<Spread>, to: Option<Spread>) -> String {
        let (Some(from), Some(to)) = (from, to) else { return UNKNOWN.to_owned() };
        let ratio = self.figure.gain(from.median, to.median);
        let overlap = from.min <= to.max && to.min <= from.max;
        if overlap { format!("noise ({ratio:.2}x)") } else { format!("{ratio:.2}x") }
    }

    /// Returns how many times as good as the kernel the library is, by the load with which the
    /// kernel is better; infinity if unknown.
    fn against_kernel(&self) -> f64 {
        let gain = |from: Option<Spread>| Some(self.figure.gain(from?.median, self.now?.median));
        let gains = [self.btrfs, self.loader].into_iter().filter_map(gain);
        gains.fold(f64::INFINITY, f64::min)
    }
}

fn spread(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{} ({} to {})", number(median), number(min), number(max))
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// A plot of the report.
struct Plot {
    file: String,
    title: String,
    svg: String,
}

fn plots(section: &Section) -> Vec<Plot> {
    let suffix = section.medium.replace(':', "-");
    let name = section.name();
    let plot = |file: &str, title: &str, draw: &dyn Fn(&str) -> Option<String>| {
        let title = format!("{title}, {name}");
        let svg = draw(&title)?;
        Some(Plot { file: format!("{file}-{suffix}.svg"), title, svg })
    };
    let rates = |load| move |title: &str| rates(section, load, title);
    let mut plots = vec![
        plot("ratios", "Ratios of the rates", &|title| ratios(section, title)),
        plot("dbench", "dbench over clients", &rates(Load::Dbench)),
        plot("fio", "fio, fsync after each 64 KiB, over jobs", &rates(Load::Fio)),
    ];
    for it in section.cases.iter().filter(|it| it.case.load == Load::Dbench) {
        let Case { seed, clients, .. } = it.case;
        let file = format!("latency-{}-{clients}", seed.name());
        let title = format!("Latencies in process, {seed:?}, {clients} clients");
        plots.push(plot(&file, &title, &|title| latencies(it, title)));
    }
    plots.into_iter().flatten().collect()
}

/// Returns a plot of the rates of all variants over the number of clients.
fn rates(section: &Section, load: Load, title: &str) -> Option<String> {
    let line = |variant: &Variant| {
        let of_load = section.cases.iter().filter(|it| it.case.load == load);
        let point = |it: &CaseRan| {
            let rate = of_variant(it, *variant, Figure::Rate)?;
            Some((float(it.case.clients), rate.median))
        };
        let mut points: Vec<_> = of_load.filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Two seeds may have the same load.
        points.dedup_by(|a, b| a.0.total_cmp(&b.0).is_eq());
        Series { name: label(*variant).to_owned(), points }
    };
    let series: Vec<_> = Variant::ALL.iter().map(line).collect();
    if series.iter().all(|one| one.points.len() < 2) {
        return None;
    }
    let what = if load == Load::Fio { "jobs" } else { "clients" };
    let x = Axis { label: what.to_owned(), scale: plot::Scale::Logarithmic };
    let y = Axis { label: "MB/s".to_owned(), scale: plot::Scale::Linear };
    plot::lines(title, &x, &y, &series)
}

/// Returns a plot of the distribution of latencies in the run with the median rate.
fn latencies(ran: &CaseRan, title: &str) -> Option<String> {
    let mut series = Vec::new();
    for name in ["Flush", "Rename"] {
        for variant in [Variant::Before, Variant::Lib, Variant::Loader] {
            let mut runs: Vec<_> = outcomes(ran, variant).iter().collect();
            runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            let median = runs.get(runs.len() / 2);
            let Some(figures) = median.and_then(|run| run.operation(name)) else { continue };
            let points = figures.distribution.iter().map(|(ms, part)| (*ms, part * 100.0));
            let name = format!("{name}, {}", label(variant));
            series.push(Series { name, points: points.collect() });
        }
    }
    let x = Axis { label: "ms".to_owned(), scale: plot::Scale::Logarithmic };
    let y = Axis { label: "% that take no longer".to_owned(), scale: plot::Scale::Linear };
    plot::lines(title, &x, &y, &series)
}

/// Returns a plot of the ratios of all loads.
fn ratios(section: &Section, title: &str) -> Option<String> {
    let group = |it: &CaseRan| {
        let rate = |variant| of_variant(it, variant, Figure::Rate).map(|rate| rate.median);
        let now = rate(Variant::Lib);
        let ratio = |from: Option<f64>| Some(Figure::Rate.gain(from?, now?));
        let published = published::of(&it.case, Figure::Rate);
        let values = vec![
            ratio(rate(Variant::Before)),
            published.map(|it| Figure::Rate.gain(it.before, it.after)),
            ratio(rate(Variant::Btrfs)),
            ratio(rate(Variant::Loader)),
        ];
        (format!("{:?} {}", it.case.seed, it.case.clients), values)
    };
    let groups: Vec<_> = section.cases.iter().map(group).collect();
    let names = ["now to before", "published", "now to btrfs", "now to loader"];
    plot::bars(title, "times", &names, &groups)
}

fn label(variant: Variant) -> &'static str {
    match variant {
        Variant::Before => "lib, before",
        Variant::Lib => "lib",
        Variant::Fuse => "fuse",
        Variant::Btrfs => "btrfs",
        Variant::Loader => "btrfs, loader",
    }
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::load::outcome::{Figures, Unit};

    fn outcome(clients: u64, rate: f64) -> Outcome {
        let distribution = vec![(0.5, 0.25), (rate, 1.0)];
        let figures = |name: &str| Figures {
            name: name.to_owned(),
            count: 4,
            average: 1.0,
            max: rate,
            distribution: distribution.clone(),
        };
        let operations = vec![figures("Flush"), figures("Rename")];
        Outcome { clients, rate, unit: Unit::Megabytes, operations }
    }

    fn ran(seed: Seed, clients: u64, rates: [&[f64]; 4]) -> CaseRan {
        let of = |rates: &[f64]| {
            Ran::Outcomes(rates.iter().map(|rate| outcome(clients, *rate)).collect())
        };
        let variants = BTreeMap::from([
            (Variant::Before, of(rates[0])),
            (Variant::Lib, of(rates[1])),
            (Variant::Fuse, Ran::Not("no /dev/fuse".to_owned())),
            (Variant::Btrfs, of(rates[2])),
            (Variant::Loader, of(rates[3])),
        ]);
        let case = Case { seed, load: Load::Dbench, clients };
        let floor = Spread::of_figures([1.5]);
        CaseRan { case, work: "60 s".to_owned(), variants, floor }
    }

    fn report() -> Report {
        let scale = Scale { seconds: 60, bytes: 1 << 20, files: 10, commit_seconds: 15 };
        let mut report = Report::new(vec!["head".to_owned()], scale);
        let before = [&[100.0, 120.0, 110.0], &[100.0, 101.0, 99.0]];
        let now = [&[105.0, 130.0, 125.0], &[150.0, 151.0, 149.0]];
        let cases = vec![
            ran(Seed::S3, 8, [before[0], now[0], &[50.0, 51.0, 52.0], &[100.0, 110.0]]),
            ran(Seed::S3, 16, [before[1], now[1], &[300.0; 3], &[600.0; 3]]),
        ];
        report.add(Section { medium: "20:500".to_owned(), cases });
        report
    }

    #[test]
    fn losing_rows_come_first_and_overlapping_ranges_are_noise() {
        let folder = tempfile::tempdir().unwrap();
        let text = report().write(folder.path()).unwrap();
        let rates: Vec<_> = text.lines().filter(|line| line.contains("| rate |")).collect();
        let first = "| dbench 16 | rate | 100.0 (99.0 to 101.0) | 150.0 (149.0 to 151.0) | 1.50x \
            | 1.03x | - | 300.0 (300.0 to 300.0) | 0.50x | 600.0 (600.0 to 600.0) | 0.25x |";
        assert_eq!(rates[0], first);
        assert!(rates[1].contains("| noise (1.14x) | 1.03x |"), "{}", rates[1]);
        let kernel = "| 2.45x | 105.0 (100.0 to 110.0) | noise (1.19x) |";
        assert!(rates[1].ends_with(kernel), "{}", rates[1]);
        assert!(text.contains("- dbench 8, Fuse: not run: no /dev/fuse\n"));
        assert!(text.contains("### write 20 us, flush 500 us\n"));
        assert!(text.contains("Scale: dbench 8: 60 s; dbench 16: 60 s."));
    }

    #[test]
    fn latency_that_falls_is_a_gain() {
        let folder = tempfile::tempdir().unwrap();
        let text = report().write(folder.path()).unwrap();
        let row = text.lines().find(|line| line.starts_with("| dbench 16 | max latency")).unwrap();
        assert!(
            row.contains("| 0.67x | 1.12x |")
                && row.ends_with("| 2.00x | 600.0 (600.0 to 600.0) | 4.00x |"),
            "{row}"
        );
    }

    #[test]
    fn folder_has_the_plots_of_the_text_and_all_figures() {
        let folder = tempfile::tempdir().unwrap();
        let text = report().write(folder.path()).unwrap();
        let plots = text.lines().filter_map(|line| line.strip_prefix("!["));
        let plots: Vec<_> =
            plots.map(|line| line.split(['(', ')']).nth(1).unwrap().to_owned()).collect();
        let expected = ["ratios", "dbench", "latency-s3-8", "latency-s3-16"];
        assert_eq!(plots, expected.map(|name| format!("{name}-20-500.svg")));
        for plot in &plots {
            assert!(fs::read_to_string(folder.path().join(plot)).unwrap().ends_with("</svg>\n"));
        }
        let json = fs::read_to_string(folder.path().join("figures.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let lib = &json["sections"][0]["cases"][0]["variants"]["lib"]["outcomes"];
        assert_eq!(lib.as_array().unwrap().len(), 3);
    }
}
