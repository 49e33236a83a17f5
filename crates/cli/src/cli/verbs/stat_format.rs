//! Formats of `stat -c` and `stat --printf`, with the directives of stat(1).
//!
//! 1. A directive has flags, a width and a precision as in printf(3). The precision of a time in
//!    seconds is the number of digits of its fraction.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::str::FromStr;

use anyhow::Result;
use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{major, makedev, minor};
use userbtrfs::{FileKind, Inode, Metadata, Timestamp};

use crate::cli::text;

/// The bytes of a block of `%b`.
const BLOCK: u64 = 512;
/// The block size for efficient I/O that the mounts have.
const IO_BLOCK: u64 = 4096;
/// The number of digits of nanoseconds.
const NANOSECOND_DIGITS: usize = 9;

/// A format: text, and directives between it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Directive(Directive),
}

/// A directive, such as `%-10.3Y`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directive {
    flags: String,
    width: usize,
    precision: Precision,
    /// `H` or `L` for the major or minor number of a device.
    half: Option<char>,
    letter: char,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// There is none.
    None,
    /// A dot without a number.
    Full,
    Digits(usize),
}

/// A value that a directive shows.
enum Value {
    Text(Vec<u8>),
    Decimal(u64),
    /// A number before which flags can demand a sign.
    Signed(u64),
    Octal(u64),
    Hex(u64),
    Seconds(Timestamp),
}

const FLAGS: &str = "-0#+ '";
const DIRECTIVES: &str = "aAbBdDfFgGhimnNorRstTuUwWxXyYzZ";
/// The directives of device numbers, which have halves.
const DEVICES: &str = "dr";

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, false)
    }
}

impl Template {
    /// Parses a format in which a backslash begins an escape.
    pub(crate) fn with_escapes(text: &str) -> Result<Self, String> {
        Self::parse(text, true)
    }

    fn parse(text: &str, has_escapes: bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            rest = &rest[next.len_utf8()..];
            match next {
                '%' if rest.starts_with('%') => {
                    plain.push(b'%');
                    rest = &rest[1..];
                }
                '%' => {
                    let (directive, after) = Directive::parse(rest)?;
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Directive(directive));
                    rest = after;
                }
                '\\' if has_escapes => rest = unescape(rest, &mut plain),
                other => push(&mut plain, other),
            }
        }
        parts.push(Part::Text(plain));
        Ok(Self(parts))
    }

    /// Returns the format with the values of an inode.
    pub(crate) fn fill(&self, path: &[u8], inode: &Inode) -> Result<Vec<u8>> {
        let metadata = inode.metadata()?;
        let mut filled = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.extend_from_slice(text),
                Part::Directive(directive) => {
                    let value = directive.value(path, inode, &metadata)?;
                    filled.extend(directive.shown(value));
                }
            }
        }
        Ok(filled)
    }
}

/// Appends the bytes that an escape stands for, which follows a backslash, and returns the text
/// after it.
fn unescape<'a>(text: &'a str, plain: &mut Vec<u8>) -> &'a str {
    let Some(letter) = text.chars().next() else {
        plain.push(b'\\');
        return text;
    };
    let rest = &text[letter.len_utf8()..];
    let octal = digits(text, 8, 3);
    let hex = if letter == 'x' { digits(rest, 16, 2) } else { "" };
    // The upper bits of a number above 255 are lost, as in C.
    let byte = |digits, radix| u32::from_str_radix(digits, radix).unwrap_or(0).to_le_bytes()[0];
    if !octal.is_empty() {
        plain.push(byte(octal, 8));
        return &text[octal.len()..];
    }
    if !hex.is_empty() {
        plain.push(byte(hex, 16));
        return &rest[hex.len()..];
    }
    match letter {
        'a' => plain.push(0x07),
        'b' => plain.push(0x08),
        'e' => plain.push(0x1b),
        'f' => plain.push(0x0c),
        'n' => plain.push(b'\n'),
        'r' => plain.push(b'\r'),
        't' => plain.push(b'\t'),
        'v' => plain.push(0x0b),
        other => push(plain, other),
    }
    rest
}

/// Returns the digits at the start of a text, at most `most`.
fn digits(text: &str, radix: u32, most: usize) -> &str {
    &text[..text.chars().take(most).take_while(|digit| digit.is_digit(radix)).count()]
}

