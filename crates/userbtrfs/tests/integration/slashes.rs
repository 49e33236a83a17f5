//! Paths that end with a slash: they are those of directories, for every verb.

use std::fs;

use super::support::made::Made;

/// An image with two files, which are in its folder, too.
fn with_two_files() -> Made {
    let made = Made::new();
    for name in ["one", "two"] {
        fs::write(made.at(name), name).unwrap();
        made.does("put", &[made.at(name).to_str().unwrap(), "/"]);
    }
    made
}

#[test]
fn file_named_with_a_slash_is_refused_and_stays() {
    let made = with_two_files();
    let one = made.at("one");
    let outside = format!("{}/", made.at("out").display());
    for (verb, rest) in [
        ("mv", ["/one", "/two/"]),
        ("mv", ["/one/", "/three"]),
        ("mv", ["/one", "/missing/"]),
        ("put", [one.to_str().unwrap(), "/two/"]),
        ("put", [one.to_str().unwrap(), "/missing/"]),
        ("cp", ["/one", "/two/"]),
        ("cp", ["/one/", "/three"]),
        ("ln", ["/one", "/missing/"]),
        ("ln -s", ["/one", "/missing/"]),
        ("rm", ["/one/", "/two/"]),
        ("rm -r", ["/one/", "/two/"]),
        ("truncate -s 1", ["/missing/", "/one/"]),
        ("get", ["/one", &outside]),
    ] {
        let said = made.verb(verb, &rest).bad();
        assert!(said.contains("not a directory"), "{verb} {rest:?}: {said}");
    }
    assert_eq!(made.verb("ls", &["/"]).good(), "one\ntwo\n");
    for name in ["one", "two"] {
        assert_eq!(made.verb("cat", &[&format!("/{name}")]).good(), name);
    }
    assert!(!made.at("out").exists());
}

#[test]
fn directory_named_with_a_slash_is_made_moved_and_removed() {
    let made = with_two_files();
    fs::create_dir(made.at("dir")).unwrap();
    fs::write(made.at("dir/file"), "content").unwrap();
    made.does("mkdir", &["/made/"]);
    made.does("mv", &["/made/", "/moved/"]);
    made.does("put", &[made.at("dir").to_str().unwrap(), "/put/"]);
    made.does("cp -r", &["/put", "/copied/"]);
    made.does("get -q", &["/copied", &format!("{}/", made.at("got").display())]);
    assert_eq!(fs::read_to_string(made.at("got/file")).unwrap(), "content");
    made.does("rm -r", &["/put/"]);
    assert_eq!(made.verb("ls", &["/"]).good(), "copied\nmoved\none\ntwo\n");
}
