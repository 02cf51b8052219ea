//! `trellis topology`: what it says of a name is where the server puts it.

use crate::support::routing::slot_of;
use crate::support::server::run;
use crate::support::{Binary, Setup, TempDir};

/// Shortest and longest, every legal character, case.
fn names() -> Vec<String> {
    let mut names: Vec<String> =
        ["a", "A", "0", "default", "Default", "mail.out;x/y_z+w$q()-"].map(str::to_owned).into();
    names.extend(["x".repeat(200), "0123456789".repeat(20)]);
    names.extend((0..20).map(|number| format!("tube-{number}")));
    names
}

/// `NAME: partition P, slot S`, a line a name.
fn routes(flags: &[&str], names: &[String]) -> Vec<u16> {
    let arguments: Vec<&str> = ["topology", "route"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .chain(flags.iter().copied())
        .collect();
    let exit = run(Binary::Trellis, &arguments);
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    let lines: Vec<&str> = exit.log.lines().collect();
    assert_eq!(lines.len(), names.len(), "{}", exit.log);
    let slot = |(line, name): (&&str, &String)| {
        let rest = line.strip_prefix(&format!("{name}: partition ")).unwrap_or_else(|| panic!("{line}"));
        rest.rsplit_once(", slot ").expect("a slot").1.parse().expect("a number")
    };
    lines.iter().zip(names).map(slot).collect()
}

#[test]
fn route_agrees_with_the_rule_and_with_the_server() {
    let names = names();
    for slots in [1, 2, 4, 16] {
        let routed = routes(&["--slots", &slots.to_string()], &names);
        let server = Setup::new(Binary::Trellis).slots(slots).start();
        let mut client = server.connect("A");
        for (name, slot) in names.iter().zip(routed) {
            assert_eq!(slot, slot_of(name, slots), "{name}");
            client.ask(format!("use {name}\r\n"), format!("USING {name}\r\n"));
            let reply = String::from_utf8(client.call("put 0 0 60 1\r\nx\r\n")).expect("ASCII");
            let id: u64 = reply.trim_end().strip_prefix("INSERTED ").expect("an id").parse().expect("an id");
            assert_eq!(id % u64::from(slots), slot.into(), "{name}");
        }
    }
}

#[test]
fn route_of_a_directory_follows_the_directory() {
    let dir = TempDir::new("data");
    let path = dir.path().to_str().expect("a path in ASCII");
    drop(Setup::new(Binary::Trellis).slots(3).wal(dir.path()).start());
    let names = names();
    let wanted: Vec<u16> = names.iter().map(|name| slot_of(name, 3)).collect();
    assert_eq!(routes(&["-b", path], &names), wanted);
    let shown = run(Binary::Trellis, &["topology", "show", "-b", path]);
    assert_eq!(shown.code, Some(0), "{}", shown.log);
    for words in ["slots: 3\n", "partitions: 1024\n", "layout: slots\n", "fingerprint: ", "xxh64"] {
        assert!(shown.log.contains(words), "{words:?} is not in:\n{}", shown.log);
    }
    let refused = run(Binary::Trellis, &["topology", "route", "-b", path, "--slots", "4", "a"]);
    assert_eq!(refused.code, Some(65), "{}", refused.log);
}
