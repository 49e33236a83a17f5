//! The table of `filesystem usage -T`: a column for each type and profile.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use userbtrfs::{SpaceUse, Usage};

use crate::cli::block_groups::kind_name;
use crate::cli::size_units::Units;

/// The width of the column of device ids.
const ID_WIDTH: usize = 2;

/// A column: the two lines of its head, and its cells: of the device, of all, and of what is used.
struct Column {
    head: [String; 2],
    device: String,
    total: String,
    used: String,
}

impl Column {
    fn width(&self) -> usize {
        let [first, second] = &self.head;
        let cells = [first, second, &self.device, &self.total, &self.used];
        cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

/// Writes the table, after an empty line.
pub(super) fn write(
    out: &mut dyn Write,
    usage: &Usage,
    rows: &[SpaceUse],
    device: &Path,
    units: Units,
) -> Result<()> {
    let size = |bytes: u64| units.text(bytes);
    let or_dash = |bytes: u64| if bytes == 0 { "-".to_owned() } else { size(bytes) };
    let mut columns: Vec<_> = rows
        .iter()
        .map(|row| Column {
            head: [kind_name(row.flags).to_owned(), row.profile.name().to_owned()],
            device: or_dash(row.device_total()),
            total: size(row.total),
            used: size(row.used),
        })
        .collect();
    let unallocated = usage.device_size.saturating_sub(usage.device_allocated);
    for (name, bytes) in
        [("Unallocated", unallocated), ("Total", usage.device_size), ("Slack", usage.device_slack)]
    {
        let head = [String::new(), name.to_owned()];
        let used = String::new();
        columns.push(Column { head, device: or_dash(bytes), total: size(bytes), used });
    }
    let device = device.display().to_string();
    let path_width = device.chars().count().max("Total".len());
    let line = |start: [&str; 2], cell: &dyn Fn(&Column) -> String| {
        let [id, path] = start;
        let cells = columns.iter().map(cell).collect::<Vec<_>>().join(" ");
        format!("{id:>ID_WIDTH$} {path:<path_width$} {cells}")
    };
    let head = |at: usize| move |it: &Column| format!("{:<1$}", it.head[at], it.width());
    let right = |cell: &String, it: &Column| format!("{:>1$}", cell, it.width());
    let dashes = "-".repeat(path_width);
    let rule = line([&"-".repeat(ID_WIDTH), &dashes], &|it| "-".repeat(it.width()));
    let id = usage.device_id.to_string();
    writeln!(out)?;
    writeln!(out, "{}", line(["", ""], &head(0)))?;
    writeln!(out, "{}", line(["Id", "Path"], &head(1)))?;
    writeln!(out, "{rule}")?;
    writeln!(out, "{}", line([&id, &device], &|it| right(&it.device, it)))?;
    writeln!(out, "{rule}")?;
    writeln!(out, "{}", line(["", "Total"], &|it| right(&it.total, it)))?;
    writeln!(out, "{}", line(["", "Used"], &|it| right(&it.used, it)))?;
    Ok(())
}
