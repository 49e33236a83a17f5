//! The counters of a mount at one time, as its server prints them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

/// Counters by their keys.
pub(super) type Counters = BTreeMap<String, u64>;

/// The counters at one time. A server of another version may lack some.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) state: String,
    /// The reason why writing has ended.
    pub(super) why: Option<String>,
    pub(super) counters: Counters,
    /// Commits by their cause.
    pub(super) commits: Counters,
    /// Commits in place of a log, by their reason.
    pub(super) reasons: Counters,
    /// Requests by their kind.
    pub(super) requests: Counters,
}

impl Snapshot {
    /// Parses the document that `stats --format json` prints.
    pub(super) fn parse(json: &[u8]) -> Result<Self> {
        let document: Value = serde_json::from_slice(json).context("the answer of the server")?;
        let stats = document["stats"].as_object().context("the answer has no counters")?;
        let text = |key| stats.get(key).and_then(Value::as_str).map(str::to_owned);
        let part = |key| stats.get(key).and_then(Value::as_object).map(counters);
        Ok(Self {
            state: text("state").context("the answer has no state")?,
            why: text("why"),
            counters: counters(stats),
            commits: part("commits").unwrap_or_default(),
            reasons: part("commits_for_syncs").unwrap_or_default(),
            requests: part("requests").unwrap_or_default(),
        })
    }
}

fn counters(object: &Map<String, Value>) -> Counters {
    object.iter().filter_map(|(key, value)| Some((key.clone(), value.as_u64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_parsed_by_its_parts() {
        let json = br#"{"stats": {"state": "read-write", "why": null, "fsyncs": 3,
            "commits": {"for_age": 2}, "requests": {"READ": 7}}}"#;
        let snapshot = Snapshot::parse(json).unwrap();
        assert_eq!((snapshot.state.as_str(), snapshot.why), ("read-write", None));
        assert_eq!(snapshot.counters, Counters::from([("fsyncs".into(), 3)]));
        assert_eq!(snapshot.commits["for_age"], 2);
        assert_eq!(snapshot.requests["READ"], 7);
        assert!(snapshot.reasons.is_empty());
    }

    #[test]
    fn answer_without_counters_is_an_error() {
        for wrong in ["", "{}", "[]", r#"{"stats": {}}"#, r#"{"stats": 1}"#] {
            assert!(Snapshot::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
