//! U: names of tubes, the tubes in use, and when a tube comes and goes.

use super::rows::*;

/// Every character that a name may have.
const LEGAL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()";

/// The longest name.
fn longest() -> String {
    letters("a", 200)
}

row!(u01, "every legal character, and 200 of them", {
    let name = longest();
    one(
        format!("use A{LEGAL}\r\nuse {name}\r\nwatch {name}\r\n"),
        format!("USING A{LEGAL}\r\nUSING {name}\r\nWATCHING 2\r\n"),
    )
});
row!(u02, "201 bytes, a hyphen in front, nothing, blanks, other characters", {
    let long = letters("a", 201);
    let names = ["-a", "", " a", "a ", "a b", "a,b", "a*", "a:b", "\ta"];
    let mut lines = vec![format!("use {long}"), format!("watch {long}")];
    lines.extend(names.iter().map(|name| format!("use {name}")));
    lines.extend(
        ["watch -", "ignore -a", "ignore  default", "stats-tube  default", "stats-tube default "]
            .map(str::to_owned),
    );
    let count = lines.len();
    one(lines.join("\r\n") + "\r\n", BAD_FORMAT.repeat(count))
});
row!(
    u03,
    "a name of 218 bytes makes a line of 224; one of 219 falls into the trap of f04",
    one(
        format!("use {}\r\n{PROBE}use {}\r\n{PROBE}{PROBE}", letters("a", 218), letters("a", 219)),
        [BAD_FORMAT, CHECK, BAD_FORMAT, CHECK].concat()
    )
);
row!(
    u04,
    "pause-tube: a long name is looked up, one too long or ill-formed is refused",
    one(
        format!(
            "pause-tube {} 1\r\npause-tube {} 1\r\npause-tube -x 1\r\npause-tube a,b 1\r\n",
            longest(),
            letters("a", 201)
        ),
        [NOT_FOUND, BAD_FORMAT, BAD_FORMAT, BAD_FORMAT].concat()
    )
);
row!(
    u05,
    "stats-tube and ignore make no tube; ignore of an unwatched one answers the count",
    one(
        "stats-tube nope\r\nignore nope\r\nstats-tube nope\r\nwatch yes\r\nignore nope\r\n",
        [NOT_FOUND, "WATCHING 1\r\n", NOT_FOUND, "WATCHING 2\r\n", "WATCHING 2\r\n"].concat()
    )
);
row!(
    u06,
    "the only watched tube can't be ignored; watching twice counts once",
    one(
        "ignore default\r\nwatch a\r\nwatch a\r\nignore default\r\nignore a\r\nignore b\r\n",
        "NOT_IGNORED\r\nWATCHING 2\r\nWATCHING 2\r\nWATCHING 1\r\nNOT_IGNORED\r\nWATCHING 1\r\n"
    )
);
row!(
    u07,
    "list-tubes-watched: the last tube takes the place of an ignored one",
    Script::new()
        .ask(A, "watch a\r\nwatch b\r\nwatch c\r\n", "WATCHING 2\r\nWATCHING 3\r\nWATCHING 4\r\n")
        .ask(A, "ignore a\r\nlist-tubes-watched\r\n", "WATCHING 3\r\nOK 22\r\n---\n- default\n- c\n- b\n\r\n")
        .ask(A, "ignore default\r\nlist-tubes-watched\r\n", "WATCHING 2\r\nOK 12\r\n---\n- b\n- c\n\r\n")
);
one_slot_row!(
    u08,
    "the order of tubes",
    "list-tubes: in order of creation; the last takes the place of one that goes",
    Script::new()
        .ask(
            A,
            "use a\r\nwatch b\r\nwatch c\r\nlist-tubes\r\n",
            "USING a\r\nWATCHING 2\r\nWATCHING 3\r\nOK 26\r\n---\n- default\n- a\n- b\n- c\n\r\n"
        )
        .ask(A, "use default\r\nlist-tubes\r\n", "USING default\r\nOK 22\r\n---\n- default\n- c\n- b\n\r\n")
);
row!(
    u09,
    "a tube without job and user goes, with its counters and its pause",
    Script::new()
        .ask(A, "use t\r\npause-tube t 100\r\n", "USING t\r\nPAUSED\r\n")
        .put(A, "$j", "x")
        .ask(A, "delete $j\r\n", "DELETED\r\n")
        .stats(
            A,
            "stats-tube t",
            [("pause", "100"), ("cmd-pause-tube", "1"), ("cmd-delete", "1"), ("total-jobs", "1")]
        )
        .ask(
            A,
            "use default\r\nstats-tube t\r\nuse t\r\n",
            ["USING default\r\n", NOT_FOUND, "USING t\r\n"].concat()
        )
        .stats(
            A,
            "stats-tube t",
            [("pause", "0"), ("cmd-pause-tube", "0"), ("cmd-delete", "0"), ("total-jobs", "0")]
        )
);
row!(
    u10,
    "a job keeps its tube",
    Script::new()
        .ask(A, "use t\r\n", "USING t\r\n")
        .put_as(A, "$j", "x", "0 9999 60")
        .ask(A, "use default\r\n", "USING default\r\n")
        .stats(
            A,
            "stats-tube t",
            [("current-using", "0"), ("current-watching", "0"), ("current-jobs-delayed", "1")]
        )
        .ask(A, "delete $j\r\nstats-tube t\r\n", ["DELETED\r\n", NOT_FOUND].concat())
);
row!(
    u11,
    "the longest sensible line has just 224 bytes; a blank more and it falls into the trap of f04",
    one(
        format!(
            "pause-tube {name} 4294967295\r\npause-tube  {name} 4294967295\r\n{PROBE}{PROBE}",
            name = longest()
        ),
        [NOT_FOUND, BAD_FORMAT, CHECK].concat()
    )
);
