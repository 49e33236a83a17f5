//! Output as text or JSON, through one buffered stdout.

use std::io::{self, BufWriter, StdoutLock, Write};

use anyhow::Result;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use userbtrfs::Quoted;

use super::args::{Format, Global};

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
    let document = json!({ HEADER: header(), name: content });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    Ok(())
}

/// The name of the member with the version of a document.
const HEADER: &str = "__header";

fn header() -> Value {
    json!({ "version": "1" })
}

/// Returns an object as a document of its own, on one line of many.
pub(crate) fn json_line(mut content: Value) -> String {
    content[HEADER] = header();
    content.to_string()
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
    write!(out, "{{\n\"{HEADER}\": {},\n\"{name}\": ", header())?;
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
        write!(out, "{{\n\"{HEADER}\": {},\n\"{name}\": [", header())?;
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

/// Writes a line that ends with a name or path, as lists show it.
pub(crate) fn write_listed(
    out: &mut dyn Write,
    before: &str,
    name: &[u8],
    global: &Global,
) -> Result<()> {
    out.write_all(before.as_bytes())?;
    out.write_all(&global.listed(name))?;
    Ok(out.write_all(b"\n")?)
}

/// A name or path in JSON: its text, and its bytes if the text alone does not tell them.
struct JsonName {
    /// The name itself if it is valid UTF-8, else with escaped bytes.
    text: String,
    /// The bytes in hexadecimal of a name that is not valid UTF-8; a name whose text looks like an
    /// escape has none.
    hex: Option<String>,
}

impl JsonName {
    fn new(name: &[u8]) -> Self {
        match str::from_utf8(name) {
            Ok(text) => Self { text: text.to_owned(), hex: None },
            Err(_) => Self { text: Quoted(name).to_string(), hex: Some(HEXLOWER.encode(name)) },
        }
    }
}

/// Returns the key of the bytes of a name.
fn hex_key(key: &str) -> String {
    format!("{key}_hex")
}

/// Returns a JSON object with a name or path in it under a key. If it is not valid UTF-8, another
/// key with the suffix `_hex` has its bytes.
pub(crate) fn with_name(mut document: Value, key: &str, name: &[u8]) -> Value {
    let JsonName { text, hex } = JsonName::new(name);
    document[key] = json!(text);
    if let Some(hex) = hex {
        document[hex_key(key)] = json!(hex);
    }
    document
}

/// Returns a JSON object with a name or path in it as [`with_name`] adds it, or `null` if there is
/// none.
pub(crate) fn with_name_if_any(mut document: Value, key: &str, name: Option<&[u8]>) -> Value {
    if let Some(name) = name {
        return with_name(document, key, name);
    }
    document[key] = Value::Null;
    document
}

/// Returns a JSON object with an array of names or paths in it under a key. If some of them are not
/// valid UTF-8, another key with the suffix `_hex` has an array with their bytes, and `null` for
/// the others.
pub(crate) fn with_names<'a>(
    mut document: Value,
    key: &str,
    names: impl IntoIterator<Item = &'a [u8]>,
) -> Value {
    let names: Vec<_> = names.into_iter().map(JsonName::new).collect();
    if names.iter().any(|name| name.hex.is_some()) {
        document[hex_key(key)] = names.iter().map(|name| json!(name.hex)).collect();
    }
    document[key] = names.iter().map(|name| json!(name.text)).collect();
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_have_their_bytes() {
        let text = with_name(json!({}), "name", br"a\xff");
        assert_eq!(text, json!({ "name": r"a\xff" }));
        let bytes = with_name(json!({}), "name", b"a\xff");
        assert_eq!(bytes["name_hex"], "61ff");
        assert_eq!(with_name_if_any(json!({}), "path", None), json!({ "path": null }));
        assert_eq!(with_name_if_any(json!({}), "path", Some(b"a")), json!({ "path": "a" }));
    }

    #[test]
    fn arrays_of_names_have_bytes_at_the_same_places() {
        let texts = with_names(json!({}), "paths", [&b"a"[..], b"b"]);
        assert_eq!(texts, json!({ "paths": ["a", "b"] }));
        let mixed = with_names(json!({}), "paths", [&b"a"[..], b"\xff"]);
        assert_eq!(mixed["paths_hex"], json!([null, "ff"]));
        assert_eq!(mixed["paths"][0], "a");
    }
}
