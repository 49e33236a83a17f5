//! Conversion to text and back, hard links, differences, digests.

use super::*;

fn entry(path: &[u8], inode: u64) -> Entry {
    let time = Time { seconds: -3, nanoseconds: 7 };
    Entry {
        path: path.into(),
        kind: Kind::File,
        inode,
        subvolume: false,
        mode: Mode::new(0o100_4755),
        uid: 0,
        gid: 5,
        nlink: 1,
        size: 10,
        rdev: None,
        mtime: time,
        ctime: time,
        atime: time,
        btime: Some(time),
        flags: 0,
        target: None,
        xattrs: BTreeMap::from([(b"user.%\xff".into(), b"\0\n\"".into())]),
        link: None,
        segments: vec![(0, 10)],
        content: Some(ContentDigest::default().finish()),
    }
}

fn manifest(entries: impl IntoIterator<Item = Entry>) -> Manifest {
    Manifest::new(entries.into_iter().map(|entry| (SubvolumeId(5), entry)).collect())
}

#[test]
fn any_bytes_print_as_plain_text_and_read_back() {
    let every: Vec<u8> = (0..=255).collect();
    let text = Bytes::from(every.clone()).to_string();
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    assert_eq!(Bytes::parse(&text).unwrap().as_slice(), every);
    assert_eq!(Bytes::from(*b"a%\xff\n").to_string(), "a%25%ff%0a");
}

#[test]
fn text_that_is_never_printed_is_rejected() {
    for text in ["%", "%4", "%zz", "%+1", "\u{fc}", "a\nb"] {
        assert_eq!(Bytes::parse(text), None, "{text:?}");
    }
}

#[test]
fn text_and_back_is_exact() {
    let mut device = entry(b"/dev", 258);
    device.rdev = Some((4095, 1_048_575));
    let one = manifest([entry(b"/b \xff\n", 257), entry(b"/a", 256), device]);
    assert_eq!(Manifest::from_text(&one.to_text()).unwrap(), one);
    assert_eq!(one.to_text().lines().count(), 3);
    assert!(one.get(b"/b \xff\n").is_some_and(|entry| entry.inode == 257));
    assert!(one.get(b"/c").is_none());
}

#[test]
fn text_with_a_mistake_is_refused() {
    let good = manifest([entry(b"/a", 256), entry(b"/b", 257)]).to_text();
    assert!(Manifest::from_text(&good).is_ok());
    let swapped: String = good.split_inclusive('\n').rev().collect();
    assert!(Manifest::from_text(&swapped).is_err());
    for (from, to) in [("-3.000000007", "-3.7"), ("4755", "9755"), ("inode", "number")] {
        assert!(Manifest::from_text(&good.replace(from, to)).is_err(), "{from}");
    }
}

#[test]
fn hard_links_name_the_first_path_of_their_subvolume() {
    let other = (SubvolumeId(256), entry(b"/0", 257));
    let here = [b"/c".as_slice(), b"/a", b"/b"].map(|path| (SubvolumeId(5), entry(path, 257)));
    let all = Manifest::new([other].into_iter().chain(here).collect());
    let links: Vec<_> = all.entries().iter().map(|entry| entry.link.clone()).collect();
    let first = Some(Bytes::from(*b"/a"));
    assert_eq!(links, [None, None, first.clone(), first]);
}

#[test]
fn made_up_times_are_dropped() {
    let mut placeholder = entry(b"/p", PLACEHOLDER);
    placeholder.kind = Kind::Dir;
    let mut real = entry(b"/r", 257);
    real.kind = Kind::Dir;
    let both = manifest([placeholder, real.clone()]);
    assert_eq!(both.entries()[0].mtime, Time::default());
    assert_eq!(both.entries()[1], real);
}

#[test]
fn a_difference_names_path_attribute_and_both_sides() {
    let left = manifest([entry(b"/a", 256), entry(b"/b", 257)]);
    let mut changed = entry(b"/b", 257);
    changed.mtime.seconds = 0;
    changed.xattrs.clear();
    let right = manifest([changed, entry(b"/c", 258)]);
    let text: Vec<_> = diff(&left, &right, &[]).iter().map(ToString::to_string).collect();
    let expected = [
        "/a: path: present != absent",
        r#"/b: mtime: "-3.000000007" != "0.000000007""#,
        r#"/b: xattrs: {"user.%25%ff":"%00%0a%22"} != "#,
        "/c: path: absent != present",
    ];
    assert_eq!(text, expected);
    assert_eq!(diff(&left, &right, &["mtime"]).len(), 3);
    assert_eq!(diff(&left, &left, &[]), []);
}

#[test]
fn the_digest_does_not_see_how_content_is_stored_or_given() {
    let content: Vec<u8> = (0..10_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let digest = |pieces: &[(u64, &[u8])]| {
        let mut digest = ContentDigest::default();
        for (offset, bytes) in pieces {
            digest.update(*offset, bytes);
        }
        digest.finish()
    };
    let whole = digest(&[(8192, &content)]);
    let zeros = [0; 5000];
    assert_eq!(digest(&[(0, &zeros), (8192, &content[..100]), (8292, &content[100..])]), whole);
    assert_eq!(digest(&[(8192, &content), (100_000, &zeros)]), whole);
    assert_ne!(digest(&[(8191, &content)]), whole);
    assert_ne!(digest(&[(0, &content)]), whole);
}

#[test]
#[should_panic(expected = "before its end")]
fn content_goes_forward_only() {
    let mut digest = ContentDigest::default();
    digest.update(10, b"abc");
    digest.update(12, b"d");
}

#[test]
fn the_golden_manifests_read_and_print_the_same() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let manifests = paths.filter(|path| path.extension().is_some_and(|end| end == "manifest"));
    let mut count = 0;
    for path in manifests {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(Manifest::from_text(&text).unwrap().to_text(), text, "{}", path.display());
        count += 1;
    }
    assert!(count > 30, "{count} manifests");
}
