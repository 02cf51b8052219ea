//! Names of tubes: 1 to 200 of the characters `A-Z a-z 0-9 - + / ; . $ _ ( )`, the first not a hyphen.

use std::ffi::CString;
use std::rc::Rc;

use crate::limits::TUBE_NAME_BYTES;

/// A valid name. Cheap to clone: sessions of one frontend share the common ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TubeName(Rc<[u8]>);

/// Whether a byte may stand in a name.
pub fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&b)
}

impl TubeName {
    /// `None` if `bytes` is no valid name.
    pub fn new(bytes: &[u8]) -> Option<TubeName> {
        let valid = (1..=TUBE_NAME_BYTES).contains(&bytes.len())
            && bytes[0] != b'-'
            && bytes.iter().all(|&b| is_name_byte(b));
        valid.then(|| TubeName(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// For the core.
    pub fn to_c_string(&self) -> CString {
        CString::new(&*self.0).expect("a name holds no NUL")
    }
}

impl std::fmt::Display for TubeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.0).expect("a name is ASCII"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_legal_characters_up_to_200_bytes_is_valid() {
        assert!(TubeName::new(b"A").is_some());
        assert!(TubeName::new(&[b'a'; TUBE_NAME_BYTES]).is_some());
        assert!(TubeName::new(b"09-+/;.$_()zZ").is_some());
    }

    #[test]
    fn name_too_long_empty_hyphened_or_with_another_byte_is_not() {
        assert!(TubeName::new(&[b'a'; TUBE_NAME_BYTES + 1]).is_none());
        for name in [&b""[..], b"-a", b" a", b"a ", b"a b", b"a,b", b"a:b", b"\xc3\xa9", b"a\0"] {
            assert!(TubeName::new(name).is_none(), "{name:?}");
        }
    }
}
