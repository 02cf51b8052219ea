//! Words that these tests share: put, use, watch, and the state that a command is caught in.

use crate::support::process::{state, wait_for};
use crate::support::{Child, Client, DEADLINE, Role, Server};
use nix::sys::signal::Signal;

pub const NOT_FOUND: &str = "NOT_FOUND\r\n";
pub const INTERNAL_ERROR: &str = "INTERNAL_ERROR\r\n";

/// The number in `INSERTED 5`; None for any other reply.
pub fn inserted(reply: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(reply).ok()?;
    text.strip_prefix("INSERTED ")?.trim_end().parse().ok()
}

/// Puts a job with a minute to run into the used tube.
pub fn put(client: &mut Client, body: &str) -> u64 {
    let reply = client.call(put_line(body));
    inserted(&reply).unwrap_or_else(|| panic!("no id in \"{}\"", reply.escape_ascii()))
}

pub fn put_line(body: &str) -> String {
    format!("put 0 0 60 {}\r\n{body}\r\n", body.len())
}

pub fn use_tube(client: &mut Client, tube: &str) {
    client.ask(format!("use {tube}\r\n"), format!("USING {tube}\r\n"));
}

/// Watches this tube in the place of `default`.
pub fn watch_only(client: &mut Client, tube: &str) {
    client.ask(format!("watch {tube}\r\n"), "WATCHING 2\r\n").ask("ignore default\r\n", "WATCHING 1\r\n");
}

/// Ready, reserved, delayed and buried jobs of a tube; zeros if there is no such tube.
pub fn jobs(client: &mut Client, tube: &str) -> [i64; 4] {
    let reply = client.call(format!("stats-tube {tube}\r\n"));
    if reply == NOT_FOUND.as_bytes() {
        return [0; 4];
    }
    let stats = crate::support::Stats::parse(&reply);
    ["ready", "reserved", "delayed", "buried"].map(|state| stats.number(&format!("current-jobs-{state}")))
}

/// Brings a command to a stopped owner and no further: when this returns, the frontend has sent it over the link
/// (or holds it back) and sleeps.
pub fn send_to_stopped(client: &mut Client, frontend: &Child, bytes: impl AsRef<[u8]>) {
    client.send(bytes).wait_until_read();
    wait_for("the frontend to have dealt with it", DEADLINE, || {
        (state(frontend.pid) == Some('S')).then_some(())
    });
}

/// Kills an owner and returns when every frontend knows that it is gone, as its log (with `-V`) says.
pub fn kill_seen(server: &Server, owner: &Child) {
    let frontends = server.children().into_iter().filter(|child| child.role == Role::Frontend).count();
    let lines = || {
        let log = server.log();
        let seen = |line: &&str| {
            let slot = format!("slot={}", owner.number);
            line.contains("frontend{")
                && line.contains("link down")
                && line.split(' ').any(|word| word == slot)
        };
        log.lines().filter(seen).count()
    };
    await_ready(server);
    let before = lines();
    owner.kill();
    wait_for("the frontends to see the death of an owner", DEADLINE, || {
        (lines() >= before + frontends).then_some(())
    });
}

/// A server that is still on its way up has other rules. (Needs `-V`.)
fn await_ready(server: &Server) {
    wait_for("the server to be ready", DEADLINE, || server.log().contains(" ready\n").then_some(()));
}

/// A slot without an owner, for as long as this lives: the supervisor is stopped and can't start the next one.
pub struct Away<'s>(&'s Server);

impl Away<'_> {
    /// Returns when the owner is dead and every frontend knows it.
    pub fn hold(server: &Server, slot: u16) -> Away<'_> {
        let owner = server.owner(slot);
        await_ready(server);
        server.signal(Signal::SIGSTOP);
        wait_for("the supervisor to stop", DEADLINE, || (state(server.pid()) == Some('T')).then_some(()));
        let away = Away(server);
        kill_seen(server, &owner);
        away
    }

    pub fn let_go(self) {}
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

/// Returns when the slot answers again.
pub fn await_slot(server: &Server, tube: &str) {
    let reply = server.connect("looks for the slot").call(format!("stats-tube {tube}\r\n"));
    assert_ne!(reply, INTERNAL_ERROR.as_bytes());
}
