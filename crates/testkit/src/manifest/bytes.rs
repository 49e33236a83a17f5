//! Byte strings that print as readable text and read back exactly.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Any bytes; the text form is ASCII with `%XX` for unprintable bytes, and for `%`, `"` and `\`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Parses the text form; `None` if a `%` is not followed by two hexadecimal digits, or a
    /// character is never printed unescaped.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.as_bytes();
        let mut bytes = Vec::with_capacity(rest.len());
        while let [first, tail @ ..] = rest {
            let (byte, tail) = match (first, tail) {
                (b'%', [high, low, tail @ ..]) => (digit(*high)? << 4 | digit(*low)?, tail),
                (plain, tail) if is_plain(*plain) => (*plain, tail),
                _ => return None,
            };
            bytes.push(byte);
            rest = tail;
        }
        Some(Self(bytes))
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'%' | b'"' | b'\\')
}

fn digit(ascii: u8) -> Option<u8> {
    char::from(ascii).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl<T: Into<Vec<u8>>> From<T> for Bytes {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| match byte {
            plain if is_plain(*plain) => write!(f, "{}", char::from(*plain)),
            other => write!(f, "%{other:02x}"),
        })
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not an escaped byte string"))
    }
}
