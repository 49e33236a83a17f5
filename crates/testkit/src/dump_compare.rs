//! Compares our dumps with those of btrfs-progs 6.2, item by item.
//!
//! A unit is the header of a block, an item with the lines of its body, a pointer, or a line of
//! other text. Normalization removes the following differences:
//!
//! 1. white space, empty lines, the version of btrfs-progs, the path of the device;
//! 2. names and data of attributes: btrfs-progs prints them raw, data up to the first NUL and up to
//!    255 bytes;
//! 3. the label, of which only printable ASCII is compared;
//! 4. flags, kinds and trees that 6.2 has no name for, and text that 7.3 prints differently: the
//!    order of an inline reference, an unused metadata UUID, the encryption of an extent, spaces in
//!    names, numbers with a sign;
//! 5. the body of a DEV_REPLACE, of which 6.2 shows nothing.

use userbtrfs_format::Quoted;

/// The maximum number of differences that are listed.
const DIFFERENCES_MAX: usize = 50;

/// The maximum number of units skipped to find where the dumps agree again.
const WINDOW: usize = 1000;

/// The number of characters of attribute data that are compared: 255 bytes always print at least
/// this many, even if several bytes make one character.
const DATA_CHARS: usize = 60;

/// The text that precedes bytes that are printed raw.
const BEFORE_BYTES: &[&str] = &["\tname: ", " name: ", " name ", "\tdata ", "\titem data "];

/// The starts of lines that are neither a body nor the continuation of a name.
const LINE_STARTS: &[&str] = &[
    "leaf ",
    "node ",
    "fs uuid ",
    "chunk uuid ",
    "root tree",
    "chunk tree",
    "log root tree",
    "total bytes ",
    "bytes used ",
    "uuid ",
];

/// Returns the differences between two dumps, in the order of the dumps.
pub fn compare(ours: &str, theirs: &[u8]) -> Vec<String> {
    let ours = normalize(ours);
    let theirs = normalize(&escape(theirs));
    let mut differences = Vec::new();
    let mut left = &ours[..];
    let mut right = &theirs[..];
    while differences.len() < DIFFERENCES_MAX && !(left.is_empty() && right.is_empty()) {
        let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
        left = &left[same..];
        right = &right[same..];
        let (skip_left, skip_right) = next_agreement(left, right);
        if skip_left == skip_right {
            let pairs = left[..skip_left].iter().zip(right);
            differences.extend(pairs.map(|(ours, theirs)| describe(ours, theirs)));
        } else {
            let only = |who: &str, unit: &String| format!("only {who}: {}", one_line(unit));
            differences.extend(left[..skip_left].iter().map(|unit| only("ours", unit)));
            differences.extend(right[..skip_right].iter().map(|unit| only("theirs", unit)));
        }
        left = &left[skip_left..];
        right = &right[skip_right..];
    }
    differences.truncate(DIFFERENCES_MAX);
    differences
}

/// Returns how many units each side skips, as few as possible, so that the next units are equal.
fn next_agreement(left: &[String], right: &[String]) -> (usize, usize) {
    for sum in 1..=WINDOW.min(left.len() + right.len()) {
        // As even as possible first: a changed unit is more likely than a missing one.
        let mut splits = (0..=sum / 2).rev().flat_map(|n| [(sum - n, n), (n, sum - n)]);
        let agree = |&(l, r): &(usize, usize)| match (left.get(l), right.get(r)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => l == left.len() && r == right.len(),
            _ => false,
        };
        if let Some(found) = splits.find(agree) {
            return found;
        }
    }
    (left.len().min(WINDOW), right.len().min(WINDOW))
}

fn describe(ours: &str, theirs: &str) -> String {
    let mut pairs = ours.lines().zip(theirs.lines());
    let head = ours.lines().next().unwrap_or_default();
    match pairs.find(|(ours, theirs)| ours != theirs) {
        Some((a, b)) if a == head => format!("ours `{a}`, theirs `{b}`"),
        Some((a, b)) => format!("{head}: ours `{a}`, theirs `{b}`"),
        None => format!("{}: theirs {}", one_line(ours), one_line(theirs)),
    }
}

