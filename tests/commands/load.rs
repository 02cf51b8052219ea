//! Much at once: large bodies, long pipelines, slow readers, many connections.

use crate::support::{Setup, Variant, on_all_variants};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The largest body without `-z`.
const DEFAULT_LIMIT_BYTES: usize = 65_535;

/// A stream of bytes that looks like noise and is the same each time (xorshift64).
struct Noise(u64);

impl Noise {
    fn new() -> Noise {
        Noise(0x9e37_79b9_7f4a_7c15)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.extend_from_slice(&self.0.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// The number in `INSERTED 5\r\n`.
fn inserted_id(reply: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(reply);
    let id = text.strip_prefix("INSERTED ").and_then(|rest| rest.trim_end().parse().ok());
    id.unwrap_or_else(|| panic!("no id in {text:?}"))
}

fn largest_default_body_comes_back(variant: Variant) {
    let server = Setup::of(variant).start();
    let body = Noise::new().bytes(DEFAULT_LIMIT_BYTES);
    let mut client = server.connect("A");
    client.send(format!("put 0 0 60 {}\r\n", body.len())).send(&body).send("\r\n");
    let id = inserted_id(&client.reply());
    for (command, word) in [(format!("peek {id}\r\n"), "FOUND"), ("reserve\r\n".to_owned(), "RESERVED")] {
        client.ask(command, [format!("{word} {id} {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat());
    }
    client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
}

fn body_in_many_packets_comes_back(variant: Variant) {
    const PACKETS: usize = 50;
    let server = Setup::of(variant).start();
    let body = Noise::new().bytes(60_000);
    let mut client = server.connect("A");
    client.send(format!("put 0 0 60 {}\r\n", body.len())).wait_until_read();
    for packet in body.chunks(body.len() / PACKETS) {
        client.send(packet).wait_until_read();
    }
    client.send("\r").wait_until_read().send("\n");
    let id = inserted_id(&client.reply());
    client.ask(
        "reserve\r\n",
        [format!("RESERVED {id} {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat(),
    );
}

fn thousand_pipelined_puts_are_all_answered_in_order(variant: Variant) {
    const PUTS: usize = 1000;
    let server = Setup::of(variant).start();
    let mut client = server.connect("A");
    let commands: String = (0..PUTS).map(|number| format!("put 0 0 60 4\r\n{number:04}\r\n")).collect();
    client.send(commands);
    let ids: Vec<u64> = (0..PUTS).map(|_| inserted_id(&client.reply())).collect();
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "ids do not grow: {ids:?}");
    if variant != Variant::TrellisFourSlots {
        assert_eq!((ids[0], ids[PUTS - 1]), (1, PUTS as u64));
    }
    client.send("reserve\r\n".repeat(PUTS));
    for (number, id) in ids.iter().enumerate() {
        client.expect(format!("RESERVED {id} 4\r\n{number:04}\r\n"));
    }
    client.send(ids.iter().map(|id| format!("delete {id}\r\n")).collect::<String>());
    client.expect("DELETED\r\n".repeat(PUTS));
    assert_eq!(client.stats("stats").text("total-jobs"), PUTS.to_string());
}

/// A client asks for much more than fits into any buffer on the way, and does not read for a while.
fn slow_reader_gets_every_byte_and_holds_nobody_up(variant: Variant) {
    const PEEKS: usize = 256;
    /// What may be kept for a client that does not read: far less than the 15 MB that it asked for.
    const KEPT_BYTES: u64 = 8 << 20;
    let server = Setup::of(variant).start();
    let body = Noise::new().bytes(60_000);
    let mut other = server.connect("other");
    other.send(format!("put 0 0 60 {}\r\n", body.len())).send(&body).send("\r\n");
    let id = inserted_id(&other.reply());
    other.ask("use side\r\nwatch side\r\nignore default\r\n", "USING side\r\nWATCHING 2\r\nWATCHING 1\r\n");
    let before = server.peak_memory();

    let mut slow = server.connect_narrow("slow");
    slow.send(format!("peek {id}\r\n").repeat(PEEKS));
    for number in 0..100 {
        let id = inserted_id(&other.call(format!("put 0 0 60 3\r\n{number:03}\r\n")));
        other.ask("reserve\r\n", format!("RESERVED {id} 3\r\n{number:03}\r\n"));
        other.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
    let kept = server.peak_memory().saturating_sub(before);
    assert!(kept < KEPT_BYTES, "{kept} bytes are kept for a client that does not read");

    let reply = [format!("FOUND {id} {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat();
    for peek in 0..PEEKS {
        let mut at = 0;
        while at < reply.len() {
            let piece = slow.some((reply.len() - at).min(1000));
            assert!(piece == reply[at..at + piece.len()], "peek {peek} differs after byte {at}");
            at += piece.len();
        }
    }
    slow.expect_silence();
}

fn thousand_connections_are_all_served(variant: Variant) {
    const CLIENTS: usize = 1000;
    /// Tubes are shared by some clients each, and lie in all slots.
    const TUBES: usize = 16;
    raise_open_files(4 * CLIENTS as u64);
    let server = Setup::of(variant).start();
    let mut clients: Vec<_> = (0..CLIENTS).map(|number| server.connect(&number.to_string())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let tube = number % TUBES;
        client.send(format!(
            "use t{tube}\r\nwatch t{tube}\r\nignore default\r\nput 0 0 60 4\r\n{number:04}\r\n"
        ));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.expect(format!("USING t{}\r\nWATCHING 2\r\nWATCHING 1\r\n", number % TUBES));
        inserted_id(&client.reply());
        client.send("reserve\r\n");
    }
    let mut bodies: Vec<String> = Vec::new();
    for client in &mut clients {
        let reply = String::from_utf8(client.reply()).expect("a reply in ASCII");
        let words: Vec<&str> = reply.split_whitespace().collect();
        assert!(matches!(words[..], ["RESERVED", _, "4", _]), "{reply:?}");
        bodies.push(words[3].to_owned());
        client.send(format!("delete {}\r\n", words[1]));
    }
    clients.iter_mut().for_each(|client| {
        client.expect("DELETED\r\n");
    });
    bodies.sort();
    assert!(bodies.iter().enumerate().all(|(number, body)| *body == format!("{number:04}")), "{bodies:?}");
    let stats = clients[0].stats("stats");
    let wanted = [("current-connections", "1000"), ("total-jobs", "1000"), ("current-jobs-reserved", "0")];
    assert_eq!(stats.differences(&wanted), Vec::<String>::new());
}

/// A job of 100 MB is held once; everything else together has a fixed bound.
fn huge_body_is_held_once(variant: Variant) {
    const BODY_BYTES: usize = 100 << 20;
    const ELSE_BYTES: u64 = 64 << 20;
    const PIECE_BYTES: usize = 64 << 10;
    let server = Setup::of(variant).flags(&["-z", "1073741824"]).start();
    let mut client = server.connect("A");
    client.send(format!("put 0 0 600 {BODY_BYTES}\r\n"));
    let mut noise = Noise::new();
    for _ in 0..BODY_BYTES / PIECE_BYTES {
        client.send(noise.bytes(PIECE_BYTES));
    }
    client.send("\r\n");
    let id = inserted_id(&client.reply());
    client.ask("reserve\r\n", format!("RESERVED {id} {BODY_BYTES}\r\n"));
    let mut noise = Noise::new();
    for piece in 0..BODY_BYTES / PIECE_BYTES {
        let mut got = Vec::with_capacity(PIECE_BYTES);
        while got.len() < PIECE_BYTES {
            got.extend(client.some(PIECE_BYTES - got.len()));
        }
        assert!(
            got == noise.bytes(PIECE_BYTES),
            "the body differs in its piece {piece} of {PIECE_BYTES} bytes"
        );
    }
    client.expect("\r\n");
    let peak = server.peak_memory();
    assert!(peak >= BODY_BYTES as u64, "a job of {BODY_BYTES} bytes is not in {peak} bytes of memory");
    assert!(peak < BODY_BYTES as u64 + ELSE_BYTES, "{peak} bytes of memory for a job of {BODY_BYTES}");
    client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
}

/// For this process, and for the servers that it starts.
fn raise_open_files(wanted: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limit of open files");
    if soft < wanted {
        assert!(hard >= wanted, "the test needs {wanted} open files, the machine allows {hard}");
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).expect("raise the limit of open files");
    }
}

/// Each of several reserves in one write runs out of time by itself. (An owner once did what was due, then began the
/// next reserve that it had kept, and slept without looking at when that one was due.)
fn reserves_sent_together_run_out_of_time_one_by_one(variant: Variant) {
    let server = Setup::of(variant).start();
    let mut client = server.connect("A");
    client.ask("reserve-with-timeout 0\r\n".repeat(5), "TIMED_OUT\r\n".repeat(5));
}

on_all_variants!(
    reserves_sent_together_run_out_of_time_one_by_one,
    largest_default_body_comes_back,
    body_in_many_packets_comes_back,
    thousand_pipelined_puts_are_all_answered_in_order,
    slow_reader_gets_every_byte_and_holds_nobody_up,
    thousand_connections_are_all_served,
    huge_body_is_held_once,
);
