//! T: timeouts, delays, pauses. Times are seconds of the server's clock; a reply may come late on a busy machine, but
//! never early.

use super::rows::*;

/// A second, less what two clocks may disagree.
const SECOND_MS: u64 = 990;

/// A little longer than a second: what ends after a second is over then.
const OVER_A_SECOND_MS: u64 = 1100;

/// Connections of t01. On the original each of them has one chance in three to be overlooked.
const SILENT_HOLDERS: [&str; 12] = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L"];

trellis_row!(
    t01,
    "a job whose time is over is ready again, also while its holder is silent",
    SILENT_HOLDERS
        .iter()
        .fold(Script::new(), |script, holder| {
            let job = format!("${}", holder.to_lowercase());
            script.put_as(P, &job, "x", "0 0 1").ask(
                holder,
                "reserve\r\n",
                format!("RESERVED {job} 1\r\nx\r\n"),
            )
        })
        .stats_soon(P, "stats", [("current-jobs-ready", "12"), ("job-timeouts", "12")])
);
row!(
    t02,
    "reserve-with-timeout 1 times out after a second",
    Script::new()
        .mark()
        .wait_in(A, "reserve-with-timeout 1\r\n")
        .expect(A, "TIMED_OUT\r\n")
        .not_before(SECOND_MS)
);
row!(
    t03,
    "a waiter that holds a job is warned one second before that job's time is over",
    Script::new()
        .put_as(A, "$j", "x", "0 0 2")
        .mark()
        .ask(A, "reserve\r\nreserve\r\n", "RESERVED $j 1\r\nx\r\n")
        .expect(A, "DEADLINE_SOON\r\n")
        .not_before(SECOND_MS)
);
row!(
    t04,
    "also when it would wait longer",
    Script::new()
        .put_as(A, "$j", "x", "0 0 2")
        .mark()
        .ask(A, "reserve\r\nreserve-with-timeout 9\r\n", "RESERVED $j 1\r\nx\r\n")
        .expect(A, "DEADLINE_SOON\r\n")
        .not_before(SECOND_MS)
);
row!(
    t05,
    "a job whose time is over goes to a waiter, and counts a timeout",
    Script::new()
        .put_as(P, "$j", "x", "0 0 1")
        .mark()
        .ask(A, "reserve\r\n", "RESERVED $j 1\r\nx\r\n")
        .wait_in(B, "reserve\r\n")
        // The original sometimes overlooks the end until the holder says something (see t01).
        .pause(OVER_A_SECOND_MS)
        .ask(A, PROBE, CHECK)
        .expect(B, "RESERVED $j 1\r\nx\r\n")
        .not_before(SECOND_MS)
        .stats(P, "stats-job $j", [("timeouts", "1"), ("reserves", "2"), ("releases", "0")])
        .stats(P, "stats", [("job-timeouts", "1")])
        .ask(A, "delete $j\r\ntouch $j\r\n", NOT_FOUND.repeat(2))
);
row!(
    t06,
    "touch starts the job's time anew",
    Script::new()
        .put_as(A, "$j", "x", "0 0 4")
        .ask(A, "reserve\r\n", "RESERVED $j 1\r\nx\r\n")
        .stats_soon(A, "stats-job $j", [("time-left", "2")])
        .mark()
        .ask(A, "touch $j\r\n", "TOUCHED\r\n")
        .countdown(A, "stats-job $j", "time-left", 4)
);
row!(
    t07,
    "a job whose delay is over goes to a waiter; its delay is still shown",
    Script::new()
        .mark()
        .put_as(P, "$j", "x", "0 1 60")
        .wait_in(A, "reserve\r\n")
        .expect(A, "RESERVED $j 1\r\nx\r\n")
        .not_before(SECOND_MS)
        .stats(P, "stats-job $j", [("delay", "1"), ("kicks", "0")])
);
row!(
    t08,
    "waiters are served when a pause is over; the pause is shown as 0 then",
    Script::new()
        .put(P, "$j", "x")
        .mark()
        .ask(P, "pause-tube default 1\r\n", "PAUSED\r\n")
        .stats(P, "stats-tube default", [("pause", "1")])
        .wait_in(A, "reserve\r\n")
        .expect(A, "RESERVED $j 1\r\nx\r\n")
        .not_before(SECOND_MS)
        .stats(P, "stats-tube default", [("pause", "0"), ("cmd-pause-tube", "1")])
);
row!(
    t09,
    "time-left is in whole seconds, cut off: 99 right after a delay of 100",
    Script::new()
        .mark()
        .put_as(A, "$j", "x", "0 100 60")
        .countdown(A, "stats-job $j", "time-left", 100)
        .stats(A, "stats-job $j", [("delay", "100")])
        .mark()
        .ask(A, "kick-job $j\r\nreserve\r\n", "KICKED\r\nRESERVED $j 1\r\nx\r\n")
        .countdown(A, "stats-job $j", "time-left", 60)
        .stats(A, "stats-job $j", [("ttr", "60")])
);
