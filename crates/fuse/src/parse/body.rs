//! A reader of the body of a message.

use zerocopy::FromBytes;

use super::fault::Fault;
use crate::values::{Name, Timestamp};
use crate::wire;

/// The part of a message that was not read yet.
#[derive(Clone, Copy)]
pub(super) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    /// Reads the next structure.
    pub(super) fn take<T: FromBytes>(&mut self) -> Result<T, Fault> {
        let missing = size_of::<T>().saturating_sub(self.0.len());
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Fault::Short { missing })?;
        self.0 = rest;
        Ok(value)
    }

    /// Reads the next `count` bytes.
    pub(super) fn bytes(&mut self, count: u32) -> Result<&'a [u8], Fault> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let missing = count.saturating_sub(self.0.len());
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Fault::Short { missing })?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Splits off the last `count` bytes.
    pub(super) fn split_off_end(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let at = self.0.len().checked_sub(count);
        let at = at.ok_or(Fault::Short { missing: count.saturating_sub(self.0.len()) })?;
        let (rest, end) = self.0.split_at(at);
        self.0 = rest;
        Ok(end)
    }

    /// Reads the next string, without its NUL; it must not be empty.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Fault> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Fault::Endless)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        if string.is_empty() { Err(Fault::Empty) } else { Ok(string) }
    }

    /// Reads the next string, which must be a valid name.
    pub(super) fn name(&mut self) -> Result<Name<'a>, Fault> {
        Name::new(self.string()?).ok_or(Fault::Name)
    }
}

/// Checks an offset or a size: at most 2^63 - 1.
pub(super) fn offset(field: &'static str, value: u64) -> Result<u64, Fault> {
    if i64::try_from(value).is_ok() { Ok(value) } else { Err(Fault::Value { field, value }) }
}

/// Checks a time, whose seconds are signed.
pub(super) fn time(seconds: u64, nanoseconds: u32) -> Result<Timestamp, Fault> {
    let value = u64::from(nanoseconds);
    let fault = Fault::Value { field: "nanoseconds", value };
    Timestamp::new(seconds.cast_signed(), nanoseconds).ok_or(fault)
}

/// Returns the first group of the extensions.
pub(super) fn group_of(extensions: &[u8]) -> Result<Option<u32>, Fault> {
    let mut extensions = Body(extensions);
    while extensions.len() > 0 {
        let header: wire::ExtensionHeader = extensions.take()?;
        let length = header.size.checked_sub(8);
        let value = u64::from(header.size);
        let length = length.ok_or(Fault::Value { field: "extension size", value })?;
        let mut extension = Body(extensions.bytes(length)?);
        if header.kind == wire::EXTENSION_GROUPS && extension.take::<u32>()? > 0 {
            return extension.take().map(Some);
        }
    }
    Ok(None)
}
