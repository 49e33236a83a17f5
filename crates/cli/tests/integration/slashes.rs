//! Paths that end with a slash: every verb accepts them only for directories.

use std::fs;

use super::support::made::Made;

/// Makes an image with two files, which are also in its folder.
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

#[test]
fn file_goes_through_a_link_and_into_a_pipe() {
    let made = with_two_files();
    let one = made.at("one");
    made.does("ln -s", &["two", "/link"]);
    made.does("ln -s", &["missing", "/dangling"]);
    made.does("put", &[one.to_str().unwrap(), "/link"]);
    assert_eq!(made.verb("cat", &["/two"]).good(), "one");
    made.does("cp", &["/one", "/link"]);
    let said = made.verb("cp", &["/one", "/dangling"]).bad();
    assert!(said.contains("dangling symlink"), "{said}");
    assert_eq!(made.verb("ls", &["/"]).good(), "dangling\nlink\none\ntwo\n");
    // `get` writes through links and into devices, too.
    let real = made.at("real");
    let link = made.at("link");
    fs::write(&real, "before").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    made.does("get", &["/one", link.to_str().unwrap()]);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "one");
    assert_eq!(made.verb("get", &["/one", "/dev/stdout"]).good(), "one");
    made.does("get", &["/one", "/dev/null"]);
    assert!(!std::path::Path::new("/dev/null").metadata().unwrap().is_file());
}

#[test]
fn image_is_not_copied_into_itself() {
    let made = Made::new();
    let folder = made.at(".");
    fs::write(made.at("file"), "content").unwrap();
    let said = made.verb("put", &[folder.to_str().unwrap(), "/"]).bad();
    assert!(said.contains("is the image itself"), "{said}");
    assert_eq!(made.verb("ls", &["/"]).good(), "file\n");
}
