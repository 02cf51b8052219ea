//! The frame decoder, fed bytes of a peer in pieces: it ends in frames or an error, and takes no more than it got.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trellis::ipc::Inbox;

fuzz_target!(|pieces: Vec<Vec<u8>>| {
    let mut inbox = Inbox::default();
    for piece in pieces {
        let space = inbox.space();
        let n = piece.len().min(space.len());
        space[..n].copy_from_slice(&piece[..n]);
        inbox.received(n);
        loop {
            match inbox.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
