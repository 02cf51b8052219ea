//! A slot that does not come back: its commands are refused after a while and were not executed, which is never
//! said as NOT_FOUND, and the rest serves on.

use crate::jobs::*;
use crate::support::process::wait_for;
use crate::support::routing::{slot_of, tube_on, tubes};
use crate::support::{Binary, DEADLINE, Role, Server, Setup, TempDir};
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;
const AWAY: u16 = 3;

/// `--owner-wait`, and how late the refusal may be on a loaded machine.
const WAIT: Duration = Duration::from_millis(300);
const LATE: Duration = Duration::from_millis(500);

struct Stage {
    data: TempDir,
    server: Server,
    tube: String,
    /// A job of the slot that is away.
    id: u64,
}

impl Stage {
    /// A server, one slot of which will not start again, since its directory is not where it was.
    fn set() -> Stage {
        let data = TempDir::new("data");
        let flags = ["-V", "-f0", "--owner-wait", &WAIT.as_millis().to_string()];
        let server =
            Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).wal(data.path()).flags(&flags).start();
        let tube = tube_on(AWAY, SLOTS, "away");
        assert_ne!(slot_of("default", SLOTS), AWAY, "clients begin at the owner of default");
        let mut client = server.connect("before");
        use_tube(&mut client, &tube);
        let id = put(&mut client, "x");
        Stage { data, server, tube, id }
    }

    fn take_away(&self) {
        std::fs::rename(self.data.join("slot-003"), self.data.join("aside")).expect("rename");
        kill_seen(&self.server, &self.server.owner(AWAY));
    }

    fn bring_back(&self) {
        std::fs::rename(self.data.join("aside"), self.data.join("slot-003")).expect("rename");
    }

    fn await_given_up(&self) {
        wait_for("the slot to be given up", DEADLINE, || {
            self.server.log().contains("given up").then_some(())
        });
    }
}

#[test]
fn commands_are_refused_after_the_wait_and_not_executed() {
    let mut stage = Stage::set();
    let (tube, id) = (stage.tube.clone(), stage.id);
    let mut user = stage.server.connect("user");
    use_tube(&mut user, &tube);
    stage.take_away();
    let commands = [
        "put 0 0 60 5\r\nhello\r\n".to_owned(),
        "peek-ready\r\n".to_owned(),
        "kick 1\r\n".to_owned(),
        format!("peek {id}\r\n"),
        format!("delete {id}\r\n"),
        format!("release {id} 0 0\r\n"),
        format!("bury {id} 0\r\n"),
        format!("touch {id}\r\n"),
        format!("kick-job {id}\r\n"),
        format!("reserve-job {id}\r\n"),
        format!("stats-job {id}\r\n"),
        format!("stats-tube {tube}\r\n"),
        format!("stats-tube {}\r\n", tube_on(AWAY, SLOTS, "unknown")),
        format!("pause-tube {tube} 10\r\n"),
        format!("use {}\r\n", tube_on(AWAY, SLOTS, "new")),
        format!("watch {tube}\r\n"),
        // An answer that leaves a slot out would be wrong.
        "list-tubes\r\n".to_owned(),
    ];
    for command in &commands {
        let start = Instant::now();
        user.ask(command, INTERNAL_ERROR);
        let waited = start.elapsed();
        assert!(waited < WAIT + LATE, "{command:?} was refused after {waited:?}");
        user.ask("list-tube-used\r\n", format!("USING {tube}\r\n"));
    }
    // The first at least is owed the whole wait, also when the slot has been given up long since.
    stage.await_given_up();
    let start = Instant::now();
    user.ask(&commands[0], INTERNAL_ERROR);
    assert!(start.elapsed() >= WAIT - Duration::from_millis(20), "after {:?}", start.elapsed());

    // Nothing of all this was done: the slot is as it was.
    stage.bring_back();
    stage.server.restart();
    let mut client = stage.server.connect("after");
    assert_eq!(jobs(&mut client, &tube), [1, 0, 0, 0]);
    let stats = client.stats(&format!("stats-job {id}"));
    let untouched =
        [("state", "ready"), ("reserves", "0"), ("buries", "0"), ("kicks", "0"), ("releases", "0")];
    assert_eq!(stats.differences(&untouched), Vec::<String>::new());
}

#[test]
fn waiting_reserve_is_refused_too() {
    let stage = Stage::set();
    let other = tube_on(AWAY, SLOTS, "other");
    let mut client = stage.server.connect("A");
    watch_only(&mut client, &other);
    client.send("reserve\r\n").expect_silence();
    stage.take_away();
    client.expect(INTERNAL_ERROR);
    client.ask("reserve-with-timeout 0\r\n", INTERNAL_ERROR);
    client.ask("list-tube-used\r\n", "USING default\r\n");
    assert_eq!(client.stats("stats").text("current-waiting"), "0");
}

