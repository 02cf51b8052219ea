//! H: a client that closes, or only stops sending.

use super::rows::*;

const TIMED_OUT: &str = "TIMED_OUT\r\n";

row!(
    h01,
    "half-close in reserve: timed out, then the end",
    Script::new().wait_in(A, "reserve\r\n").finish(A, TIMED_OUT)
);
row!(
    h02,
    "the same in reserve-with-timeout, at once and not after that time",
    Script::new().wait_in(A, "reserve-with-timeout 100\r\n").finish(A, TIMED_OUT)
);
row!(
    h03,
    "commands behind the waiting reserve are carried out then",
    one(format!("reserve\r\n{PROBE}reserve\r\n{PROBE}"), [TIMED_OUT, CHECK].concat().repeat(2))
);
row!(
    h04,
    "a half-closed client can be given a job; its end releases it",
    Script::new().put(B, "$j", "x").send(A, "reserve\r\n").finish(A, "RESERVED $j 1\r\nx\r\n").stats_soon(
        B,
        "stats-job $j",
        [("state", "ready"), ("reserves", "1"), ("releases", "0"), ("timeouts", "0")]
    )
);
row!(
    h05,
    "a half-closed waiter is not there for the next job",
    Script::new().wait_in(A, "reserve\r\n").finish(A, TIMED_OUT).put(B, "$j", "x").stats_soon(
        B,
        "stats",
        [("current-jobs-ready", "1"), ("current-waiting", "0"), ("current-workers", "0")]
    )
);
row!(
    h06,
    "half-close inside an over-long line: no answer",
    Script::new().wait_in(A, letters("x", 500)).finish(A, "")
);
row!(
    h07,
    "a close puts reserved jobs back; only their reserves show it",
    Script::new()
        .put(B, "$j", "x")
        .ask(A, "reserve\r\n", "RESERVED $j 1\r\nx\r\n")
        .close(A)
        .stats_soon(
            B,
            "stats-job $j",
            [("state", "ready"), ("reserves", "1"), ("timeouts", "0"), ("releases", "0")]
        )
        .stats(B, "stats", [("current-jobs-reserved", "0"), ("job-timeouts", "0")])
);
row!(
    h08,
    "a buried job that was reserved by its id comes back ready",
    Script::new()
        .put(B, "$j", "x")
        .ask(B, "reserve\r\nbury $j 0\r\n", "RESERVED $j 1\r\nx\r\nBURIED\r\n")
        .ask(A, "reserve-job $j\r\n", "RESERVED $j 1\r\nx\r\n")
        .close(A)
        .stats_soon(B, "stats-job $j", [("state", "ready"), ("buries", "1"), ("kicks", "0")])
);
row!(
    h08b,
    "so does a delayed one",
    Script::new()
        .put_as(B, "$j", "x", "0 100 60")
        .ask(A, "reserve-job $j\r\n", "RESERVED $j 1\r\nx\r\n")
        .close(A)
        .stats_soon(B, "stats-job $j", [("state", "ready"), ("delay", "100")])
);
row!(
    h09,
    "a command behind a waiting reserve is not read before that ends",
    Script::new()
        .wait_in(A, "reserve\r\nuse zz\r\n")
        .ask(B, "stats-tube zz\r\n", NOT_FOUND)
        .put(B, "$j", "x")
        .expect(A, "RESERVED $j 1\r\nx\r\nUSING zz\r\n")
);
row!(
    h10,
    "a waiter that closes is not there for the next job",
    Script::new()
        .wait_in(A, "reserve\r\n")
        .close(A)
        .stats_soon(B, "stats", [("current-waiting", "0"), ("current-connections", "1")])
        .put(B, "$j", "x")
        .stats(B, "stats", [("current-jobs-ready", "1"), ("current-jobs-reserved", "0")])
);
row!(
    h11,
    "quit releases what was reserved",
    Script::new()
        .put(B, "$j", "x")
        .ask(A, "reserve\r\nquit\r\n", "RESERVED $j 1\r\nx\r\n")
        .end(A)
        .stats_soon(B, "stats-job $j", [("state", "ready"), ("reserves", "1")])
        .stats_soon(B, "stats", [("current-workers", "0"), ("current-connections", "1")])
);
