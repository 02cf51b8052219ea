//! What a server knows about a job, as far as a log has to keep it.

use crate::support::Client;

/// Counts that the original does not keep right over a restart (rows w01, w02 and w04 of the quirks), values that
/// move with the clock, and the file, which is no part of the job.
const NOT_COMPARED: [&str; 6] = ["age", "time-left", "file", "reserves", "releases", "buries"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: u64,
    /// The fields of `stats-job`, less those not compared.
    fields: Vec<(String, String)>,
    /// The whole reply to `peek`.
    found: Vec<u8>,
}

impl Job {
    /// None if there is no such job.
    pub fn look(client: &mut Client, id: u64) -> Option<Job> {
        let found = client.call(format!("peek {id}\r\n"));
        if found == b"NOT_FOUND\r\n" {
            return None;
        }
        let stats = client.stats(&format!("stats-job {id}"));
        let (delay, left) = (stats.number("delay"), stats.number("time-left"));
        if stats.text("state") == "delayed" {
            assert!((0..=delay).contains(&left), "job {id} of delay {delay} has {left} seconds left");
        }
        let keys = stats.keys().into_iter().filter(|key| !NOT_COMPARED.contains(key));
        let fields = keys.map(|key| (key.to_owned(), stats.text(key).to_owned())).collect();
        Some(Job { id, fields, found })
    }

    pub fn look_at_all(client: &mut Client, ids: &[u64]) -> Vec<Option<Job>> {
        ids.iter().map(|&id| Job::look(client, id)).collect()
    }

    /// The same job in another state, as a restart leaves it.
    pub fn with_state(mut self, state: &str) -> Job {
        for (key, value) in &mut self.fields {
            if key == "state" {
                *value = state.to_owned();
            }
        }
        self
    }

    /// The reply to a reserve of this job.
    pub fn reserved(&self) -> Vec<u8> {
        [b"RESERVED", self.found.strip_prefix(b"FOUND").expect("a reply to peek")].concat()
    }

    pub fn state(&self) -> &str {
        &self.fields.iter().find(|(key, _)| key == "state").expect("a job has a state").1
    }
}

/// Puts a job and returns its id. `numbers` are priority, delay and ttr.
pub fn put(client: &mut Client, numbers: &str, body: &[u8]) -> u64 {
    client.send([format!("put {numbers} {}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat());
    let reply = String::from_utf8(client.reply()).expect("a reply in ASCII");
    let id = reply.strip_prefix("INSERTED ").and_then(|id| id.trim_end().parse().ok());
    id.unwrap_or_else(|| panic!("put: {reply:?}"))
}
