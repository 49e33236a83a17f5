//! The libFuzzer entry point of the target `chunk_array`.
#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| userbtrfs_fuzzing::run("chunk_array", input));
