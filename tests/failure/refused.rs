//! `--refuse-commands`: what the operator does not want is not done, and said in a word that clients know.

use crate::jobs::*;
use crate::support::{Binary, Setup};

const UNKNOWN_COMMAND: &str = "UNKNOWN_COMMAND\r\n";

#[test]
fn refused_commands_are_unknown_ones_and_the_others_go_on() {
    for (slots, frontends) in [(1, 1), (4, 3)] {
        let flags = ["--refuse-commands=kick,pause-tube,peek-ready,list-tube-used,use,stats"];
        let server = Setup::new(Binary::Trellis).slots(slots).frontends(frontends).flags(&flags).start();
        let mut client = server.connect("A");
        let id = put(&mut client, "x");
        for line in ["kick 1", "pause-tube default 60", "peek-ready", "list-tube-used", "use a", "stats"] {
            client.ask(format!("{line}\r\n"), UNKNOWN_COMMAND);
        }
        // Their relatives are other commands.
        client.ask(format!("peek {id}\r\n"), format!("FOUND {id} 1\r\nx\r\n"));
        client.ask("peek-buried\r\n", NOT_FOUND).ask(format!("kick-job {id}\r\n"), NOT_FOUND);
        let stats = client.stats("stats-tube default");
        let untouched = [("pause", "0"), ("current-jobs-ready", "1"), ("cmd-pause-tube", "0")];
        assert_eq!(stats.differences(&untouched), Vec::<String>::new());
        // In their turn, behind what waits.
        client
            .send("reserve\r\nreserve\r\nkick 1\r\ndelete 0\r\n")
            .expect(format!("RESERVED {id} 1\r\nx\r\n"));
        client.expect_silence();
        let id = put(&mut server.connect("B"), "y");
        client.expect(format!("RESERVED {id} 1\r\ny\r\n")).expect(UNKNOWN_COMMAND).expect(NOT_FOUND);
    }
}

#[test]
fn body_of_a_refused_put_is_thrown_away() {
    let server = Setup::new(Binary::Trellis).flags(&["--refuse-commands", "put,quit"]).start();
    let mut client = server.connect("A");
    client.send("put 0 0 60 6\r\nquit\r\n").expect_silence();
    client.ask("\r\n", UNKNOWN_COMMAND);
    client.send("put 0 0 60 70000\r\n").send("b".repeat(70_000)).ask("\r\n", UNKNOWN_COMMAND);
    client.ask("quit\r\n", UNKNOWN_COMMAND).ask("peek-ready\r\n", NOT_FOUND);
    let stats = client.stats("stats");
    assert_eq!((stats.number("cmd-put"), stats.number("current-producers")), (0, 0));
}

#[test]
fn word_that_is_no_command_is_refused_at_the_start() {
    let refused = Setup::new(Binary::Trellis).flags(&["--refuse-commands=kick,kik"]).refusal();
    assert_eq!(refused.code, Some(5), "{}", refused.log);
    assert!(
        refused.log.contains("no command \"kik\"") && refused.log.contains("pause-tube"),
        "{}",
        refused.log
    );
}
