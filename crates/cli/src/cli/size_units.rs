//! The units in which sizes are printed, as btrfs-progs has them.
//!
//! 1. A size has two decimals, rounded from a number of single precision, as in btrfs-progs:
//!    scripts compare its output.

use std::ffi::OsString;

/// The options for units.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(disable_help_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of btrfs-progs")]
pub(crate) struct SizeArgs {
    /// Print sizes in bytes
    #[arg(short = 'b', long, overrides_with_all = UNITS)]
    raw: bool,
    /// Print sizes with a suffix, base 1024 (default)
    #[arg(short = 'h', long, overrides_with_all = ALL)]
    human_readable: bool,
    /// Print sizes with a suffix, base 1000
    #[arg(short = 'H', overrides_with_all = ALL)]
    human_decimal: bool,
    /// Use 1024 as the base
    #[arg(long, overrides_with_all = ["si", "human_decimal"])]
    iec: bool,
    /// Use 1000 as the base
    #[arg(long, overrides_with = "iec")]
    si: bool,
    /// Print sizes in KiB, or kB with --si
    #[arg(short, long, overrides_with_all = UNITS)]
    kbytes: bool,
    /// Print sizes in MiB, or MB with --si
    #[arg(short, long, overrides_with_all = UNITS)]
    mbytes: bool,
    /// Print sizes in GiB, or GB with --si
    #[arg(short, long, overrides_with_all = UNITS)]
    gbytes: bool,
    /// Print sizes in TiB, or TB with --si
    #[arg(short, long, overrides_with_all = UNITS)]
    tbytes: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The options that choose a unit: the last one has effect.
const UNITS: [&str; 6] = ["raw", "human_readable", "kbytes", "mbytes", "gbytes", "tbytes"];
/// Those, and the options that choose the base.
const ALL: [&str; 9] =
    ["raw", "human_readable", "human_decimal", "iec", "si", "kbytes", "mbytes", "gbytes", "tbytes"];

/// The format of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// In bytes.
    Raw,
    /// With a suffix: the largest unit that is not greater than the size.
    Human {
        /// True if a unit is 1000 of the next smaller one.
        si: bool,
    },
    /// In one unit, which is this power of 1024 or 1000 bytes.
    Fixed {
        /// True if it is a power of 1000.
        si: bool,
        /// The power, at least 1.
        power: u32,
    },
}

impl SizeArgs {
    /// Returns the format.
    pub(crate) fn units(&self) -> Units {
        let si = self.si || self.human_decimal;
        let fixed = [self.kbytes, self.mbytes, self.gbytes, self.tbytes];
        match fixed.into_iter().zip(1..).find(|(is_set, _)| *is_set) {
            _ if self.raw => Units::Raw,
            Some((_, power)) => Units::Fixed { si, power },
            None => Units::Human { si },
        }
    }

    /// Returns the words of a command line that mean the same.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let si = |si: bool| si.then_some("--si");
        let fixed = ["--kbytes", "--mbytes", "--gbytes", "--tbytes"];
        let (unit, base) = match self.units() {
            Units::Raw => (Some("--raw"), None),
            Units::Human { si: base } => (None, si(base)),
            Units::Fixed { si: base, power } => {
                (fixed.into_iter().zip(1..).find(|(_, at)| *at == power).map(|it| it.0), si(base))
            }
        };
        unit.into_iter().chain(base).map(OsString::from).collect()
    }
}

impl Units {
    /// Returns a size as text.
    pub(crate) fn text(self, bytes: u64) -> String {
        let (si, power, last) = match self {
            Self::Raw => return bytes.to_string(),
            Self::Fixed { si, power } => {
                return format!("{:.2}{}", quotient(bytes, base(si).pow(power)), suffix(si, power));
            }
            Self::Human { si } => {
                let mut last = bytes;
                let mut size = bytes;
                let mut power = 0;
                while size >= base(si) {
                    last = size;
                    size /= base(si);
                    power += 1;
                }
                (si, power, last)
            }
        };
        let unit = if power == 0 { 1 } else { base(si) };
        format!("{:.2}{}", quotient(last, unit), suffix(si, power))
    }
}

fn base(si: bool) -> u64 {
    if si { 1000 } else { 1024 }
}

fn suffix(si: bool, power: u32) -> &'static str {
    let names = if si {
        ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    } else {
        ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    };
    names.into_iter().zip(0..).find(|(_, at)| *at == power).map_or("", |(name, _)| name)
}

#[expect(clippy::cast_precision_loss, reason = "sizes are shown in single precision")]
fn quotient(size: u64, unit: u64) -> f32 {
    size as f32 / unit as f32
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        sizes: SizeArgs,
    }

    fn units(words: &str) -> Units {
        Command::try_parse_from(format!("df {words}").split_whitespace()).unwrap().sizes.units()
    }

    /// Compares with what btrfs-progs 6.2 prints.
    #[test]
    fn sizes_are_printed_as_by_btrfs_progs() {
        for (words, bytes, text) in [
            ("", 0, "0.00B"),
            ("", 1000, "1000.00B"),
            ("", 53_673_984, "51.19MiB"),
            ("-h -b", 53_673_984, "53673984"),
            ("-b -h", 53_673_984, "51.19MiB"),
            ("-H", 53_673_984, "53.67MB"),
            ("-H", 16_384, "16.38kB"),
            ("--si", 33_599_488, "33.60MB"),
            ("-H --iec", 53_673_984, "51.19MiB"),
            ("-k", 0, "0.00KiB"),
            ("-m", 16_384, "0.02MiB"),
            ("-m -k", 16_384, "16.00KiB"),
            ("--si -k", 243_269_632, "243269.62kB"),
            ("-k --si", 33_599_488, "33599.49kB"),
            ("-g", 367_394_816, "0.34GiB"),
            ("-t", 1_073_741_824, "0.00TiB"),
            ("", u64::MAX, "16.00EiB"),
        ] {
            assert_eq!(units(words).text(bytes), text, "{words} {bytes}");
        }
    }

    #[test]
    fn units_have_the_words_of_the_options() {
        for words in ["", "-b", "-H", "--si", "-k", "-m --si", "-g", "-t -H", "-H -h", "--iec -t"] {
            let given = Command::try_parse_from(format!("df {words}").split_whitespace()).unwrap();
            let again: Vec<_> = given.sizes.words();
            let again = [OsString::from("df")].into_iter().chain(again);
            let again = Command::try_parse_from(again).unwrap();
            assert_eq!(again.sizes.units(), given.sizes.units(), "{words}");
        }
    }
}
