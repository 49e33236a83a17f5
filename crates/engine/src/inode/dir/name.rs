//! The name of an entry. A short one is stored inline.

use std::fmt;
use std::ops::Deref;

/// The most bytes of a short name. A longer inline array would enlarge [`Name`].
const SHORT: usize = 22;

/// A name, stored inline if it is short.
pub(crate) enum Name {
    /// The length of the name, and its bytes.
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Self {
        match u8::try_from(name.len()) {
            Ok(len) if name.len() <= SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..name.len()].copy_from_slice(name);
                Self::Short(len, bytes)
            }
            _ => Self::Long(name.into()),
        }
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(len, bytes) => &bytes[..usize::from(*len)],
            Self::Long(name) => name,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_round_trip() {
        assert_eq!(size_of::<Name>(), 24);
        for len in 0..=255 {
            let name: Vec<u8> = (1..).take(len).map(|byte: u16| byte.to_le_bytes()[0]).collect();
            let kept = Name::from(&*name);
            assert_eq!(*kept, *name);
            assert_eq!(matches!(kept, Name::Short(..)), len <= SHORT);
            assert_eq!(kept, Name::from(&*name));
        }
    }
}
