//! More clients than the server takes: those that are there are served, the others wait for a place or are sent
//! away, as the flags say.

use crate::jobs::*;
use crate::support::process::{holds_peer_of, wait_for};
use crate::support::{Binary, Client, DEADLINE, Server, Setup};

fn server(frontends: u32, flags: &[&str]) -> Server {
    Setup::new(Binary::Trellis).slots(2).frontends(frontends).flags(flags).start()
}

fn served(server: &Server, name: &str) -> Client {
    let mut client = server.connect(name);
    client.ask("list-tube-used\r\n", "USING default\r\n");
    client
}

/// A client that has asked something and does not get an answer.
fn waiting(server: &Server, name: &str) -> Client {
    let mut client = server.connect(name);
    client.send("list-tube-used\r\n").expect_silence();
    client
}

#[test]
fn client_above_the_limit_waits_until_another_leaves() {
    let server = server(1, &["--max-connections=3"]);
    let mut clients: Vec<Client> = (0..3).map(|n| served(&server, &format!("in {n}"))).collect();
    let mut first = waiting(&server, "first to wait");
    let mut second = waiting(&server, "second to wait");
    put(&mut clients[0], "x");
    assert_eq!(clients[1].stats("stats").number("current-connections"), 3);
    clients.pop();
    first.expect("USING default\r\n");
    second.expect_silence();
    drop(first);
    second.expect("USING default\r\n");
    drop(clients);
    // There is room again, and more than one comes in at once.
    (0..2).for_each(|n| drop(served(&server, &format!("later {n}"))));
    assert!(server.log().contains("accepting pauses: as many clients as"), "{}", server.log());
    assert!(server.log().lines().count() <= 10, "{}", server.log());
}

#[test]
fn frontend_that_is_full_leaves_clients_to_the_others() {
    let server = server(2, &["--max-connections=5"]);
    // The first has one place more.
    let mut of_first: Vec<Client> = (0..3).map(|n| server.connect_through(0, &format!("0.{n}"))).collect();
    let mut of_second: Vec<Client> = (0..2).map(|n| served(&server, &format!("1.{n}"))).collect();
    let second = server.frontend(1);
    assert!(of_second.iter().all(|client| holds_peer_of(second.pid, client)));
    let mut last = waiting(&server, "last");
    of_first.iter_mut().chain(&mut of_second).for_each(|client| _ = put(client, "x"));
    // Whoever has a place takes it.
    let first = server.frontend(0);
    of_first.pop();
    last.expect("USING default\r\n");
    assert!(holds_peer_of(first.pid, &last));
    // A frontend that comes anew has all its places.
    let mut next = waiting(&server, "next");
    second.kill();
    next.expect("USING default\r\n");
    served(&server, "one more");
}

#[test]
fn fewer_places_than_frontends_are_refused() {
    let refused = Setup::new(Binary::Trellis).frontends(3).flags(&["--max-connections=2"]).refusal();
    assert_eq!(refused.code, Some(5), "{}", refused.log);
    let told = ["--max-connections 2", "3 frontends share them", "allow 3 at least"];
    assert!(told.iter().all(|words| refused.log.contains(words)), "{}", refused.log);
}

/// The number of descriptors may be the narrower limit: then it holds, and links can still be made.
#[test]
fn owner_that_dies_while_all_descriptors_are_taken_gets_its_links_again() {
    let server = Setup::new(Binary::Trellis).slots(4).frontends(1).open_files(64).start();
    let mut clients: Vec<Client> = (0..100).map(|n| server.connect(&n.to_string())).collect();
    clients.iter_mut().for_each(|client| _ = client.send("list-tube-used\r\n"));
    let frontend = server.frontend(0);
    wait_for("the frontend to be full", DEADLINE, || server.log().contains("descriptors").then_some(()));
    clients[0].expect("USING default\r\n");
    for slot in 0..4 {
        server.replace(server.owner(slot));
    }
    for tube in crate::support::routing::tubes(4, "again") {
        use_tube(&mut clients[0], &tube);
        put(&mut clients[0], "x");
    }
    assert_eq!(server.frontend(0), frontend, "it is the same process");
}

/// Comes to the frontend of this number, there being two, and is sent away.
fn sent_away(server: &Server, number: u16) {
    let other = server.frontend(1 - number);
    other.stop();
    server.connect("too many").expect_end();
    other.go_on();
}

/// Gets in as soon as there is room.
fn let_in(server: &Server) -> Client {
    wait_for("a place", DEADLINE, || {
        let mut client = server.connect("let in");
        client.try_call("list-tube-used\r\n").map(|_| client)
    })
}

/// Over all frontends, whoever accepts.
#[test]
fn address_has_no_more_connections_than_it_may() {
    let server = server(2, &["--max-connections-per-address=3"]);
    let mut clients: Vec<Client> = [0, 0, 1].map(|number| server.connect_through(number, "in")).into();
    [0, 1].into_iter().for_each(|number| sent_away(&server, number));
    clients.iter_mut().for_each(|client| _ = put(client, "x"));
    // Those that were sent away left no trace.
    let stats = clients[0].stats("stats");
    assert_eq!((stats.number("current-connections"), stats.number("total-connections")), (3, 3));
    clients.pop();
    let last = let_in(&server);
    sent_away(&server, 0);
    // What the clients of a frontend held that is dead is free again.
    server.replace(server.frontend(0));
    drop(last);
    let _others = [(); 3].map(|()| let_in(&server));
    sent_away(&server, 1);
    assert!(clients.iter_mut().all(|client| client.try_call("stats\r\n").is_none()), "they were the first's");
}

#[test]
fn clients_of_a_unix_socket_have_no_address() {
    let place = crate::support::TempDir::new("socket");
    let setup = Setup::new(Binary::Trellis).listen_unix(&place.join("s")).frontends(2);
    let server = setup.flags(&["--max-connections-per-address=1"]).start();
    let mut clients: Vec<Client> = (0..3).map(|n| served(&server, &n.to_string())).collect();
    clients.iter_mut().for_each(|client| _ = put(client, "x"));
}
