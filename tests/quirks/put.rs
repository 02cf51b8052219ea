//! B: put and its body.

use super::rows::*;

const LIMIT_3: &[&str] = &["-z", "3"];

one_slot_row!(
    b01,
    "the value of an id",
    "more blanks and zeros between the numbers",
    one(format!("put   0  00   60   0001\r\nx\r\n{PROBE}"), ["INSERTED 1\r\n", CHECK].concat())
);
row!(b02, "a number that is wrong: the body is read as commands", {
    let with_body = format!("put -1 0 60 1\r\nx\r\nput 0 0 60 x\r\n{PROBE}");
    let alone = [
        "put 0 0 60",
        "put 4294967296 0 60 1",
        "put 0 4294967296 60 1",
        "put 0 0 4294967296 1",
        "put 0 0 60 4294967296",
        "put 0 0 60 -1",
        "put a 0 60 1",
    ];
    let bytes = with_body + &alone.join("\r\n") + "\r\n";
    one(bytes, [BAD_FORMAT, UNKNOWN, BAD_FORMAT, CHECK].concat() + &BAD_FORMAT.repeat(7))
});
row!(
    b03,
    "anything behind the size, even a blank: the body is read as commands",
    one(
        "put 0 0 60 1 \r\nx\r\nput 0 0 60 1 1\r\nx\r\nput 0 0 60 1x\r\nx\r\n",
        [BAD_FORMAT, UNKNOWN].concat().repeat(3)
    )
);
row!(
    b04,
    "a size above the limit is seen before the garbage behind it",
    one(
        format!("put 0 0 60 4 junk\r\n123456{PROBE}put 0 0 60 4\r\n1234\r\n{PROBE}"),
        [TOO_BIG, CHECK, TOO_BIG, CHECK].concat()
    )
    .flags(LIMIT_3)
);
row!(
    b05,
    "too big: size+2 bytes are thrown away, whatever they are",
    one(format!("put 0 0 60 4\r\nabcdef{PROBE}"), [TOO_BIG, CHECK].concat()).flags(LIMIT_3)
);
row!(
    b06,
    "too big: the answer waits for all of the body",
    Script::new().wait_in(A, "put 0 0 60 70000\r\n").wait_in(A, letters("y", 70001)).ask(A, "z", TOO_BIG)
);
row!(
    b07,
    "too big, half-closed inside the body: no answer",
    Script::new().wait_in(A, "put 0 0 60 4294967295\r\nabc").finish(A, "")
);
row!(b08, "a body of the limit", {
    let body = letters("q", 65535);
    Script::new().put(A, "$j", &body).ask(A, "peek $j\r\n", format!("FOUND $j 65535\r\n{body}\r\n"))
});
row!(
    b09,
    "a byte more than the limit",
    one(format!("put 0 0 60 65536\r\n{}\r\n", letters("q", 65536)), TOO_BIG)
);
row!(b10, "no body", Script::new().put(A, "$j", "").ask(A, "peek $j\r\n", "FOUND $j 0\r\n\r\n"));
row!(
    b11,
    "a body that does not end: size+2 bytes are eaten, the rest is the next command",
    one(format!("put 0 0 60 2\r\nabcd\r\n{PROBE}"), [NO_CRLF, UNKNOWN, CHECK].concat())
);
row!(
    b12,
    "a body one byte short eats the first byte of the next command",
    one(format!("put 0 0 60 2\r\na\r\n{PROBE}{PROBE}"), [NO_CRLF, UNKNOWN, CHECK].concat())
);
row!(
    b13,
    "a body two bytes short waits",
    Script::new().wait_in(A, "put 0 0 60 3\r\na\r\n").ask(A, "xx", NO_CRLF)
);
row!(
    b14,
    "CRLF, NUL and commands in a body are data",
    Script::new().wait_in(A, "put 0 0 60 10\r\na\r\n\0quit\r\n\r").ask(A, "\n", "INSERTED $j\r\n").ask(
        A,
        "peek $j\r\n",
        "FOUND $j 10\r\na\r\n\0quit\r\n\r\n"
    )
);
one_slot_row!(
    b15,
    "the value of an id",
    "an id is taken with the command line: a put that fails later has used it up",
    one("put 0 0 60 1\r\nxyzput 0 0 60 1\r\nx\r\n", [NO_CRLF, "INSERTED 2\r\n"].concat())
);
one_slot_row!(
    b16,
    "the value of an id",
    "a refused line and a body too big use none up",
    one(
        "put 0 0 60 1 \r\nx\r\nput 0 0 60 9\r\n123456789\r\nput 0 0 60 1\r\nx\r\n",
        [BAD_FORMAT, UNKNOWN, TOO_BIG, "INSERTED 1\r\n"].concat()
    )
    .flags(LIMIT_3)
);
one_slot_row!(
    b17,
    "the value of an id",
    "ids are in the order of the command lines, not of the bodies",
    Script::new()
        .wait_in(A, "put 0 0 60 1\r\n")
        .ask(B, "put 0 0 60 1\r\nb\r\n", "INSERTED 2\r\n")
        .ask(A, "a\r\n", "INSERTED 1\r\n")
        .ask(B, "reserve\r\n", "RESERVED 1 1\r\na\r\n")
);

