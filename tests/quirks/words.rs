//! P: which command a line is. Words are compared as prefixes, in a fixed order.

use super::rows::*;

/// Commands that must be followed by a blank.
const WITH_ARGUMENT: [&str; 11] =
    ["put", "peek", "delete", "release", "bury", "kick", "kick-job", "touch", "use", "watch", "ignore"];

fn lines(words: &[&str], ending: &str) -> String {
    words.iter().map(|word| format!("{word}{ending}\r\n")).collect()
}

row!(p01, "words that need their blank", one(lines(&WITH_ARGUMENT, ""), UNKNOWN.repeat(11)));
row!(p02, "the same with a blank and nothing else", one(lines(&WITH_ARGUMENT, " "), BAD_FORMAT.repeat(11)));
row!(
    p03,
    "what starts with 'reserve' is reserve with garbage",
    one(
        lines(&["reserve-with-timeout", "reserve-job", "reservex", "reserve ", "reserve-jobx 1"], ""),
        BAD_FORMAT.repeat(5)
    )
);
row!(
    p04,
    "what starts with 'stats' is stats with garbage",
    one(
        lines(&["stats-job", "stats-tube", "statsx", "stats ", "stats-jobx 1", "stats-tubes default"], ""),
        BAD_FORMAT.repeat(6)
    )
);
row!(
    p05,
    "the three peeks with anything behind",
    one(lines(&["peek-readyX", "peek-ready ", "peek-delayed 1", "peek-buriedx"], ""), BAD_FORMAT.repeat(4))
);
row!(
    p06,
    "a peek that is none of the three",
    one(lines(&["peek-", "peek-read", "peek-job 1", "peekx 1"], ""), UNKNOWN.repeat(4))
);
row!(
    p07,
    "what starts with 'list-tubes' or 'list-tube-used'",
    one(
        lines(
            &[
                "list-tubesx",
                "list-tubes ",
                "list-tubes-watch",
                "list-tubes-watchedx",
                "list-tube-usedx",
                "list-tube-used "
            ],
            ""
        ),
        BAD_FORMAT.repeat(6)
    )
);
row!(
    p08,
    "list-tube and list-tube-use are unknown",
    one(lines(&["list-tube", "list-tube-use", "list"], ""), UNKNOWN.repeat(3))
);
row!(p09, "quit closes without a reply", Script::new().send(A, "quit\r\n").end(A));
row!(p10, "quit with garbage quits too", Script::new().send(A, "quitter's remorse\r\n").end(A));
row!(
    p11,
    "commands behind a quit are dropped",
    Script::new().ask(A, format!("{PROBE}quit x\r\n{PROBE}"), CHECK).end(A)
);
row!(
    p12,
    "'qui', and 'quit' in the middle",
    one(format!("qui\r\nxquit\r\n{PROBE}"), [UNKNOWN, UNKNOWN, CHECK].concat())
);
row!(
    p13,
    "pause-tube needs no blank behind it",
    one(
        lines(
            &[
                "pause-tubedefault 0",
                "pause-tube  default  7",
                "pause-tube",
                "pause-tube ",
                "pause-tubes default 1"
            ],
            ""
        ),
        ["PAUSED\r\n", "PAUSED\r\n", BAD_FORMAT, BAD_FORMAT, BAD_FORMAT].concat()
    )
);
row!(
    p13b,
    "pause-tubeX N is about the tube X",
    one(
        "use xyz\r\npause-tubexyz 100\r\npause-tubex 100\r\n",
        ["USING xyz\r\n", "PAUSED\r\n", NOT_FOUND].concat()
    )
);
row!(
    p14,
    "kick-jobs is unknown, kick-job needs its blank",
    one("kick-jobs 1\r\nkick-job1\r\nkick1\r\n", UNKNOWN.repeat(3))
);
row!(p15, "a tab is no blank", one("touch\t1\r\nuse\tx\r\nkick\t1\r\n", UNKNOWN.repeat(3)));
