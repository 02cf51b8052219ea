//! C: what the counters count.

use super::rows::*;

const LIMIT_3: &[&str] = &["-z", "3"];

row!(
    c01,
    "cmd-put counts what is too big, unfinished or followed by garbage, but no wrong numbers",
    Script::new()
        .flags(LIMIT_3)
        .ask(
            A,
            "put 0 0 60 9\r\n123456789\r\nput 0 0 60 1\r\nabcput 0 0 60 1 x\r\nput x\r\n",
            [TOO_BIG, NO_CRLF, BAD_FORMAT, BAD_FORMAT].concat()
        )
        .stats(B, "stats", [("cmd-put", "3"), ("total-jobs", "0")])
);
row!(
    c02,
    "a producer is who sent a put that got as far as its body",
    Script::new()
        .flags(LIMIT_3)
        .ask(A, "put 0 0 60 9\r\n123456789\r\nput 0 0 60 1 x\r\n", [TOO_BIG, BAD_FORMAT].concat())
        .stats(B, "stats", [("current-producers", "0")])
        .ask(A, "put 0 0 60 1\r\nabc", NO_CRLF)
        .stats(B, "stats", [("current-producers", "1")])
);
row!(
    c03,
    "a worker is who sent a reserve, even in vain, or a reserve-job that worked",
    Script::new()
        .ask(A, "reserve-job 9\r\n", NOT_FOUND)
        .stats(B, "stats", [("current-workers", "0")])
        .ask(A, "reserve-with-timeout 0\r\n", "TIMED_OUT\r\n")
        .stats(
            B,
            "stats",
            [("current-workers", "1"), ("cmd-reserve", "0"), ("cmd-reserve-with-timeout", "1")]
        )
);
row!(c04, "commands count when their arguments make sense, whether or not they find anything", {
    let lines = [
        ("peek 9", NOT_FOUND),
        ("peek x", BAD_FORMAT),
        ("delete 9", NOT_FOUND),
        ("delete x", BAD_FORMAT),
        ("release 9 0 0", NOT_FOUND),
        ("release 9", BAD_FORMAT),
        ("bury 9 0", NOT_FOUND),
        ("bury 9", BAD_FORMAT),
        ("kick 1", "KICKED 0\r\n"),
        ("kick x", BAD_FORMAT),
        ("touch 9", NOT_FOUND),
        ("touch x", BAD_FORMAT),
        ("use a", "USING a\r\n"),
        ("use -", BAD_FORMAT),
        ("watch a", "WATCHING 2\r\n"),
        ("watch -", BAD_FORMAT),
        ("ignore a", "WATCHING 1\r\n"),
        ("ignore a", "WATCHING 1\r\n"),
        ("ignore -", BAD_FORMAT),
        ("stats-job 9", NOT_FOUND),
        ("stats-job x", BAD_FORMAT),
        ("stats-tube zz", NOT_FOUND),
        ("stats-tube -", BAD_FORMAT),
        ("statsx", BAD_FORMAT),
        ("list-tube-used", "USING a\r\n"),
        ("list-tube-usedx", BAD_FORMAT),
        ("peek-ready", NOT_FOUND),
        ("peek-readyx", BAD_FORMAT),
        ("reserve-with-timeout 0x", "TIMED_OUT\r\n"),
        ("reserve-with-timeout x", BAD_FORMAT),
        ("reservex", BAD_FORMAT),
    ];
    let bytes: String = lines.iter().map(|(line, _)| format!("{line}\r\n")).collect();
    let replies: String = lines.iter().map(|(_, reply)| *reply).collect();
    Script::new().ask(A, bytes, replies).stats(
        A,
        "stats",
        [
            ("cmd-peek", "1"),
            ("cmd-delete", "1"),
            ("cmd-release", "1"),
            ("cmd-bury", "1"),
            ("cmd-kick", "1"),
            ("cmd-touch", "1"),
            ("cmd-use", "1"),
            ("cmd-watch", "1"),
            ("cmd-ignore", "2"),
            ("cmd-stats-job", "1"),
            ("cmd-stats-tube", "1"),
            ("cmd-stats", "1"),
            ("cmd-list-tube-used", "1"),
            ("cmd-peek-ready", "1"),
            ("cmd-reserve", "0"),
            ("cmd-reserve-with-timeout", "1"),
        ],
    )
});
row!(
    c05,
    "cmd-pause-tube counts before the name is looked at",
    Script::new()
        .ask(
            A,
            "pause-tube -x 1\r\npause-tube nope 1\r\npause-tube default x\r\n",
            [BAD_FORMAT, NOT_FOUND, BAD_FORMAT].concat()
        )
        .stats(A, "stats", [("cmd-pause-tube", "2")])
);
row!(
    c06,
    "kick-job and reserve-job count nowhere",
    Script::new().ask(A, "kick-job 9\r\nreserve-job 9\r\n", NOT_FOUND.repeat(2)).stats(
        A,
        "stats",
        [("cmd-kick", "0"), ("cmd-reserve", "0")]
    )
);
row!(
    c07,
    "stats counts itself before it answers",
    Script::new().stats(A, "stats", [("cmd-stats", "1")]).stats(A, "stats", [("cmd-stats", "2")])
);
row!(
    c08,
    "an ignore that is refused counts",
    Script::new().ask(A, "ignore default\r\n", "NOT_IGNORED\r\n").stats(A, "stats", [("cmd-ignore", "1")])
);
row!(
    c09,
    "binlog-max-size is as given, also without a log",
    Script::new().flags(&["-s", "5000", "-z", "77"]).stats(
        A,
        "stats",
        [("binlog-max-size", "5000"), ("binlog-current-index", "0"), ("max-job-size", "77")]
    )
);
row!(
    c10,
    "the largest limit of a body is 2^30",
    Script::new().flags(&["-z", "9999999999"]).stats(A, "stats", [("max-job-size", "1073741824")])
);
row!(
    c11,
    "a connection counts from accept to its end",
    Script::new()
        .ask(A, PROBE, CHECK)
        .stats(B, "stats", [("current-connections", "2"), ("total-connections", "2")])
        .send(A, "quit\r\n")
        .end(A)
        .stats_soon(B, "stats", [("current-connections", "1"), ("total-connections", "2")])
);
