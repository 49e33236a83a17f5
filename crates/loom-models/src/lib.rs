//! Protocols of the crates that use `sync`, each built alone so that loom and shuttle can explore
//! it.
//!
//! 1. The models of a protocol are next to it, in its own crate; here it is only built, from that
//!    file.
//! 2. A protocol named here uses no crate of this workspace but `sync`: the others need not build
//!    for a model.
//! 3. In an ordinary build this crate is empty.
//!
//! ```text
//! RUSTFLAGS="--cfg loom"    cargo test -p userbtrfs-loom-models --release --lib loom_models
//! RUSTFLAGS="--cfg shuttle" cargo test -p userbtrfs-loom-models --release --lib shuttle_models
//! ```

#![forbid(unsafe_code)]

#[cfg(any(loom, shuttle))]
#[path = "../../transaction/src/commit"]
mod commit {
    #[allow(dead_code, unused_imports, reason = "its users are not built here")]
    pub(crate) mod state;
}

#[cfg(loom)]
#[path = "../../transaction/src/log"]
mod log {
    #[allow(dead_code, unused_imports, reason = "its users are not built here")]
    mod commits;
    #[cfg(test)]
    mod loom_models;
}
