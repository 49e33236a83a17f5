//! The fuzz targets: bodies that take any bytes and must not panic, hang or use much memory.
//!
//! 1. A body depends only on its input: the same bytes have the same effect.
//! 2. Damaged blocks have correct checksums, because a fuzzer cannot guess them.
//! 3. Accessors and users must handle all that a parser accepts: each body also uses the result.
//!
//! `fuzz/` wraps each body for libFuzzer; [`driver`] runs them if that cannot be built.
//! The verb `cargo xtask fuzz` chooses between them.

#![forbid(unsafe_code)]

mod damage;
pub mod driver;
mod targets;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its binary in `fuzz/`.
    pub name: &'static str,
    /// The body.
    pub run: fn(&[u8]),
    /// The maximum useful length of an input, in bytes.
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

/// A target that must fail, to prove that failures are detected.
pub const CANARY: Target = Target { name: "canary", run: canary, max_len: 8 };

fn canary(input: &[u8]) {
    assert_ne!(input.first(), Some(&b'!'), "the canary sings");
}

/// Returns the target with this name, which may be the canary.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().chain([&CANARY]).find(|target| target.name == name)
}

/// Runs the target with this name on an input.
pub fn run(name: &str, input: &[u8]) {
    (find(name).expect("a target of this name").run)(input);
}
