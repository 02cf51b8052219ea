//! Metrics of single tubes: what owners have told of them, and which are shown.
//!
//! Part of the supervisor. An owner tells with its answer to a ping, so a scrape asks nobody. Of all tubes of the
//! server the first by name are shown, so that which ones they are changes only with the tubes there are; how many
//! are left out is told, too.

use super::Supervisor;
use super::metrics::{Families, Kind, Labels};
use crate::ipc::control::Role;
use crate::scoreboard::Field;
use crate::tube_figures::{BadLine, Figures, Tube, read};

/// One owner's report.
#[derive(Default)]
pub struct Report {
    /// The last whole one.
    told: Vec<Tube>,
    /// Frames of the next one; `None`: none has come yet.
    coming: Option<Vec<Tube>>,
}

#[derive(Debug, thiserror::Error)]
pub enum BadReport {
    #[error(transparent)]
    Line(#[from] BadLine),
    #[error("tells of more than {0} tubes")]
    TooMany(usize),
}

/// One of a tube's numbers.
type Number = fn(&Figures) -> u64;

const STATES: [(&str, Number); 4] = [
    ("ready", |f| f.ready),
    ("reserved", |f| f.reserved),
    ("delayed", |f| f.delayed),
    ("buried", |f| f.buried),
];

/// Families, what they are, and their numbers.
const FAMILIES: [(&str, &str, Kind, Number); 5] = [
    ("tube_using_clients", "Clients that use the tube", Kind::Gauge, |f| f.using),
    ("tube_watching_clients", "Clients that watch the tube", Kind::Gauge, |f| f.watching),
    ("tube_waiting_clients", "Of them, those that wait in reserve", Kind::Gauge, |f| f.waiting),
    ("tube_jobs_put", "Jobs put into the tube", Kind::Counter, |f| f.total_jobs),
    ("tube_pauses", "Pauses of the tube", Kind::Counter, |f| f.pauses),
];

impl Report {
    /// A frame of the next report, which tells of at most so many tubes.
    pub fn add(&mut self, payload: &[u8], most: usize) -> Result<(), BadReport> {
        let coming = self.coming.get_or_insert_default();
        coming.extend(read(payload)?);
        if coming.len() > most { Err(BadReport::TooMany(most)) } else { Ok(()) }
    }

    /// All frames of a report have come, if any did.
    pub fn end(&mut self) {
        if let Some(tubes) = self.coming.take() {
            self.told = tubes;
        }
    }

    /// The owner is gone, and with it what it told.
    pub fn clear(&mut self) {
        *self = Report::default();
    }
}

/// The first by name of all slots, each with its slot.
fn first_by_name<'r>(reports: impl Iterator<Item = (u16, &'r Report)>, most: usize) -> Vec<(u16, &'r Tube)> {
    let mut tubes: Vec<_> =
        reports.flat_map(|(slot, report)| report.told.iter().map(move |tube| (slot, tube))).collect();
    tubes.sort_unstable_by(|a, b| a.1.name.cmp(&b.1.name));
    tubes.truncate(most);
    tubes
}

impl Supervisor {
    pub(super) fn tube_metrics(&self, families: &mut Families) {
        let owners = self.children.of_role(Role::Owner);
        let reports = owners.iter().map(|&id| self.children.get(id)).map(|child| (child.index, &child.tubes));
        let shown = first_by_name(reports, self.server.metrics_tubes.into());
        let left_out = self.board.total(Field::Tubes).saturating_sub(shown.len() as u64);
        families.add(
            "tubes_left_out",
            "Tubes without metrics of their own",
            Kind::Gauge,
            Labels::default(),
            left_out as f64,
        );
        let labels = |slot: u16, tube: &Tube| Labels::default().with("tube", &tube.name).with("slot", slot);
        for &(slot, tube) in &shown {
            for (state, number) in STATES {
                let labels = labels(slot, tube).with("state", state);
                let jobs = number(&tube.figures) as f64;
                families.add("tube_jobs", "Jobs of the tube by state", Kind::Gauge, labels, jobs);
            }
        }
        for (name, help, kind, number) in FAMILIES {
            for &(slot, tube) in &shown {
                families.add(name, help, kind, labels(slot, tube), number(&tube.figures) as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> String {
        format!("{name} 1 2 3 4 5 6 7 8 9\n")
    }

    fn report(names: &[&str]) -> Report {
        let mut report = Report::default();
        report.add(names.iter().map(|name| line(name)).collect::<String>().as_bytes(), 9).unwrap();
        report.end();
        report
    }

    fn names(report: &Report) -> Vec<&str> {
        report.told.iter().map(|tube| tube.name.as_str()).collect()
    }

    #[test]
    fn report_counts_when_its_last_frame_has_come() {
        let mut told = report(&["a", "b"]);
        told.add(line("c").as_bytes(), 9).unwrap();
        told.add(line("d").as_bytes(), 9).unwrap();
        assert_eq!(names(&told), ["a", "b"]);
        told.end();
        assert_eq!(names(&told), ["c", "d"]);
        // A round that is not over says nothing.
        told.end();
        assert_eq!(names(&told), ["c", "d"]);
        // A slot without tubes says so.
        told.add(b"", 9).unwrap();
        told.end();
        assert!(told.told.is_empty());
    }

    #[test]
    fn report_of_more_tubes_than_were_asked_for_is_refused() {
        let mut report = Report::default();
        report.add((line("a") + &line("b")).as_bytes(), 2).unwrap();
        assert!(matches!(report.add(line("c").as_bytes(), 2), Err(BadReport::TooMany(2))));
        assert!(matches!(Report::default().add(b"a 1\n", 2), Err(BadReport::Line(_))));
    }

    #[test]
    fn tubes_of_all_slots_are_shown_in_the_order_of_their_names() {
        let (one, two) = (report(&["a", "d", "e"]), report(&["b", "c"]));
        let shown = first_by_name([(0, &one), (1, &two)].into_iter(), 4);
        let shown: Vec<_> = shown.into_iter().map(|(slot, tube)| (slot, tube.name.as_str())).collect();
        assert_eq!(shown, [(0, "a"), (1, "b"), (1, "c"), (0, "d")]);
    }
}
