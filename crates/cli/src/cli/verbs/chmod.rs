//! `chmod`: changes permissions, given in octal or symbolically.

use std::ffi::OsString;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use userbtrfs::{Attributes, Quoted};

use crate::cli::paths::{Traversal, each_inode};
use crate::cli::report::progress;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::permissions;

/// All bits that can be set.
const ALL: u32 = 0o7777;

#[derive(clap::Args)]
pub(crate) struct ChmodArgs {
    /// Mode, octal or symbolic (u=rwX,g-w,o=); the umask applies without u, g, o or a
    #[arg(allow_hyphen_values = true)]
    mode: Mode,
    /// Paths inside the image
    #[arg(required = true)]
    paths: Vec<OsString>,
    /// Change files and directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl RunVerb for ChmodArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let traversal = Traversal { recursive: self.recursive, follow: true };
        let umask = umask();
        let paths = session.expand(&self.paths);
        each_inode(&session.filesystem, &paths, traversal, |path, inode| {
            let found = inode.metadata()?;
            if found.is_symlink() {
                return Ok(());
            }
            let old = found.mode & ALL;
            let mode = self.mode.apply(old, found.is_dir(), umask);
            inode.set_attributes(&Attributes { mode: Some(mode), ..Attributes::default() })?;
            progress(&session.global, || describe(path, old, mode))
        })
    }
}

/// Returns the line of `--verbose`, as chmod(1) prints it.
fn describe(path: &[u8], old: u32, new: u32) -> String {
    let path = Quoted(path);
    let shown = |mode| format!("{mode:04o} ({})", permissions(mode));
    if old == new {
        format!("mode of '{path}' retained as {}", shown(old))
    } else {
        format!("mode of '{path}' changed from {} to {}", shown(old), shown(new))
    }
}

/// A change of permissions.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// These bits; with five digits or more, the set-id bits of a directory are changed, too.
    Octal { bits: u32, is_long: bool },
    /// Symbolic changes, applied one after the other.
    Letters(Vec<Clause>),
}

/// One change of some bits.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    /// The bits of the classes of users that it changes.
    whom: u32,
    /// No class was named, so the bits of the umask are not changed.
    heeds_umask: bool,
    how: How,
    /// It was given in octal, and changes the set-id bits of a directory, too.
    is_octal: bool,
    /// The bits, for all classes.
    bits: u32,
    /// Also the execute bits, if it is a directory or has one of them.
    executable: bool,
    /// Also the permissions of the class whose bits are shifted by this.
    like: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Add,
    Remove,
    Set,
}

impl Mode {
    /// Returns the changed permissions.
    pub(in crate::cli) fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        match self {
            // As in coreutils, fewer than five digits keep the set-id bits of a directory.
            Self::Octal { bits, is_long: false } if is_dir => bits | (mode & 0o6000),
            Self::Octal { bits, .. } => *bits,
            Self::Letters(clauses) => {
                clauses.iter().fold(mode, |mode, clause| clause.apply(mode, is_dir, umask))
            }
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let mut bits = self.bits;
        if self.executable && (is_dir || mode & 0o111 != 0) {
            bits |= 0o111;
        }
        if let Some(shift) = self.like {
            bits |= (mode >> shift & 7) * 0o111;
        }
        let bits = bits & self.whom & if self.heeds_umask { !umask } else { ALL };
        match self.how {
            How::Add => mode | bits,
            How::Remove => mode & !bits,
            How::Set if is_dir && !self.is_octal => (mode & (!self.whom | 0o6000)) | bits,
            How::Set => (mode & !self.whom) | bits,
        }
    }

    /// Parses `[ugoa]*([-+=]([rwxXst]*|[ugo]))+` or `[-+=][0-7]+`.
    fn parse_all(text: &str) -> Option<Vec<Self>> {
        let end = text.find(['-', '+', '='])?;
        let named = text[..end].chars().try_fold(0, |whom, letter| Some(whom | class(letter)?))?;
        let whom = if named == 0 { ALL } else { named };
        let mut rest = &text[end..];
        if let ([sign @ ('+' | '-' | '=')], Ok(bits)) =
            (&rest[..1].chars().collect::<Vec<_>>()[..], octal(&rest[1..]))
            && named == 0
        {
            return Some(vec![Self { bits, is_octal: true, ..Self::new(ALL, how(*sign), false) }]);
        }
        let mut clauses = Vec::new();
        while let Some(sign) = rest.chars().next() {
            let next = rest[1..].find(['-', '+', '=']).map_or(rest.len(), |at| at + 1);
            let clause = Self::new(whom, how(sign), named == 0);
            clauses.push(clause.with_letters(&rest[1..next])?);
            rest = &rest[next..];
        }
        Some(clauses)
    }

