//! Sizes on the command line.

/// Parses a size, in bytes or with a suffix, as coreutils has them: K, M, G, T, P and E are powers
/// of 1024, and so are KiB and the like; KB and the like are powers of 1000.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number = digits.parse::<u64>().map_err(|_| "not a size".to_owned())?;
    let unit = unit(suffix).ok_or_else(|| {
        if suffix.chars().all(|c| c.is_ascii_alphabetic()) {
            format!("unknown suffix {suffix}")
        } else {
            "not a size".to_owned()
        }
    })?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
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
        for text in ["abc", "M", "-5", "1.5G", "12 MiB"] {
            assert_eq!(size(text), Err("not a size".to_owned()), "{text}");
        }
        assert!(size("99999999E").is_err());
        assert!(size("").is_err());
    }
}
