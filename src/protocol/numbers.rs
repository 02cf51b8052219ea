//! Stock's way to read a number: blanks (spaces only) are skipped, then digits; no sign.

/// Reads a number of at most `max` from the start of `text`; the rest of the text comes back with it.
fn number(text: &[u8], max: u64) -> Option<(u64, &[u8])> {
    let start = text.iter().position(|&b| b != b' ')?;
    let digits = text[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut value = 0_u64;
    for b in &text[start..start + digits] {
        value = value.checked_mul(10)?.checked_add(u64::from(b - b'0'))?;
    }
    (digits > 0 && value <= max).then_some((value, &text[start + digits..]))
}

/// A 32-bit number and what follows it.
pub fn u32_and_rest(text: &[u8]) -> Option<(u32, &[u8])> {
    number(text, u32::MAX.into()).map(|(n, rest)| (n as u32, rest))
}

/// A 32-bit number that ends the line.
pub fn u32_whole(text: &[u8]) -> Option<u32> {
    u32_and_rest(text).and_then(|(n, rest)| rest.is_empty().then_some(n))
}

/// A 64-bit number and what follows it.
pub fn u64_and_rest(text: &[u8]) -> Option<(u64, &[u8])> {
    number(text, u64::MAX)
}

/// A 64-bit number that ends the line.
pub fn u64_whole(text: &[u8]) -> Option<u64> {
    u64_and_rest(text).and_then(|(n, rest)| rest.is_empty().then_some(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_skips_spaces_and_zeros_and_keeps_the_rest() {
        assert_eq!(u32_and_rest(b"   0009 x"), Some((9, &b" x"[..])));
        assert_eq!(u64_whole(b" 18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn number_out_of_range_or_not_one_is_none() {
        for text in [&b""[..], b" ", b"-1", b"+1", b"\t1", b"x", b"4294967296"] {
            assert_eq!(u32_and_rest(text), None, "{text:?}");
        }
        assert_eq!(u64_whole(b"18446744073709551616"), None);
        assert_eq!(u64_whole(b"9 "), None);
    }
}
