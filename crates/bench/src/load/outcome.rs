//! The outcome of a load: a rate, and the latencies of each kind of operation, in dbench's table.
//!
//! The same table is printed by our loader and parsed from dbench's output, so that both are
//! compared by the same figures.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::latency::Latencies;

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// 10^6 bytes a second.
    #[serde(rename = "MB/sec")]
    Megabytes,
    /// Files a second.
    #[serde(rename = "files/sec")]
    Files,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Megabytes => "MB/sec",
            Self::Files => "files/sec",
        })
    }
}

/// The outcome of one run of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The number of clients, jobs or threads.
    pub(crate) clients: u64,
    /// The rate of all of them together.
    pub(crate) rate: f64,
    /// The unit of the rate.
    pub(crate) unit: Unit,
    /// The kinds of operations that occurred; empty if the program does not report them.
    pub(crate) operations: Vec<Figures>,
}

/// The figures of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The name, as dbench has it.
    pub(crate) name: String,
    /// The number of operations.
    pub(crate) count: u64,
    /// The average latency in milliseconds.
    pub(crate) average: f64,
    /// The maximum latency in milliseconds.
    pub(crate) max: f64,
    /// Points of the distribution: a latency in milliseconds, and the part of all operations that
    /// take no longer. Empty if the program does not report it.
    pub(crate) distribution: Vec<(f64, f64)>,
}

impl Figures {
    /// Returns the figures of these latencies.
    pub(crate) fn of(name: &str, latencies: &Latencies) -> Self {
        let point = |(bound, part): (Duration, f64)| (milliseconds(bound), part);
        Self {
            name: name.to_owned(),
            count: latencies.count(),
            average: milliseconds(latencies.average()),
            max: milliseconds(latencies.max()),
            distribution: latencies.distribution().into_iter().map(point).collect(),
        }
    }
}

impl Outcome {
    /// Returns the figures of a kind of operation.
    pub(crate) fn operation(&self, name: &str) -> Option<&Figures> {
        self.operations.iter().find(|figures| figures.name == name)
    }

    /// Returns the longest latency of all operations in milliseconds, if latencies are known.
    pub(crate) fn max_latency(&self) -> Option<f64> {
        self.operations.iter().map(|figures| figures.max).reduce(f64::max)
    }

    /// Parses the output of dbench.
    pub(crate) fn of_dbench(said: &str) -> Result<Self> {
        let last = said.lines().find_map(|line| line.strip_prefix("Throughput "));
        let last = last.context("dbench prints no throughput")?;
        let (rate, rest) = last.split_once(" MB/sec").context("dbench prints no unit")?;
        let rate: f64 = rate.parse()?;
        ensure!(rate > 0.0, "dbench did nothing in this time");
        let clients = rest.split_whitespace().next().context("dbench prints no clients")?;
        let table = said.lines().skip_while(|line| !line.starts_with(" ----")).skip(1);
        let rows = table.take_while(|line| !line.trim().is_empty());
        let operations: Vec<_> = rows.map(figures).collect::<Result<_>>()?;
        ensure!(!operations.is_empty(), "dbench prints no table");
        Ok(Self { clients: clients.parse()?, rate, unit: Unit::Megabytes, operations })
    }
}

/// Parses a row of dbench's table.
fn figures(row: &str) -> Result<Figures> {
    let cells: Vec<_> = row.split_whitespace().collect();
    let [name, count, average, max] = cells[..] else {
        anyhow::bail!("not a row of dbench's table: {row}");
    };
    Ok(Figures {
        name: name.to_owned(),
        count: count.parse()?,
        average: average.parse()?,
        max: max.parse()?,
        distribution: Vec::new(),
    })
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, " {:<9} {:>10} {:>9} {:>9}", "Operation", "Count", "AvgLat", "MaxLat")?;
        writeln!(f, " {}", "-".repeat(40))?;
        for Figures { name, count, average, max, .. } in &self.operations {
            writeln!(f, " {name:<9} {count:>10} {average:>9.3} {max:>9.3}")?;
        }
        let Self { clients, rate, unit, .. } = self;
        write!(f, "\nThroughput {rate:.3} {unit}  {clients} clients  {clients} procs")?;
        let max = self.max_latency().unwrap_or(0.0);
        writeln!(f, "  max_latency={max:.3} ms")
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "   2  cleanup   5 sec

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX      16825     0.081    28.555
 Flush           1401     4.285   464.207

Throughput 229.094 MB/sec  2 clients  2 procs  max_latency=464.207 ms
";

    #[test]
    fn table_of_dbench_is_parsed_and_printed_alike() {
        let outcome = Outcome::of_dbench(SAID).unwrap();
        assert_eq!(outcome.clients, 2);
        assert!((outcome.rate - 229.094).abs() < 1e-9);
        let flush = outcome.operation("Flush").unwrap();
        assert_eq!(flush.count, 1401);
        assert!((flush.average - 4.285).abs() < 1e-9);
        assert_eq!(outcome.operation("Rename"), None);
        let table = SAID.split_once("\n\n").unwrap().1;
        assert_eq!(outcome.to_string(), table);
    }

    #[test]
    fn output_without_figures_is_an_error() {
        assert!(Outcome::of_dbench("").is_err());
        assert!(Outcome::of_dbench(&SAID.replace("229.094", "0")).is_err());
        assert!(Outcome::of_dbench(&SAID.replace("Flush  ", "Flush x")).is_err());
        assert!(Outcome::of_dbench(SAID.rsplit_once("\n\n").unwrap().1).is_err());
    }

    #[test]
    fn figures_are_in_milliseconds() {
        let mut latencies = Latencies::default();
        latencies.add(Duration::from_millis(2));
        latencies.add(Duration::from_millis(4));
        let figures = Figures::of("Flush", &latencies);
        assert_eq!(figures.count, 2);
        assert!((figures.average - 3.0).abs() < 1e-9 && (figures.max - 4.0).abs() < 1e-9);
        assert_eq!(figures.distribution.last(), Some(&(4.0, 1.0)));
    }
}