fn one_line(unit: &str) -> String {
    unit.replace('\n', " | ")
}

/// Returns the normalized units of a dump.
pub fn normalize(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut hidden = false;
    for line in text.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() || words.starts_with("btrfs-progs ") || words == "extent encryption 0" {
            continue;
        }
        let folded = fold(&words);
        match units.last_mut().filter(|_| is_body(line)) {
            Some(_) if hidden => {}
            Some(unit) => {
                unit.push('\n');
                unit.push_str(&folded);
            }
            None => {
                hidden = folded.contains(" DEV_REPLACE ");
                units.push(folded);
            }
        }
    }
    fold_metadata_uuid(&mut units);
    units
}

/// Folds the metadata UUID if it is zero or the fsid: versions print such a UUID differently.
fn fold_metadata_uuid(units: &mut [String]) {
    let own = units.iter().find_map(|unit| unit.strip_prefix("fsid ")).unwrap_or_default();
    let unused =
        ["00000000-0000-0000-0000-000000000000", own].map(|id| format!("metadata_uuid {id}"));
    for unit in units.iter_mut().filter(|unit| unused.contains(unit)) {
        "metadata_uuid unused".clone_into(unit);
    }
}

/// Returns whether a line belongs to the unit of the line before it.
fn is_body(line: &str) -> bool {
    let of_block = line.starts_with("leaf ") || line.starts_with("node ");
    let of_header = line.starts_with("fs uuid ") || line.starts_with("chunk uuid ");
    line.starts_with("\t\t") || of_header || (of_block && line.contains(" backref revision "))
}

fn fold(line: &str) -> String {
    if let Some((before, _)) = line.split_once(", device=") {
        return before.to_owned();
    }
    if let Some(label) = line.strip_prefix("label ") {
        let plain = |c: &char| c.is_ascii_graphic() && *c != '.';
        return format!("label {}", label.chars().filter(plain).collect::<String>());
    }
    if line.starts_with("data ") || line.starts_with("item data ") {
        let line = line.split("\\u{0}").next().unwrap_or_default();
        return line.chars().take(DATA_CHARS).collect::<String>().trim_end().to_owned();
    }
    let line = line.strip_suffix(" encryption 0").unwrap_or(line).replace("\\\\ ", " ");
    if line.starts_with("max_referenced ") || line.starts_with("rsv_referenced ") {
        return line.split(' ').map(unsigned).collect::<Vec<_>>().join(" ");
    }
    let mut line = match line.split_once(") ") {
        Some((sequence, reference)) if is_sequence(sequence) => reference.to_owned(),
        _ => line,
    };
    if line.starts_with("item ") || line.contains(" tree key ") || line.contains(" owner ") {
        for (newer, old) in [
            ("raid stripe tree key", "file tree key"),
            ("RAID_STRIPE_TREE", "12"),
            ("RAID_STRIPE", "UNKNOWN.230"),
            ("EXTENT_OWNER_REF", "UNKNOWN.172"),
        ] {
            line = line.replace(newer, old);
        }
    }
    if line.contains(" flags 0x") {
        for newer in ["DEAD", "VERITY", "ROOT_ITEM_INIT"] {
            line = line.replace(&format!("|{newer}"), "");
            line = line.replace(&format!("({newer})"), "(none)");
        }
    }
    line
}

fn unsigned(word: &str) -> String {
    let number = word.strip_prefix('-').and_then(|_| word.parse::<i64>().ok());
    number.map_or_else(|| word.to_owned(), |number| number.cast_unsigned().to_string())
}