fn push(plain: &mut Vec<u8>, letter: char) {
    plain.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

impl Directive {
    /// Parses a directive without its percent sign, and returns the text after it.
    fn parse(text: &str) -> Result<(Self, &str), String> {
        let invalid = || format!("'%{text}': invalid directive");
        let split = |text: &str, is_part: fn(char) -> bool| {
            text.find(|letter| !is_part(letter)).unwrap_or(text.len())
        };
        let is_digit = |letter: char| letter.is_ascii_digit();
        let number = |digits: &str| match digits {
            "" => Ok(0),
            digits => digits.parse::<u16>().map(usize::from).map_err(|_| invalid()),
        };
        let (flags, rest) = text.split_at(split(text, |letter| FLAGS.contains(letter)));
        let (width, mut rest) = rest.split_at(split(rest, is_digit));
        let mut precision = Precision::None;
        if let Some(after) = rest.strip_prefix('.') {
            let (digits, after) = after.split_at(split(after, is_digit));
            let is_full = digits.is_empty();
            precision = if is_full { Precision::Full } else { Precision::Digits(number(digits)?) };
            rest = after;
        }
        let half = rest.chars().next().filter(|half| matches!(half, 'H' | 'L'));
        let rest = half.map_or(rest, |half| &rest[half.len_utf8()..]);
        let allowed = if half.is_some() { DEVICES } else { DIRECTIVES };
        let letter = rest.chars().next().filter(|letter| allowed.contains(*letter));
        let letter = letter.ok_or_else(invalid)?;
        let flags = flags.to_owned();
        let directive = Self { flags, width: number(width)?, precision, half, letter };
        Ok((directive, &rest[letter.len_utf8()..]))
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// Returns a value as the flags, the width and the precision say.
    fn shown(&self, value: Value) -> Vec<u8> {
        let hex_prefix = |number| if self.has('#') && number != 0 { "0x" } else { "" };
        let octal_prefix = |number| if self.has('#') && number != 0 { "0" } else { "" };
        let (prefix, digits) = match value {
            Value::Text(text) => return self.padded_text(text),
            Value::Seconds(time) => {
                let (sign, digits) = self.seconds(time);
                return self.padded(sign, &digits, self.has('0'));
            }
            Value::Decimal(number) => ("", number.to_string()),
            Value::Signed(number) => (self.sign(), number.to_string()),
            Value::Octal(number) => ("", format!("{}{number:o}", octal_prefix(number))),
            Value::Hex(number) => (hex_prefix(number), format!("{number:x}")),
        };
        let least = match self.precision {
            Precision::Digits(least) => least,
            Precision::None | Precision::Full => 0,
        };
        let fills_zeros = self.has('0') && self.precision == Precision::None;
        self.padded(prefix, &format!("{digits:0>least$}"), fills_zeros)
    }

    /// Returns the sign of a number that is not negative.
    fn sign(&self) -> &'static str {
        if self.has('+') {
            "+"
        } else if self.has(' ') {
            " "
        } else {
            ""
        }
    }

    /// Returns the sign and the digits of a time in seconds; a fraction is rounded down.
    fn seconds(&self, time: Timestamp) -> (&'static str, String) {
        let places = match self.precision {
            Precision::None => 0,
            Precision::Full => NANOSECOND_DIGITS,
            Precision::Digits(places) => places,
        };
        let exact = places.min(NANOSECOND_DIGITS);
        let power = |digits: usize| (0..digits).fold(1_i128, |power, _| power * 10);
        let nanoseconds = i128::from(time.sec) * power(NANOSECOND_DIGITS) + i128::from(time.nsec);
        let count = nanoseconds.div_euclid(power(NANOSECOND_DIGITS - exact));
        let sign = if count < 0 { "-" } else { self.sign() };
        let whole = count.abs() / power(exact);
        if places == 0 {
            return (sign, whole.to_string());
        }
        let fraction = format!("{:0exact$}", count.abs() % power(exact));
        (sign, format!("{whole}.{fraction:0<places$}"))
    }

    /// Returns a number with its sign or prefix, as wide as it has to be.
    fn padded(&self, prefix: &str, digits: &str, fills_zeros: bool) -> Vec<u8> {
        let width = self.width;
        let room = width.saturating_sub(prefix.len());
        let whole = format!("{prefix}{digits}");
        let padded = if self.has('-') {
            format!("{whole:<width$}")
        } else if fills_zeros {
            format!("{prefix}{digits:0>room$}")
        } else {
            format!("{whole:>width$}")
        };
        padded.into_bytes()
    }

    /// Returns a text, cut after the precision, as wide as it has to be.
    fn padded_text(&self, mut text: Vec<u8>) -> Vec<u8> {
        match self.precision {
            Precision::None => {}
            Precision::Full => text.clear(),
            Precision::Digits(most) => text.truncate(most),
        }
        let missing = self.width.saturating_sub(String::from_utf8_lossy(&text).chars().count());
        let blanks = vec![b' '; missing];
        if self.has('-') { [text, blanks].concat() } else { [blanks, text].concat() }
    }

    /// Returns the value for an inode.
    fn value(&self, path: &[u8], inode: &Inode, metadata: &Metadata) -> Result<Value> {
        let Metadata { id, size, allocated, nlink, uid, gid, mode, device, .. } = *metadata;
        let subvolume = id.subvolume.0;
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let exact = |time| Value::Text(text::time_exact(time).into_bytes());
        Ok(match (self.half, self.letter) {
            (Some('H'), 'd') => Value::Decimal(major(subvolume).into()),
            (Some(_), 'd') => Value::Decimal(minor(subvolume).into()),
            (Some('H'), _) => Value::Decimal(device.0.into()),
            (Some(_), _) => Value::Decimal(device.1.into()),
            (None, 'n') => Value::Text(path.to_vec()),
            (None, 'N') => Value::Text(quoted(path, inode, metadata)?),
            (None, 'a') => Value::Octal(u64::from(mode & 0o7777)),
            (None, 'A') => text(&text::mode(metadata)),
            (None, 'b') => Value::Decimal(text::in_sectors(allocated) / BLOCK),
            (None, 'B') => Value::Decimal(BLOCK),
            (None, 'd') => Value::Decimal(subvolume),
            (None, 'D') => Value::Hex(subvolume),
            (None, 'f') => Value::Hex(mode.into()),
            (None, 'F') => text(kind(metadata)),
            (None, 'g') => Value::Decimal(gid.into()),
            (None, 'G') => text(&group(gid)),
            (None, 'h') => Value::Decimal(nlink.into()),
            (None, 'i') => Value::Decimal(id.number),
            (None, 'm') => text("/"),
            (None, 'o') => Value::Decimal(IO_BLOCK),
            (None, 'r') => Value::Decimal(makedev(device.0, device.1)),
            (None, 'R') => Value::Hex(makedev(device.0, device.1)),
            (None, 's') => Value::Signed(size),
            (None, 't') => Value::Hex(device.0.into()),
            (None, 'T') => Value::Hex(device.1.into()),
            (None, 'u') => Value::Decimal(uid.into()),
            (None, 'U') => text(&user(uid)),
            (None, 'w') => exact(metadata.created),
            (None, 'W') => Value::Seconds(metadata.created),
            (None, 'x') => exact(metadata.accessed),
            (None, 'X') => Value::Seconds(metadata.accessed),
            (None, 'y') => exact(metadata.modified),
            (None, 'Y') => Value::Seconds(metadata.modified),
            (None, 'z') => exact(metadata.changed),
            (None, 'Z') => Value::Seconds(metadata.changed),
            (None, other) => unreachable!("directive {other} was accepted"),
        })
    }
}

/// Returns the words after `stat` with `-c` in place of the `--format` of stat(1): a format with a
/// directive is none of the output formats that all verbs have.
pub(crate) fn with_short_format(words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter().peekable();
    let mut converted = Vec::new();
    let is_template = |text: &OsStr| text.as_bytes().contains(&b'%');
    while let Some(word) = words.next() {
        if word == "--" {
            converted.push(word);
            converted.extend(words.by_ref());
        } else if let Some(format) = word.as_bytes().strip_prefix(b"--format=")
            && is_template(OsStr::from_bytes(format))
        {
            converted.extend(["-c".into(), OsStr::from_bytes(format).to_owned()]);
        } else if word == "--format" && words.peek().is_some_and(|next| is_template(next)) {
            converted.push("-c".into());
            converted.extend(words.next());
        } else {
            converted.push(word);
        }
    }
    converted
}

/// Returns the name of the type, as stat(1) has it.
fn kind(metadata: &Metadata) -> &'static str {
    match metadata.kind {
        FileKind::Regular if metadata.size == 0 => "regular empty file",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        other => text::kind(other),
    }
}

