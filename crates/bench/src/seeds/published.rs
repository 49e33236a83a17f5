//! The figures that the seeds published, from their changelogs.
//!
//! 1. The ratios are computed from the raw figures: some changelogs print the difference divided by
//!    the average of both, which is no ratio.
//! 2. Figures are those of other people's machines, and serve as ratios only.

use super::case::{Case, Load};
use super::figure::Figure;
use crate::args::Seed;

/// A figure before and after a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Published {
    pub(crate) before: f64,
    pub(crate) after: f64,
}

/// The machine, and the length of the load, of a seed.
pub(crate) fn machine(seed: Seed) -> &'static str {
    match seed {
        Seed::S0 | Seed::S1 => "300 s, 12 cores, 64 GiB, NVMe",
        Seed::S2 => "128 MiB to 1 GiB for each job, 8 cores, 16 GiB, NVMe",
        Seed::S3 => "120 s, 12 cores, 64 GiB, NVMe",
        Seed::S4 => "80 cores, 256 GiB, NVMe; 16 x 20 x 100,000 files",
    }
}

/// The subject of a seed's changelog.
pub(crate) fn subject(seed: Seed) -> &'static str {
    match seed {
        Seed::S0 => "do not block inode logging for so long during transaction commit",
        Seed::S1 => "do not commit logs and transactions during link and rename operations",
        Seed::S2 => "reduce contention on log trees when logging checksums",
        Seed::S3 => "do not commit delayed inode when logging a file in full sync mode",
        Seed::S4 => "switch extent buffer tree lock to rw_semaphore",
    }
}

/// Returns a published figure.
pub(crate) fn of(case: &Case, figure: Figure) -> Option<Published> {
    let (before, after) = match (case.seed, case.load, case.clients) {
        (Seed::S0, Load::Dbench, 64) => s0(figure)?,
        (Seed::S1, Load::Dbench, 16) => s1(figure)?,
        (Seed::S2, Load::Fio, jobs) if figure == Figure::Rate => s2(jobs)?,
        (Seed::S3, Load::Dbench, clients) => s3(clients, figure)?,
        (Seed::S4, Load::Dbench, 200) => s4(figure)?,
        (Seed::S4, Load::Fsmark, 16) if figure == Figure::Rate => (160_166.7, 164_135.7),
        _ => return None,
    };
    Some(Published { before, after })
}

fn s0(figure: Figure) -> Option<(f64, f64)> {
    Some(match figure {
        Figure::Rate => (1179.19, 1339.32),
        Figure::MaxLatency => (676.240, 623.265),
        Figure::Average("Flush") => (14.115, 13.014),
        Figure::Max("Flush") => (676.236, 623.259),
        Figure::Average("Rename") => (1.935, 1.444),
        Figure::Max("Rename") => (86.026, 78.576),
        _ => return None,
    })
}

fn s1(figure: Figure) -> Option<(f64, f64)> {
    Some(match figure {
        Figure::Rate => (1128.35, 1201.98),
        Figure::MaxLatency => (1102.255, 778.036),
        Figure::Average("Flush") => (4.252, 5.015),
        Figure::Max("Flush") => (1102.249, 778.033),
        Figure::Average("Rename") => (2.158, 0.123),
        Figure::Max("Rename") => (1101.947, 267.183),
        _ => return None,
    })
}

/// Throughput in MiB/s by the number of jobs.
fn s2(jobs: u64) -> Option<(f64, f64)> {
    Some(match jobs {
        1 => (23.8, 24.4),
        2 => (37.7, 37.7),
        4 => (67.5, 68.6),
        8 => (128.0, 129.0),
        16 => (78.5, 110.0),
        32 => (58.8, 76.1),
        64 => (65.8, 85.1),
        128 => (54.7, 121.0),
        256 => (69.2, 121.0),
        512 => (85.4, 141.0),
        1024 => (115.0, 171.0),
        _ => return None,
    })
}

fn s3(clients: u64, figure: Figure) -> Option<(f64, f64)> {
    Some(match (clients, figure) {
        (8, Figure::Rate) => (1075.73, 1105.45),
        (8, Figure::MaxLatency) => (245.520, 163.474),
        (8, Figure::Average("Flush")) => (2.521, 2.500),
        (8, Figure::Max("Flush")) => (245.516, 163.468),
        (8, Figure::Average("Rename")) => (0.082, 0.072),
        (8, Figure::Max("Rename")) => (238.733, 4.444),
        (16, Figure::Rate) => (1413.09, 1454.46),
        (16, Figure::MaxLatency) => (353.696, 315.910),
        (16, Figure::Average("Flush")) => (2.810, 2.802),
        (16, Figure::Max("Flush")) => (353.691, 315.904),
        (16, Figure::Average("Rename")) => (0.323, 0.320),
        (16, Figure::Max("Rename")) => (254.054, 253.379),
        _ => return None,
    })
}

fn s4(figure: Figure) -> Option<(f64, f64)> {
    Some(match figure {
        Figure::Rate => (216.056, 737.188),
        Figure::MaxLatency => (1471.197, 714.346),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_raw_figures() {
        let ratio = |seed, load, clients, figure: Figure| {
            let case = Case { seed, load, clients };
            let Published { before, after } = of(&case, figure).unwrap();
            (figure.gain(before, after) * 100.0).round() / 100.0
        };
        let is = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        is(ratio(Seed::S0, Load::Dbench, 64, Figure::Rate), 1.14);
        is(ratio(Seed::S1, Load::Dbench, 16, Figure::Average("Rename")), 17.54);
        is(ratio(Seed::S2, Load::Fio, 128, Figure::Rate), 2.21);
        is(ratio(Seed::S3, Load::Dbench, 8, Figure::MaxLatency), 1.5);
        is(ratio(Seed::S4, Load::Dbench, 200, Figure::Rate), 3.41);
        is(ratio(Seed::S4, Load::Fsmark, 16, Figure::Rate), 1.02);
    }
}