/// Returns whether this is `(KIND 0xSEQUENCE`, by which inline references are sorted.
fn is_sequence(text: &str) -> bool {
    let parts = text.strip_prefix('(').and_then(|text| text.split_once(" 0x"));
    parts.is_some_and(|(kind, _)| kind.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the text of btrfs-progs with raw bytes escaped as in our dumps.
fn escape(theirs: &[u8]) -> String {
    let mut text = String::new();
    let theirs = theirs.strip_suffix(b"\n").unwrap_or(theirs);
    let mut rest = theirs.split(|&byte| byte == b'\n').peekable();
    while let Some(line) = rest.next() {
        let Some(start) = bytes_start(line) else {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
            continue;
        };
        let (before, bytes) = line.split_at(start);
        let mut bytes = bytes.to_vec();
        while let Some(more) = rest.next_if(|line| continues_name(line)) {
            bytes.push(b'\n');
            bytes.extend_from_slice(more);
        }
        text.push_str(&String::from_utf8_lossy(before));
        text.push_str(&Quoted(&bytes).to_string());
        text.push('\n');
    }
    text
}

/// Returns the offset of the bytes that a body line prints raw, `None` if it prints none.
fn bytes_start(line: &[u8]) -> Option<usize> {
    if !line.starts_with(b"\t\t") {
        return None;
    }
    let ends = BEFORE_BYTES.iter().filter_map(|before| {
        let before = before.as_bytes();
        let at = line.windows(before.len()).position(|window| window == before)?;
        Some(at + before.len())
    });
    ends.min()
}

fn continues_name(line: &[u8]) -> bool {
    let starts = |start: &&str| line.starts_with(start.as_bytes());
    let is_tree = line.windows(10).any(|window| window == b" tree key ");
    !line.starts_with(b"\t") && !is_tree && !LINE_STARTS.iter().any(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &str = "leaf 1 items 2 free space 3 generation 4 owner FS_TREE\n\
        \titem 0 key (256 INODE_ITEM 0) itemoff 1 itemsize 160\n\
        \t\tgeneration 1 transid 2\n\t\tsequence 1 flags 0x0(none)\n\
        \titem 1 key (256 DIR_INDEX 2) itemoff 1 itemsize 33\n\
        \t\ttransid 1 data_len 0 name_len 3\n\t\tname: a\\nb\n\
        \titem 2 key (257 INODE_ITEM 0) itemoff 1 itemsize 160\n";

    fn theirs() -> String {
        format!("btrfs-progs v6.2\n{}\n", LEAF.replace("a\\nb", "a\nb"))
    }

    #[test]
    fn a_unit_is_a_line_and_its_body() {
        let units = normalize(LEAF);
        assert_eq!(units.len(), 4);
        assert!(
            units[1].ends_with("itemsize 160\ngeneration 1 transid 2\nsequence 1 flags 0x0(none)")
        );
    }

    #[test]
    fn names_and_white_space_are_folded() {
        assert_eq!(compare(LEAF, theirs().as_bytes()), [""; 0]);
    }

    #[test]
    fn a_changed_field_is_named_with_its_item() {
        let changed = theirs().replace("transid 2", "transid 3");
        let found = compare(LEAF, changed.as_bytes());
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("item 0 key (256 INODE_ITEM 0)"));
        assert!(
            found[0].ends_with("ours `generation 1 transid 2`, theirs `generation 1 transid 3`")
        );
    }

    #[test]
    fn a_missing_item_is_one_difference() {
        let at = LEAF.find("\titem 1").expect("it is there");
        let end = LEAF.find("\titem 2").expect("it is there");
        let ours = format!("{}{}", &LEAF[..at], &LEAF[end..]);
        let found = compare(&ours, theirs().as_bytes());
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("only theirs: item 1 key (256 DIR_INDEX 2)"));
        assert_eq!(compare("", b"uuid 1\nuuid 2\n").len(), 2);
    }

    #[test]
    fn no_more_than_fifty_are_listed() {
        let theirs: Vec<_> = (0..100).map(|n| format!("leaf {n}")).collect();
        assert_eq!(compare("", theirs.join("\n").as_bytes()).len(), DIFFERENCES_MAX);
    }
}
