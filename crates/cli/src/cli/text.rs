//! Modes, times, sizes and paths as text.

use std::ffi::OsStr;
use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use jiff::{Timestamp as Instant, tz::TimeZone};
use userbtrfs::{FileKind, Metadata, Quoted, Timestamp};
use userbtrfs_format::SECTOR;

/// Returns a mode as `ls -l` shows it.
pub(crate) fn mode(metadata: &Metadata) -> String {
    let kind = match metadata.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    format!("{kind}{}", permissions(metadata.mode))
}

/// Returns permissions as `ls -l` shows them.
pub(crate) fn permissions(mode: u32) -> String {
    let mut text = String::new();
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        let set = mode & special != 0;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, set) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns the name of a file type.
pub(crate) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// The time zone of the times that are printed: that of `TZ`, or of the machine.
static ZONE: LazyLock<TimeZone> = LazyLock::new(TimeZone::system);

/// Returns the time zone of times on the command line and in the output.
pub(crate) fn zone() -> TimeZone {
    ZONE.clone()
}

/// Returns a time to the minute, in the local zone, or in seconds if it is beyond the calendar.
pub(crate) fn time(time: Timestamp) -> String {
    calendar(time, "%Y-%m-%d %H:%M").unwrap_or_else(|| time.sec.to_string())
}

/// Returns a time to the second, in the local zone, or in seconds if it is beyond the calendar.
pub(crate) fn time_to_seconds(time: Timestamp) -> String {
    calendar(time, "%Y-%m-%d %H:%M:%S").unwrap_or_else(|| time.sec.to_string())
}

/// Returns a time to the second with its zone, as `date "+%F %T %z"` prints it.
pub(crate) fn time_in_zone(time: Timestamp) -> String {
    calendar(time, "%Y-%m-%d %H:%M:%S %z").unwrap_or_else(|| time.sec.to_string())
}

/// Returns a time to the nanosecond, in the local zone, or in seconds if it is beyond the calendar.
pub(crate) fn time_exact(time: Timestamp) -> String {
    let day = calendar(time, "%Y-%m-%d %H:%M:%S");
    match day.zip(calendar(time, "%z")) {
        Some((text, zone)) => format!("{text}.{:09} {zone}", time.nsec),
        None => time.to_string(),
    }
}

fn calendar(time: Timestamp, format: &str) -> Option<String> {
    in_zone(time, zone(), format)
}

fn in_zone(time: Timestamp, zone: TimeZone, format: &str) -> Option<String> {
    let instant = Instant::from_second(time.sec).ok()?;
    Some(instant.to_zoned(zone).strftime(format).to_string())
}

/// Returns a size with a binary suffix, as btrfs-progs prints it.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let one = 1_u128 << (10 * unit);
    let hundredths = (u128::from(bytes) * 100 + one / 2) / one;
    format!("{}.{:02}{}", hundredths / 100, hundredths % 100, units[unit])
}

/// Returns a size in few digits, rounded up, with the suffix of a power of `base`, as `ls -h` and
/// `du -h` print it.
pub(crate) fn short_size(bytes: u64, base: u128) -> String {
    let bytes = u128::from(bytes);
    let suffixes = if base == 1000 { "kMGTPE" } else { "KMGTPE" };
    let mut unit = 1;
    let mut suffix = None;
    for letter in suffixes.chars() {
        // A size that is rounded up to the next unit is shown in that unit.
        if bytes.div_ceil(unit) < base {
            break;
        }
        unit *= base;
        suffix = Some(letter);
    }
    let Some(suffix) = suffix else { return bytes.to_string() };
    match (bytes * 10).div_ceil(unit) {
        tenths @ ..100 => format!("{}.{}{suffix}", tenths / 10, tenths % 10),
        _ => format!("{}{suffix}", bytes.div_ceil(unit)),
    }
}

/// Returns a number of bytes rounded up to sectors, as Linux reports those that a file takes.
pub(crate) fn in_sectors(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR).saturating_mul(SECTOR)
}

/// Returns bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("0x{}", HEXLOWER.encode(bytes))
}

/// Returns a path that was given on the command line, quoted for messages.
pub(crate) fn shown(path: &OsStr) -> String {
    Quoted(path.as_encoded_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_with_two_digits() {
        assert_eq!(size(0), "0.00B");
        assert_eq!(size(8 << 20), "8.00MiB");
        assert_eq!(size((1 << 30) + (1 << 29)), "1.50GiB");
        assert_eq!(size(1648 << 20), "1.61GiB");
        assert_eq!(size((1 << 30) - 4096), "1024.00MiB");
        assert_eq!(size(u64::MAX), "16.00EiB");
    }

    /// Compares with what du(1) of coreutils 9.1 prints.
    #[test]
    fn sizes_are_rounded_up_to_few_digits() {
        for (bytes, binary, decimal) in [
            (0, "0", "0"),
            (1023, "1023", "1.1k"),
            (1024, "1.0K", "1.1k"),
            (1025, "1.1K", "1.1k"),
            (1_048_575, "1.0M", "1.1M"),
            (1_073_741_823, "1.0G", "1.1G"),
            (512, "512", "512"),
            (4096, "4.0K", "4.1k"),
            (12_288, "12K", "13k"),
            (1_047_552, "1023K", "1.1M"),
            (1_048_064, "1.0M", "1.1M"),
            (999_424, "976K", "1.0M"),
            (10_485_760, "10M", "11M"),
        ] {
            assert_eq!(
                (short_size(bytes, 1024), short_size(bytes, 1000)),
                (binary.into(), decimal.into())
            );
        }
    }

    #[test]
    fn times_have_a_zone_and_survive_any_number() {
        let at = |sec| Timestamp { sec, nsec: 5 };
        let shown = |sec, zone| in_zone(at(sec), zone, "%Y-%m-%d %H:%M %z");
        assert_eq!(shown(-1, TimeZone::UTC).unwrap(), "1969-12-31 23:59 +0000");
        let east = TimeZone::posix("<+0530>-5:30").unwrap();
        assert_eq!(shown(0, east).unwrap(), "1970-01-01 05:30 +0530");
        assert!(time_exact(at(0)).contains(":00.000000005 "));
        assert_eq!(time(at(i64::MAX)), i64::MAX.to_string());
    }
}
