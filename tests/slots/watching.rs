//! `use`, `watch` and `ignore` over several slots: the replies, the lists and the counts at each tube.

use crate::fleet::Fleet;
use crate::support::process::wait_for;
use crate::support::routing::tubes;
use crate::support::{Binary, Client, DEADLINE, Random, Setup};
use std::collections::BTreeMap;

/// `current-using` and `current-watching` of a tube; None if there is no such tube.
fn counts(client: &mut Client, tube: &str) -> Option<(i64, i64)> {
    let reply = client.call(format!("stats-tube {tube}\r\n"));
    if reply == b"NOT_FOUND\r\n" {
        return None;
    }
    let stats = crate::support::Stats::parse(&reply);
    Some((stats.number("current-using"), stats.number("current-watching")))
}

#[test]
fn references_follow_a_client_from_slot_to_slot() {
    let server = Setup::new(Binary::Trellis).slots(4).frontends(2).start();
    let [a, b, c, d] = tubes(4, "way").try_into().expect("four names");
    let mut client = server.connect("A");
    let mut observer = server.connect("observer");
    client.ask(format!("use {a}\r\n"), format!("USING {a}\r\n"));
    assert_eq!(counts(&mut observer, &a), Some((1, 0)));
    client.ask(format!("watch {a}\r\n"), "WATCHING 2\r\n");
    client.ask(format!("watch {a}\r\n"), "WATCHING 2\r\n");
    assert_eq!(counts(&mut observer, &a), Some((1, 1)), "watched once, however often it is said");
    client.ask(format!("use {b}\r\n"), format!("USING {b}\r\n"));
    assert_eq!((counts(&mut observer, &a), counts(&mut observer, &b)), (Some((0, 1)), Some((1, 0))));
    client.ask(format!("watch {c}\r\n"), "WATCHING 3\r\n");
    client.ask(format!("watch {b}\r\n"), "WATCHING 4\r\n");
    client.ask(format!("ignore {a}\r\n"), "WATCHING 3\r\n");
    assert_eq!(counts(&mut observer, &a), None);
    client.ask(format!("ignore {b}\r\n"), "WATCHING 2\r\n");
    assert_eq!(counts(&mut observer, &b), Some((1, 0)));
    client.ask(format!("use {d}\r\n"), format!("USING {d}\r\n"));
    assert_eq!((counts(&mut observer, &b), counts(&mut observer, &d)), (None, Some((1, 0))));
    client.ask("ignore default\r\n", "WATCHING 1\r\n");
    client.ask(format!("ignore {c}\r\n"), "NOT_IGNORED\r\n");
    client.ask("ignore default\r\n", "WATCHING 1\r\n");
    assert_eq!(counts(&mut observer, &c), Some((0, 1)));
    assert_eq!(counts(&mut observer, "default"), Some((1, 1)), "the observer's");
    client.ask(format!("watch {d}\r\n"), "WATCHING 2\r\n");
    client.ask(format!("ignore {c}\r\n"), "WATCHING 1\r\n");
    assert_eq!((counts(&mut observer, &c), counts(&mut observer, &d)), (None, Some((1, 1))));
    drop(client);
    wait_for("the tubes of a closed client to go", DEADLINE, || {
        counts(&mut observer, &d).is_none().then_some(())
    });
    assert_eq!(observer.stats("stats").number("current-tubes"), 1);
}

#[test]
fn lists_keep_the_originals_order() {
    let mut fleet = Fleet::start();
    for command in ["watch a", "watch b", "watch c", "watch d", "watch b", "ignore a", "ignore default"] {
        fleet.ask_each("A", &[command, "list-tubes-watched", "list-tube-used", "list-tubes"]);
    }
    for command in ["use e", "watch a", "ignore d", "ignore e", "ignore c", "ignore b", "ignore a"] {
        fleet.ask_each("A", &[command, "list-tubes-watched", "list-tube-used", "list-tubes"]);
    }
    for tube in ["a", "b", "c", "d", "e", "default"] {
        fleet.ask("B", &format!("stats-tube {tube}x\r\n"));
    }
    for tube in ["a", "e", "default"] {
        fleet.same_stats("B", &format!("stats-tube {tube}"));
    }
    fleet.same_stats("B", "stats");
}

/// What one client holds on to: a name or `default`.
struct Model {
    used: String,
    watched: Vec<String>,
}

impl Model {
    fn new() -> Model {
        Model { used: "default".to_owned(), watched: vec!["default".to_owned()] }
    }

    /// The command and the reply that must come.
    fn step(&mut self, random: &mut Random, tube: &str) -> (String, String) {
        match random.below(3) {
            0 => {
                self.used = tube.to_owned();
                (format!("use {tube}\r\n"), format!("USING {tube}\r\n"))
            }
            1 => {
                if !self.watched.iter().any(|watched| watched == tube) {
                    self.watched.push(tube.to_owned());
                }
                (format!("watch {tube}\r\n"), format!("WATCHING {}\r\n", self.watched.len()))
            }
            _ if self.watched == [tube] => (format!("ignore {tube}\r\n"), "NOT_IGNORED\r\n".to_owned()),
            _ => {
                self.watched.retain(|watched| watched != tube);
                (format!("ignore {tube}\r\n"), format!("WATCHING {}\r\n", self.watched.len()))
            }
        }
    }
}

/// Three clients use, watch and ignore at random; a model says what each tube's counts must be.
#[test]
fn counts_are_right_after_any_sequence() {
    const STEPS: usize = 1000;
    const CLIENTS: usize = 3;
    let mut random = Random::announced("counts_are_right_after_any_sequence");
    let server = Setup::new(Binary::Trellis).slots(4).frontends(2).start();
    let mut names: Vec<String> = (0..8).map(|number| format!("any-{number}")).collect();
    names.push("default".to_owned());
    let mut clients: Vec<(Client, Model)> =
        (0..CLIENTS).map(|n| (server.connect_through(n as u16 % 2, &n.to_string()), Model::new())).collect();
    let mut observer = server.connect("observer");
    for step in 0..STEPS {
        let (client, model) = &mut clients[random.below(CLIENTS)];
        let tube = random.pick(&names).clone();
        let (command, reply) = model.step(&mut random, &tube);
        client.ask(command, reply);
        if step % 25 != 0 && step + 1 != STEPS {
            continue;
        }
        // The observer holds `default` itself.
        let mut wanted: BTreeMap<&str, (i64, i64)> = BTreeMap::from([("default", (1, 1))]);
        for (_, model) in &clients {
            wanted.entry(&model.used).or_default().0 += 1;
            model.watched.iter().for_each(|tube| wanted.entry(tube).or_default().1 += 1);
        }
        for name in &names {
            assert_eq!(
                counts(&mut observer, name),
                wanted.get(name.as_str()).copied(),
                "{name} at step {step}"
            );
        }
        assert_eq!(observer.stats("stats").number("current-tubes"), wanted.len() as i64, "step {step}");
    }
}