/// Returns the path in quotes, with the target of a symbolic link.
fn quoted(path: &[u8], inode: &Inode, metadata: &Metadata) -> Result<Vec<u8>> {
    let in_quotes = |text: &[u8]| [b"'", text, b"'"].concat();
    let mut text = in_quotes(path);
    if metadata.is_symlink() {
        text.extend_from_slice(b" -> ");
        text.extend(in_quotes(&inode.read_link()?));
    }
    Ok(text)
}

/// Returns the name that the machine has for a user.
fn user(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| "UNKNOWN".to_owned(), |user| user.name)
}

/// Returns the name that the machine has for a group.
fn group(gid: u32) -> String {
    let found = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    found.map_or_else(|| "UNKNOWN".to_owned(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(text: &str) -> Directive {
        let Template(parts) = text.parse().unwrap();
        let found = parts.into_iter().find_map(|part| match part {
            Part::Directive(directive) => Some(directive),
            Part::Text(_) => None,
        });
        found.expect("there is one")
    }

    fn shown(format: &str, value: Value) -> String {
        String::from_utf8(directive(format).shown(value)).unwrap()
    }

    /// Compares with what stat(1) of coreutils 9.1 prints.
    #[test]
    fn flags_width_and_precision_are_those_of_printf() {
        for (format, expected) in [
            ("%s", "3"),
            ("% s", " 3"),
            ("%+5s", "   +3"),
            ("%+-8s", "+3      "),
            ("%.3s", "003"),
            ("%08.5s", "   00003"),
            ("%-8.5s", "00003   "),
        ] {
            assert_eq!(shown(format, Value::Signed(3)), expected, "{format}");
        }
        assert_eq!(shown("%+d", Value::Decimal(3)), "3");
        for (format, expected) in [("%#a", "04751"), ("%#06a", "004751"), ("%-05a", "4751 ")] {
            assert_eq!(shown(format, Value::Octal(0o4751)), expected, "{format}");
        }
        for (format, expected) in [("%#8f", "  0x89e9"), ("%#08f", "0x0089e9")] {
            assert_eq!(shown(format, Value::Hex(0x89e9)), expected, "{format}");
        }
        assert_eq!(shown("%#t", Value::Hex(0)), "0");
        for (format, expected) in [("%05n", "    f"), ("%.0n", ""), ("%-3.2n", "f  ")] {
            assert_eq!(shown(format, Value::Text(b"f".to_vec())), expected, "{format}");
        }
    }

    #[test]
    fn precision_of_a_time_is_that_of_its_fraction() {
        let time = Timestamp { sec: 981_173_106, nsec: 789_012_345 };
        for (format, expected) in [
            ("%Y", "981173106"),
            ("%.0Y", "981173106"),
            ("%.3Y", "981173106.789"),
            ("%.Y", "981173106.789012345"),
            ("%.12Y", "981173106.789012345000"),
            ("%020.3Y", "0000000981173106.789"),
            ("%-15.3Y", "981173106.789  "),
            ("%+.3Y", "+981173106.789"),
        ] {
            assert_eq!(shown(format, Value::Seconds(time)), expected, "{format}");
        }
        let before = Timestamp { sec: -2, nsec: 500_000_000 };
        assert_eq!(shown("%Y", Value::Seconds(before)), "-2");
        assert_eq!(shown("%010.1Y", Value::Seconds(before)), "-0000001.5");
    }

    #[test]
    fn malformed_directives_are_refused() {
        assert_eq!(directive("%Hd").half, Some('H'));
        for bad in ["%", "%q", "%5", "%99999s", "%.99999s", "%Hs", "%H", "%5%", "%5.-3s"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }

    #[test]
    fn escapes_are_those_of_printf() {
        let text = |format: &str| {
            let Template(parts) = Template::with_escapes(format).unwrap();
            let [Part::Text(text)] = &parts[..] else { panic!("{parts:?}") };
            text.clone()
        };
        assert_eq!(text(r#"a\n\t\\\"%%\q"#), b"a\n\t\\\"%q");
        assert_eq!(text(r"\a\b\e\f\r\v"), b"\x07\x08\x1b\x0c\r\x0b");
        assert_eq!(text(r"\101\x41\1012\x412\0101\4\xff\xzz"), b"AAA2A2\x081\x04\xffxzz");
        // A percent sign from an escape begins no directive.
        assert_eq!(text(r"\x25s\"), b"%s\\");
    }

    #[test]
    fn format_option_of_coreutils_is_taken_for_a_template() {
        let converted = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words: Vec<_> =
                with_short_format(words).iter().map(|word| word.display().to_string()).collect();
            words.join(" ")
        };
        assert_eq!(converted("--format=%s image /f"), "-c %s image /f");
        assert_eq!(converted("image --format -%s /f"), "image -c -%s /f");
        for line in ["--format=json image", "--format text image", "image -- --format=%s"] {
            assert_eq!(converted(line), line);
        }
    }
}
