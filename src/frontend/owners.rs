//! The links to the owners: one a slot, to at most one generation of it. What is received is read elsewhere
//! (`event_loop`), so that frames can be answered while they are looked at.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

use crate::ipc::socket::{self, Link, Progress};
use crate::ipc::{Inbox, Outbox};

/// The sending half of a link.
struct Sender {
    stream: UnixStream,
    outbox: Outbox,
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
        let Link { mut stream, inbox, outbox } = link;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.slots[usize::from(slot)] = Some(Sender { stream, outbox });
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

    /// Sends what is queued, one write a link, and says which links are broken.
    pub fn send(&mut self) -> Vec<u16> {
        let mut broken = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if let Some(sender) = slot
                && socket::send(&mut sender.stream, &mut sender.outbox) == Progress::Gone
            {
                broken.push(number as u16);
            }
        }
        broken
    }
}
