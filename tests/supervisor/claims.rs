//! What a start claims, and what it refuses: data, sockets and addresses that others have.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;

use crate::rig::{Server, TempDir, names, refused};

#[test]
fn second_server_on_the_same_data_refuses_and_disturbs_nothing() {
    let dir = TempDir::new();
    let (data, socket) = (dir.data(), dir.path("socket"));
    let mut server = Server::start(&["-b", &data, "-l", &format!("unix:{socket}")]);
    let (before, inode) = (names(&data), fs::metadata(&socket).unwrap().ino());
    let address = format!("unix:{socket}");
    for flags in [&["-p0"][..], &["-l", &address], &["-p0", "--slots=4"]] {
        let arguments: Vec<&str> = ["-b", &data].iter().chain(flags).copied().collect();
        refused(&arguments, 10, &format!("held by process {}", server.pid()));
    }
    assert_eq!(names(&data), before);
    assert_eq!(fs::metadata(&socket).unwrap().ino(), inode);
    UnixStream::connect(&socket).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn second_server_on_the_same_socket_path_refuses_and_the_first_goes_on() {
    let dir = TempDir::new();
    let address = format!("unix:{}", dir.path("socket"));
    let mut server = Server::start(&["-l", &address]);
    let inode = fs::metadata(dir.path("socket")).unwrap().ino();
    refused(&["-l", &address], 111, &format!("held by process {}", server.pid()));
    assert_eq!(fs::metadata(dir.path("socket")).unwrap().ino(), inode);
    UnixStream::connect(dir.path("socket")).unwrap();
    server.signal(Signal::SIGKILL);
    server.wait_gone();
    // What it left does not stand in the way of the next.
    let server = Server::start(&["-l", &address]);
    UnixStream::connect(dir.path("socket")).unwrap();
    drop(server);
}

#[test]
fn second_server_on_the_same_control_path_refuses() {
    let dir = TempDir::new();
    let control = dir.path("control");
    let server = Server::start(&["--control", &control]);
    refused(&["-p0", "--control", &control], 10, &format!("held by process {}", server.pid()));
    server.connect();
}

/// The lock file beside the path can't be made, or would be left behind for nothing.
#[test]
fn control_path_that_no_socket_can_have_is_refused_by_the_name_of_its_flag() {
    let dir = TempDir::new();
    for path in [dir.path("missing/control"), dir.path(&"x".repeat(120)), String::new()] {
        refused(&["-p0", "--control", &path], 111, &format!("--control {path}: "));
    }
    assert_eq!(names(&dir.path("")), BTreeSet::new());
}

/// It once stayed, and the next start warned of a server that is gone.
#[test]
fn socket_is_gone_after_an_orderly_end_unless_it_is_another_servers_by_then() {
    let dir = TempDir::new();
    let (socket, address) = (dir.path("socket"), format!("unix:{}", dir.path("socket")));
    let mut server = Server::start(&["-l", &address]);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
    assert!(!Path::new(&socket).exists());
    let mut server = Server::start(&["-l", &address]);
    // As stock does it.
    fs::remove_file(&socket).unwrap();
    let _other = UnixListener::bind(&socket).unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
    UnixStream::connect(&socket).unwrap();
}

/// A stock server locks nothing but the data: its socket is known by its answer.
#[test]
fn socket_of_another_program_that_answers_is_left_to_it() {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.path("socket")).unwrap();
    refused(&["-l", &format!("unix:{}", dir.path("socket"))], 111, "another server listens there");
    UnixStream::connect(dir.path("socket")).unwrap();
    drop(listener);
}

/// A stock server holds the core's lock, and nothing else of ours.
#[test]
fn data_that_a_stock_server_holds_is_left_to_it() {
    let dir = TempDir::new();
    let (data, socket) = (dir.data(), dir.path("socket"));
    fs::write(dir.path("data/binlog.1"), "").unwrap();
    let file = File::create(dir.path("data/lock")).unwrap();
    let lock = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as _,
        l_whence: nix::libc::SEEK_SET as _,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLK(&lock)).unwrap();
    let held = format!("held by process {}", std::process::id());
    refused(&["-b", &data, "-l", &format!("unix:{socket}")], 10, &held);
    assert!(!Path::new(&socket).exists());
}

#[test]
fn server_killed_can_be_started_again_at_once() {
    let dir = TempDir::new();
    let data = dir.data();
    let mut server = Server::start(&["-b", &data, "--slots=2", "--frontends=2"]);
    let port = server.port().to_string();
    for _ in 0..5 {
        server.signal(Signal::SIGKILL);
        server.child.wait().unwrap();
        server = Server::start(&["-b", &data, "-p", &port]);
        assert_eq!(server.port().to_string(), port);
        assert_eq!(server.children().iter().filter(|(_, line)| line.contains("owner")).count(), 2);
    }
}

#[test]
fn address_in_use_is_refused_with_stocks_code() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["-l127.0.0.1", "-p", &port], 111, &port);
}

#[test]
fn start_that_can_not_be_is_refused_with_stocks_code() {
    let dir = TempDir::new();
    refused(&["-p", "no-such-service"], 111, "no-such-service");
    refused(&["-l", "unix:/"], 111, "unix:/");
    refused(&["-l", "unix:"], 111, "no path");
    refused(&["-l", &format!("unix:{}", dir.path(&"x".repeat(108)))], 111, "path");
    refused(&["-u", "no such user"], 33, "no such user");
    refused(&["-b", &dir.path("nowhere")], 10, "nowhere");
    refused(&["-x"], 5, "unknown flag: -x");
    let data = dir.data();
    fs::write(dir.path("data/binlog.1"), "").unwrap();
    refused(&["-b", &data, "-p0", "--slots=4"], 65, "trellis migrate");
    assert_eq!(names(&data), BTreeSet::from(["binlog.1".into()]));
}

#[test]
fn file_at_the_socket_path_is_left_there() {
    let dir = TempDir::new();
    fs::write(dir.path("file"), "text").unwrap();
    refused(&["-l", &format!("unix:{}", dir.path("file"))], 111, "of another kind");
    assert_eq!(fs::read_to_string(dir.path("file")).unwrap(), "text");
}

#[test]
fn slots_asked_for_once_are_what_the_data_says_afterwards() {
    let dir = TempDir::new();
    let data = dir.data();
    for flags in [&["--slots=3"][..], &[]] {
        let mut server = Server::start(&[&["-b", &data], flags].concat());
        assert_eq!(server.children().iter().filter(|(_, line)| line.contains("owner")).count(), 3);
        server.signal(Signal::SIGTERM);
        assert_eq!(server.wait_exit().code(), Some(0));
    }
    refused(&["-b", &data, "-p0", "--slots=2"], 65, "3 slots");
}

#[test]
fn one_slot_leaves_the_directory_as_stock_has_it() {
    let dir = TempDir::new();
    let data = dir.data();
    drop(Server::start(&["-b", &data]));
    let ours: Vec<String> = names(&data).into_iter().filter(|name| name.contains("toml")).collect();
    assert_eq!(ours, ["ids.toml"], "the ids that were used up; stock passes it over");
}
