//! `beanstalkd-legacy`: the vendored beanstalkd 1.13 program itself, the reference for every comparison.
//!
//! There is no Rust in it. `main` is the one of the vendored `main.c`; `build.rs` compiles the untouched source
//! and hands the objects to this binary alone, so cargo builds, finds and installs it like any other. Its
//! command line, behaviour and exit codes are stock's.

#![no_main]
