//! N: how numbers are read. There are two ways: a strict one, and that of `kick`.

use super::rows::*;

/// Each line with its answer, on one connection.
fn table(lines: &[(&str, &str)]) -> Script {
    let bytes: String = lines.iter().map(|(line, _)| format!("{line}\r\n")).collect();
    let replies: String = lines.iter().map(|(_, reply)| *reply).collect();
    one(bytes, replies)
}

const PAUSED: &str = "PAUSED\r\n";
const TIMED_OUT: &str = "TIMED_OUT\r\n";
const KICKED_0: &str = "KICKED 0\r\n";

row!(
    n01,
    "ids 0 and 2^64-1 are looked up, 2^64 is refused",
    table(&[
        ("peek 0", NOT_FOUND),
        ("peek 18446744073709551615", NOT_FOUND),
        ("peek 18446744073709551616", BAD_FORMAT)
    ])
);
row!(
    n02,
    "ids with signs, in hex, with a point, behind a tab",
    one("peek -1\r\npeek +1\r\npeek 0x1\r\npeek 1.0\r\npeek \t1\r\n", BAD_FORMAT.repeat(5))
);
row!(
    n03,
    "any number of blanks and zeros in front of an id, nothing behind",
    table(&[("peek    0009", NOT_FOUND), ("peek 9 ", BAD_FORMAT), ("peek 9 9", BAD_FORMAT)])
);
row!(n04, "the same for all commands with one id", {
    let words = ["delete", "touch", "kick-job", "stats-job", "reserve-job"];
    let good: String = words.iter().map(|word| format!("{word}  07\r\n")).collect();
    let bad: String = words.iter().map(|word| format!("{word} 7 \r\n")).collect();
    one(good + &bad, NOT_FOUND.repeat(5) + &BAD_FORMAT.repeat(5))
});
row!(
    n05,
    "priority and delay: 2^32-1 passes, 2^32 does not",
    table(&[
        ("release 9 4294967295 4294967295", NOT_FOUND),
        ("release 9 4294967296 0", BAD_FORMAT),
        ("release 9 0 4294967296", BAD_FORMAT),
        ("bury 9 4294967295", NOT_FOUND),
        ("bury 9 4294967296", BAD_FORMAT),
    ])
);
row!(
    n06,
    "release and bury: more blanks between, none behind; arguments missing or too many",
    table(&[
        ("release  9   1   2", NOT_FOUND),
        ("release 9 1 2 ", BAD_FORMAT),
        ("release 9 1", BAD_FORMAT),
        ("release 9", BAD_FORMAT),
        ("release 9 1 2 3", BAD_FORMAT),
        ("bury  9  1", NOT_FOUND),
        ("bury 9", BAD_FORMAT),
        ("bury 9 1 ", BAD_FORMAT),
        ("bury 9 1 2", BAD_FORMAT),
    ])
);
row!(
    n07,
    "release and bury: negative numbers",
    one("release 9 -1 0\r\nrelease 9 0 -1\r\nrelease -9 0 0\r\nbury 9 -1\r\n", BAD_FORMAT.repeat(4))
);
row!(
    n08,
    "kick cuts its count to 32 bits, so -1 kicks everything",
    Script::new()
        .put(A, "$j", "x")
        .ask(A, "reserve\r\nbury $j 0\r\n", "RESERVED $j 1\r\nx\r\nBURIED\r\n")
        .ask(A, "kick 0\r\nkick 4294967296\r\nkick -0\r\n", KICKED_0.repeat(3))
        .ask(A, "kick -1\r\n", "KICKED 1\r\n")
);
row!(
    n09,
    "counts that kick takes and refuses",
    table(&[
        ("kick 5x", KICKED_0),
        ("kick 5 5", KICKED_0),
        ("kick +5", KICKED_0),
        ("kick \t5", KICKED_0),
        ("kick 5 ", KICKED_0),
        ("kick 18446744073709551615", KICKED_0),
        ("kick 18446744073709551616", BAD_FORMAT),
        ("kick -18446744073709551615", KICKED_0),
        ("kick x", BAD_FORMAT),
        ("kick -", BAD_FORMAT),
        ("kick +-1", BAD_FORMAT),
    ])
);
row!(
    n10,
    "reserve-with-timeout does not look behind its number",
    table(&[
        ("reserve-with-timeout 0abc", TIMED_OUT),
        ("reserve-with-timeout 0 0", TIMED_OUT),
        ("reserve-with-timeout   0 ", TIMED_OUT),
        ("reserve-with-timeout 0.5", TIMED_OUT),
    ])
);
row!(
    n11,
    "reserve-with-timeout takes 0 to 2^31-1",
    table(&[
        ("reserve-with-timeout -1", BAD_FORMAT),
        ("reserve-with-timeout 2147483648", BAD_FORMAT),
        ("reserve-with-timeout 4294967296", BAD_FORMAT),
        ("reserve-with-timeout x", BAD_FORMAT),
        // Ended by the half-close.
        ("reserve-with-timeout 2147483647", TIMED_OUT),
    ])
);
row!(
    n12,
    "pause-tube: the delay is a whole number of 32 bits, with nothing behind",
    table(&[
        ("pause-tube default 4294967295", PAUSED),
        ("pause-tube default 4294967296", BAD_FORMAT),
        ("pause-tube default -1", BAD_FORMAT),
        ("pause-tube default 1 ", BAD_FORMAT),
        ("pause-tube default 1x", BAD_FORMAT),
        ("pause-tube default", BAD_FORMAT),
        ("pause-tube default x", BAD_FORMAT),
        ("pause-tube 5", BAD_FORMAT),
        ("pause-tube 5 5", NOT_FOUND),
        ("pause-tube default 0", PAUSED),
    ])
);
