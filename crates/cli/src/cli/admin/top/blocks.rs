//! The change of counters as lines of text and as JSON.

use serde_json::{Map, Value, json};

use super::change::{Change, Rate, ratio};
use super::snapshot::{Counters, Snapshot};
use crate::cli::text::size;

/// The width of a cell of the table of requests.
const CELL: usize = 38;

/// The counters that are amounts now: they have no rate.
const AMOUNTS: [&str; 5] =
    ["dirty_data", "dirty_metadata", "space_total", "space_free", "space_available"];

/// Returns the lines about an interval, each of at most `columns` characters.
pub(super) fn lines(title: &str, change: &Change<'_>, columns: usize) -> Vec<String> {
    let mut lines = vec![format!("{title}: {}", change.now.state)];
    lines.extend(change.now.why.as_ref().map(|why| format!("why: {why}")));
    lines.extend([fsyncs(change), log(change)]);
    lines.push(row("commits", &by_rate(change, |of| &of.commits)));
    let reasons = by_rate(change, |of| &of.reasons);
    if !change.rates(|of| &of.reasons).is_empty() {
        lines.push(row("not logged", &reasons));
    }
    lines.extend([dirty(change), space(change), nodes(change)]);
    let bad = change.value("copies_bad");
    if bad > 0 {
        let repaired = change.value("copies_repaired");
        lines.push(row("bad copies", &format!("{bad} found, {repaired} repaired")));
    }
    lines.extend(requests(change, columns));
    lines.iter().map(|line| line.chars().take(columns).collect()).collect()
}

/// Returns a JSON object about an interval, for one line.
pub(super) fn document(change: &Change<'_>) -> Value {
    let counters = change.rates(|of| &of.counters).into_iter();
    let counters = counters.filter(|rate| !AMOUNTS.contains(&rate.name));
    let mut document = json!({
        "seconds": change.time.as_secs_f64(),
        "state": change.now.state,
        "why": change.now.why,
        "fsync_mean_us": mean_us(change),
        "per_second": per_second(counters),
        "commits_per_second": per_second(change.rates(|of| &of.commits)),
        "commits_for_syncs_per_second": per_second(change.rates(|of| &of.reasons)),
        "requests_per_second": per_second(change.rates(|of| &of.requests)),
    });
    for amount in AMOUNTS {
        document[amount] = json!(change.value(amount));
    }
    document
}

fn per_second<'a>(rates: impl IntoIterator<Item = Rate<'a>>) -> Value {
    let member = |rate: Rate<'_>| (rate.name.to_owned(), json!(rate.per_second));
    Value::Object(rates.into_iter().map(member).collect::<Map<_, _>>())
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<11} {text}")
}

