//! Readers and writers as `std::io::Seek`.

use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};

use super::*;
use crate::units::to_usize;

/// A third of the file: data, a hole, and data.
const PART: usize = 1 << 20;
const LEN: u64 = 3 << 20;

/// Creates a file that is on the device, and returns its content, too.
fn file_with_hole(lab: &Lab) -> (File, Vec<u8>) {
    let mut content = pattern(1, 3 * PART);
    content[PART..2 * PART].fill(0);
    let file = lab.create("file");
    file.write_all_at(&content[..PART], 0).unwrap();
    file.write_all_at(&content[2 * PART..], 2 << 20).unwrap();
    file.sync_all().unwrap();
    (file, content)
}

/// Seeks to and fro, and reads 1000 bytes at each position.
fn check_seeks(file: &File, content: &[u8]) {
    let mut reader = file.reader();
    for (to, expected) in [
        (SeekFrom::Start(5), 5),
        (SeekFrom::Current(100), 1105),
        (SeekFrom::Current(0), 2105),
        (SeekFrom::Current(-2000), 1105),
        (SeekFrom::End(-1000), LEN - 1000),
        (SeekFrom::Start((1 << 20) - 500), (1 << 20) - 500),
        (SeekFrom::Current(500_000), (1 << 20) + 500_500),
        (SeekFrom::Current(1 << 20), (2 << 20) + 501_500),
        (SeekFrom::Start(0), 0),
    ] {
        assert_eq!(reader.seek(to).unwrap(), expected, "{to:?}");
        let mut bytes = [9; 1000];
        reader.read_exact(&mut bytes).unwrap();
        assert!(bytes[..] == content[to_usize(expected)..][..1000], "{to:?}");
        assert_eq!(reader.stream_position().unwrap(), expected + 1000);
    }
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest == content[1000..]);
}

#[test]
fn reader_after_seek_returns_bytes_of_its_position() {
    let lab = Lab::new();
    let (file, content) = file_with_hole(&lab);
    check_seeks(&file, &content);
    drop(file);
    // Nothing is cached now.
    let lab = lab.reopened();
    check_seeks(&lab.file("file"), &content);
    lab.close();
}

#[test]
fn seek_before_start_is_invalid_and_keeps_position() {
    let lab = Lab::new();
    let (file, content) = file_with_hole(&lab);
    let mut reader = file.reader();
    let mut writer = file.writer_at(7);
    reader.seek(SeekFrom::Start(7)).unwrap();
    for to in [SeekFrom::Current(-8), SeekFrom::End(-(3 << 20) - 1), SeekFrom::End(i64::MIN)] {
        assert_eq!(reader.seek(to).unwrap_err().kind(), ErrorKind::InvalidInput, "{to:?}");
        assert_eq!(writer.seek(to).unwrap_err().kind(), ErrorKind::InvalidInput, "{to:?}");
    }
    assert_eq!(writer.stream_position().unwrap(), 7);
    assert_eq!(reader.stream_position().unwrap(), 7);
    let mut bytes = [0; 10];
    reader.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..], content[7..17]);
    drop((reader, file));
    lab.close();
}

#[test]
fn read_past_end_returns_nothing_until_seek_back() {
    let lab = Lab::new();
    let (file, content) = file_with_hole(&lab);
    let mut reader = file.reader();
    let mut bytes = [0; 10];
    for to in [SeekFrom::End(0), SeekFrom::End(5), SeekFrom::Start(u64::MAX)] {
        let position = reader.seek(to).unwrap();
        assert_eq!(reader.read(&mut bytes).unwrap(), 0, "{to:?}");
        assert_eq!(reader.stream_position().unwrap(), position);
    }
    assert_eq!(reader.seek(SeekFrom::End(-3)).unwrap(), LEN - 3);
    assert_eq!(reader.read(&mut bytes).unwrap(), 3);
    assert_eq!(bytes[..3], content[content.len() - 3..]);
    drop((reader, file));
    lab.close();
}

#[test]
fn reader_of_range_counts_positions_from_its_start() {
    let lab = Lab::new();
    let (file, content) = file_with_hole(&lab);
    let range = 1000..PART + 1000;
    let mut reader = file.reader_of(1000, (1 << 20) + 1000);
    assert_eq!(reader.stream_position().unwrap(), 0);
    assert_eq!(reader.seek(SeekFrom::End(0)).unwrap(), 1 << 20);
    assert_eq!(reader.seek(SeekFrom::Current(-10)).unwrap(), (1 << 20) - 10);
    let mut bytes = Vec::new();
    assert_eq!(reader.read_to_end(&mut bytes).unwrap(), 10);
    assert!(reader.seek(SeekFrom::End(-(1 << 20) - 1)).is_err());
    reader.rewind().unwrap();
    bytes.clear();
    reader.read_to_end(&mut bytes).unwrap();
    assert!(bytes == content[range]);
    drop((reader, file));
    lab.close();
}

#[test]
fn seek_back_sees_bytes_written_meanwhile() {
    let lab = Lab::new();
    let (file, _) = file_with_hole(&lab);
    let mut reader = file.reader();
    reader.read_exact(&mut [0; 100]).unwrap();
    let mut writer = file.writer_at(0);
    assert_eq!(writer.seek(SeekFrom::Current(50)).unwrap(), 50);
    writer.write_all(b"new").unwrap();
    assert_eq!(reader.seek(SeekFrom::Current(-50)).unwrap(), 50);
    let mut bytes = [0; 3];
    reader.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    drop((reader, file));
    lab.close();
}

#[test]
fn next_chunk_continues_after_read_and_seek() {
    let lab = Lab::new();
    let (file, content) = file_with_hole(&lab);
    let mut reader = file.reader();
    reader.read_exact(&mut [0; 100]).unwrap();
    let chunk = reader.next_chunk().unwrap().unwrap();
    assert_eq!(chunk.offset(), 100);
    let bytes = chunk.bytes().unwrap();
    assert!(*bytes == content[100..][..bytes.len()]);
    assert_eq!(reader.stream_position().unwrap(), 100 + chunk.len());
    reader.seek(SeekFrom::Start(1_500_000)).unwrap();
    let hole = reader.next_chunk().unwrap().unwrap();
    assert_eq!(hole.offset(), 1_500_000);
    assert!(hole.bytes().is_none());
    drop((reader, file));
    lab.close();
}
