//! The command parser and the framing before it, fed a client's bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trellis::protocol::{Line, command, line};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Line::Whole(length) = line(rest) {
        assert!(rest[..length].ends_with(b"\r\n"));
        let _ = command(&rest[..length - 2], 65535);
        rest = &rest[length..];
    }
});
