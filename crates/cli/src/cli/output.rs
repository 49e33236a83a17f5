//! Output as text or JSON, through one buffered stdout.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Result;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use userbtrfs::Quoted;

use super::args::Format;

/// Returns a buffered stdout.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Prints a document under a name, after the header that btrfs-progs prints.
pub(crate) fn print_json(name: &str, content: &Value) -> Result<()> {
    let mut out = stdout();
    write_json(&mut out, name, content)?;
    out.flush()?;
    Ok(())
}

/// Writes a document as [`print_json`] prints it.
pub(crate) fn write_json(out: &mut dyn Write, name: &str, content: &Value) -> Result<()> {
    let document = json!({ "__header": { "version": "1" }, name: content });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    Ok(())
}

/// Writes a document under a name, as [`write_json`] does, which `write` writes itself; as text it
/// is written alone.
pub(crate) fn write_member<W: Write>(
    out: &mut W,
    format: Format,
    name: &str,
    write: impl FnOnce(&mut W) -> Result<()>,
) -> Result<()> {
    if format == Format::Text {
        return write(out);
    }
    write!(out, "{{\n\"__header\": {{\"version\": \"1\"}},\n\"{name}\": ")?;
    write(out)?;
    Ok(writeln!(out, "}}")?)
}

/// A writer of an array of documents under a name; the array is not kept in memory.
pub(crate) struct JsonList<W: Write> {
    out: W,
    first: bool,
}

impl<W: Write> JsonList<W> {
    /// Starts the array.
    pub(crate) fn start(mut out: W, name: &str) -> Result<Self> {
        write!(out, "{{\n\"__header\": {{\"version\": \"1\"}},\n\"{name}\": [")?;
        Ok(Self { out, first: true })
    }

    /// Adds a document.
    pub(crate) fn add(&mut self, document: &Value) -> Result<()> {
        let separator = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}")?;
        serde_json::to_writer(&mut self.out, document)?;
        Ok(())
    }

    /// Ends the array.
    pub(crate) fn end(mut self) -> Result<()> {
        writeln!(self.out, "\n]\n}}")?;
        self.out.flush()?;
        Ok(())
    }
}

/// Returns a name or path for JSON: the text itself if it is valid UTF-8, else with escaped bytes.
///
/// The text of a name that holds a backslash may equal an escape; [`with_name`] tells them apart.
pub(crate) fn json_name(name: &[u8]) -> String {
    match str::from_utf8(name) {
        Ok(text) => text.to_owned(),
        Err(_) => Quoted(name).to_string(),
    }
}

/// Returns a JSON object with a name or path in it under a key. If it is not valid UTF-8, another
/// key with the suffix `_hex` has its bytes.
pub(crate) fn with_name(mut document: Value, key: &str, name: &[u8]) -> Value {
    document[key] = json!(json_name(name));
    if str::from_utf8(name).is_err() {
        document[format!("{key}_hex")] = json!(HEXLOWER.encode(name));
    }
    document
}
