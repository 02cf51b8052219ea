//! The links to the owners: one a slot, to at most one generation of it. What is received is read elsewhere
//! (`event_loop`), so that frames can be answered while they are looked at.

use mio::net::UnixStream;
use mio::{Registry, Token};

use crate::ipc::socket::{self, Link, LinkInterest, Progress};
use crate::ipc::{Inbox, Outbox};

/// The sending half of a link.
struct Sender {
    stream: UnixStream,
    outbox: Outbox,
    interest: LinkInterest,
}

pub struct Owners {
    slots: Vec<Option<Sender>>,
}

impl Owners {
    pub fn new(slots: u32) -> Owners {
        Owners { slots: (0..slots).map(|_| None).collect() }
    }

    pub fn count(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Where frames for the slot go; `None`: it is unavailable.
    pub fn outbox(&mut self, slot: u16) -> Option<&mut Outbox> {
        self.slots[usize::from(slot)].as_mut().map(|sender| &mut sender.outbox)
    }

    pub fn is_up(&self, slot: u16) -> bool {
        self.slots[usize::from(slot)].is_some()
    }

    /// The owner is behind: nothing new is begun for it.
    pub fn is_full(&self, slot: u16) -> bool {
        self.slots[usize::from(slot)].as_ref().is_some_and(|sender| sender.outbox.is_full())
    }

    /// Bytes that wait to go out over all links.
    pub fn queued(&self) -> usize {
        self.slots.iter().flatten().map(|sender| sender.outbox.pending().len()).sum()
    }

    /// Takes a link to a new generation of a slot. What comes over it goes to the inbox that is returned.
    pub fn up(&mut self, slot: u16, link: Link, registry: &Registry, token: Token) -> std::io::Result<Inbox> {
        let Link { mut stream, inbox, outbox, interest } = link;
        interest.register(&mut stream, registry, token)?;
        self.slots[usize::from(slot)] = Some(Sender { stream, outbox, interest });
        Ok(inbox)
    }

    /// Forgets the link. What was queued for that generation is gone with it.
    pub fn down(&mut self, slot: u16) {
        self.slots[usize::from(slot)] = None;
    }

    /// One read of a slot's link.
    pub fn receive(&mut self, slot: u16, inbox: &mut Inbox) -> Progress {
        match &mut self.slots[usize::from(slot)] {
            Some(sender) => socket::receive(&mut sender.stream, inbox),
            None => Progress::Done,
        }
    }

    /// Sends what is queued, one write a link, and says which links are broken. `token_of` names each slot's
    /// link.
    pub fn send(&mut self, registry: &Registry, token_of: impl Fn(u16) -> Token) -> Vec<u16> {
        let mut broken = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let number = number as u16;
            let Some(Sender { stream, outbox, interest }) = slot else { continue };
            if socket::send(stream, outbox, interest, registry, token_of(number)) == Progress::Gone {
                broken.push(number);
            }
        }
        broken
    }
}
