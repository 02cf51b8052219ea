//! The I/O shell of links and control channels, and the one place where descriptors are passed.
//!
//! `Link` is a link: frames only, many a system call. `Channel` is a control channel: few frames, descriptors
//! with some of them. Both are non-blocking; `WouldBlock` is the normal end of a call, never an error. An
//! `Err` or an end of stream means that the peer generation is gone.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};

use super::header::{Header, Kind, SessionId};
use super::link::{Frame, Inbox, Outbox, ProtocolError};

/// Most descriptors that come with one message: the scoreboard and a frontend's listening sockets.
const MESSAGE_FDS: usize = 16;

/// Two connected stream sockets, both closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?)
}

fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdStream::from(fd);
    stream.set_nonblocking(true)?;
    Ok(UnixStream::from_std(stream))
}

/// What a read or write came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Everything there was is done.
    Done,
    /// There may be more right now.
    More,
    /// The peer is gone.
    Gone,
}

/// A link: frames to and from one peer generation.
pub struct Link {
    pub stream: UnixStream,
    pub inbox: Inbox,
    pub outbox: Outbox,
    pub interest: LinkInterest,
}

/// Which events of a link are asked for. To be told when it can be written costs a wake-up for each message
/// that the peer reads, so it is asked for only while something could not be sent.
#[derive(Default)]
pub struct LinkInterest {
    writable: bool,
}

impl LinkInterest {
    /// Registers a new link.
    pub fn register(&self, stream: &mut UnixStream, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(stream, token, Interest::READABLE)
    }

    /// After a send: asks for what is of interest now. `token` is the link's.
    pub fn sent(
        &mut self,
        progress: Progress,
        stream: &mut UnixStream,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        let blocked = progress == Progress::More;
        if blocked != self.writable {
            self.writable = blocked;
            let both = Interest::READABLE | Interest::WRITABLE;
            registry.reregister(stream, token, if blocked { both } else { Interest::READABLE })?;
        }
        Ok(())
    }
}

impl Link {
    /// Takes over one end of a pair, between processes of these generations.
    pub fn new(fd: OwnedFd, ours: u32, theirs: u32) -> io::Result<Link> {
        Ok(Link {
            stream: stream(fd)?,
            inbox: Inbox::of(theirs),
            outbox: Outbox::new(ours),
            interest: LinkInterest::default(),
        })
    }

    /// One read of what has come. A full read says `More`.
    pub fn receive(&mut self) -> Progress {
        receive(&mut self.stream, &mut self.inbox)
    }

    /// Sends what is queued, as far as the peer takes it now. `More`: it takes no more for the moment, and an
    /// event will say when it does.
    pub fn send(&mut self, registry: &Registry, token: Token) -> Progress {
        send(&mut self.stream, &mut self.outbox, &mut self.interest, registry, token)
    }
}

