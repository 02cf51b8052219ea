//! Lines at the edge of what a server accepts, and beyond it: words, numbers, names, lengths, stray bytes.
//!
//! Pure: bytes from a random generator.

use crate::limits;

/// A line at the edge of what is accepted or beyond it, and whether it may stay without an answer.
pub fn malformed(random: &mut fastrand::Rng) -> (Vec<u8>, bool) {
    const LINES: &[&str] = &[
        "\r\n",
        "\nstats\r\n",
        " stats\r\n",
        "STATS\r\n",
        "stats \r\n",
        "statsx\r\n",
        "put\r\n",
        "put \r\n",
        "put 1 0 9\r\n",
        "put -1 0 9 1\r\n",
        "put 0 0 4294967296 1\r\n",
        "put 0 0 1000 2x\r\n",
        "put 0 0 1000 2 \r\n",
        "put  0  0  01000  1\r\nx\r\n",
        "put 0 0 1000 2\r\nabcd\r\n",
        "put 0 0 1000 0\r\n\r\n",
        "put 0 0 1000 150\r\n",
        "peek\r\n",
        "peek \r\n",
        "peek  0\r\n",
        "peek 1 \r\n",
        "peek 1 1\r\n",
        "peek-\r\n",
        "peek-readyx\r\n",
        "peek-job 1\r\n",
        "delete x\r\n",
        "delete +1\r\n",
        "delete 0x1\r\n",
        "release 1\r\n",
        "release 1 2\r\n",
        "release 1 2 3 4\r\n",
        "bury 1\r\n",
        "bury 1 -1\r\n",
        "touch\r\n",
        "touch \r\n",
        "kick\r\n",
        "kick x\r\n",
        "kick -0\r\n",
        "kick 0x\r\n",
        "kick +0\r\n",
        "kick \t0\r\n",
        "kick 18446744073709551616\r\n",
        "kick-job \r\n",
        "kick-jobs 1\r\n",
        "use \r\n",
        "use  a\r\n",
        "use -a\r\n",
        "use a b\r\n",
        "use a,b\r\n",
        "watch \r\n",
        "watch a*\r\n",
        "ignore \r\n",
        "ignore a:\r\n",
        "stats-job\r\n",
        "stats-job x\r\n",
        "stats-tube\r\n",
        "stats-tube \r\n",
        "stats-tube nosuch\r\n",
        "list\r\n",
        "list-tubesx\r\n",
        "list-tube-used \r\n",
        "list-tubes-watchedx\r\n",
        "pause-tube\r\n",
        "pause-tube a\r\n",
        "pause-tube a -1\r\n",
        "pause-tube a 1x\r\n",
        "pause-tubea 0\r\n",
        "pause-tube  a  0\r\n",
        "pause-tube nosuch 0\r\n",
        "pause-tube -x 1\r\n",
        "reserve \r\n",
        "reservex\r\n",
        "reserve-job\r\n",
        "reserve-job 0\r\n",
        "reserve-with-timeout\r\n",
        "reserve-with-timeout x\r\n",
        "reserve-with-timeout -1\r\n",
        "reserve-with-timeout 2147483648\r\n",
        "qui\r\n",
        "quitter\r\n",
        "stats\0\r\n",
        "quit\0\r\n",
        "put 0 0 1000 1\0\r\n",
        "use a\u{e9}\r\n",
    ];
    match random.usize(..8) {
        // A line as long as the buffer, a byte more, and so on.
        0 => {
            let around = [limits::LINE_BYTES, 2 * limits::LINE_BYTES][random.usize(..2)];
            let length = around + random.usize(..4) - 1;
            let mut line = vec![b'x'; length - 2];
            line.extend_from_slice(b"\r\n");
            (line, true)
        }
        1 => (b"stats\rx\r\n".to_vec(), true),
        2 => {
            let length = limits::TUBE_NAME_BYTES + random.usize(..2);
            (format!("watch {}\r\n", "n".repeat(length)).into_bytes(), false)
        }
        _ => {
            let line = random.choice(LINES).expect("there are some");
            // Its body may never come.
            (line.as_bytes().to_vec(), line.starts_with("put 0 0 1000 150"))
        }
    }
}
