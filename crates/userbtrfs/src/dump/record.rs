//! A record: the content of an item, described once and shown as text or as JSON.
//!
//! 1. As text it is lines, each of which starts with a line feed and tabs; words and values are
//!    separated by one space.
//! 2. As JSON it is an object; words are left out and each value is stored under its own name.

use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use userbtrfs_format::{ItemError, Key, Logical, Quoted, Timestamp, TreeId};
use uuid::Uuid;

use super::Format;
use super::flags::Flags;
use super::names::{kind_name, object_name};
use super::time::utc;

/// A value that a record can show.
pub(super) trait Show {
    /// Returns the value as text.
    fn text(&self) -> String;
    /// Returns the value as JSON.
    fn json(&self) -> Value;
}

macro_rules! show_numbers {
    ($($number:ty)*) => {
        $(impl Show for $number {
            fn text(&self) -> String {
                self.to_string()
            }

            fn json(&self) -> Value {
                json!(self)
            }
        })*
    };
}

show_numbers!(u8 u16 u32 u64 usize);

impl Show for &str {
    fn text(&self) -> String {
        (*self).to_owned()
    }

    fn json(&self) -> Value {
        json!(self)
    }
}

impl Show for Uuid {
    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> Value {
        json!(self.to_string())
    }
}

impl Show for Logical {
    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> Value {
        json!(self.0)
    }
}

impl Show for TreeId {
    fn text(&self) -> String {
        object_name(self.0)
    }

    fn json(&self) -> Value {
        json!(self.0)
    }
}

impl Show for Key {
    fn text(&self) -> String {
        super::names::key_text(*self)
    }

    fn json(&self) -> Value {
        json!({ "objectid": self.objectid, "type": kind_name(*self), "offset": self.offset })
    }
}

impl Show for Timestamp {
    fn text(&self) -> String {
        format!("{}.{} ({})", self.sec.cast_unsigned(), self.nsec, utc(self.sec))
    }

    fn json(&self) -> Value {
        json!({ "sec": self.sec, "nsec": self.nsec })
    }
}

impl Show for Flags {
    fn text(&self) -> String {
        let names = if self.names.is_empty() { "none".to_owned() } else { self.joined() };
        format!("{:#x}({names})", self.bits)
    }

    fn json(&self) -> Value {
        json!({ "bits": self.bits, "names": self.names })
    }
}

/// Flags of which the text shows only the names.
pub(super) struct Named(pub(super) Flags);

impl Show for Named {
    fn text(&self) -> String {
        self.0.joined()
    }

    fn json(&self) -> Value {
        self.0.json()
    }
}

/// The result of describing an item: an error if its content does not parse.
pub(super) type Described = Result<(), ItemError>;

/// A record that is being described.
pub(super) enum Record {
    Text(String),
    Json(Map<String, Value>),
}

impl Record {
    pub(super) fn new(format: Format) -> Self {
        match format {
            Format::Text => Self::Text(String::new()),
            Format::Json => Self::Json(Map::new()),
        }
    }

    /// Begins a line of an item's body.
    pub(super) fn line(&mut self) -> &mut Self {
        self.line_at(2)
    }

    /// Begins a line with this number of tabs.
    pub(super) fn line_at(&mut self, tabs: usize) -> &mut Self {
        if let Self::Text(text) = self {
            text.push('\n');
            text.extend(std::iter::repeat_n('\t', tabs));
        }
        self
    }

    /// Adds words that only the text has.
    pub(super) fn words(&mut self, words: &str) -> &mut Self {
        if let Self::Text(text) = self {
            let apart = text.ends_with(['\t', '\n']) || words.starts_with('\t');
            if !text.is_empty() && !apart {
                text.push(' ');
            }
            text.push_str(words);
        }
        self
    }

    /// Adds a value that only JSON has.
    pub(super) fn silent(&mut self, name: &str, value: &impl Show) -> &mut Self {
        if let Self::Json(object) = self {
            object.insert(name.to_owned(), value.json());
        }
        self
    }

