//! Dates as text, in UTC, for all times that 64 bits of seconds can represent.

/// Returns the date and time of day `seconds` after the start of 1970 (before it, if negative).
pub(super) fn utc(seconds: i64) -> String {
    const DAY: i64 = 86_400;
    let days = seconds.div_euclid(DAY);
    let second = seconds.rem_euclid(DAY);
    let (year, month, day) = civil(days);
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the year, month and day of the Gregorian calendar, `days` after the start of 1970.
///
/// Years are counted from March, so that a leap day is the last day of its year; the pattern of
/// leap years repeats after 400 years of 146 097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    /// Days from March of year 0 to the start of 1970.
    const TO_1970: i64 = 719_468;
    const CYCLE: i64 = 146_097;
    let days = days + TO_1970;
    let cycle = days.div_euclid(CYCLE);
    let day = days.rem_euclid(CYCLE);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // From March on, each five months have 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + carry, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_around_leap_days_and_the_ends_of_the_number_space() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(-5), "1969-12-31 23:59:55");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00");
        assert_eq!(utc(1_099_511_627_776), "36812-02-20 00:36:16");
        assert_eq!(utc(i64::MAX), "292277026596-12-04 15:30:07");
        assert_eq!(utc(i64::MIN), "-292277022657-01-27 08:29:52");
    }
}
