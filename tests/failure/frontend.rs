//! A frontend dies: its clients are gone and what they held is free, nobody else notices, and nobody is refused.

use crate::jobs::*;
use crate::support::process::wait_for;
use crate::support::routing::tubes;
use crate::support::{Binary, Client, DEADLINE, Server, Setup};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SLOTS: u32 = 4;

fn server() -> Server {
    Setup::new(Binary::Trellis).slots(SLOTS).frontends(2).start()
}

/// A client that uses, watches and holds something at every slot.
fn tied(server: &Server, frontend: u16, names: &[String]) -> Client {
    let mut client = server.connect_through(frontend, &format!("tied {frontend}"));
    for tube in names {
        client.send(format!("watch {tube}\r\n")).reply();
        use_tube(&mut client, tube);
        let id = put(&mut client, "x");
        client.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nx\r\n"));
    }
    client
}

#[test]
fn what_its_clients_held_is_free_at_every_owner_at_once() {
    /// What the design promises.
    const PROMISED: Duration = Duration::from_millis(200);
    /// The machine may be slow now and then, but not always.
    const ROUNDS: usize = 4;
    let server = server();
    let names = tubes(SLOTS, "freed");
    let mut observer = server.connect_through(1, "observer");
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let mut client = tied(&server, 0, &names);
        for tube in &names {
            let [ready, reserved, ..] = jobs(&mut observer, tube);
            assert_eq!((ready, reserved), (round as i64, 1));
        }
        let frontend = server.frontend(0);
        let start = Instant::now();
        frontend.kill();
        wait_for("everything to be free", DEADLINE, || {
            let free = names.iter().all(|tube| {
                let stats = observer.stats(&format!("stats-tube {tube}"));
                let ready = (round + 1).to_string();
                let wanted = [
                    ("current-using", "0"),
                    ("current-watching", "0"),
                    ("current-jobs-reserved", "0"),
                    ("current-jobs-ready", &ready),
                ];
                stats.differences(&wanted).is_empty()
            });
            free.then_some(())
        });
        took.push(start.elapsed());
        client.expect_end();
        server.successor(frontend);
    }
    println!("free after {took:?}");
    assert!(took.iter().min().expect("rounds") < &PROMISED, "never within {PROMISED:?}: {took:?}");
}

#[test]
fn job_of_a_dead_frontend_goes_to_whom_it_was_not_given() {
    let server = server();
    for tube in tubes(SLOTS, "next") {
        let mut holder = server.connect_through(0, "holder");
        use_tube(&mut holder, &tube);
        let id = put(&mut holder, "x");
        holder.ask(format!("reserve-job {id}\r\n"), format!("RESERVED {id} 1\r\nx\r\n"));
        let mut waiter = server.connect_through(1, "waiter");
        watch_only(&mut waiter, &tube);
        waiter.send("reserve\r\n").expect_silence();
        server.replace(server.frontend(0));
        waiter.expect(format!("RESERVED {id} 1\r\nx\r\n"));
        waiter.ask(format!("delete {id}\r\n"), "DELETED\r\n");
    }
}

/// A reserve that waited through a dead frontend takes no job with it.
#[test]
fn waiting_client_of_a_dead_frontend_is_given_nothing() {
    let server = server();
    for tube in tubes(SLOTS, "ghost") {
        let mut ghosts: Vec<Client> = (0..5)
            .map(|_| {
                let mut ghost = server.connect_through(0, "ghost");
                watch_only(&mut ghost, &tube);
                ghost.send("reserve\r\n");
                ghost
            })
            .collect();
        let mut client = server.connect_through(1, "A");
        wait_for("all to wait", DEADLINE, || {
            (client.stats(&format!("stats-tube {tube}")).text("current-waiting") == "5").then_some(())
        });
        let frontend = server.frontend(0);
        frontend.kill();
        // It may be before or after the owner has seen the death: in the end the job is ready.
        use_tube(&mut client, &tube);
        put(&mut client, "x");
        wait_for("the job to be nobody's", DEADLINE, || {
            (jobs(&mut client, &tube) == [1, 0, 0, 0]).then_some(())
        });
        ghosts.iter_mut().for_each(|ghost| _ = ghost.rest());
        server.successor(frontend);
    }
}

#[test]
fn other_frontends_clients_do_not_notice() {
    let server = server();
    let names = tubes(SLOTS, "calm");
    let mut client = tied(&server, 1, &names);
    for round in 0..3 {
        let frontend = server.frontend(0);
        frontend.kill();
        for tube in &names {
            use_tube(&mut client, tube);
            let id = put(&mut client, "y");
            client.ask(format!("delete {id}\r\n"), "DELETED\r\n");
            assert_eq!(jobs(&mut client, tube), [0, 1, 0, 0], "round {round}");
        }
        server.successor(frontend);
    }
    client.ask("list-tubes-watched\r\n", {
        let names: String =
            ["default".to_owned()].iter().chain(&names).map(|name| format!("- {name}\n")).collect();
        format!("OK {}\r\n---\n{names}\r\n", names.len() + 4)
    });
}

#[test]
fn listening_socket_refuses_nobody_meanwhile() {
    const ROUNDS: usize = 4;
    let server = server();
    let over = AtomicBool::new(false);
    let address = ("127.0.0.1", server.port());
    let connects = std::thread::scope(|scope| {
        let knock = scope.spawn(|| {
            let mut connects = 0;
            while !over.load(Ordering::Relaxed) {
                TcpStream::connect(address).unwrap_or_else(|error| panic!("connect {connects}: {error}"));
                connects += 1;
            }
            connects
        });
        for _ in 0..ROUNDS {
            // Both at once, so that for a while nobody is there to accept.
            let frontends = [server.frontend(0), server.frontend(1)];
            frontends.iter().for_each(|frontend| frontend.kill());
            for frontend in frontends {
                server.successor(frontend);
            }
        }
        over.store(true, Ordering::Relaxed);
        knock.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert!(connects > ROUNDS, "only {connects} connects");
    let mut client = server.connect("after");
    put(&mut client, "x");
    wait_for("the connections of the knocking to be gone", DEADLINE, || {
        (client.stats("stats").text("current-connections") == "1").then_some(())
    });
}

/// A client that connects while no frontend is there is served by the next one.
#[test]
fn client_that_comes_while_no_frontend_is_there_is_served() {
    let server = server();
    let frontends = [server.frontend(0), server.frontend(1)];
    frontends.iter().for_each(|frontend| frontend.stop());
    let mut client = server.connect("A");
    client.send(put_line("x")).expect_silence();
    frontends.iter().for_each(|frontend| frontend.kill());
    let reply = client.reply();
    assert!(inserted(&reply).is_some(), "\"{}\"", reply.escape_ascii());
}