/// `Link::receive`, for a link whose parts are kept apart.
pub fn receive(stream: &mut UnixStream, inbox: &mut Inbox) -> Progress {
    let space = inbox.space();
    let room = space.len();
    loop {
        return match stream.read(space) {
            Ok(0) => Progress::Gone,
            Ok(n) => {
                inbox.received(n);
                if n == room { Progress::More } else { Progress::Done }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Progress::Done,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(_) => Progress::Gone,
        };
    }
}

/// `Link::send`, for a link whose parts are kept apart.
pub fn send(
    stream: &mut UnixStream,
    outbox: &mut Outbox,
    interest: &mut LinkInterest,
    registry: &Registry,
    token: Token,
) -> Progress {
    let progress = write_all(stream, outbox);
    match interest.sent(progress, stream, registry, token) {
        Ok(()) => progress,
        Err(_) => Progress::Gone,
    }
}

fn write_all(stream: &mut UnixStream, outbox: &mut Outbox) -> Progress {
    while !outbox.is_empty() {
        match stream.write(outbox.pending()) {
            Ok(n) => outbox.sent(n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Progress::More,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Progress::Gone,
        }
    }
    Progress::Done
}

/// A control channel: messages, some with descriptors, between the supervisor and one child.
pub struct Channel {
    pub stream: UnixStream,
    inbox: Inbox,
    fds: VecDeque<OwnedFd>,
    generation: u32,
    queue: VecDeque<Queued>,
}

/// A message on its way out; its descriptors go with its first byte.
struct Queued {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

impl Channel {
    /// Takes over one end of a pair. `generation` goes into each frame sent.
    pub fn new(fd: OwnedFd, generation: u32) -> io::Result<Channel> {
        Ok(Channel {
            stream: stream(fd)?,
            inbox: Inbox::default(),
            fds: VecDeque::new(),
            generation,
            queue: VecDeque::new(),
        })
    }

    /// Queues a message; `flush` sends it.
    pub fn queue(&mut self, kind: Kind, payload: &[u8], fds: Vec<OwnedFd>) {
        let mut outbox = Outbox::new(self.generation);
        outbox.push(Header::new(kind, SessionId::default(), 0), payload);
        self.queue.push_back(Queued { bytes: outbox.pending().to_vec(), sent: 0, fds });
    }

    /// Sends what is queued, as far as the peer takes it now. `More`: it takes no more for the moment.
    pub fn flush(&mut self) -> Progress {
        while let Some(head) = self.queue.front_mut() {
            let raw: Vec<RawFd> = head.fds.iter().map(|fd| fd.as_raw_fd()).collect();
            let rights = [ControlMessage::ScmRights(&raw)];
            let control: &[ControlMessage] = if raw.is_empty() { &[] } else { &rights };
            let bytes = [IoSlice::new(&head.bytes[head.sent..])];
            match sendmsg::<()>(self.stream.as_raw_fd(), &bytes, control, MsgFlags::MSG_NOSIGNAL, None) {
                Ok(n) => {
                    head.sent += n;
                    head.fds.clear();
                    if head.sent == head.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return Progress::More,
                Err(_) => return Progress::Gone,
            }
        }
        Progress::Done
    }

    /// Reads what has come, descriptors included. The kernel ends a read behind each message with descriptors,
    /// so it takes several to come to the end.
    pub fn receive(&mut self) -> Progress {
        loop {
            match self.receive_once() {
                Ok(true) => {}
                Ok(false) => return Progress::Gone,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return Progress::Done,
                Err(_) => return Progress::Gone,
            }
        }
    }

    /// One read; `false`: the peer is gone.
    fn receive_once(&mut self) -> nix::Result<bool> {
        let mut space = [IoSliceMut::new(self.inbox.space())];
        let mut control = nix::cmsg_space!([RawFd; MESSAGE_FDS]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(self.stream.as_raw_fd(), &mut space, Some(&mut control), flags)?;
        let bytes = message.bytes;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel has just made these descriptors for us and nobody else knows them.
                self.fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        self.inbox.received(bytes);
        Ok(bytes > 0)
    }

    /// The next whole message.
    #[allow(clippy::should_implement_trait)] // an iterator can't lend its items
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, ProtocolError> {
        self.inbox.next()
    }

    /// The next descriptor that came, in the order they were sent.
    pub fn take_fd(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front()
    }

    /// Waits until there is something to read. For a child that has nothing else to do yet.
    pub fn wait_readable(&self) -> io::Result<()> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        // SAFETY: the stream outlives the borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(self.stream.as_raw_fd()) };
        loop {
            match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_blocking(channel: &mut Channel) -> (Kind, Vec<u8>) {
        loop {
            if let Some(f) = channel.next().unwrap() {
                return (f.header.kind, f.payload.to_vec());
            }
            channel.wait_readable().unwrap();
            assert_ne!(channel.receive(), Progress::Gone);
        }
    }

    #[test]
    fn descriptor_sent_with_a_message_arrives_with_it_and_works() {
        let (a, b) = pair().unwrap();
        let (mut a, mut b) = (Channel::new(a, 1).unwrap(), Channel::new(b, 1).unwrap());
        let (near, far) = pair().unwrap();
        a.queue(Kind::Ping, b"", vec![]);
        a.queue(Kind::LinkUp, b"peer", vec![far]);
        assert_eq!(a.flush(), Progress::Done);
        assert_eq!(next_blocking(&mut b), (Kind::Ping, vec![]));
        assert_eq!(next_blocking(&mut b), (Kind::LinkUp, b"peer".to_vec()));
        let far = b.take_fd().unwrap();
        StdStream::from(near).write_all(b"hi").unwrap();
        let mut got = [0; 2];
        StdStream::from(far).read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hi");
    }

    #[test]
    fn channel_whose_peer_closed_is_gone() {
        let (a, b) = pair().unwrap();
        let mut a = Channel::new(a, 1).unwrap();
        drop(b);
        a.wait_readable().unwrap();
        assert_eq!(a.receive(), Progress::Gone);
    }
}
