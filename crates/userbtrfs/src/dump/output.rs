//! The output of dumps of trees: lines of text, or a JSON array of blocks.
//!
//! 1. A block is written whole before the next one is read.

use std::io::{self, Write};

use serde_json::Value;

use super::Format;

/// The output of a dump of trees.
pub(super) struct Output<'a> {
    format: Format,
    out: &'a mut dyn Write,
    blocks: u64,
}

impl<'a> Output<'a> {
    pub(super) fn new(format: Format, out: &'a mut dyn Write) -> io::Result<Self> {
        if format == Format::Json {
            out.write_all(b"[")?;
        }
        Ok(Self { format, out, blocks: 0 })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Writes a line that only the text format has.
    pub(super) fn text_line(&mut self, line: &str) -> io::Result<()> {
        match self.format {
            Format::Text => writeln!(self.out, "{line}"),
            Format::Json => Ok(()),
        }
    }

    /// Writes a block as JSON.
    pub(super) fn json_block(&mut self, block: &Value) -> io::Result<()> {
        self.out.write_all(if self.blocks == 0 { b"\n" } else { b",\n" })?;
        self.blocks += 1;
        Ok(serde_json::to_writer(&mut *self.out, block)?)
    }

    pub(super) fn finish(self) -> io::Result<()> {
        if self.format == Format::Json {
            self.out.write_all(b"\n]\n")?;
        }
        self.out.flush()
    }
}
