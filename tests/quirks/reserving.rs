//! R: who gets which job.

use super::rows::*;

const WAIT: &str = "reserve\r\n";

row!(
    r01,
    "four waiters are served A B D C: the last one takes the place of who left",
    [A, B, C, D]
        .iter()
        .fold(Script::new(), |script, client| script.wait_in(client, WAIT))
        .put(P, "$a", "1")
        .expect(A, "RESERVED $a 1\r\n1\r\n")
        .put(P, "$b", "2")
        .expect(B, "RESERVED $b 1\r\n2\r\n")
        .put(P, "$c", "3")
        .expect(D, "RESERVED $c 1\r\n3\r\n")
        .put(P, "$d", "4")
        .expect(C, "RESERVED $d 1\r\n4\r\n")
);
row!(
    r02,
    "the position outlives the waiters: after one job, of two new waiters the second is first",
    Script::new()
        .wait_in(A, WAIT)
        .put(P, "$a", "1")
        .expect(A, "RESERVED $a 1\r\n1\r\n")
        .wait_in(B, WAIT)
        .wait_in(C, WAIT)
        .put(P, "$b", "2")
        .expect(C, "RESERVED $b 1\r\n2\r\n")
        .put(P, "$c", "3")
        .expect(B, "RESERVED $c 1\r\n3\r\n")
);
row!(
    r02b,
    "a reserve that is answered at once moves the position too",
    Script::new()
        .put(P, "$a", "1")
        .ask(A, WAIT, "RESERVED $a 1\r\n1\r\n")
        .wait_in(B, WAIT)
        .wait_in(C, WAIT)
        .put(P, "$b", "2")
        .expect(C, "RESERVED $b 1\r\n2\r\n")
);
row!(
    r02c,
    "the last waiter takes the place of one that closes",
    Script::new()
        .wait_in(A, WAIT)
        .wait_in(B, WAIT)
        .wait_in(C, WAIT)
        .close(A)
        .stats_soon(P, "stats", [("current-waiting", "2")])
        .put(P, "$a", "1")
        .expect(C, "RESERVED $a 1\r\n1\r\n")
        .put(P, "$b", "2")
        .expect(B, "RESERVED $b 1\r\n2\r\n")
);
row!(
    r03,
    "with a job whose time runs out within a second, a reserve is answered at once",
    Script::new()
        .put_as(A, "$j", "x", "0 0 1")
        .ask(
            A,
            "reserve\r\nreserve\r\nreserve-with-timeout 0\r\n",
            "RESERVED $j 1\r\nx\r\nDEADLINE_SOON\r\nDEADLINE_SOON\r\n"
        )
        .stats(B, "stats", [("cmd-reserve", "2"), ("cmd-reserve-with-timeout", "1")])
);
row!(
    r04,
    "unless a watched tube has a ready job",
    Script::new().put_as(A, "$j", "x", "0 0 1").ask(A, WAIT, "RESERVED $j 1\r\nx\r\n").put(A, "$k", "y").ask(
        A,
        WAIT,
        "RESERVED $k 1\r\ny\r\n"
    )
);
row!(
    r05,
    "the ready job of a paused tube counts there, so that the answer comes a tick later",
    Script::new().put_as(A, "$j", "x", "0 0 1").ask(A, WAIT, "RESERVED $j 1\r\nx\r\n").put(A, "$k", "y").ask(
        A,
        "pause-tube default 100\r\nreserve\r\n",
        "PAUSED\r\nDEADLINE_SOON\r\n"
    )
);
row!(
    r06,
    "reserve-job minds neither pause nor deadline, and takes ready and delayed jobs",
    Script::new()
        .put_as(A, "$j", "x", "0 100 1")
        .ask(A, "pause-tube default 100\r\nreserve-job $j\r\n", "PAUSED\r\nRESERVED $j 1\r\nx\r\n")
        .put(A, "$k", "y")
        .ask(
            A,
            "reserve-job $k\r\nreserve-job $k\r\nreserve-job $j\r\n",
            ["RESERVED $k 1\r\ny\r\n", NOT_FOUND, NOT_FOUND].concat()
        )
);
row!(
    r07,
    "another connection's job can only be looked at",
    Script::new()
        .put(A, "$j", "x")
        .ask(A, WAIT, "RESERVED $j 1\r\nx\r\n")
        .ask(
            B,
            "delete $j\r\nrelease $j 0 0\r\nbury $j 0\r\ntouch $j\r\nkick-job $j\r\nreserve-job $j\r\n",
            NOT_FOUND.repeat(6)
        )
        .ask(B, "peek $j\r\n", "FOUND $j 1\r\nx\r\n")
);
row!(
    r08,
    "a job that nobody reserved can be deleted, not released, buried or touched",
    Script::new().put_as(A, "$j", "x", "0 100 60").ask(
        A,
        "release $j 0 0\r\nbury $j 0\r\ntouch $j\r\ndelete $j\r\ndelete $j\r\n",
        [NOT_FOUND, NOT_FOUND, NOT_FOUND, "DELETED\r\n", NOT_FOUND].concat()
    )
);
row!(
    r09,
    "at equal priority the lower id is first, also after a release",
    Script::new().put(A, "$a", "1").put(A, "$b", "2").ask(
        A,
        "reserve\r\nrelease $a 0 0\r\nreserve\r\n",
        "RESERVED $a 1\r\n1\r\nRELEASED\r\nRESERVED $a 1\r\n1\r\n"
    )
);
row!(
    r10,
    "a pause of 0 ends a pause at once",
    Script::new()
        .put(A, "$j", "x")
        .ask(A, "pause-tube default 100\r\n", "PAUSED\r\n")
        .wait_in(B, WAIT)
        .ask(A, "pause-tube default 0\r\n", "PAUSED\r\n")
        .expect(B, "RESERVED $j 1\r\nx\r\n")
        .stats(A, "stats-tube default", [("pause", "0"), ("pause-time-left", "0"), ("cmd-pause-tube", "2")])
);
one_slot_row!(
    r11,
    "a reserve over several tubes",
    "with several watched tubes: the lowest priority of all, then the lowest id",
    Script::new()
        .ask(P, "use b\r\n", "USING b\r\n")
        .put_as(P, "$a", "1", "5 0 60")
        .ask(P, "use a\r\n", "USING a\r\n")
        .put_as(P, "$b", "2", "5 0 60")
        .put_as(P, "$c", "3", "4 0 60")
        .ask(A, "watch a\r\nwatch b\r\n", "WATCHING 2\r\nWATCHING 3\r\n")
        .ask(A, WAIT.repeat(3), "RESERVED $c 1\r\n3\r\nRESERVED $a 1\r\n1\r\nRESERVED $b 1\r\n2\r\n")
);
