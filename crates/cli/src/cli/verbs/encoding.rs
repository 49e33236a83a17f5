//! Values of extended attributes as text, in the forms of the attr tools.
//!
//! 1. Hexadecimal digits follow `0x`, base64 follows `0s`; text is in double quotes, with a
//!    backslash before a quote, a backslash, and the three octal digits of any other byte.
//! 2. Decoding an encoded value returns exactly that value.

use std::fmt::Write as _;
use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail};
use data_encoding::{BASE64, BASE64_NOPAD, Encoding, HEXLOWER_PERMISSIVE};

/// Base64 without padding; bits after the last byte are ignored.
static BASE64_LENIENT: LazyLock<Encoding> = LazyLock::new(|| {
    let mut form = BASE64_NOPAD.specification();
    form.check_trailing_bits = false;
    form.encoding().expect("the form is valid")
});

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
    format!("0s{}", BASE64.encode(value))
}

/// Returns the value of a text; a text in none of the forms is taken as it is.
pub(in crate::cli) fn decode(shown: &[u8]) -> Result<Vec<u8>> {
    match shown {
        [b'0', b'x' | b'X', digits @ ..] => {
            HEXLOWER_PERMISSIVE.decode(digits).context("not hexadecimal")
        }
        [b'0', b's' | b'S', digits @ ..] => from_base64(digits).context("not base64"),
        [b'"', inner @ .., b'"'] => from_text(inner),
        plain => Ok(plain.to_vec()),
    }
}

/// Decodes base64; padding may be left out.
fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let end = digits.iter().rposition(|digit| *digit != b'=').map_or(0, |last| last + 1);
    let padding = digits.len() - end;
    if padding > 2 || (padding > 0 && !digits.len().is_multiple_of(4)) {
        return None;
    }
    BASE64_LENIENT.decode(&digits[..end]).ok()
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
    fn base64_has_the_padding_of_its_length() {
        let values = [("", "0s"), ("f", "0sZg=="), ("fo", "0sZm8="), ("foo", "0sZm9v")];
        for (value, shown) in values {
            assert_eq!(base64(value.as_bytes()), shown);
            assert_eq!(decode(shown.as_bytes()).unwrap(), value.as_bytes());
            let unpadded = shown.trim_end_matches('=');
            assert_eq!(decode(unpadded.as_bytes()).unwrap(), value.as_bytes());
        }
        assert_eq!(base64(b"\xfb\xff"), "0s+/8=");
    }

    #[test]
    fn lenient_forms_are_decoded() {
        assert_eq!(decode(b"0sZh==").unwrap(), b"f", "bits after the last byte");
        assert_eq!(decode(b"0XfFaB").unwrap(), b"\xff\xab");
    }

    #[test]
    fn malformed_value_is_refused() {
        for bad in [
            &b"0x1"[..],
            b"0xgg",
            b"0sA",
            b"0s=",
            b"0sA===",
            b"0sZg=",
            b"0sZ=g=",
            b"0sZm9v=",
            b"0s*",
            b"\"\\x\"",
            b"\"\\",
        ] {
            let refused = decode(bad).is_err();
            assert_eq!(refused, bad != b"\"\\", "{bad:?}");
        }
    }
}