    /// Adds a value after its name.
    pub(super) fn field(&mut self, name: &str, value: &impl Show) -> &mut Self {
        self.labelled(name, name, value)
    }

    /// Adds a value whose name the text leaves out.
    pub(super) fn bare(&mut self, name: &str, value: &impl Show) -> &mut Self {
        self.shown(name, value, Show::text)
    }

    /// Adds a value that has another label in the text.
    pub(super) fn labelled(&mut self, label: &str, name: &str, value: &impl Show) -> &mut Self {
        self.words(label).bare(name, value)
    }

    /// Adds a value that is formatted by `text` in the text.
    pub(super) fn shown<T: Show>(
        &mut self,
        name: &str,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> &mut Self {
        if let Self::Text(_) = self {
            return self.words(&text(value));
        }
        self.silent(name, value)
    }

    /// Adds a name or other bytes. If they are not UTF-8, JSON has them escaped, as the text has,
    /// and in hexadecimal.
    pub(super) fn bytes(&mut self, label: &str, name: &str, bytes: &[u8]) -> &mut Self {
        self.words(label);
        if let Self::Text(_) = self {
            return self.words(&Quoted(bytes).to_string());
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => self.silent(name, &text),
            Err(_) => self
                .silent(name, &&*Quoted(bytes).to_string())
                .silent(&format!("{name}_hex"), &&*HEXLOWER.encode(bytes)),
        }
    }

    /// Adds several entries of one form; in JSON an array.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        entries: impl IntoIterator<Item = T>,
        mut describe: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        match self {
            Self::Text(_) => entries.into_iter().for_each(|entry| describe(self, entry)),
            Self::Json(object) => {
                let entries = entries.into_iter().map(|entry| {
                    let mut record = Self::new(Format::Json);
                    describe(&mut record, entry);
                    record.into_json()
                });
                object.insert(name.to_owned(), entries.collect());
            }
        }
        self
    }

    /// Adds values that JSON has in an object of their own.
    pub(super) fn object(&mut self, name: &str, describe: impl FnOnce(&mut Self)) -> &mut Self {
        match self {
            Self::Text(_) => describe(self),
            Self::Json(object) => {
                let mut record = Self::new(Format::Json);
                describe(&mut record);
                object.insert(name.to_owned(), record.into_json());
            }
        }
        self
    }

    /// Returns the lines, each with the line feed before it; an empty string if the record is JSON.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Json(_) => String::new(),
        }
    }

    /// Returns the object; an empty one if the record is text.
    pub(super) fn into_json(self) -> Value {
        match self {
            Self::Text(_) => Value::Object(Map::new()),
            Self::Json(object) => Value::Object(object),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(format: Format) -> Record {
        let mut record = Record::new(format);
        record.line().words("an item").labelled("nr", "number", &7_u64);
        record.list("names", [&b"a\n"[..], b"\xff"], |record, name| {
            record.line().bytes("name:", "name", name);
        });
        record.object("inner", |record| {
            record.line_at(3).field("mode", &1_u32).silent("hidden", &2_u8);
        });
        record
    }

    #[test]
    fn text_is_lines_of_words_and_values() {
        let text = "\n\t\tan item nr 7\n\t\tname: a\\n\n\t\tname: \\xff\n\t\t\tmode 1";
        assert_eq!(described(Format::Text).into_text(), text);
    }

    #[test]
    fn json_has_each_value_under_its_name() {
        let expected = json!({
            "number": 7,
            "names": [{ "name": "a\n" }, { "name": r"\xff", "name_hex": "ff" }],
            "inner": { "mode": 1, "hidden": 2 },
        });
        assert_eq!(described(Format::Json).into_json(), expected);
    }

    #[test]
    fn flags_without_a_name_are_none() {
        let flags = Flags::new(0b101, &[(0b1, "ONE"), (0b10, "TWO")]);
        assert_eq!(flags.text(), "0x5(ONE)");
        assert_eq!(Flags::new(4, &[(0b1, "ONE")]).text(), "0x4(none)");
    }
}
