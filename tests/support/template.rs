//! Byte strings with holes: `$j` stands for a job's id, whatever number the server gave it.
//!
//! A hole is a dollar sign and one small letter. The first reply that has it fixes its value; from then on it
//! must be the same everywhere, in what is sent too.

use std::collections::BTreeMap;

/// What the holes of one script stand for so far.
#[derive(Clone, Debug, Default)]
pub struct Holes {
    values: BTreeMap<u8, Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Match {
    /// The input starts with the template; so many bytes of it are covered.
    Whole(usize),
    /// Right so far, but the input is too short to tell.
    Unfinished,
    Differs,
}

impl Holes {
    /// The template with its holes filled in. Panics if one has no value yet.
    pub fn fill(&self, template: &[u8]) -> Vec<u8> {
        let mut filled = Vec::new();
        for part in parts(template) {
            match part {
                Part::Bytes(bytes) => filled.extend_from_slice(bytes),
                Part::Hole(name) => match self.values.get(&name) {
                    Some(value) => filled.extend_from_slice(value),
                    None => panic!("hole ${} is used before a reply filled it", name as char),
                },
            }
        }
        filled
    }

    /// Compares and, if the whole template matches, keeps the numbers found in its new holes.
    pub fn take(&mut self, template: &[u8], input: &[u8]) -> Match {
        let mut found = self.clone();
        let mut at = 0;
        for part in parts(template) {
            let rest = &input[at..];
            let known = match part {
                Part::Bytes(bytes) => bytes,
                Part::Hole(name) if found.values.contains_key(&name) => &found.values[&name],
                Part::Hole(name) => {
                    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    if digits == rest.len() {
                        return Match::Unfinished;
                    }
                    if digits == 0 {
                        return Match::Differs;
                    }
                    found.values.insert(name, rest[..digits].to_vec());
                    at += digits;
                    continue;
                }
            };
            let shared = known.len().min(rest.len());
            if known[..shared] != rest[..shared] {
                return Match::Differs;
            }
            if shared < known.len() {
                return Match::Unfinished;
            }
            at += shared;
        }
        *self = found;
        Match::Whole(at)
    }
}

enum Part<'a> {
    Bytes(&'a [u8]),
    Hole(u8),
}

fn parts(template: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < template.len() {
        match template[at..] {
            [b'$', name @ b'a'..=b'z', ..] => {
                parts.push(Part::Bytes(&template[start..at]));
                parts.push(Part::Hole(name));
                at += 2;
                start = at;
            }
            _ => at += 1,
        }
    }
    parts.push(Part::Bytes(&template[start..]));
    parts
}
