//! Sizes on the command line.

/// The maximum number of digits of a fraction.
const FRACTION_MAX: usize = 18;

/// Parses a size, in bytes or with a suffix, as coreutils has them: K, M, G, T, P and E are powers
/// of 1024, and so are KiB and the like; KB and the like are powers of 1000. With a suffix it may
/// have a fraction; a part of a byte is dropped.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let number = whole.parse::<u64>().map_err(|_| "not a size".to_owned())?;
    if fraction.len() > FRACTION_MAX || fraction.contains('.') {
        return Err("not a size".to_owned());
    }
    let parts = fraction.parse::<u64>().map_err(|_| "not a size".to_owned())?;
    let unit = unit(suffix).ok_or_else(|| {
        if suffix.chars().all(|c| c.is_ascii_alphabetic()) {
            format!("unknown suffix {suffix}")
        } else {
            "not a size".to_owned()
        }
    })?;
    if unit == 1 && digits.contains('.') {
        return Err("a fraction needs a suffix".to_owned());
    }
    let whole = number.checked_mul(unit);
    // At most 60 bits each, so that the product fits.
    let part = u128::from(parts) * u128::from(unit) / 10_u128.pow(decimals(fraction));
    let size = whole.and_then(|whole| whole.checked_add(u64::try_from(part).ok()?));
    size.ok_or_else(|| "too large".to_owned())
}

/// Returns the number of digits of a fraction, which has few.
fn decimals(fraction: &str) -> u32 {
    u32::try_from(fraction.len()).expect("a fraction has at most 18 digits")
}

/// Returns the bytes of a unit; 1 if the suffix is empty.
fn unit(suffix: &str) -> Option<u64> {
    let Some(letter) = suffix.chars().next() else { return Some(1) };
    if suffix.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let power = u32::try_from("kmgtpe".find(letter.to_ascii_lowercase())?).ok()? + 1;
    let rest = &suffix[letter.len_utf8()..];
    match () {
        () if rest.is_empty() || rest.eq_ignore_ascii_case("ib") => Some(1024_u64.pow(power)),
        () if rest.eq_ignore_ascii_case("b") => Some(1000_u64.pow(power)),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_suffixes_of_coreutils() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!((size("1KB"), size("2mb"), size("5B")), (Ok(1000), Ok(2_000_000), Ok(5)));
        assert_eq!(size("1x"), Err("unknown suffix x".to_owned()));
        for text in ["abc", "M", "-5", "12 MiB", ".", "1.", ".5G", "1.2.3K", "1.x"] {
            assert_eq!(size(text), Err("not a size".to_owned()), "{text}");
        }
        assert_eq!((size("1.5G"), size("0.25k")), (Ok(3 << 29), Ok(256)));
        assert_eq!((size("1.0001K"), size("1.25MB")), (Ok(1024), Ok(1_250_000)));
        assert_eq!(size("1.5"), Err("a fraction needs a suffix".to_owned()));
        assert_eq!(size("15.9999999999999999999E"), Err("not a size".to_owned()));
        assert!(size("16.5E").is_err());
        assert!(size("99999999E").is_err());
        assert!(size("").is_err());
    }
}
