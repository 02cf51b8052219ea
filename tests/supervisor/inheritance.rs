//! What is handed down: users and groups, listening sockets, descriptors.

use std::fs::{self, File, OpenOptions};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::Gid;

use crate::rig::{Server, TRELLIS, TempDir, before_exec, status_field, with_fd_3};

#[test]
fn privileges_are_dropped_in_every_process() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can become another user");
        return;
    }
    let dir = TempDir::new();
    let data = dir.data();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    nix::unistd::chown(Path::new(&data), Some(nobody.uid), Some(nobody.gid)).unwrap();
    let mut command = Command::new(TRELLIS);
    // Supplementary groups that must not stay.
    before_exec(&mut command, || nix::unistd::setgroups(&[Gid::from_raw(0), Gid::from_raw(4)]));
    command.args(["-VV", "-l127.0.0.1", "-p0", "-unobody", "--slots=2", "-b", &data]);
    let mut server = Server::spawn(command);
    server.wait_ready();
    let processes = server.children().into_iter().map(|(pid, _)| pid).chain([server.pid()]);
    for pid in processes {
        assert_eq!(status_field(pid, "Uid"), format!("{0} {0} {0} {0}", nobody.uid));
        assert_eq!(status_field(pid, "Gid"), format!("{0} {0} {0} {0}", nobody.gid));
        assert_eq!(status_field(pid, "Groups"), nobody.gid.to_string());
    }
    for name in ["data/topology.toml", "data/slot-000", "data/slot-001/slot.toml"] {
        assert_eq!(fs::metadata(dir.path(name)).unwrap().uid(), nobody.uid.as_raw(), "{name}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

const ACTIVATED: &str = "LISTEN_PID=$$ LISTEN_FDS=1";

#[test]
fn inherited_socket_is_served_and_stays_a_secret_of_the_supervisor() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let arguments = ["-VV", "-p1", "-l", "198.51.100.1"];
    let mut server = Server::spawn(with_fd_3(listener.into(), ACTIVATED, &arguments));
    server.wait_ready();
    for flag in ["-p 1 is ignored", "-l 198.51.100.1 is ignored"] {
        assert!(server.log.iter().any(|line| line.contains(flag)), "{}", server.log.join("\n"));
    }
    TcpStream::connect(address).unwrap();
    for (pid, line) in server.children() {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environment.contains("LISTEN_"), "{line}: {environment}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait_exit().code(), Some(0));
}

#[test]
fn inherited_unix_socket_is_served() {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.path("socket")).unwrap();
    let mut server = Server::spawn(with_fd_3(listener.into(), ACTIVATED, &["-VV"]));
    server.wait_ready();
    UnixStream::connect(dir.path("socket")).unwrap();
}

#[test]
fn inherited_descriptor_that_is_no_listener_is_refused() {
    let dir = TempDir::new();
    let file = File::create(dir.path("file")).unwrap();
    let datagrams = UnixDatagram::bind(dir.path("datagrams")).unwrap();
    let (connected, _peer) = UnixStream::pair().unwrap();
    for fd in [OwnedFd::from(file), datagrams.into(), connected.into()] {
        let output = with_fd_3(fd, ACTIVATED, &["-p0"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(111), "{text}");
        assert!(text.contains("no TCP or UNIX listening socket"), "{text}");
    }
}

/// A socket meant for another process is none of ours.
#[test]
fn socket_activation_of_another_process_is_ignored() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let variables = "LISTEN_PID=1 LISTEN_FDS=1";
    let mut server = Server::spawn(with_fd_3(listener.into(), variables, &["-VV", "-l127.0.0.1", "-p0"]));
    server.wait_ready();
    server.connect();
}

/// Descriptors that our parent forgot must not keep anything open in children.
#[test]
fn children_inherit_nothing_but_their_channel() {
    let dir = TempDir::new();
    let stray = OpenOptions::new().create(true).append(true).open(dir.path("stray")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 3<&0 7<&0 0</dev/null", TRELLIS]).stdin(Stdio::from(stray));
    command.args(["-VV", "-l127.0.0.1", "-p0"]);
    let mut server = Server::spawn(command);
    server.wait_ready();
    for (pid, line) in server.children() {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let path = entry.unwrap().path();
            let target = fs::read_link(&path).unwrap_or_default();
            assert!(!target.ends_with("stray"), "{line}: {path:?} is {target:?}");
        }
    }
}
