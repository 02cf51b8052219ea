//! W: what is still known after a kill and a restart with a log.

use super::rows::*;

/// A job that was put, reserved and buried with priority 5.
fn one_buried() -> Script {
    Script::new().with_log().put(A, "$j", "x").ask(
        A,
        "reserve\r\nbury $j 5\r\n",
        "RESERVED $j 1\r\nx\r\nBURIED\r\n",
    )
}

/// A job of priority 5 that was released with priority 77 and no delay.
fn one_released() -> Script {
    Script::new().with_log().put_as(A, "$j", "x", "5 0 60").ask(
        A,
        "reserve\r\nrelease $j 77 0\r\n",
        "RESERVED $j 1\r\nx\r\nRELEASED\r\n",
    )
}

/// Two jobs, of which the second was buried before the first.
fn two_buried() -> Script {
    Script::new()
        .with_log()
        .put(A, "$a", "1")
        .put(A, "$b", "2")
        .ask(A, "reserve\r\nreserve\r\n", "RESERVED $a 1\r\n1\r\nRESERVED $b 1\r\n2\r\n")
        .ask(A, "bury $b 0\r\nbury $a 0\r\npeek-buried\r\n", "BURIED\r\nBURIED\r\nFOUND $b 1\r\n2\r\n")
}

/// Jobs of 8, 9 and 1 bytes, where 10 is the limit.
fn near_the_limit() -> Script {
    Script::new()
        .with_log()
        .flags(&["-z", "10"])
        .put(A, "$a", "12345678")
        .put(A, "$b", "123456789")
        .put(A, "$c", "x")
        .restart()
}

