//! Documents of `--format json`: names that are no text, and members.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use super::support::command::run;
use super::support::made::Made;
use super::support::pattern;

/// Runs a verb on an image, with arguments that may be no text.
#[track_caller]
fn ran(made: &Made, words: &str, rest: &[&[u8]]) -> String {
    let image = made.image();
    let words = words.split(' ').map(OsStr::new);
    let rest = rest.iter().map(|word| OsStr::from_bytes(word));
    run(words.chain([image.as_os_str()]).chain(rest)).good()
}

/// Returns the document of a verb.
#[track_caller]
fn document(made: &Made, words: &str, rest: &[&[u8]]) -> Value {
    let text = ran(made, &format!("--format json {words}"), rest);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn attributes_whose_names_look_equal_are_told_apart() {
    let made = Made::new();
    made.does("truncate -s 0", &["/f"]);
    ran(&made, "setfattr", &[&b"-n"[..], b"user.\xff", b"-v", b"bytes", b"/f"]);
    ran(&made, "setfattr", &[&b"-n"[..], br"user.\xff", b"-v", b"text", b"/f"]);
    let found = document(&made, "getfattr", &[b"/f"])["getfattr"][0].take();
    let text = json!({ "name": r"user.\xff", "value": "\"text\"" });
    let hex = "757365722eff";
    let bytes = json!({ "name": r"user.\xff", "name_hex": hex, "value": "\"bytes\"" });
    assert_eq!(found, json!({ "path": "/f", "xattrs": [text, bytes] }));
    made.judge();
}

#[test]
fn names_that_are_no_text_have_their_bytes_in_every_verb() {
    let made = Made::new();
    ran(&made, "subvolume -q create", &[b"/\xff"]);
    ran(&made, "subvolume -q snapshot", &[&b"/\xff"[..], b"/\xfe"]);
    ran(&made, "subvolume -q snapshot", &[&b"/\xff"[..], b"/s"]);
    made.does("truncate -s 1", &["/f"]);
    ran(&made, "mv", &[&b"/f"[..], b"/\xfd"]);
    let list = document(&made, "subvolume list", &[])["subvolume-list"].take();
    assert_eq!((&list[0]["name_hex"], &list[0]["path_hex"]), (&json!("ff"), &json!("ff")));
    assert_eq!((&list[2]["path"], &list[2]["path_hex"]), (&json!("s"), &Value::Null));
    let shown = document(&made, "subvolume show", &[b"/\xff"])["subvolume-show"].take();
    assert_eq!((&shown["name_hex"], &shown["path_hex"]), (&json!("ff"), &json!("ff")));
    assert_eq!(shown["snapshots"], json!([r"\xfe", "s"]));
    assert_eq!(shown["snapshots_hex"], json!(["fe", null]));
    let rows = document(&made, "filesystem du", &[b"/\xfd"])["filesystem-du"].take();
    assert_eq!((&rows[0]["path_hex"], &rows[0]["set_shared"]), (&json!("2ffd"), &json!(0)));
    made.judge();
}

#[test]
fn properties_are_listed_as_documents() {
    let made = Made::new();
    let names = |words: &str| {
        let found = document(&made, words, &[b"/"])["property-list"].take();
        let rows = found.as_array().unwrap().iter();
        assert!(rows.clone().all(|row| row["description"].is_string()), "{found}");
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("property list -t s"), "ro");
    assert_eq!(names("property list"), "ro label compression");
    made.does("filesystem label", &["x"]);
    let got = document(&made, "property get", &[b"/"])["property-get"].take();
    assert_eq!(got, json!({ "ro": false, "label": "x", "compression": null }));
}

#[test]
fn attributes_have_one_form_in_stat_and_getfattr() {
    let made = Made::new();
    made.does("truncate -s 0", &["/f"]);
    for (name, value) in [("user.text", "a b"), ("user.bytes", "0x00ff")] {
        made.does("setfattr", &["-n", name, "-v", value, "/f"]);
    }
    let by_name = |mut found: Value| {
        let mut all = std::mem::take(found["xattrs"].as_array_mut().unwrap());
        all.sort_by_key(|it| it["name"].to_string());
        all
    };
    let stat = by_name(document(&made, "stat", &[b"/f"])["stat"][0].take());
    assert_eq!(stat[0], json!({ "name": "user.bytes", "value": "0sAP8=" }));
    assert_eq!(stat, by_name(document(&made, "getfattr", &[b"/f"])["getfattr"][0].take()));
}

#[test]
fn dumps_escape_bytes_that_are_no_text() {
    let made = Made::new();
    ran(&made, "mkdir", &[b"/a\xff"]);
    let tree = ran(&made, "--format json dump tree", &[]);
    assert!(tree.contains(r#""name":"a\\xff""#) && tree.contains(r#""name_hex":"61ff""#), "{tree}");
    ran(&made, "filesystem label", &[b"l\xfe"]);
    let dumped = document(&made, "dump super", &[])["dump-super"]["superblock"].take();
    assert_eq!((&dumped["label"], &dumped["label_hex"]), (&json!(r"l\xfe"), &json!("6cfe")));
}

#[test]
fn dedupe_prints_a_document() {
    let made = Made::new();
    std::fs::write(made.at("content"), pattern(8192)).unwrap();
    let content = made.at("content");
    made.does("put", &[content.to_str().unwrap(), "/a"]);
    made.does("put", &[content.to_str().unwrap(), "/b"]);
    let done = document(&made, "dedupe", &[&b"/a"[..], b"/b"]);
    assert_eq!(done["dedupe"], json!({ "bytes_shared": 8192 }));
    assert_eq!(done["__header"]["version"], "1");
    made.judge();
}

#[test]
fn labels_are_themselves_or_have_their_bytes() {
    let made = Made::new();
    let label = |name: &str, words: &str, rest: &[&[u8]]| {
        let found = document(&made, words, rest)[name].take();
        (found["label"].clone(), found["label_hex"].clone())
    };
    let text = (json!(r"a\b"), Value::Null);
    assert_eq!(label("mkfs", "mkfs -f", &[&b"-L"[..], br"a\b"]), text);
    assert_eq!(label("filesystem-label", "filesystem label", &[]), text);
    let bytes = (json!(r"a\xff"), json!("61ff"));
    assert_eq!(label("mkfs", "mkfs -f", &[&b"-L"[..], b"a\xff"]), bytes);
    assert_eq!(label("filesystem-label", "filesystem label", &[]), bytes);
}
