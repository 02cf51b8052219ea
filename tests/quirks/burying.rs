//! K: bury, kick and the three peeks.

use super::rows::*;

row!(
    k01,
    "kick takes buried jobs if there are any, else delayed ones; never both",
    Script::new()
        .put_as(A, "$a", "1", "0 100 60")
        .put(A, "$b", "2")
        .ask(A, "reserve\r\nbury $b 0\r\n", "RESERVED $b 1\r\n2\r\nBURIED\r\n")
        .ask(A, "kick 9\r\nkick 9\r\nkick 9\r\n", "KICKED 1\r\nKICKED 1\r\nKICKED 0\r\n")
);
row!(
    k02,
    "delayed jobs are kicked and peeked in the order of their deadlines",
    Script::new()
        .put_as(A, "$a", "1", "0 300 60")
        .put_as(A, "$b", "2", "0 100 60")
        .put_as(A, "$c", "3", "0 200 60")
        .ask(A, "peek-delayed\r\n", "FOUND $b 1\r\n2\r\n")
        .ask(
            A,
            "kick 1\r\npeek-delayed\r\npeek-ready\r\n",
            "KICKED 1\r\nFOUND $c 1\r\n3\r\nFOUND $b 1\r\n2\r\n"
        )
);
row!(
    k02b,
    "buried jobs are kicked and peeked in the order in which they were buried",
    Script::new()
        .put(A, "$a", "1")
        .put(A, "$b", "2")
        .ask(A, "reserve\r\nreserve\r\n", "RESERVED $a 1\r\n1\r\nRESERVED $b 1\r\n2\r\n")
        .ask(A, "bury $b 9\r\nbury $a 0\r\npeek-buried\r\n", "BURIED\r\nBURIED\r\nFOUND $b 1\r\n2\r\n")
        .ask(
            A,
            "kick 1\r\npeek-buried\r\npeek-ready\r\n",
            "KICKED 1\r\nFOUND $a 1\r\n1\r\nFOUND $b 1\r\n2\r\n"
        )
);
row!(
    k03,
    "kick-job takes buried and delayed jobs only, and counts as a kick",
    Script::new()
        .put_as(A, "$j", "x", "0 100 60")
        .ask(A, "kick-job $j\r\nkick-job $j\r\n", ["KICKED\r\n", NOT_FOUND].concat())
        .stats(A, "stats-job $j", [("kicks", "1"), ("state", "ready"), ("delay", "100")])
);
row!(
    k04,
    "release and bury set the priority and count",
    Script::new()
        .put_as(A, "$j", "x", "7 0 60")
        .ask(A, "reserve\r\nrelease $j 9 0\r\n", "RESERVED $j 1\r\nx\r\nRELEASED\r\n")
        .ask(A, "reserve\r\nbury $j 4294967295\r\n", "RESERVED $j 1\r\nx\r\nBURIED\r\n")
        .stats(
            A,
            "stats-job $j",
            [
                ("pri", "4294967295"),
                ("releases", "1"),
                ("buries", "1"),
                ("reserves", "2"),
                ("state", "buried")
            ]
        )
);
row!(
    k05,
    "urgent is what is ready with a priority below 1024",
    Script::new()
        .put_as(A, "$a", "x", "1023 0 60")
        .put_as(A, "$b", "x", "1024 0 60")
        .put_as(A, "$c", "x", "0 99 60")
        .stats(
            A,
            "stats",
            [("current-jobs-urgent", "1"), ("current-jobs-ready", "2"), ("current-jobs-delayed", "1")]
        )
        .ask(A, "reserve\r\n", "RESERVED $a 1\r\nx\r\n")
        .stats(A, "stats", [("current-jobs-urgent", "0")])
);
row!(
    k06,
    "the three peeks look at the used tube, not at the watched one",
    Script::new().ask(A, "use t\r\n", "USING t\r\n").put(A, "$j", "x").ask(
        A,
        "use default\r\npeek-ready\r\n",
        ["USING default\r\n", NOT_FOUND].concat()
    )
);
