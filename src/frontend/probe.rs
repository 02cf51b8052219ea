//! Commands by an id from before the topology: such a job may live at any slot, so they are asked one after
//! another until one has it. If one of them can't be asked, that is not NOT_FOUND.

use super::session::{Context, Session, What};
use crate::scoreboard::Field;

pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";

/// The slots that are still to be asked, the next one last, and what counts the command.
pub struct Probe {
    pub left: Vec<u16>,
    pub counter: Option<Field>,
    /// The command changes the job.
    pub changes: bool,
    /// A slot has it: the rest of its reply passes through.
    pub found: bool,
}

/// The counter of a command by id; kick-job and reserve-job have none.
fn counter(line: &[u8]) -> Option<Field> {
    Some(match line.first()? {
        b'p' => Field::CmdPeek,
        b'd' => Field::CmdDelete,
        b'b' => Field::CmdBury,
        b't' => Field::CmdTouch,
        b's' => Field::CmdStatsJob,
        b'r' if line.starts_with(b"release ") => Field::CmdRelease,
        _ => return None,
    })
}

impl Session {
    /// Asks the first slot; those where the session holds a reservation come first.
    pub fn begin_probe(&mut self, ctx: &mut Context<'_>, line: &[u8], changes: bool) -> bool {
        let mut left: Vec<u16> = (0..ctx.owners.count()).collect();
        let holds = |slot: &u16| self.attachments.iter().any(|a| a.slot == *slot && a.deadline != 0);
        left.sort_by_key(|slot| (holds(slot), std::cmp::Reverse(*slot)));
        let first = left.pop().expect("there is a slot");
        if !self.reach(ctx, first) {
            return false;
        }
        let probe = Probe { left, counter: counter(line), changes, found: false };
        self.send_alone(ctx, first, line, What::Probe(probe), false);
        true
    }

    /// A slot does not have the job: the next one is asked, and the last one's answer is the client's.
    pub fn not_found_here(&mut self, ctx: &mut Context<'_>, mut probe: Probe, line: &[u8]) {
        let Some(next) = probe.left.pop() else { return self.output.push(NOT_FOUND) };
        if !self.reach(ctx, next) {
            // Not now: refused rather than answered wrongly. What was asked so far did not have the job.
            return self.output.push(super::requests::INTERNAL_ERROR);
        }
        // Counted once, however many are asked.
        if let Some(counter) = probe.counter {
            ctx.record.uncount(counter);
        }
        self.send_alone(ctx, next, line, What::Probe(probe), false);
    }
}
