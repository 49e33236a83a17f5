//! Formats of `stat -c` and `stat --printf`, with the directives of stat(1).

use std::str::FromStr;

use anyhow::Result;
use nix::unistd::{Gid, Group, Uid, User};
use userbtrfs::{FileKind, Inode, Metadata, Timestamp};

use crate::cli::text;

/// The bytes of a block of `%b`.
const BLOCK: u64 = 512;
/// The block size for efficient I/O that the mounts have.
const IO_BLOCK: u64 = 4096;

/// A format: text, and directives between it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Directive { letter: char, width: usize, pad: Pad },
}

/// How a value that is narrower than its width is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pad {
    Left,
    Right,
    Zeros,
}

const DIRECTIVES: &str = "aAbBdDfFgGhimnNostTuUwWxXyYzZ";

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            parts.push(Part::Text(before.to_owned()));
            if let Some(after) = after.strip_prefix('%') {
                parts.push(Part::Text("%".to_owned()));
                rest = after;
                continue;
            }
            let flags = after.trim_start_matches(['-', '0', '#', '+', ' ']);
            let given = &after[..after.len() - flags.len()];
            let letters = flags.trim_start_matches(|c: char| c.is_ascii_digit());
            let digits = &flags[..flags.len() - letters.len()];
            let letter = letters.chars().next().filter(|letter| DIRECTIVES.contains(*letter));
            let letter = letter.ok_or_else(|| format!("'%{after}': invalid directive"))?;
            let width = if digits.is_empty() { Ok(0) } else { digits.parse::<u16>() };
            let width = width.map_err(|_| format!("'%{after}': invalid directive"))?;
            let pad = match () {
                () if given.contains('-') => Pad::Right,
                () if given.contains('0') => Pad::Zeros,
                () => Pad::Left,
            };
            parts.push(Part::Directive { letter, width: width.into(), pad });
            rest = &letters[letter.len_utf8()..];
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }
}

impl Template {
    /// Parses a format in which a backslash begins an escape.
    pub(crate) fn with_escapes(text: &str) -> Result<Self, String> {
        let mut plain = String::new();
        let mut rest = text.chars();
        while let Some(next) = rest.next() {
            if next != '\\' {
                plain.push(next);
                continue;
            }
            match rest.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some('r') => plain.push('\r'),
                Some('0') => plain.push('\0'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            }
        }
        plain.parse()
    }

    /// Returns the format with the values of an inode.
    pub(crate) fn fill(&self, path: &[u8], inode: &Inode) -> Result<Vec<u8>> {
        let metadata = inode.metadata()?;
        let mut filled = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.extend_from_slice(text.as_bytes()),
                Part::Directive { letter, width, pad } => {
                    let value = value(*letter, path, inode, &metadata)?;
                    let missing =
                        width.saturating_sub(String::from_utf8_lossy(&value).chars().count());
                    let before = if *pad == Pad::Right { 0 } else { missing };
                    let filler = if *pad == Pad::Zeros { b'0' } else { b' ' };
                    filled.resize(filled.len() + before, filler);
                    filled.extend_from_slice(&value);
                    filled.resize(filled.len() + missing - before, b' ');
                }
            }
        }
        Ok(filled)
    }
}

/// Returns the value of a directive.
fn value(letter: char, path: &[u8], inode: &Inode, metadata: &Metadata) -> Result<Vec<u8>> {
    let Metadata { id, size, allocated, nlink, uid, gid, mode, .. } = *metadata;
    let text = match letter {
        'n' => return Ok(path.to_vec()),
        'N' => return quoted(path, inode, metadata),
        'a' => format!("{:o}", mode & 0o7777),
        'A' => text::mode(metadata),
        'b' => allocated.div_ceil(BLOCK).to_string(),
        'B' => BLOCK.to_string(),
        'd' => id.subvolume.0.to_string(),
        'D' => format!("{:x}", id.subvolume.0),
        'f' => format!("{mode:x}"),
        'F' => kind(metadata).to_owned(),
        'g' => gid.to_string(),
        'G' => group(gid),
        'h' => nlink.to_string(),
        'i' => id.number.to_string(),
        'm' => "/".to_owned(),
        'o' => IO_BLOCK.to_string(),
        's' => size.to_string(),
        't' => format!("{:x}", metadata.device.0),
        'T' => format!("{:x}", metadata.device.1),
        'u' => uid.to_string(),
        'U' => user(uid),
        'w' => text::time_exact(metadata.created),
        'W' => seconds(metadata.created),
        'x' => text::time_exact(metadata.accessed),
        'X' => seconds(metadata.accessed),
        'y' => text::time_exact(metadata.modified),
        'Y' => seconds(metadata.modified),
        'z' => text::time_exact(metadata.changed),
        'Z' => seconds(metadata.changed),
        other => unreachable!("directive {other} was accepted"),
    };
    Ok(text.into_bytes())
}

fn seconds(time: Timestamp) -> String {
    time.sec.to_string()
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

    #[test]
    fn directives_have_flags_and_a_width() {
        let Template(parts) = "a%%%-12n%05a".parse().unwrap();
        let directive = |letter, width, pad| Part::Directive { letter, width, pad };
        assert!(parts.contains(&directive('n', 12, Pad::Right)));
        assert!(parts.contains(&directive('a', 5, Pad::Zeros)));
        for bad in ["%", "%q", "%5", "%99999s"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }

    #[test]
    fn escapes_are_those_of_printf() {
        let with = Template::with_escapes(r"a\n%s\\").unwrap();
        assert_eq!(with, "a\n%s\\".parse().unwrap());
    }
}
