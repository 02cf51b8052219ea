//! Bodies that have not wholly arrived: how much of them the server bears, and for how long.

use crate::jobs::*;
use crate::support::process::wait_for;
use crate::support::{Binary, Client, DEADLINE, Server, Setup};

/// Largest body, and the least that a frontend's part may be.
const LARGEST: usize = 65_535;

const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY\r\n";

fn server(frontends: u32, flags: &[&str]) -> Server {
    Setup::new(Binary::Trellis).slots(2).frontends(frontends).flags(flags).start()
}

/// Sends the line of a put and the first byte of its body, and returns when the server has them.
fn begin_put(client: &mut Client, bytes: usize) {
    client.send(format!("put 0 0 60 {bytes}\r\nb")).wait_until_read();
    client.expect_silence();
}

fn finish_put(client: &mut Client, bytes: usize) -> Vec<u8> {
    client.send("b".repeat(bytes - 1)).send("\r\n").reply()
}

#[test]
fn put_above_the_limit_is_refused_and_its_body_thrown_away() {
    let server = server(1, &["--max-unfinished-bytes=131070"]);
    let mut full: Vec<Client> = ["A", "B"].map(|name| server.connect(name)).into();
    full.iter_mut().for_each(|client| begin_put(client, LARGEST));
    let mut refused = server.connect("refused");
    begin_put(&mut refused, 9);
    // What looks like commands is the rest of the body.
    refused.send("quit\r\nxx\r\n").expect(OUT_OF_MEMORY);
    // As in stock a body that is too large by itself is named so.
    refused.send("put 0 0 60 65536\r\n").send("b".repeat(65536)).ask("\r\n", "JOB_TOO_BIG\r\n");
    // What is not a put's body, or comes with its line, is not concerned.
    put(&mut refused, "whole");
    let stats = refused.stats("stats");
    assert_eq!((stats.number("cmd-put"), stats.number("current-producers")), (5, 3));

    assert!(inserted(&finish_put(&mut full[0], LARGEST)).is_some());
    begin_put(&mut refused, LARGEST);
    begin_put(&mut full[0], 1);
    assert_eq!(finish_put(&mut full[0], 1), OUT_OF_MEMORY.as_bytes());
    // One whose client goes leaves room as well.
    full.pop();
    wait_for("it to be gone", DEADLINE, || {
        (full[0].stats("stats").number("current-connections") == 2).then_some(())
    });
    begin_put(&mut full[0], LARGEST);
    assert!(inserted(&finish_put(&mut full[0], LARGEST)).is_some());
    assert!(inserted(&finish_put(&mut refused, LARGEST)).is_some());
    assert_eq!(jobs(&mut refused, "default"), [4, 0, 0, 0]);
}

/// Replies keep their order: the refusal waits for what was asked before.
#[test]
fn refusal_of_a_pipelined_put_comes_in_its_turn() {
    let server = server(1, &["--max-unfinished-bytes=65535"]);
    begin_put(&mut server.connect("full"), 1);
    let mut full = server.connect("full");
    begin_put(&mut full, LARGEST);
    let mut client = server.connect("pipeline");
    client.send("reserve\r\nput 0 0 60 5\r\nhe").wait_until_read().expect_silence();
    client.send("llo\r\nlist-tube-used\r\n").expect_silence();
    put(&mut server.connect("producer"), "x");
    assert!(client.reply().starts_with(b"RESERVED"));
    client.expect(OUT_OF_MEMORY).expect("USING default\r\n");
}

#[test]
fn each_frontend_keeps_to_its_part_and_a_new_one_has_all_of_it() {
    let server = server(2, &["--max-unfinished-bytes=131071"]);
    let [mut a, mut b] = ["0.a", "0.b"].map(|name| server.connect_through(0, name));
    let mut other = server.connect_through(1, "1");
    begin_put(&mut a, LARGEST);
    begin_put(&mut other, LARGEST);
    begin_put(&mut b, LARGEST);
    assert_eq!(finish_put(&mut b, LARGEST), OUT_OF_MEMORY.as_bytes());
    assert!(inserted(&finish_put(&mut other, LARGEST)).is_some());
    // The first has what is left over.
    begin_put(&mut b, 1);
    assert!(inserted(&finish_put(&mut b, 1)).is_some());
    server.replace(server.frontend(0));
    let mut new = server.connect_through(0, "new");
    begin_put(&mut new, LARGEST);
    assert!(inserted(&finish_put(&mut new, LARGEST)).is_some());
}

#[test]
fn part_that_does_not_take_the_largest_body_is_refused() {
    let setup = Setup::new(Binary::Trellis).frontends(3);
    let refused = setup.flags(&["-z100", "--max-unfinished-bytes=299"]).refusal();
    assert_eq!(refused.code, Some(5), "{}", refused.log);
    let told = ["--max-unfinished-bytes 299", "3 frontends share them", "100 bytes", "allow 300 at least"];
    assert!(told.iter().all(|words| refused.log.contains(words)), "{}", refused.log);
}
