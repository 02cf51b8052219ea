//! Links between frontends and owners: who has one with whom.
//!
//! A link belongs to two generations. It is made when the later of the two is known to be good, and each end
//! goes to its process with `LinkUp`; the supervisor keeps neither, so the death of one end is the end of the
//! stream for the other. `LinkDown` says the same in words, after the process was reaped.

use std::io;
use std::os::fd::OwnedFd;

use super::children::{ChildId, Children};
use crate::ipc::Kind;
use crate::ipc::control::encode;
use crate::ipc::socket::pair;

/// Makes this child's links to all that have theirs. An error leaves it with some of them: it has to go.
pub fn link(children: &mut Children, id: ChildId) -> io::Result<()> {
    for other in counterparts(children, id) {
        let (near, far) = pair()?;
        tell(children, id, Kind::LinkUp, other, vec![near]);
        tell(children, other, Kind::LinkUp, id, vec![far]);
    }
    Ok(())
}

/// Tells those that had a link with this child that it is gone.
pub fn unlink(children: &mut Children, id: ChildId) {
    for other in counterparts(children, id) {
        tell(children, other, Kind::LinkDown, id, vec![]);
    }
}

/// All linked children of the other role.
fn counterparts(children: &Children, id: ChildId) -> Vec<ChildId> {
    let role = children.get(id).role;
    let apt = |&other: &ChildId| {
        let other = children.get(other);
        other.role != role && other.policy.is_linked()
    };
    children.ids().filter(apt).collect()
}

/// Queues and sends. What the child can't take now goes when it can; if it is dead, its own end will be seen.
fn tell(children: &mut Children, to: ChildId, kind: Kind, of: ChildId, fds: Vec<OwnedFd>) {
    let peer = encode(&children.get(of).peer());
    if let Some(channel) = children.get_mut(to).channel() {
        channel.queue(kind, &peer, fds);
        channel.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::super::children::Process;
    use super::super::policy::Event;
    use super::*;
    use crate::ipc::control::{Peer, Role, decode};
    use crate::ipc::socket::{Channel, Progress};

    /// A child that is ready, and its own end of the control channel.
    fn ready(children: &mut Children, id: ChildId) -> Channel {
        let (near, far) = pair().unwrap();
        let child = children.get_mut(id);
        child.generation = 1;
        child.process = Some(Process { pid: None, channel: Some(Channel::new(near, 1).unwrap()) });
        for event in [Event::Begin, Event::Hello, Event::Ready] {
            child.policy.step(event, Duration::ZERO);
        }
        Channel::new(far, 1).unwrap()
    }

    /// Everything that has been told, with the end of each link.
    fn told(channel: &mut Channel) -> Vec<(Kind, Peer, Option<UnixStream>)> {
        assert_ne!(channel.receive(), Progress::Gone);
        let mut all = Vec::new();
        while let Some(frame) = channel.next().unwrap() {
            let (kind, peer) = (frame.header.kind, decode(frame.header.kind, frame.payload).unwrap());
            let fd = if kind == Kind::LinkUp { channel.take_fd() } else { None };
            all.push((kind, peer, fd.map(UnixStream::from)));
        }
        all
    }

    #[test]
    fn link_joins_a_child_with_all_of_the_other_role_that_are_ready() {
        let mut children = Children::new(3, 1, None);
        let owners = children.of_role(Role::Owner);
        let frontend = children.of_role(Role::Frontend)[0];
        let mut first = ready(&mut children, owners[0]);
        let mut second = ready(&mut children, owners[1]);
        let mut channel = ready(&mut children, frontend);
        link(&mut children, frontend).unwrap();

        let mut links = told(&mut channel);
        let peers: Vec<u16> = links.iter().map(|(_, peer, _)| peer.index).collect();
        assert_eq!(peers, [0, 1], "the third is not ready");
        for (place, owner) in [(0, &mut first), (1, &mut second)] {
            let mut theirs = told(owner);
            let (kind, peer, end) = theirs.pop().unwrap();
            assert_eq!((kind, peer), (Kind::LinkUp, Peer { role: Role::Frontend, index: 0, generation: 1 }));
            assert!(theirs.is_empty());
            end.unwrap().write_all(&[place]).unwrap();
            let mut got = [9];
            links[usize::from(place)].2.as_mut().unwrap().read_exact(&mut got).unwrap();
            assert_eq!(got, [place], "both ends are of one link");
        }
    }

    #[test]
    fn unlink_tells_the_other_role_only_and_links_end_by_themselves() {
        let mut children = Children::new(2, 2, None);
        let ids: Vec<ChildId> = children.ids().collect();
        let mut channels: Vec<Channel> = Vec::new();
        for &id in &ids {
            channels.push(ready(&mut children, id));
            link(&mut children, id).unwrap();
        }
        let mut links: Vec<_> = channels.iter_mut().map(told).collect();
        assert!(links.iter().all(|of_one| of_one.len() == 2), "two of the other role each");

        // The second owner's process ends: with it, its ends of the links.
        links[1].clear();
        children.get_mut(ids[1]).process = None;
        unlink(&mut children, ids[1]);
        assert!(told(&mut channels[0]).is_empty());
        for place in [2, 3] {
            let all = told(&mut channels[place]);
            let gone = Peer { role: Role::Owner, index: 1, generation: 1 };
            assert_eq!(
                all.iter().map(|(kind, peer, _)| (*kind, peer.clone())).collect::<Vec<_>>(),
                [(Kind::LinkDown, gone)]
            );
            let end = links[place].iter_mut().find(|(_, peer, _)| peer.index == 1).unwrap();
            assert_eq!(end.2.as_mut().unwrap().read(&mut [0]).unwrap(), 0, "the link has ended");
        }
    }
}
