//! One session, cut in two at every byte, and sent byte by byte: packets are no part of the protocol.

use crate::support::{Client, DEADLINE, Server, Setup, Variant, on_both, process};
use nix::sys::signal::Signal;

/// Bodies of the session end at this limit, so that one is too big.
const LIMIT_BYTES: usize = 16;

/// Ids from here on have the same number of digits, so that every session has the same length.
const FIRST_ID: u32 = 1000;

/// How many ids a session uses up.
const IDS: u32 = 4;

/// The session whose first job gets the id `first`.
fn session(first: u32) -> Vec<u8> {
    let [a, b, c] = [first, first + 1, first + 2];
    let commands = [
        "use cut\r\n".to_owned(),
        "watch cut\r\n".to_owned(),
        "put 10 0 60 5\r\nhello\r\n".to_owned(),
        // A body that looks like commands.
        "put 5 100 60 12\r\nquit\r\nwatch \r\n".to_owned(),
        "put 0 0 60 0\r\n\r\n".to_owned(),
        format!("put 0 0 60 {}\r\n{}\r\n", LIMIT_BYTES + 1, "z".repeat(LIMIT_BYTES + 1)),
        // Does not end where it should: takes the fourth id, and leaves an empty command.
        "put 0 0 60 2\r\nabcd\r\n".to_owned(),
        "put 0 0 60 x\r\n".to_owned(),
        "peek-ready\r\n".to_owned(),
        "reserve\r\n".to_owned(),
        format!("release {c} 3 0\r\n"),
        format!("reserve-job {b}\r\nbury {b} 7\r\nkick 1\r\n"),
        "reserve-with-timeout 0\r\n".to_owned(),
        format!("touch {c}\r\ndelete {c}\r\npeek {b}\r\ndelete {b}\r\ndelete {a}\r\n"),
        "nonsense\r\n".to_owned(),
        "ignore default\r\nignore cut\r\n".to_owned(),
        "list-tube-used\r\nlist-tubes-watched\r\n".to_owned(),
    ];
    commands.concat().into_bytes()
}

/// A server on which the next id is the first of a session.
struct Stage {
    server: Server,
    next_id: u32,
}

impl Stage {
    fn set(variant: Variant) -> Stage {
        let server = Setup::of(variant).flags(&["-z", &LIMIT_BYTES.to_string()]).start();
        // A put whose body does not end well uses up an id and leaves nothing.
        let waste = FIRST_ID as usize - 1;
        let mut client = server.connect("waste");
        client.ask("put 0 0 1 0\r\nxx".repeat(waste), "EXPECTED_CRLF\r\n".repeat(waste));
        Stage { server, next_id: FIRST_ID }
    }

    /// Lets `send` bring the session's bytes to the server and returns all replies, with `#0`, `#1`… for ids.
    fn play(&mut self, name: &str, send: impl FnOnce(&mut Client, &[u8])) -> String {
        let first = self.next_id;
        self.next_id += IDS;
        let mut client = self.server.connect(name);
        send(&mut client, &session(first));
        let replies = client.half_close().rest().escape_ascii().to_string();
        (0..IDS).fold(replies, |replies, index| {
            replies.replace(&(first + index).to_string(), &format!("#{index}"))
        })
    }
}

/// What the original answers when all comes at once.
fn reference() -> String {
    let replies = Stage::set(Variant::Legacy).play("reference", |client, bytes| {
        client.send(bytes);
    });
    assert!(replies.contains("RESERVED #2") && replies.contains("JOB_TOO_BIG"), "{replies}");
    replies
}

fn two_pieces_give_the_same_replies(variant: Variant) {
    let reference = reference();
    let mut stage = Stage::set(variant);
    for cut in 0..=session(FIRST_ID).len() {
        let replies = stage.play(&format!("cut at {cut}"), |client, bytes| {
            let (head, tail) = bytes.split_at(cut);
            client.send(head).wait_until_read().send(tail);
        });
        assert_eq!(replies, reference, "cut at byte {cut}");
    }
}

fn single_bytes_give_the_same_replies(variant: Variant) {
    let reference = reference();
    let replies = Stage::set(variant).play("single bytes", |client, bytes| {
        for byte in bytes.chunks(1) {
            client.send(byte).wait_until_read();
        }
    });
    assert_eq!(replies, reference);
}

/// The tests above mean something only if the server has read one piece before the next is sent.
#[test]
fn client_sees_when_the_server_has_read() {
    let server = Setup::of(Variant::Legacy).start();
    let mut client = server.connect("A");
    client.ask("list-tube-used\r\n", "USING default\r\n");
    server.signal(Signal::SIGSTOP);
    client.send("list-tube");
    process::wait_for("bytes that are not read", DEADLINE, || (client.unread() == 9).then_some(()));
    server.signal(Signal::SIGCONT);
    client.wait_until_read();
    client.ask("-used\r\n", "USING default\r\n");
}

on_both!(two_pieces_give_the_same_replies, single_bytes_give_the_same_replies);