/// Returns the sum of rates; of none, it is not the negative zero of [`Iterator::sum`].
fn sum(rates: &[Rate<'_>]) -> f64 {
    rates.iter().fold(0.0, |sum, rate| sum + rate.per_second)
}

fn mean_us(change: &Change<'_>) -> Option<f64> {
    ratio(change.growth("fsync_microseconds"), change.growth("fsyncs"))
}

fn fsyncs(change: &Change<'_>) -> String {
    let mean = mean_us(change).map_or_else(|| "-".to_owned(), |us| format!("{:.2} ms", us / 1e3));
    let each = ratio(change.growth("fsyncs"), change.growth("log_groups"));
    let each = each.map(|each| format!(" for {each:.1} fsyncs each")).unwrap_or_default();
    let text = format!(
        "{:.1}/s, mean {mean}; log commits {:.1}/s{each}",
        change.rate("fsyncs"),
        change.rate("log_groups")
    );
    row("fsyncs", &text)
}

fn log(change: &Change<'_>) -> String {
    let text = format!(
        "{}/s in {:.1} tree blocks/s; waits: group {:.1}/s, commit {:.1}/s",
        size_per_second(change, "log_bytes"),
        change.rate("log_nodes"),
        change.rate("log_waits_for_group"),
        change.rate("log_waits_for_commit")
    );
    row("log", &text)
}

/// Returns a size with a suffix in each second of the interval.
fn size_per_second(change: &Change<'_>, name: &str) -> String {
    let ms = change.time.as_millis().max(1);
    let bytes = u128::from(change.growth(name)) * 1000 / ms;
    size(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Returns the sum of counters, then each with its rate and its total.
fn by_rate<'a>(change: &Change<'a>, part: impl Fn(&'a Snapshot) -> &'a Counters) -> String {
    let rates = change.rates(part);
    let sum = sum(&rates);
    let each = rates.iter().map(|Rate { name, per_second, total }| {
        format!("{} {per_second:.1}/s ({total})", name.replace('_', " "))
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let separator = if each.is_empty() { "" } else { ": " };
    format!("{sum:.1}/s{separator}{each}")
}

fn dirty(change: &Change<'_>) -> String {
    let [data, metadata] = ["dirty_data", "dirty_metadata"].map(|name| size(change.value(name)));
    row("dirty", &format!("data {data}, metadata {metadata}"))
}

fn space(change: &Change<'_>) -> String {
    let total = change.value("space_total");
    let used = total.saturating_sub(change.value("space_free"));
    let percent = ratio(used, total).unwrap_or(0.0) * 100.0;
    let [used, total, available] = [used, total, change.value("space_available")].map(size);
    row("space", &format!("used {used} of {total} ({percent:.0}%), available {available}"))
}

fn nodes(change: &Change<'_>) -> String {
    let found = change.growth("nodes_found");
    let hits = ratio(found, found.saturating_add(change.growth("nodes_read")));
    let hits = hits.map_or_else(|| "-".to_owned(), |hits| format!("{:.1}%", hits * 100.0));
    let text = format!(
        "{:.1}/s found in the cache ({hits}), {:.1}/s read",
        change.rate("nodes_found"),
        change.rate("nodes_read")
    );
    row("tree blocks", &text)
}

/// Returns the table of requests, in as many columns as fit.
fn requests(change: &Change<'_>, columns: usize) -> Vec<String> {
    let rates = change.rates(|of| &of.requests);
    let sum = sum(&rates);
    let head = row("requests", &format!("{sum:.1}/s; of each kind, per second and in total:"));
    let cells = rates
        .iter()
        .map(|Rate { name, per_second, total }| format!("{name:<17} {per_second:>9.1} {total:>9}"));
    let cells: Vec<_> = cells.collect();
    let across = ((columns + 2) / (CELL + 2)).clamp(1, 4);
    let rows = cells.chunks(across).map(|cells| {
        cells.iter().map(|cell| format!("{cell:<CELL$}")).collect::<Vec<_>>().join("  ")
    });
    let rows = rows.map(|row| row.trim_end().to_owned());
    std::iter::once(head).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn counters(rows: &[(&str, u64)]) -> Counters {
        rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn snapshots() -> [Snapshot; 2] {
        let state = || "read-write".to_owned();
        let before = Snapshot {
            state: state(),
            counters: counters(&[("fsyncs", 10), ("log_groups", 5), ("nodes_found", 100)]),
            requests: counters(&[("READ", 5)]),
            ..Snapshot::default()
        };
        let now = Snapshot {
            state: state(),
            counters: counters(&[
                ("fsyncs", 50),
                ("fsync_microseconds", 60_000),
                ("log_groups", 25),
                ("log_bytes", 4 << 20),
                ("nodes_found", 190),
                ("nodes_read", 10),
                ("dirty_data", 3 << 20),
                ("space_total", 4 << 30),
                ("space_free", 3 << 30),
                ("space_available", 2 << 30),
            ]),
            commits: counters(&[("for_a_sync", 1), ("for_age", 4), ("asked_for", 0)]),
            reasons: counters(&[("new_block_group", 1)]),
            requests: counters(&[("READ", 5), ("WRITE", 20), ("FSYNC", 40)]),
            ..Snapshot::default()
        };
        [before, now]
    }

    fn in_two_seconds([before, now]: &[Snapshot; 2]) -> Change<'_> {
        Change { before, now, time: Duration::from_secs(2) }
    }

    #[test]
    fn lines_show_rates_and_amounts() {
        let snapshots = snapshots();
        let shown = lines("/mnt", &in_two_seconds(&snapshots), 80);
        let expected = [
            "/mnt: read-write",
            "fsyncs      20.0/s, mean 1.50 ms; log commits 10.0/s for 2.0 fsyncs each",
            "log         2.00MiB/s in 0.0 tree blocks/s; waits: group 0.0/s, commit 0.0/s",
            "commits     2.5/s: for age 2.0/s (4), for a sync 0.5/s (1)",
            "not logged  0.5/s: new block group 0.5/s (1)",
            "dirty       data 3.00MiB, metadata 0.00B",
            "space       used 1.00GiB of 4.00GiB (25%), available 2.00GiB",
            "tree blocks 45.0/s found in the cache (90.0%), 5.0/s read",
            "requests    30.0/s; of each kind, per second and in total:",
            "FSYNC                  20.0        40   WRITE                  10.0        20",
            "READ                    0.0         5",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn lines_fit_the_width() {
        let snapshots = snapshots();
        let change = in_two_seconds(&snapshots);
        for columns in [0, 1, 20, 40, 77, 78, 120, 400] {
            let shown = lines("/mnt", &change, columns);
            assert!(shown.iter().all(|line| line.chars().count() <= columns), "{columns}");
        }
        let rows = |columns| lines("/mnt", &change, columns).len();
        assert_eq!((rows(40), rows(78), rows(120)), (12, 11, 10));
    }

    #[test]
    fn interval_without_changes_has_no_means() {
        let snapshot = Snapshot { state: "read-only".to_owned(), ..Snapshot::default() };
        let change = Change { before: &snapshot, now: &snapshot, time: Duration::from_secs(1) };
        let shown = lines("/mnt", &change, 80).join("\n");
        for part in [
            "/mnt: read-only",
            "fsyncs      0.0/s, mean -; ",
            "commits     0.0/s",
            "in the cache (-)",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("NaN") && !shown.contains("not logged"), "{shown}");
    }

    #[test]
    fn reason_of_an_end_of_writing_is_shown() {
        let why = Some("the device failed".to_owned());
        let snapshot = Snapshot { state: "read-only".to_owned(), why, ..Snapshot::default() };
        let change = Change { before: &snapshot, now: &snapshot, time: Duration::from_secs(1) };
        assert_eq!(lines("/mnt", &change, 80)[1], "why: the device failed");
    }

    #[test]
    fn document_has_rates_apart_from_amounts() {
        let snapshots = snapshots();
        let document = document(&in_two_seconds(&snapshots));
        assert_eq!(document["per_second"]["fsyncs"], 20.0);
        assert_eq!(document["per_second"]["dirty_data"], Value::Null);
        assert_eq!(document["dirty_data"], 3 << 20);
        assert_eq!(document["fsync_mean_us"], 1500.0);
        assert_eq!(document["requests_per_second"]["WRITE"], 10.0);
        assert_eq!(document["commits_per_second"]["for_age"], 2.0);
    }
}
