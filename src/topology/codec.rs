//! The text form of a topology and of a slot's identity: TOML with the fingerprint inside.
//!
//! Pure. The same text goes into `topology.toml` and over IPC. Decoding believes nothing: unknown or missing
//! fields, another format, inconsistent fields and a fingerprint that does not match are errors.

use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::map::{TOPOLOGY_FORMAT, Topology, is_server_id};
use crate::limits;

/// Whose logs a slot directory holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotIdentity {
    pub format: u32,
    pub slot: u16,
    pub server_id: String,
    /// Of the topology that the directory was made for.
    pub fingerprint: Fingerprint,
}

/// Why a text is no topology or no identity; the caller adds which file it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    Format(i64),
    Fingerprint { written: Fingerprint, computed: Fingerprint },
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
struct Written<T> {
    fingerprint: Fingerprint,
    topology: T,
}

impl Topology {
    /// The text form, fingerprint included.
    pub fn to_toml(&self) -> String {
        let written = Written { fingerprint: self.fingerprint(), topology: self };
        // Only a number beyond i64 could fail, and `validate` admits none.
        toml::to_string(&written).expect("a valid topology has a text form")
    }

    /// Reads what `to_toml` wrote. The error says what is wrong with the text.
    pub fn from_toml(text: &str) -> Result<Topology, String> {
        decode_topology(text).map_err(|error| match error {
            DecodeError::Format(format) => format!("its format is {format}, not {TOPOLOGY_FORMAT}"),
            DecodeError::Fingerprint { written, computed } => {
                format!("its fingerprint is {computed}, but it says {written}")
            }
            DecodeError::Damaged(reason) => reason,
        })
    }

    /// The identity that this topology gives to a slot's directory.
    pub fn slot_identity(&self, slot: u16) -> SlotIdentity {
        SlotIdentity {
            format: TOPOLOGY_FORMAT,
            slot,
            server_id: self.server_id.clone(),
            fingerprint: self.fingerprint(),
        }
    }
}

pub(super) fn decode_topology(text: &str) -> Result<Topology, DecodeError> {
    let table = table(text)?;
    check_format(table.get("topology").and_then(|topology| topology.get("format")))?;
    let unknown = table.keys().find(|key| !matches!(key.as_str(), "fingerprint" | "topology"));
    if let Some(key) = unknown {
        return Err(DecodeError::Damaged(format!("unknown field `{key}`")));
    }
    let written: Written<Topology> = table.try_into().map_err(damaged)?;
    written.topology.validate().map_err(damaged)?;
    let computed = written.topology.fingerprint();
    if computed != written.fingerprint {
        return Err(DecodeError::Fingerprint { written: written.fingerprint, computed });
    }
    Ok(written.topology)
}

impl SlotIdentity {
    pub(super) fn to_toml(&self) -> String {
        toml::to_string(self).expect("an identity has a text form")
    }
}

pub(super) fn decode_identity(text: &str) -> Result<SlotIdentity, DecodeError> {
    let table = table(text)?;
    check_format(table.get("format"))?;
    let identity: SlotIdentity = table.try_into().map_err(damaged)?;
    if !is_server_id(&identity.server_id) {
        return Err(DecodeError::Damaged("its server id is not sixteen hexadecimal digits".into()));
    }
    if u32::from(identity.slot) >= limits::SLOTS_MAX {
        return Err(DecodeError::Damaged(format!("there is no slot {}", identity.slot)));
    }
    Ok(identity)
}

fn table(text: &str) -> Result<toml::Table, DecodeError> {
    text.parse().map_err(damaged)
}

/// The format is judged first: a newer file may well have fields that look like damage here.
fn check_format(format: Option<&toml::Value>) -> Result<(), DecodeError> {
    match format.and_then(toml::Value::as_integer) {
        Some(format) if format == i64::from(TOPOLOGY_FORMAT) => Ok(()),
        Some(format) => Err(DecodeError::Format(format)),
        None => Err(DecodeError::Damaged("it has no format number".into())),
    }
}

fn damaged(reason: impl std::fmt::Display) -> DecodeError {
    DecodeError::Damaged(reason.to_string().trim_end().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Layout;
    use proptest::prelude::*;

    const ID: &str = "0123456789abcdef";

    fn topology() -> Topology {
        let mut topology = Topology::new(4, 16, Layout::Slots, ID).unwrap();
        topology.first_routed_id = 77;
        topology
    }

    #[test]
    fn text_round_trips() {
        for (slots, partitions) in [(1, 1), (4, 16), (limits::SLOTS_MAX, limits::PARTITIONS_MAX)] {
            let topology = Topology::new(slots, partitions, Layout::Slots, ID).unwrap();
            let text = topology.to_toml();
            assert!(text.len() <= limits::TOPOLOGY_FILE_BYTES, "{} bytes", text.len());
            assert_eq!(Topology::from_toml(&text), Ok(topology));
        }
        let identity = topology().slot_identity(3);
        assert_eq!(decode_identity(&identity.to_toml()), Ok(identity));
    }

    #[test]
    fn text_with_another_map_is_refused_by_its_fingerprint() {
        let text = topology().to_toml();
        let changed = text.replacen("first_routed_id = 77", "first_routed_id = 78", 1);
        assert_ne!(changed, text);
        assert!(matches!(decode_topology(&changed), Err(DecodeError::Fingerprint { .. })));
    }

    #[test]
    fn text_of_another_format_says_so_before_anything_else() {
        let changed = topology().to_toml().replacen("format = 1", "format = 2\nnovelty = true", 1);
        assert_eq!(decode_topology(&changed), Err(DecodeError::Format(2)));
    }

    #[test]
    fn text_with_missing_or_unknown_fields_is_damaged() {
        let text = topology().to_toml();
        let cases = [
            text.replacen("seed = 0\n", "", 1),
            text.replacen("seed = 0\n", "seed = 0\nsalt = 1\n", 1),
            format!("salt = 1\n{text}"),
            text.replacen("xxh64", "fnv", 1),
            text.replacen("\"slots\"", "\"flat\"", 1),
            String::new(),
        ];
        for case in cases {
            assert!(matches!(decode_topology(&case), Err(DecodeError::Damaged(_))), "{case}");
        }
    }

    #[test]
    fn text_cut_anywhere_is_refused() {
        let text = topology().to_toml();
        for length in 0..text.trim_end().len() {
            assert!(decode_topology(&text[..length]).is_err(), "cut at {length}");
        }
        let text = topology().slot_identity(3).to_toml();
        for length in 0..text.trim_end().len() {
            assert!(decode_identity(&text[..length]).is_err(), "cut at {length}");
        }
    }

    /// Every byte of the text, each bit of it: what still loads is the same topology.
    #[test]
    fn text_with_one_bit_flipped_never_loads_as_another_topology() {
        let topology = topology();
        let text = topology.to_toml();
        for position in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[position] ^= 1 << bit;
                let Ok(changed) = String::from_utf8(bytes) else { continue };
                if let Ok(loaded) = decode_topology(&changed) {
                    assert_eq!(loaded, topology, "byte {position} bit {bit}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn text_with_bytes_replaced_never_loads_as_another_topology(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let topology = topology();
            let mut bytes = topology.to_toml().into_bytes();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(loaded) = decode_topology(&String::from_utf8_lossy(&bytes)) {
                prop_assert_eq!(loaded.fingerprint(), topology.fingerprint());
            }
        }

        #[test]
        fn text_of_any_kind_never_panics(text in "\\PC{0,200}") {
            let _ = decode_topology(&text);
            let _ = decode_identity(&text);
        }
    }
}
