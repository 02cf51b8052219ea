//! What children say over their control channels, turned into events for their policies.
//!
//! Part of the supervisor. Believes nothing: a child that says what it can't is named in the log and goes.

use super::Supervisor;
use super::children::{Child, ChildId};
use super::policy::Event;
use super::pulse;
use crate::error::{Class, Exit};
use crate::ipc::Kind;
use crate::ipc::control::{Hello, Role, decode};
use crate::ipc::socket::Progress;
use crate::limits::FAREWELL_BYTES;

/// Something that a child said.
enum Said {
    /// What its policy is to know.
    Event(Event),
    /// Its log is fit to be opened.
    Checked,
    /// Numbers of tubes, which are in the table now.
    Tubes,
    Pong,
    Farewell,
}

impl Supervisor {
    /// A child's channel can be read or written, or has ended.
    pub(super) fn attend(&mut self, id: ChildId) {
        loop {
            let Some(channel) = self.children.get_mut(id).channel() else { return };
            let written = channel.flush();
            let read = channel.receive();
            // What was said before the end counts.
            while let Some(said) = self.next_said(id) {
                match said {
                    Said::Event(event) => self.step(id, event),
                    Said::Checked => self.checked(id),
                    Said::Pong => self.beat(id, pulse::Event::Pong),
                    // They count with the pong behind them; its end will be seen.
                    Said::Tubes | Said::Farewell => {}
                }
            }
            if read == Progress::Gone || written == Progress::Gone {
                // A child keeps its end for as long as it lives: this one is as good as dead. Its exit code is
                // settled already, if it ended by itself.
                self.kill(id);
                return;
            }
            if read == Progress::Done {
                return;
            }
        }
    }

    /// An owner has found its log fit to be opened. At the first start nobody opens anything before all have
    /// said so, for a server that is refused changes nothing on disk; later each slot is by itself.
    fn checked(&mut self, id: ChildId) {
        self.children.get_mut(id).checked = true;
        let owners = self.children.of_role(Role::Owner);
        if self.opened {
            return self.tell(id, Kind::Open);
        }
        if owners.iter().all(|&owner| self.children.get(owner).checked) {
            self.opened = true;
            for owner in owners {
                self.tell(owner, Kind::Open);
            }
        }
    }

    /// The next thing that the child said.
    fn next_said(&mut self, id: ChildId) -> Option<Said> {
        let Child {
            role,
            index,
            generation,
            ref mut process,
            ref mut code,
            ref mut reason,
            ref mut tubes,
            ..
        } = *self.children.get_mut(id);
        let mut misbehaved = |said: &dyn std::fmt::Display| {
            tracing::error!("{role} {index} (generation {generation}): {said}");
            *reason = Some(said.to_string());
            Some(Said::Event(Event::Misbehaved(Class::Temporary)))
        };
        let frame = match process.as_mut()?.channel.as_mut()?.next() {
            Ok(frame) => frame?,
            Err(error) => return misbehaved(&error),
        };
        if frame.header.generation != generation {
            return misbehaved(&format!("speaks as generation {}", frame.header.generation));
        }
        match frame.header.kind {
            Kind::Hello => match decode::<Hello>(Kind::Hello, frame.payload) {
                Err(error) => misbehaved(&error),
                Ok(hello) if (hello.role, hello.index, hello.generation) != (role, index, generation) => {
                    misbehaved(&format!("says it is {} {}", hello.role, hello.index))
                }
                Ok(hello) if hello.fingerprint != self.fingerprint => {
                    let (theirs, ours) = (&hello.fingerprint, &self.fingerprint);
                    *code = Exit::Fingerprint.code();
                    misbehaved(&format!("has the fingerprint {theirs}, the supervisor has {ours}"));
                    Some(Said::Event(Event::Misbehaved(Class::Permanent)))
                }
                Ok(_) => Some(Said::Event(Event::Hello)),
            },
            Kind::Ready => Some(Said::Event(Event::Ready)),
            Kind::Checked => Some(Said::Checked),
            Kind::Tubes if role == Role::Owner => {
                match tubes.add(frame.payload, self.server.metrics_tubes.into()) {
                    Ok(()) => Some(Said::Tubes),
                    Err(error) => misbehaved(&error),
                }
            }
            Kind::Pong => {
                tubes.end();
                Some(Said::Pong)
            }
            Kind::Farewell => {
                let text = &frame.payload[..frame.payload.len().min(FAREWELL_BYTES)];
                // One line, whatever is in it.
                let shown = |c: char| if c.is_control() { ' ' } else { c };
                *reason = Some(String::from_utf8_lossy(text).chars().map(shown).collect());
                Some(Said::Farewell)
            }
            other => misbehaved(&format!("{other:?} is nothing that a child says")),
        }
    }
}
