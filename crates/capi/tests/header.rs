//! Compares the header and the version script with the functions of the library.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;

const HEADER: &str = include_str!("../include/userbtrfs.h");
const VERSIONS: &str = include_str!("../libuserbtrfs.map");
const SOURCES: [&str; 6] = [
    include_str!("../src/admin.rs"),
    include_str!("../src/directory.rs"),
    include_str!("../src/failure.rs"),
    include_str!("../src/file.rs"),
    include_str!("../src/filesystem.rs"),
    include_str!("../src/names.rs"),
];

/// The types of Rust, and the names that C has for them.
const TYPES: [(&str, &str); 17] = [
    ("*const Filesystem", "const userbtrfs_fs *"),
    ("*mut Filesystem", "userbtrfs_fs *"),
    ("*const File", "const userbtrfs_file *"),
    ("*mut File", "userbtrfs_file *"),
    ("*mut DirEntries", "userbtrfs_dir *"),
    ("*const Mounted", "const userbtrfs_mounted *"),
    ("*mut Mounted", "userbtrfs_mounted *"),
    ("*mut Entry", "userbtrfs_entry *"),
    ("*mut Stat", "userbtrfs_attributes *"),
    ("*const c_char", "const char *"),
    ("*const u8", "const uint8_t *"),
    ("*mut u8", "uint8_t *"),
    ("c_int", "int "),
    ("usize", "size_t "),
    ("i64", "int64_t "),
    ("u32", "uint32_t "),
    ("u64", "uint64_t "),
];

fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut *mut ") {
        return format!("{}*", c_type(&format!("*mut {target}")));
    }
    let found = TYPES.iter().find(|(name, _)| *name == rust);
    found.unwrap_or_else(|| panic!("no type in C for {rust}")).1.to_owned()
}

/// Returns the prototype in C of a function of Rust, from its name to the type of its result.
fn prototype(signature: &str) -> String {
    let (name, rest) = signature.split_once('(').expect("parameters");
    let (parameters, result) = rest.split_once(')').expect("their end");
    let result = result.trim().strip_prefix("->").expect("a result").trim();
    let parameters: Vec<_> =
        parameters.split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
    let one = |parameter: &&str| {
        let (name, kind) = parameter.split_once(':').expect("a type");
        format!("{}{name}", c_type(kind.trim()))
    };
    let list: Vec<_> = parameters.iter().map(one).collect();
    let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
    format!("{}{name}({list});", c_type(result))
}

fn of_library() -> BTreeSet<String> {
    let functions = SOURCES.iter().flat_map(|source| source.split("extern \"C\" fn ").skip(1));
    functions.map(|text| prototype(text.split_once('{').expect("a body").0)).collect()
}

/// Returns the header without its comments.
fn code_of_header() -> String {
    let mut text = String::new();
    let mut rest = HEADER;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").expect("the end of a comment").1;
    }
    text.push_str(rest);
    text
}

/// Returns the prototypes of the header, each on one line.
fn of_header() -> BTreeSet<String> {
    let text = code_of_header();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let statements = lines.join(" ");
    let statements =
        statements.split(';').map(|s| s.split_whitespace().collect::<Vec<_>>().join(" "));
    // Those of C++ come before the first and after the last.
    statements.filter(|s| s.ends_with(')')).map(|s| format!("{s};")).collect()
}

#[test]
fn header_declares_the_functions_of_the_library() {
    let library = of_library();
    assert!(library.len() > 20, "{library:?}");
    assert_eq!(of_header(), library);
}

#[test]
fn version_script_names_the_functions_of_the_library() {
    let name = |prototype: &String| {
        let before = prototype.split_once('(').map(|(before, _)| before);
        before.and_then(|b| b.rsplit([' ', '*']).next()).expect("a name").to_owned()
    };
    let versions = VERSIONS.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let versions: BTreeSet<_> = versions.filter(|n| n.starts_with("userbtrfs")).collect();
    let names: BTreeSet<_> = of_library().iter().map(name).collect();
    assert_eq!(versions, names.iter().map(String::as_str).collect());
}

/// The structures of Rust, and the names that C has for them.
const STRUCTURES: [(&str, &str); 3] =
    [("Time", "userbtrfs_time"), ("Stat", "userbtrfs_attributes"), ("Entry", "userbtrfs_entry")];

/// Returns the lines between two texts, without spaces around them.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    let body = text.split_once(start).unwrap_or_else(|| panic!("no {start}")).1;
    body.split_once(end).expect("its end").0.lines().map(str::trim).collect()
}

#[test]
fn header_declares_the_fields_of_the_structures() {
    let header = code_of_header();
    for (rust, c) in STRUCTURES {
        let start = format!("#[repr(C)]\npub(crate) struct {rust} {{\n");
        let source = SOURCES.iter().find(|source| source.contains(&start)).expect(rust);
        let fields = between(source, &start, "\n}").into_iter().map(|field| {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").expect("a type");
            match kind {
                "Time" => format!("userbtrfs_time {name};"),
                "[u8; NAME_LEN]" => format!("char {name}[256];"),
                kind => format!("{}{name};", c_type(kind)),
            }
        });
        let fields: Vec<_> = fields.collect();
        assert_eq!(between(&header, &format!("struct {c} {{\n"), &format!("\n}} {c};")), fields);
    }
}

#[test]
fn header_defines_the_flags_of_the_library() {
    let constants = SOURCES.iter().flat_map(|source| source.lines()).filter_map(|line| {
        let (name, value) = line.strip_prefix("const ")?.split_once(": u32 = ")?;
        Some(format!("#define USERBTRFS_{name} {}u", value.trim_end_matches(';')))
    });
    let constants: BTreeSet<_> = constants.collect();
    assert!(constants.len() > 5, "{constants:?}");
    let header = code_of_header();
    let flags = header.lines().map(str::trim).filter(|line| line.starts_with("#define USERBTRFS_"));
    let flags: BTreeSet<_> = flags.filter(|flag| flag.ends_with('u')).map(str::to_owned).collect();
    assert_eq!(flags, constants);
}
