//! The libFuzzer entry point of the target `path`.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| userbtrfs_fuzzing::run("path", input));
