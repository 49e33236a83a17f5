//! The report: the counts, and their changes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::args::Operation;

/// A change of more than this many percent is shown.
const SHOWN: u64 = 5;

/// The count of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    pub(crate) operation: Operation,
    /// The instructions of one iteration.
    pub(crate) instructions: u64,
}

/// The counts of all requested operations.
#[derive(Serialize)]
pub(crate) struct Counts {
    head: Vec<String>,
    operations: Vec<Count>,
    earlier: Option<Earlier>,
}

/// A file with earlier counts, and these by operation.
#[derive(Serialize)]
struct Earlier {
    file: String,
    counts: BTreeMap<String, u64>,
}

impl Counts {
    pub(crate) fn new(head: Vec<String>) -> Self {
        Self { head, operations: Vec::new(), earlier: None }
    }

    /// Sets the counts to compare with.
    pub(crate) fn compare_with(&mut self, file: &Path, counts: BTreeMap<String, u64>) {
        self.earlier = Some(Earlier { file: file.display().to_string(), counts });
    }

    pub(crate) fn add(&mut self, count: Count) {
        self.operations.push(count);
    }

    pub(crate) fn counts(&self) -> &[Count] {
        &self.operations
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.head {
            writeln!(f, "- {line}")?;
        }
        writeln!(f, "\n| operation | instructions |\n|---|---|")?;
        for Count { operation, instructions } in &self.operations {
            writeln!(f, "| {} | {instructions} |", operation.name())?;
        }
        let Some(Earlier { file, counts }) = &self.earlier else { return Ok(()) };
        let lines: Vec<_> = self.operations.iter().filter_map(|it| change(*it, counts)).collect();
        if lines.is_empty() {
            return writeln!(f, "\nNo count differs by more than {SHOWN} % from {file}.");
        }
        writeln!(f, "\nCounts that differ by more than {SHOWN} % from {file}:\n")?;
        lines.iter().try_for_each(|line| writeln!(f, "- {line}"))
    }
}

/// Returns the line of an operation whose count changed by more than `SHOWN`, or is new.
fn change(count: Count, earlier: &BTreeMap<String, u64>) -> Option<String> {
    let Count { operation, instructions } = count;
    let name = operation.name();
    let Some(before) = earlier.get(&name).copied() else {
        return Some(format!("{name}: {instructions}, not counted earlier in this profile"));
    };
    let is_shown =
        u128::from(instructions.abs_diff(before)) * 100 > u128::from(before) * u128::from(SHOWN);
    is_shown.then(|| {
        let percent = (float(instructions) / float(before) - 1.0) * 100.0;
        format!("{name}: {before} before, now {instructions} ({percent:+.1} %)")
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn float(amount: u64) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(instructions: u64, earlier: &[(&str, u64)]) -> String {
        let mut counts = Counts::new(vec!["head".to_owned()]);
        let earlier = earlier.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        counts.compare_with("file".as_ref(), earlier);
        counts.add(Count { operation: Operation::Create, instructions });
        counts.to_string()
    }

    #[test]
    fn only_changes_of_more_than_five_percent_are_shown() {
        for unchanged in [95, 100, 105] {
            let text = text(unchanged, &[("create", 100)]);
            assert!(text.ends_with("\nNo count differs by more than 5 % from file.\n"), "{text}");
        }
        let more = text(106, &[("create", 100)]);
        assert!(more.ends_with("\n\n- create: 100 before, now 106 (+6.0 %)\n"), "{more}");
        let less = text(94, &[("create", 100)]);
        assert!(less.ends_with("\n\n- create: 100 before, now 94 (-6.0 %)\n"), "{less}");
    }

    #[test]
    fn operation_without_an_earlier_count_is_shown() {
        let text = text(7, &[("lookup", 7)]);
        assert!(text.ends_with("- create: 7, not counted earlier in this profile\n"), "{text}");
    }

    #[test]
    fn counts_are_a_markdown_table() {
        let text = text(7, &[("create", 7)]);
        assert!(
            text.starts_with("- head\n\n| operation | instructions |\n|---|---|\n| create | 7 |\n")
        );
    }
}
