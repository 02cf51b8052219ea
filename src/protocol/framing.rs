//! Where a command line ends. Stock reads into a buffer of `LINE_BYTES`, looks for the first CR among all
//! bytes but the last, and takes the line if LF follows it; a stray CR hides every later CR LF of that
//! buffer. A full buffer without a line is thrown away, and so is each further one until a line end is found
//! in one: that line is answered BAD_FORMAT. How the bytes were cut into packets makes no difference.

use memchr::memchr;

use crate::limits::LINE_BYTES;

/// What the bytes at the start of a line are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A whole line of this many bytes, CR LF included.
    Whole(usize),
    /// Not a line yet.
    Incomplete,
    /// `LINE_BYTES` bytes that hold no line: they are thrown away and `discard` goes on.
    TooLong,
}

/// What the bytes inside an over-long line are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// The line ends after this many bytes; it is answered BAD_FORMAT.
    Ends(usize),
    /// `LINE_BYTES` more bytes to throw away.
    Window,
    /// Not known yet.
    Incomplete,
}

fn line_end(window: &[u8]) -> Option<usize> {
    let cr = memchr(b'\r', window.get(..window.len().checked_sub(1)?)?)?;
    (window[cr + 1] == b'\n').then_some(cr + 2)
}

/// Looks at the bytes from the start of a line on.
pub fn line(bytes: &[u8]) -> Line {
    let window = &bytes[..bytes.len().min(LINE_BYTES)];
    match line_end(window) {
        Some(length) => Line::Whole(length),
        None if window.len() == LINE_BYTES => Line::TooLong,
        None => Line::Incomplete,
    }
}

/// Looks at the bytes behind what `TooLong` or `Window` threw away.
pub fn discard(bytes: &[u8]) -> Discard {
    match line(bytes) {
        Line::Whole(length) => Discard::Ends(length),
        Line::TooLong => Discard::Window,
        Line::Incomplete => Discard::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::Strategy;

    use super::*;

    #[test]
    fn line_ends_at_its_first_cr_lf() {
        assert_eq!(line(b"stats\r\nquit\r\n"), Line::Whole(7));
        assert_eq!(line(b"\r\n"), Line::Whole(2));
    }

    #[test]
    fn line_without_an_end_is_incomplete() {
        for bytes in [&b""[..], b"s", b"stats\r", b"stats\n", b"a\rb\r\n", b"stats\r\r\n"] {
            assert_eq!(line(bytes), Line::Incomplete, "{bytes:?}");
        }
    }

    #[test]
    fn line_of_224_bytes_is_whole_and_of_225_too_long() {
        let of = |n: usize| [&vec![b'x'; n - 2][..], b"\r\n"].concat();
        assert_eq!(line(&of(LINE_BYTES)), Line::Whole(LINE_BYTES));
        assert_eq!(line(&of(LINE_BYTES + 1)), Line::TooLong);
    }

    #[test]
    fn stray_cr_hides_the_rest_of_its_window_only() {
        let mut bytes = b"a\rb\r\n".to_vec();
        bytes.resize(LINE_BYTES, b'y');
        assert_eq!(line(&bytes), Line::TooLong);
        assert_eq!(discard(b"\r\nstats\r\n"), Discard::Ends(2));
    }

    /// The same bytes as `line` sees them when they come one at a time, as stock reads them: the lines, and
    /// where an over-long one ends.
    fn one_by_one(bytes: &[u8]) -> Vec<(bool, usize)> {
        let (mut found, mut start, mut discarding) = (Vec::new(), 0, false);
        for end in 0..=bytes.len() {
            let window = &bytes[start..end];
            if let Some(length) = line_end(window) {
                found.push((discarding, start + length));
                (start, discarding) = (start + length, false);
            } else if window.len() == LINE_BYTES {
                (start, discarding) = (end, true);
            }
        }
        found
    }

    fn all_at_once(bytes: &[u8]) -> Vec<(bool, usize)> {
        let (mut found, mut at, mut discarding) = (Vec::new(), 0, false);
        loop {
            match line(&bytes[at..]) {
                Line::Whole(length) => {
                    at += length;
                    found.push((std::mem::take(&mut discarding), at));
                }
                Line::TooLong => {
                    at += LINE_BYTES;
                    discarding = true;
                }
                Line::Incomplete => return found,
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_came(
            pieces in proptest::collection::vec(
                proptest::prop_oneof![
                    proptest::strategy::Just(b"\r\n".to_vec()),
                    proptest::strategy::Just(b"\r".to_vec()),
                    (0_usize..300).prop_map(|n| vec![b'x'; n]),
                ],
                0..12,
            )
        ) {
            let bytes = pieces.concat();
            assert_eq!(all_at_once(&bytes), one_by_one(&bytes));
        }
    }
}