#[test]
fn rest_serves_on_while_a_slot_is_given_up() {
    let stage = Stage::set();
    stage.take_away();
    stage.await_given_up();
    assert!(stage.server.find(Role::Owner, AWAY).is_none());
    let mut client = stage.server.connect("A");
    for tube in tubes(SLOTS, "rest").iter().filter(|tube| slot_of(tube, SLOTS) != AWAY) {
        use_tube(&mut client, tube);
        let id = put(&mut client, "x");
        client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
    assert_eq!(client.stats("stats").text("current-connections"), "1");
    // One that has a hold on the slot that is away goes on too, and can let go of it.
    let mut user = stage.server.connect("user");
    user.ask(format!("use {}\r\n", stage.tube), INTERNAL_ERROR)
        .ask("list-tube-used\r\n", "USING default\r\n");
    put(&mut user, "x");
}

/// What a client does at other slots is not held up by its hold on one that is away. To let go of a tube there is
/// that slot's business, and refused like the rest: the list is as it was.
#[test]
fn client_with_a_hold_on_a_slot_that_is_away_goes_on_elsewhere() {
    let stage = Stage::set();
    let mut client = stage.server.connect("A");
    use_tube(&mut client, &stage.tube);
    client.ask(format!("watch {}\r\n", stage.tube), "WATCHING 2\r\n");
    stage.take_away();
    use_tube(&mut client, "default");
    let id = put(&mut client, "x");
    client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    let watched = client.call("list-tubes-watched\r\n");
    client.ask(format!("ignore {}\r\n", stage.tube), INTERNAL_ERROR);
    client.ask("list-tubes-watched\r\n", watched);
    client.ask("ignore default\r\n", "WATCHING 1\r\n").ask("watch default\r\n", "WATCHING 2\r\n");
}

/// Frontends that are started anew serve what there is, too.
#[test]
fn frontends_killed_while_a_slot_is_given_up_come_back() {
    let stage = Stage::set();
    stage.take_away();
    stage.await_given_up();
    for number in 0..2 {
        stage.server.replace(stage.server.frontend(number));
    }
    let mut client = stage.server.connect("A");
    let id = put(&mut client, "x");
    client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    client.ask(format!("use {}\r\n", stage.tube), INTERNAL_ERROR);
}

/// A slot that can't start for a reason that may pass is tried again with growing pauses: when it can it comes
/// back, and what waited for it is done.
#[test]
fn slot_that_can_start_again_in_time_comes_back() {
    let data = TempDir::new("data");
    let server =
        Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).wal(data.path()).flags(&["-V", "-f0"]).start();
    let tube = tube_on(AWAY, SLOTS, "back");
    let mut client = server.connect("A");
    use_tube(&mut client, &tube);
    put(&mut client, "x");
    // Between two generations somebody else takes the slot's lock.
    let away = Away::hold(&server, AWAY);
    let lock = File::options().write(true).open(data.join("slot-003/lock")).expect("the slot's lock");
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&lock, FcntlArg::F_SETLK(&whole)).expect("lock it");
    away.let_go();
    client.send(put_line("y"));
    wait_for("a start that fails", DEADLINE, || {
        server.log().contains("owner 3 (generation 2) ended with code 10").then_some(())
    });
    client.expect_silence();
    drop(lock);
    let reply = client.reply();
    assert!(inserted(&reply).is_some(), "\"{}\"", reply.escape_ascii());
    assert_eq!(jobs(&mut client, &tube), [2, 0, 0, 0]);
}

/// Also one that has failed is tried on: nobody has to restart the server. With one slot and with more.
#[test]
fn slot_that_has_failed_comes_back_when_its_cause_is_gone() {
    for slots in [1, SLOTS] {
        let data = TempDir::new("data");
        let setup = Setup::new(Binary::Trellis).slots(slots).frontends(2).wal(data.path());
        let server = setup.flags(&["-V", "-f0", "--owner-wait=300"]).start();
        let slot = slots as u16 - 1;
        let tube = tube_on(slot, slots, "back");
        let mut client = server.connect("A");
        use_tube(&mut client, &tube);
        put(&mut client, "x");
        // Something else is where its lock was.
        let dir = if slots == 1 { data.path().to_owned() } else { data.join(format!("slot-{slot:03}")) };
        let lock = dir.join("lock");
        std::fs::remove_file(&lock).expect("remove the lock");
        std::fs::create_dir(&lock).expect("a directory in its place");
        kill_seen(&server, &server.owner(slot));
        wait_for("the slot to be failed", DEADLINE, || server.log().contains("is failed: ").then_some(()));
        client.ask(put_line("y"), INTERNAL_ERROR);
        std::fs::remove_dir(&lock).expect("mend it");
        wait_for("the slot to come back", DEADLINE, || {
            server.log().contains("it is not failed any more").then_some(())
        });
        put(&mut client, "z");
        assert_eq!(jobs(&mut client, &tube), [2, 0, 0, 0]);
        assert_eq!(server.log().matches("is failed: ").count(), 1, "{}", server.log());
    }
}
