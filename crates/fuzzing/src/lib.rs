//! What is fuzzed: bodies that take any bytes and must neither panic, hang nor take much memory.
//!
//! 1. A body is a function of its input alone: the same bytes do the same.
//! 2. Damage comes with right checksums, where there are any: a fuzzer cannot guess them.
//! 3. What a parser accepts, its accessors and its users must bear: each body goes on to use it.
//!
//! `fuzz/` wraps each body for libFuzzer; [`driver`] runs them where that cannot be built.
//! The verb `cargo xtask fuzz` chooses between them.

#![forbid(unsafe_code)]

mod damage;
pub mod driver;
mod sparse;
mod targets;

/// Something to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its binary in `fuzz/`.
    pub name: &'static str,
    /// The body.
    pub run: fn(&[u8]),
    /// The most bytes of input worth giving.
    pub max_len: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "superblock", run: targets::superblock, max_len: 256 },
    Target { name: "tree_block", run: targets::tree_block, max_len: 512 },
    Target { name: "items", run: targets::items, max_len: 512 },
    Target { name: "chunk_array", run: targets::chunk_array, max_len: 2048 },
    Target { name: "decompress", run: targets::decompress, max_len: 4096 },
    Target { name: "image", run: targets::image, max_len: 256 },
    Target { name: "path", run: targets::path, max_len: 512 },
    Target { name: "request", run: targets::request, max_len: 512 },
];

/// A target that must fail: it proves that a failure is noticed.
pub const CANARY: Target = Target { name: "canary", run: canary, max_len: 8 };

fn canary(input: &[u8]) {
    assert_ne!(input.first(), Some(&b'!'), "the canary sings");
}

/// The target of this name, the canary among them.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().chain([&CANARY]).find(|target| target.name == name)
}

/// Runs the target of this name on an input.
pub fn run(name: &str, input: &[u8]) {
    (find(name).expect("a target of this name").run)(input);
}
