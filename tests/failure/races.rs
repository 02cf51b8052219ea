//! Two servers are started on one directory at the same moment: one serves, the other leaves and disturbs nothing.

use crate::jobs::*;
use crate::support::{Binary, Setup, TempDir};

/// What the original ends with too when the log is somebody else's.
const EXIT_LOCKED: i32 = 10;

/// Each race puts a job and finds those of all races before it.
fn races(slots: u32, rounds: usize) {
    let data = TempDir::new("data");
    // The first race is one about making the layout, too.
    let setup =
        Setup::new(Binary::Trellis).slots(slots).frontends(1).wal(data.path()).flags(&["-f0", "-s", "8192"]);
    for round in 0..rounds {
        let (mut winner, loser) = setup.race();
        assert_eq!(loser.code, Some(EXIT_LOCKED), "race {round}: {}", loser.log);
        assert!(loser.log.contains("held by"), "race {round}: {}", loser.log);
        let mut client = winner.connect("A");
        for tube in ["one", "two", "three"] {
            use_tube(&mut client, tube);
            put(&mut client, "x");
            assert_eq!(jobs(&mut client, tube), [round as i64 + 1, 0, 0, 0], "race {round}");
        }
        if round % 2 == 0 {
            winner.kill();
        } else {
            assert!(winner.stop().success(), "race {round}: {}", winner.log());
        }
    }
}

#[test]
fn one_of_two_servers_wins_a_flat_directory() {
    races(1, 50);
}

#[test]
fn one_of_two_servers_wins_a_directory_of_slots() {
    races(4, 50);
}