/// Commands that find no job 1 while its body is not there.
const NOT_YET_COMMANDS: &str =
    "delete 1\r\nreserve-job 1\r\ntouch 1\r\nkick-job 1\r\nrelease 1 0 0\r\nbury 1 0\r\n";

mended_one_slot_row!(
    b18,
    "the value of an id",
    "a put whose body is not complete is counted, and its job can be asked about",
    Script::new()
        .wait_in(A, "put 5 6 7 3\r\nab")
        .stats_soon(
            B,
            "stats",
            [("cmd-put", "1"), ("total-jobs", "0"), ("current-producers", "1"), ("current-jobs-ready", "0")]
        )
        .stats(
            B,
            "stats-job 1",
            [("state", "invalid"), ("pri", "5"), ("delay", "6"), ("ttr", "7"), ("time-left", "0")]
        )
        .ask(B, NOT_YET_COMMANDS, NOT_FOUND.repeat(6))
        .close(A)
        .stats_soon(B, "stats", [("current-producers", "0")])
        .ask(B, "stats-job 1\r\n", NOT_FOUND),
    "a put whose body is not complete is counted, but nobody finds its job (and so the memory behind it)",
    Script::new()
        .wait_in(A, "put 5 6 7 3\r\nab")
        .stats_soon(
            B,
            "stats",
            [("cmd-put", "1"), ("total-jobs", "0"), ("current-producers", "1"), ("current-jobs-ready", "0")]
        )
        .ask(B, "stats-job 1\r\npeek 1\r\n", NOT_FOUND.repeat(2))
        .ask(B, NOT_YET_COMMANDS, NOT_FOUND.repeat(6))
        .close(A)
        .stats_soon(B, "stats", [("current-producers", "0")])
        .ask(B, "stats-job 1\r\n", NOT_FOUND)
);
row!(
    b19,
    "half-closed inside the body: nothing is kept",
    Script::new().wait_in(A, "put 0 0 60 3\r\nab").finish(A, "").stats_soon(
        B,
        "stats",
        [("total-jobs", "0"), ("cmd-put", "1"), ("current-producers", "0")]
    )
);
row!(
    b20,
    "half-closed right behind a complete put: an answer, then the end",
    one("put 0 0 60 3\r\nabc\r\n", "INSERTED $j\r\n")
);
row!(
    b21,
    "a ttr of 0 becomes 1; priority and delay at their largest",
    Script::new().put_as(A, "$j", "", "4294967295 4294967295 0").stats(
        A,
        "stats-job $j",
        [("pri", "4294967295"), ("delay", "4294967295"), ("ttr", "1"), ("state", "delayed")]
    )
);
row!(
    b22,
    "puts and other commands in one packet",
    Script::new().ask(
        A,
        format!("put 0 0 60 1\r\nx\r\n{PROBE}put 0 0 60 2\r\nyy\r\npeek-ready\r\n"),
        format!("INSERTED $j\r\n{CHECK}INSERTED $k\r\nFOUND $j 1\r\nx\r\n")
    )
);
row!(
    b23,
    "drain mode: the body is read first; malformed, too big and unfinished win over it",
    Script::new()
        .flags(LIMIT_3)
        .drain()
        .ask(
            A,
            format!("put 0 0 60 1\r\nx\r\nput 0 0 60 1\r\nxyzput 0 0 60 9\r\n123456789\r\nput x\r\n{PROBE}"),
            ["DRAINING\r\n", NO_CRLF, TOO_BIG, BAD_FORMAT, CHECK].concat()
        )
        .stats(
            A,
            "stats",
            [("draining", "true"), ("cmd-put", "3"), ("total-jobs", "0"), ("current-producers", "1")]
        )
);
row!(
    b24,
    "a body too big with the next command in the same packet",
    one(format!("put 0 0 60 300\r\n{}{PROBE}", letters("x", 302)), [TOO_BIG, CHECK].concat()).flags(LIMIT_3)
);
