//! Display of names, which are bytes, in messages and listings.

use std::fmt::{self, Write as _};

/// A name or path, shown with control characters, backslashes and invalid UTF-8 escaped.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => write!(f, "{}", c.escape_default())?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_invalid_bytes_are_escaped() {
        assert_eq!(Quoted(b"a b\n\xff\\\xc3\xa9").to_string(), "a b\\n\\xff\\\\\u{e9}");
    }
}
