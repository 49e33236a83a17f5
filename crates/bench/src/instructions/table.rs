//! The file with counts: a Markdown document with one table.
//!
//! 1. A row of the table has four cells: operation, profile, instructions, commit. The rows are
//!    consecutive and follow the line `DIVIDER`.
//! 2. All other lines are kept as they are.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

use super::counts::Count;

/// The line above the rows.
const DIVIDER: &str = "|---|---|---|---|";

/// The file: lines before the rows, the rows, and lines after them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    before: Vec<String>,
    rows: Vec<Row>,
    after: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    operation: String,
    profile: String,
    instructions: u64,
    commit: String,
}

impl Table {
    /// Returns the counts of a profile, by operation.
    pub(crate) fn of_profile(&self, profile: &str) -> BTreeMap<String, u64> {
        let rows = self.rows.iter().filter(|row| row.profile == profile);
        rows.map(|row| (row.operation.clone(), row.instructions)).collect()
    }

    /// Replaces the rows of these counts, or adds them at the end.
    pub(crate) fn replace(&mut self, profile: &str, commit: &str, counts: &[Count]) {
        for Count { operation, instructions } in counts {
            let operation = operation.name();
            let profile = profile.to_owned();
            let commit = commit.to_owned();
            let row = Row { operation, profile, instructions: *instructions, commit };
            let is_same =
                |old: &&mut Row| old.operation == row.operation && old.profile == row.profile;
            match self.rows.iter_mut().find(is_same) {
                Some(old) => *old = row,
                None => self.rows.push(row),
            }
        }
    }
}

impl FromStr for Table {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let divider = lines.iter().position(|line| line == DIVIDER);
        let start = divider.with_context(|| format!("no line {DIVIDER}"))? + 1;
        let len = lines[start..].iter().take_while(|line| line.starts_with('|')).count();
        let (before, rest) = lines.split_at(start);
        let (rows, after) = rest.split_at(len);
        let rows = rows.iter().map(|line| line.parse()).collect::<Result<_>>()?;
        Ok(Self { before: before.to_vec(), rows, after: after.to_vec() })
    }
}

impl FromStr for Row {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        ensure!(cells.len() == 6, "a row without four cells: {line}");
        let instructions = cells[3].parse().with_context(|| format!("no number: {line}"))?;
        let text = |cell: usize| cells[cell].to_owned();
        Ok(Self { operation: text(1), profile: text(2), instructions, commit: text(4) })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.before.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        for Row { operation, profile, instructions, commit } in &self.rows {
            writeln!(f, "| {operation} | {profile} | {instructions} | {commit} |")?;
        }
        self.after.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Operation;

    const TEXT: &str = "# Head

| a | b | c | d |
|---|---|---|---|
| create | debug | 7 | abc |
| create | release | 3 | def |

After it.
";

    #[test]
    fn text_of_a_table_is_the_same_after_parsing() {
        let table: Table = TEXT.parse().unwrap();
        assert_eq!(table.to_string(), TEXT);
        assert_eq!(table.of_profile("release"), BTreeMap::from([("create".to_owned(), 3)]));
        assert_eq!(table.of_profile("other"), BTreeMap::new());
    }

    #[test]
    fn new_counts_replace_only_rows_of_their_profile_and_operation() {
        let mut table: Table = TEXT.parse().unwrap();
        let count = |operation, instructions| Count { operation, instructions };
        table.replace("debug", "new", &[count(Operation::Create, 8), count(Operation::Lookup, 9)]);
        let text = table.to_string();
        let rows: Vec<_> = text.lines().skip(4).take(3).collect();
        let expected = [
            "| create | debug | 8 | new |",
            "| create | release | 3 | def |",
            "| lookup | debug | 9 | new |",
        ];
        assert_eq!(rows, expected);
        assert!(text.ends_with("\n\nAfter it.\n"));
    }

    #[test]
    fn damaged_table_is_an_error() {
        for text in ["", "|---|---|---|---|\n| create | 7 |\n", "|---|---|---|---|\n|a|b|c|d|\n"] {
            assert!(text.parse::<Table>().is_err(), "{text}");
        }
    }
}
