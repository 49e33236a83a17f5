//! Values of extended attributes as text, in the forms of the attr tools.
//!
//! 1. Hexadecimal digits follow `0x`, base64 follows `0s`; text is in double quotes, with a
//!    backslash before a quote, a backslash, and the three octal digits of any other byte.
//! 2. Decoding an encoded value returns exactly that value.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns a value as text if it is printable, else as base64.
pub(in crate::cli) fn encode(value: &[u8]) -> String {
    let printable = |text: &str| text.chars().all(|letter| !letter.is_control());
    if str::from_utf8(value).is_ok_and(printable) { text(value) } else { base64(value) }
}

/// Returns a value as text in double quotes.
pub(in crate::cli) fn text(value: &[u8]) -> String {
    let mut shown = String::from("\"");
    let escape = |shown: &mut String, bytes: &[u8]| {
        for byte in bytes {
            write!(shown, "\\{byte:03o}").expect("it is memory");
        }
    };
    for chunk in value.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => shown.extend(['\\', letter]),
                letter if letter.is_control() => {
                    escape(&mut shown, letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
                letter => shown.push(letter),
            }
        }
        escape(&mut shown, chunk.invalid());
    }
    shown.push('"');
    shown
}

/// Returns a value in hexadecimal digits.
pub(in crate::cli) fn hex(value: &[u8]) -> String {
    crate::cli::text::hex(value)
}

/// Returns a value in base64.
pub(in crate::cli) fn base64(value: &[u8]) -> String {
    let mut shown = String::from("0s");
    for bytes in value.chunks(3) {
        let bits = (0..3)
            .fold(0, |bits, at| bits << 8 | u32::from(bytes.get(at).copied().unwrap_or_default()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            shown.push(if at <= bytes.len() { char::from(digit) } else { '=' });
        }
    }
    shown
}

/// Returns the value of a text; a text in none of the forms is taken as it is.
pub(in crate::cli) fn decode(shown: &[u8]) -> Result<Vec<u8>> {
    match shown {
        [b'0', b'x' | b'X', digits @ ..] => from_hex(digits).context("not hexadecimal"),
        [b'0', b's' | b'S', digits @ ..] => from_base64(digits).context("not base64"),
        [b'"', inner @ .., b'"'] => from_text(inner),
        plain => Ok(plain.to_vec()),
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let end = digits.iter().rposition(|digit| *digit != b'=').map_or(0, |last| last + 1);
    let padding = digits.len() - end;
    if padding > 2 || (padding > 0 && !digits.len().is_multiple_of(4)) {
        return None;
    }
    let mut value = Vec::new();
    for group in digits[..end].chunks(4) {
        let mut bits = 0;
        for digit in group {
            let found = DIGITS.iter().position(|known| known == digit)?;
            bits = bits << 6 | u32::try_from(found).ok()?;
        }
        let bytes = group.len() * 6 / 8;
        if bytes == 0 {
            return None;
        }
        bits <<= 6 * (4 - group.len());
        value.extend_from_slice(&bits.to_be_bytes()[1..=bytes]);
    }
    Some(value)
}

fn from_text(text: &[u8]) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'\\', [byte @ (b'"' | b'\\'), ..]) => {
                value.push(*byte);
                rest = &after[1..];
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                value.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &after[3..];
            }
            (b'\\', _) => bail!("a backslash before neither a quote nor three octal digits"),
            (byte, _) => value.push(*byte),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_attr_tools_write_them() {
        assert_eq!(encode(b"a \"b\" \\"), r#""a \"b\" \\""#);
        assert_eq!(encode("\u{e4}".as_bytes()), "\"\u{e4}\"");
        assert_eq!(encode(b"\0\x01"), "0sAAE=");
        assert_eq!(hex(b"\0\xff"), "0x00ff");
        assert_eq!(text(b"a\n\xff"), r#""a\012\377""#);
    }

    #[test]
    fn encoded_value_decodes_to_itself() {
        let all: Vec<u8> = (0..=255).collect();
        for len in 0..=256 {
            let value = &all[..len];
            for shown in [text(value), hex(value), base64(value), encode(value)] {
                assert_eq!(decode(shown.as_bytes()).unwrap(), value, "{shown}");
            }
        }
    }

    #[test]
    fn plain_text_decodes_to_itself() {
        for plain in [&b"abc"[..], b"", b"0", b"\"", b"a\\b", b"\xff"] {
            assert_eq!(decode(plain).unwrap(), plain);
        }
        assert_eq!(decode(b"0S").unwrap(), b"");
        assert_eq!(decode(b"0sQUI").unwrap(), b"AB");
    }

    #[test]
    fn malformed_value_is_refused() {
        for bad in [&b"0x1"[..], b"0xgg", b"0sA", b"0s=", b"0sA===", b"0s*", b"\"\\x\"", b"\"\\"] {
            let refused = decode(bad).is_err();
            assert_eq!(refused, bad != b"\"\\", "{bad:?}");
        }
    }
}
