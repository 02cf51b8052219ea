//! The digest by which processes and slot directories tell that they mean the same topology.
//!
//! SHA-256 over this canonical encoding; integers little-endian, a text is its length (u32) and its bytes:
//!
//! | bytes | field |
//! | --- | --- |
//! | 16 | `trellis-topology` |
//! | 4 | format |
//! | 4 + n | server id |
//! | 4 + n | hash name |
//! | 8 | seed |
//! | 4 | partitions |
//! | 4 | slots |
//! | 1 | layout: 0 flat, 1 slots |
//! | 8 | first routed id |
//! | 4 + 2n | map: number of entries, then each |
//!
//! The text form of the file plays no part: spaces and comments there change nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::map::{HashName, Layout, Topology};

/// A topology's SHA-256. Its text form is 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Topology {
    /// Changes with every field; the same on every machine.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(canonical(self)).into())
    }
}

fn canonical(topology: &Topology) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + 2 * topology.map.len());
    out.extend_from_slice(b"trellis-topology");
    out.extend_from_slice(&topology.format.to_le_bytes());
    text(&mut out, &topology.server_id);
    text(
        &mut out,
        match topology.hash {
            HashName::Xxh64 => "xxh64",
        },
    );
    out.extend_from_slice(&topology.seed.to_le_bytes());
    out.extend_from_slice(&topology.partitions.to_le_bytes());
    out.extend_from_slice(&topology.slots.to_le_bytes());
    out.push(match topology.layout {
        Layout::Flat => 0,
        Layout::Slots => 1,
    });
    out.extend_from_slice(&topology.first_routed_id.to_le_bytes());
    out.extend_from_slice(&(topology.map.len() as u32).to_le_bytes());
    topology.map.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let wrong = || "a fingerprint is 64 lower-case hexadecimal digits".to_owned();
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            });
            *byte = (high.ok_or_else(wrong)? << 4) | low.ok_or_else(wrong)?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fingerprint, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        Topology::new(4, 16, Layout::Slots, "0123456789abcdef").unwrap()
    }

    /// Computed with Python's hashlib and struct over the table above: the encoding may not drift.
    #[test]
    fn fingerprint_of_a_known_topology_is_fixed() {
        assert_eq!(
            topology().fingerprint().to_string(),
            "d1321a7ae90e754f249818588ae5f78f14752b06c9e998851490a656e87f9ef5"
        );
    }

    #[test]
    fn fingerprint_changes_with_every_field() {
        type Change = fn(&mut Topology);
        let changes: [Change; 10] = [
            |t| t.format += 1,
            |t| t.server_id = "0123456789abcdee".into(),
            |t| t.seed = 1,
            |t| t.partitions += 1,
            |t| t.slots += 1,
            |t| t.layout = Layout::Flat,
            |t| t.first_routed_id = 1,
            |t| t.map[15] = 0,
            |t| t.map.swap(0, 1),
            |t| t.map.push(0),
        ];
        let mut seen = vec![topology().fingerprint()];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = topology();
            change(&mut changed);
            let fingerprint = changed.fingerprint();
            assert!(!seen.contains(&fingerprint), "change {number} is not seen");
            seen.push(fingerprint);
        }
        // The hash name has one value so far; that it is encoded shows in the bytes.
        let bytes = canonical(&topology());
        assert!(bytes.windows(9).any(|window| window == b"\x05\0\0\0xxh64"));
    }

    #[test]
    fn fingerprint_text_round_trips_and_is_strict() {
        let fingerprint = topology().fingerprint();
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        for wrong in
            [String::new(), text[1..].to_owned(), text.to_uppercase() + "A", format!("g{}", &text[1..])]
        {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
