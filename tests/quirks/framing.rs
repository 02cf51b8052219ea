//! F: where a line ends. The original's line buffer has 224 bytes; the first CR in it decides.

use super::rows::*;

row!(f01, "an empty line is a command", one("\r\n", UNKNOWN));
row!(
    f02,
    "a lone LF ends nothing, it belongs to the next line",
    one(format!("\nstats\r\n{PROBE}"), [UNKNOWN, CHECK].concat())
);
row!(
    f03,
    "the longest line that is looked at has 224 bytes with its CRLF",
    one(format!("{}\r\n{PROBE}", letters("x", 222)), [UNKNOWN, CHECK].concat())
);
row!(
    f03b,
    "a valid command of 224 bytes works",
    one(format!("peek {}9\r\n{PROBE}", letters("0", 216)), [NOT_FOUND, CHECK].concat())
);
row!(
    f04,
    "225 bytes: the CR goes with the full buffer, and one refusal covers this line and the next",
    one(format!("{}\r\n{PROBE}{PROBE}", letters("x", 223)), [BAD_FORMAT, CHECK].concat())
);
row!(
    f04b,
    "225 bytes and no more: nothing is answered before another CRLF",
    Script::new()
        .wait_in(A, format!("{}\r\n", letters("x", 223)))
        .ask(A, PROBE, BAD_FORMAT)
        .ask(A, PROBE, CHECK)
);
row!(
    f05,
    "226 bytes: one refusal, the next command is intact",
    one(format!("{}\r\n{PROBE}", letters("x", 224)), [BAD_FORMAT, CHECK].concat())
);
row!(
    f06,
    "449 bytes (twice the buffer and one) are like 225",
    one(format!("{}\r\n{PROBE}{PROBE}", letters("x", 447)), [BAD_FORMAT, CHECK].concat())
);
row!(
    f07,
    "448 and 450 bytes are not",
    one(
        format!("{}\r\n{PROBE}{}\r\n{PROBE}", letters("x", 446), letters("x", 448)),
        [BAD_FORMAT, CHECK, BAD_FORMAT, CHECK].concat()
    )
);
row!(
    f08,
    "a line of 10,000 bytes: one refusal",
    one(format!("{}\r\n{PROBE}", letters("x", 9998)), [BAD_FORMAT, CHECK].concat())
);
row!(
    f09,
    "an over-long line is not looked at: it neither quits nor takes a body",
    one(
        format!("quit{blanks}\r\nput 0 0 60 1{blanks}\r\nx\r\n", blanks = letters(" ", 300)),
        [BAD_FORMAT, BAD_FORMAT, UNKNOWN].concat()
    )
);
row!(f10, "a CR without LF hides every later CRLF of the buffer", one(format!("a\rb\r\n{PROBE}{PROBE}"), ""));
row!(
    f11,
    "what it hid is thrown away when the buffer is full; the next CRLF is refused once",
    one(format!("a\rb\r\n{}\r\n{PROBE}", letters("y", 219)), [BAD_FORMAT, CHECK].concat())
);
row!(f12, "CR CR LF has such a CR too", one(format!("stats\r\r\n{PROBE}"), ""));
row!(
    f13,
    "a stray CR inside an over-long line hides the rest of that buffer as well",
    one(
        format!("{}a\rb\r\n{}\r\n{PROBE}", letters("x", 224), letters("y", 219)),
        [BAD_FORMAT, CHECK].concat()
    )
);
row!(
    f14,
    "a NUL in a line is a refusal, whatever the command",
    one(
        format!("stats\0\r\n\0\r\nstats\0x\r\n{PROBE}"),
        [BAD_FORMAT, BAD_FORMAT, BAD_FORMAT, CHECK].concat()
    )
);
row!(f15, "quit with a NUL does not quit", one(format!("quit\0\r\n{PROBE}"), [BAD_FORMAT, CHECK].concat()));
row!(
    f16,
    "put with a NUL takes no body",
    one(format!("put 0 0 60 5\0\r\n{PROBE}"), [BAD_FORMAT, CHECK].concat())
);
row!(f17, "CR and LF in different packets", Script::new().wait_in(A, "list-tube-used\r").ask(A, "\n", CHECK));
row!(f18, "one byte a packet", {
    let bytes = PROBE.as_bytes().chunks(1);
    bytes.fold(Script::new(), |script, byte| script.send(A, byte)).expect(A, CHECK)
});
row!(
    f19,
    "commands are in small letters",
    one("STATS\r\nPut 0 0 60 1\r\nx\r\nList-tube-used\r\n", UNKNOWN.repeat(4))
);
row!(
    f20,
    "a blank or a tab in front makes it no command",
    one(" stats\r\n\tstats\r\n list-tube-used\r\n", UNKNOWN.repeat(3))
);
row!(f21, "an unfinished last line is dropped at half-close", one("list-tube-used", ""));
row!(
    f22,
    "an LF inside an argument is a byte like others",
    one(
        "peek 1\n\r\nuse a\n\r\nkick 1\n\r\nstats\n\r\n",
        [BAD_FORMAT, BAD_FORMAT, "KICKED 0\r\n", BAD_FORMAT].concat()
    )
);
row!(
    f23,
    "bytes beyond ASCII",
    one(b"\xff\xfe\r\nuse \xc3\xa9\r\nstats\xff\r\n", [UNKNOWN, BAD_FORMAT, BAD_FORMAT].concat())
);
row!(
    f24,
    "225 bytes, then an empty line: it only ends the refused one",
    one(format!("{}\r\n\r\n{PROBE}", letters("x", 223)), [BAD_FORMAT, CHECK].concat())
);
