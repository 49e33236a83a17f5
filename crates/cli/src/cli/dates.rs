//! Times on the command line: those of `touch -d` and `touch -t`.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

/// Parses a time: `@SECONDS`, `now`, `today`, `yesterday`, `tomorrow`, a date, a time of day or
/// both (also with a zone, as in RFC 3339 and RFC 2822), or a distance such as `2 days ago`.
pub(crate) fn date(text: &str, now: &Zoned) -> Option<Timestamp> {
    let text = text.trim();
    let zone = now.time_zone();
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds_since_epoch(seconds);
    }
    let day = |date: Date| at(date.to_datetime(now.time()), zone);
    match text.to_ascii_lowercase().as_str() {
        "now" | "today" => return Some(now.timestamp()),
        "yesterday" => return day(now.date().yesterday().ok()?),
        "tomorrow" => return day(now.date().tomorrow().ok()?),
        _ => {}
    }
    let with_zone = || text.parse::<Timestamp>().ok();
    let of_mail = || jiff::fmt::rfc2822::parse(text).ok().map(|it| Zoned::timestamp(&it));
    let in_zone = || with_offset(text);
    let local = || at(text.parse::<DateTime>().ok()?, zone);
    let of_day = || at(now.date().to_datetime(text.parse::<Time>().ok()?), zone);
    let distance = || Some(now.checked_add(text.parse::<Span>().ok()?).ok()?.timestamp());
    with_zone().or_else(in_zone).or_else(local).or_else(of_day).or_else(of_mail).or_else(distance)
}

/// Parses the time of `touch -t`: `[[CC]YY]MMDDhhmm[.ss]`.
pub(crate) fn stamp(text: &str, now: &Zoned) -> Option<Timestamp> {
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    if seconds.len() != 2 || !digits.bytes().chain(seconds.bytes()).all(|it| it.is_ascii_digit()) {
        return None;
    }
    let split = digits.len().checked_sub(8)?;
    let (year, rest) = digits.split_at(split);
    let year = match (year.len(), year.parse::<i16>()) {
        (0, _) => now.year(),
        (4, Ok(year)) => year,
        // As POSIX says.
        (2, Ok(year)) => year + if year < 69 { 2000 } else { 1900 },
        _ => return None,
    };
    let part = |index: usize| rest[2 * index..2 * index + 2].parse::<i8>().ok();
    let second = seconds.parse().ok()?;
    let time = DateTime::new(year, part(0)?, part(1)?, part(2)?, part(3)?, second, 0);
    at(time.ok()?, now.time_zone())
}

fn at(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    Some(time.to_zoned(zone.clone()).ok()?.timestamp())
}

/// Parses seconds since 1970 with a fraction.
fn seconds_since_epoch(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_negative = whole.starts_with('-');
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|it| it.is_ascii_digit())
    {
        return None;
    }
    let nanoseconds: i32 = format!("{fraction:0<9}").parse().ok()?;
    let nanoseconds = if is_negative { -nanoseconds } else { nanoseconds };
    Timestamp::new(whole.parse().ok()?, nanoseconds).ok()
}

/// Parses a date and time with an offset such as ` +0100` or ` UTC`, as `date` and `stat` print.
fn with_offset(text: &str) -> Option<Timestamp> {
    let (time, offset) = text.rsplit_once(' ')?;
    if matches!(offset, "UTC" | "GMT" | "Z") {
        return at(time.parse().ok()?, &TimeZone::UTC);
    }
    let zoned = Zoned::strptime("%Y-%m-%d %H:%M:%S%.f %z", format!("{time} {offset}"));
    zoned.ok().map(|it| Zoned::timestamp(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        let time = DateTime::new(2024, 5, 6, 7, 8, 9, 0).unwrap();
        time.to_zoned(TimeZone::posix("<+01>-1").unwrap()).unwrap()
    }

    fn shown(time: Option<Timestamp>) -> String {
        time.map(|time| format!("{time}")).unwrap_or_default()
    }

    #[test]
    fn dates_are_those_that_people_type() {
        for (text, time) in [
            ("@0", "1970-01-01T00:00:00Z"),
            ("@-1.5", "1969-12-31T23:59:58.5Z"),
            ("@1700000000.25", "2023-11-14T22:13:20.25Z"),
            ("now", "2024-05-06T06:08:09Z"),
            ("yesterday", "2024-05-05T06:08:09Z"),
            ("2020-01-02", "2020-01-01T23:00:00Z"),
            ("2020-01-02 03:04", "2020-01-02T02:04:00Z"),
            ("2020-01-02 03:04:05.5", "2020-01-02T02:04:05.5Z"),
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02 03:04:05 UTC", "2020-01-02T03:04:05Z"),
            ("2020-01-02 03:04:05.000000007 +0000", "2020-01-02T03:04:05.000000007Z"),
            ("10:00", "2024-05-06T09:00:00Z"),
            ("2 days ago", "2024-05-04T06:08:09Z"),
            ("Thu, 2 Jan 2020 03:04:05 +0000", "2020-01-02T03:04:05Z"),
        ] {
            assert_eq!(shown(date(text, &now())), time, "{text}");
        }
        for bad in ["", "@", "@x", "2020-13-01", "sometime", "@1.", "@1.x"] {
            assert_eq!(date(bad, &now()), None, "{bad}");
        }
    }

    #[test]
    fn stamps_are_those_of_posix() {
        for (text, time) in [
            ("202001020304.05", "2020-01-02T02:04:05Z"),
            ("2001020304", "2020-01-02T02:04:00Z"),
            ("6901020304", "1969-01-02T02:04:00Z"),
            ("01020304", "2024-01-02T02:04:00Z"),
        ] {
            assert_eq!(shown(stamp(text, &now())), time, "{text}");
        }
        for bad in ["", "1", "0102030", "13020304", "01020304.5", "x1020304", "120200102030405"] {
            assert_eq!(stamp(bad, &now()), None, "{bad}");
        }
    }
}
