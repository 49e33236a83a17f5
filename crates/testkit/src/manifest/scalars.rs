//! Modes and times, each with its usual text form.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Permissions with set-id and sticky bits; printed as four octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u32);

impl Mode {
    /// Takes the lowest twelve bits of a `st_mode`, without the file type.
    pub fn new(mode: u32) -> Self {
        Self(mode & 0o7777)
    }

    /// Returns the twelve bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mode = u32::from_str_radix(text, 8).map_err(|_| "a mode is octal")?;
        if mode > 0o7777 { Err("a mode has twelve bits") } else { Ok(Self(mode)) }
    }
}

/// A time since 1970: `seconds + nanoseconds / 1e9`, so before 1970 only the seconds are negative.
/// Printed as `seconds.nanoseconds`, the latter with nine digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// The fraction, less than a second.
    pub nanoseconds: u32,
}

impl Time {
    /// Returns the current time.
    pub fn now() -> Self {
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
        let seconds = i64::try_from(since.as_secs()).expect("a time in range");
        Self { seconds, nanoseconds: since.subsec_nanos() }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

impl FromStr for Time {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (seconds, nanoseconds) = text.split_once('.').ok_or("a time has a point")?;
        if nanoseconds.len() != 9 {
            return Err("a time has nine digits after the point");
        }
        let seconds = seconds.parse().map_err(|_| "seconds are a number")?;
        let nanoseconds = nanoseconds.parse().map_err(|_| "nanoseconds are a number")?;
        Ok(Self { seconds, nanoseconds })
    }
}

macro_rules! serde_by_text {
    ($scalar:ty) => {
        impl Serialize for $scalar {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $scalar {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

serde_by_text!(Mode);
serde_by_text!(Time);