    fn new(whom: u32, how: How, heeds_umask: bool) -> Self {
        Self { whom, heeds_umask, how, is_octal: false, bits: 0, executable: false, like: None }
    }

    fn with_letters(self, letters: &str) -> Option<Self> {
        let mut clause = self;
        clause.like = match letters {
            "u" => Some(6),
            "g" => Some(3),
            "o" => Some(0),
            _ => None,
        };
        if clause.like.is_some() {
            return Some(clause);
        }
        for letter in letters.chars() {
            match letter {
                'r' => clause.bits |= 0o444,
                'w' => clause.bits |= 0o222,
                'x' => clause.bits |= 0o111,
                's' => clause.bits |= 0o6000,
                't' => clause.bits |= 0o1000,
                'X' => clause.executable = true,
                _ => return None,
            }
        }
        Some(clause)
    }
}

fn how(sign: char) -> How {
    match sign {
        '+' => How::Add,
        '-' => How::Remove,
        _ => How::Set,
    }
}

/// Returns the umask of this process, as `/proc/self/status` shows it; 0 if that cannot be read.
pub(in crate::cli) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    digits.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0)
}

/// Returns the bits of a class of users.
fn class(letter: char) -> Option<u32> {
    Some(match letter {
        'u' => 0o4700,
        'g' => 0o2070,
        'o' => 0o1007,
        'a' => ALL,
        _ => return None,
    })
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return octal(text).map(|bits| Self::Octal { bits, is_long: text.len() > 4 });
        }
        let clauses = text.split(',').map(Clause::parse_all).collect::<Option<Vec<_>>>();
        clauses.map(|all| Self::Letters(all.concat())).ok_or_else(|| "not a mode".to_owned())
    }
}

/// Parses permissions in octal.
fn octal(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= ALL);
    mode.ok_or_else(|| "not an octal mode".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(mode: &str, from: u32, is_dir: bool) -> u32 {
        mode.parse::<Mode>().unwrap().apply(from, is_dir, 0o022)
    }

    #[test]
    fn umask_applies_if_no_class_is_named() {
        assert_eq!((changed("+w", 0o444, false), changed("a+w", 0o444, false)), (0o644, 0o666));
        assert_eq!((changed("-w", 0o666, false), changed("=rw", 0o777, false)), (0o466, 0o644));
        assert_eq!(changed("+x", 0o644, false), 0o755);
    }

    #[test]
    fn octal_digits_follow_a_sign() {
        assert_eq!(
            (changed("=4755", 0o777, false), changed("+111", 0o644, false)),
            (0o4755, 0o755)
        );
        assert_eq!((changed("-022", 0o666, false), changed("=755", 0o2700, true)), (0o644, 0o755));
        assert!("u=755".parse::<Mode>().is_err() && "+8".parse::<Mode>().is_err());
    }

    #[test]
    fn octal_mode_sets_its_bits() {
        assert_eq!(changed("640", 0o777, false), 0o640);
        assert_eq!(changed("4755", 0, false), 0o4755);
        assert_eq!((changed("755", 0o2700, true), changed("00755", 0o2700, true)), (0o2755, 0o755));
        for bad in ["8", "10000", "0x1", "-1"] {
            assert!(octal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn letters_add_remove_and_set() {
        assert_eq!(changed("u+x", 0o644, false), 0o744);
        assert_eq!(changed("a-w", 0o666, false), 0o444);
        assert_eq!(changed("g=rx,o=", 0o777, false), 0o750);
        assert_eq!(changed("+t", 0o777, true), 0o1777);
        assert_eq!(changed("u+s,g+s", 0o755, false), 0o6755);
        assert_eq!(changed("g=u", 0o740, false), 0o770);
        assert_eq!(changed("u=rw-x+x", 0o100, false), 0o700);
        assert_eq!(changed("=r", 0o777, false), 0o444);
    }

    #[test]
    fn capital_x_applies_to_directories_and_executables() {
        assert_eq!(changed("a+X", 0o644, false), 0o644);
        assert_eq!(changed("a+X", 0o744, false), 0o755);
        assert_eq!(changed("a+X", 0o600, true), 0o711);
    }

    #[test]
    fn malformed_mode_is_refused() {
        for bad in ["", "rwx", "u", "u+q", "z+r", "u+r,", "u+rg"] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
    }
}
