//! Raw declarations, made by bindgen from `shim/core.h` when the crate is built.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#![allow(dead_code)] // the header is bound as a whole

include!(concat!(env!("OUT_DIR"), "/core_bindings.rs"));
