//! Numbers on the command line.

/// A size as stock reads one: leading blanks, perhaps a plus, decimal digits, nothing behind them. A number
/// too big for 64 bits is the largest there is, for its flag to cut or refuse.
pub fn size(text: &str) -> Option<u64> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r');
    let text = text.trim_start_matches(blank);
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn size_of_digits_is_their_number() {
        for (text, value) in [("0", 0), ("65535", 65535), (" 7", 7), ("\t+7", 7), ("007", 7)] {
            assert_eq!(size(text), Some(value), "{text:?}");
        }
    }

    #[test]
    fn size_with_anything_else_is_none() {
        for text in ["", " ", "x", "1x", "1 ", "0x10", "-1", "++1", "+", "1.5", "1e3", "+ 1"] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn size_beyond_64_bits_is_the_largest() {
        assert_eq!(size("18446744073709551615"), Some(u64::MAX));
        assert_eq!(size("18446744073709551616"), Some(u64::MAX));
    }
}