mended_row!(
    w01,
    "each start buries a buried job once more, which is not logged",
    one_buried()
        .restart()
        .stats(B, "stats-job $j", [("state", "buried"), ("buries", "2"), ("pri", "5"), ("reserves", "1")])
        .restart()
        .stats(C, "stats-job $j", [("buries", "2")]),
    "a start adds no bury",
    one_buried()
        .restart()
        .stats(B, "stats-job $j", [("state", "buried"), ("buries", "1"), ("pri", "5"), ("reserves", "1")])
        .restart()
        .stats(C, "stats-job $j", [("buries", "1")])
);
mended_row!(
    w02,
    "a release without delay is not logged: the old priority and counts are back",
    one_released().restart().stats(
        B,
        "stats-job $j",
        [("state", "ready"), ("pri", "5"), ("releases", "0"), ("reserves", "0")]
    ),
    "a release without delay is logged",
    one_released().restart().stats(
        B,
        "stats-job $j",
        [("state", "ready"), ("pri", "77"), ("releases", "1"), ("reserves", "1")]
    )
);
row!(
    w03,
    "a release with delay is logged",
    Script::new()
        .with_log()
        .put_as(A, "$j", "x", "5 0 60")
        .ask(A, "reserve\r\nrelease $j 77 500\r\n", "RESERVED $j 1\r\nx\r\nRELEASED\r\n")
        .restart()
        .stats(
            B,
            "stats-job $j",
            [("state", "delayed"), ("pri", "77"), ("releases", "1"), ("reserves", "1"), ("delay", "500")]
        )
);
row!(
    w04,
    "a reservation is not logged: a buried job that was reserved is buried again",
    one_buried()
        .ask(A, "reserve-job $j\r\n", "RESERVED $j 1\r\nx\r\n")
        .restart()
        // Its buries are the subject of w01.
        .stats(B, "stats-job $j", [("state", "buried"), ("reserves", "1")])
);
row!(
    w05,
    "kick and kick-job are logged",
    Script::new()
        .with_log()
        .put_as(A, "$a", "x", "0 500 60")
        .ask(A, "kick 1\r\n", "KICKED 1\r\n")
        .put_as(A, "$b", "y", "0 500 60")
        .ask(A, "kick-job $b\r\n", "KICKED\r\n")
        .restart()
        .stats(B, "stats-job $a", [("state", "ready"), ("kicks", "1")])
        .stats(B, "stats-job $b", [("state", "ready"), ("kicks", "1")])
);
one_slot_row!(
    w06,
    "the value of an id",
    "the next id is above all that the log has, deleted jobs included",
    Script::new()
        .with_log()
        .put(A, "1", "x")
        .put(A, "2", "x")
        .put(A, "3", "x")
        .ask(A, "delete 3\r\n", "DELETED\r\n")
        .restart()
        .put(B, "4", "x")
);
mended_one_slot_row!(
    w07,
    "the value of an id",
    "when all jobs of a log are gone its file goes, and ids start at 1 again",
    Script::new()
        .with_log()
        .put(A, "1", "x")
        .ask(A, "delete 1\r\n", "DELETED\r\n")
        .restart()
        .restart()
        .put(B, "1", "x"),
    "an id is not used twice, even if nothing is left of its job",
    Script::new()
        .with_log()
        .put(A, "1", "x")
        .ask(A, "delete 1\r\n", "DELETED\r\n")
        .restart()
        .restart()
        .put(B, "$j", "y")
        .ask(B, "peek 1\r\npeek $j\r\n", [NOT_FOUND, "FOUND $j 1\r\ny\r\n"].concat())
);
one_slot_row!(
    w08,
    "the number of log files of all slots",
    "counters of what happened start at 0, those of what is there are right",
    Script::new()
        .with_log()
        .put(A, "$j", "x")
        .restart()
        .stats(
            B,
            "stats",
            [
                ("total-jobs", "0"),
                ("cmd-put", "0"),
                ("current-jobs-ready", "1"),
                ("binlog-oldest-index", "1"),
                ("binlog-current-index", "2")
            ]
        )
        .stats(B, "stats-tube default", [("total-jobs", "0"), ("current-jobs-ready", "1")])
);
mended_row!(
    w09,
    "buried jobs are in the order in which they were put then, not in which they were buried",
    two_buried().restart().ask(B, "peek-buried\r\n", "FOUND $a 1\r\n1\r\n"),
    "buried jobs are both there; that they keep their order is not promised",
    two_buried().restart().stats(B, "stats", [("current-jobs-buried", "2")]).ask(
        B,
        "kick 2\r\nreserve\r\nreserve\r\n",
        "KICKED 2\r\nRESERVED $a 1\r\n1\r\nRESERVED $b 1\r\n2\r\n"
    )
);
row!(
    w10,
    "touch is not logged; a first log file has index 1",
    Script::new()
        .with_log()
        .stats(
            A,
            "stats",
            [("binlog-oldest-index", "1"), ("binlog-current-index", "1"), ("binlog-records-written", "0")]
        )
        .put(A, "$j", "x")
        .ask(A, "reserve\r\ntouch $j\r\n", "RESERVED $j 1\r\nx\r\nTOUCHED\r\n")
        .stats(A, "stats", [("binlog-records-written", "1")])
        .stats(A, "stats-job $j", [("file", "1")])
);
mended_row!(
    w11,
    "a body of the limit or a byte less is lost, with all that follows in its file",
    near_the_limit().ask(
        B,
        "peek $a\r\npeek $b\r\npeek $c\r\n",
        ["FOUND $a 8\r\n12345678\r\n", NOT_FOUND, NOT_FOUND].concat()
    ),
    "whatever was taken comes back",
    near_the_limit().ask(
        B,
        "peek $a\r\npeek $b\r\npeek $c\r\n",
        "FOUND $a 8\r\n12345678\r\nFOUND $b 9\r\n123456789\r\nFOUND $c 1\r\nx\r\n"
    )
);
row!(
    w12,
    "a body of two bytes less than the limit comes back",
    Script::new().with_log().flags(&["-z", "10"]).put(A, "$a", "12345678").restart().ask(
        B,
        "peek $a\r\n",
        "FOUND $a 8\r\n12345678\r\n"
    )
);
row!(w13, "a job larger than a log file is logged all the same", {
    let body = letters("k", 9000);
    Script::new().with_log().flags(&["-s", "4096"]).put(A, "$a", &body).restart().ask(
        B,
        "peek $a\r\n",
        format!("FOUND $a 9000\r\n{body}\r\n"),
    )
});
row!(
    w14,
    "a kick after a bury is logged, and the buries stay",
    one_buried().ask(A, "kick 1\r\n", "KICKED 1\r\n").restart().stats(
        B,
        "stats-job $j",
        [("state", "ready"), ("buries", "1"), ("kicks", "1"), ("pri", "5")]
    )
);
