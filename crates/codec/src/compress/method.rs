//! An algorithm with a level, as options name it: `zstd`, `zlib:9`, `zstd:-3`.

use std::fmt;
use std::str::FromStr;

use super::Compression;
use super::error::MethodError;

/// An algorithm and a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompressionMethod {
    /// The algorithm.
    pub algorithm: Compression,
    /// The level; `None` for the default. See [`Compression::compress`] for levels out of range.
    pub level: Option<i32>,
}

impl From<Compression> for CompressionMethod {
    fn from(algorithm: Compression) -> Self {
        Self { algorithm, level: None }
    }
}

impl CompressionMethod {
    /// Returns an error if the algorithm does not have this level; 0 is the default.
    pub fn check_level(self) -> Result<(), MethodError> {
        let levels = self.algorithm.levels();
        match self.level {
            Some(level) if level != 0 && !levels.contains(&level) => Err(MethodError::Level {
                algorithm: self.algorithm.name(),
                level,
                least: *levels.start(),
                most: *levels.end(),
            }),
            _ => Ok(()),
        }
    }
}

impl FromStr for CompressionMethod {
    type Err = MethodError;

    /// Accepts every level, as Linux does for the mount option.
    fn from_str(text: &str) -> Result<Self, MethodError> {
        let unknown = || MethodError::Unknown(text.to_owned());
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let algorithm = Compression::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        Ok(Self { algorithm: algorithm.ok_or_else(unknown)?, level })
    }
}

impl fmt::Display for CompressionMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        self.level.map_or(Ok(()), |level| write!(f, ":{level}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_method_is_read_as_linux_reads_mount_option() {
        for (text, algorithm, level) in [
            ("zlib", Compression::Zlib, None),
            ("zlib:9", Compression::Zlib, Some(9)),
            ("zlib:10", Compression::Zlib, Some(10)),
            ("zstd:0", Compression::Zstd, Some(0)),
            ("zstd:-15", Compression::Zstd, Some(-15)),
            ("lzo", Compression::Lzo, None),
            ("lzo:9", Compression::Lzo, Some(9)),
        ] {
            let method = CompressionMethod { algorithm, level };
            assert_eq!(text.parse(), Ok(method));
            assert_eq!(method.to_string(), text);
        }
        for text in ["", ":", "zstd:", "zstd:abc", "zstd:3x", "zstdx", "lzox", "ZSTD", "zlib 3"] {
            let error = MethodError::Unknown(text.to_owned());
            assert_eq!(text.parse::<CompressionMethod>(), Err(error), "{text}");
        }
    }

    #[test]
    fn level_out_of_range_is_named_with_the_range() {
        let check = |text: &str| text.parse::<CompressionMethod>().unwrap().check_level();
        for text in ["zlib", "zlib:1", "zlib:9", "zstd:-15", "zstd:15", "zstd:0", "lzo", "lzo:0"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in ["zlib:10", "zlib:-1", "zstd:16", "zstd:-16", "lzo:1"] {
            assert!(matches!(check(text), Err(MethodError::Level { .. })), "{text}");
        }
        let message = check("zstd:16").unwrap_err().to_string();
        assert_eq!(message, "compression level 16 is out of range for zstd (-15 to 15)");
    }
}
