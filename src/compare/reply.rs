//! A server's bytes as replies: a line, with the body that it announces, or the end of the connection.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Without its CR LF; the body, if there is one, without its own.
    Line {
        line: Vec<u8>,
        body: Option<Vec<u8>>,
    },
    End,
}

impl Reply {
    /// The whole reply at the front of `input`, and its length there.
    pub fn take(input: &[u8]) -> Option<(Reply, usize)> {
        let end = input.windows(2).position(|pair| pair == b"\r\n")?;
        let line = &input[..end];
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let length = match words[..] {
            [b"OK", bytes] | [b"FOUND" | b"RESERVED", _, bytes] => decimal(bytes),
            _ => None,
        };
        let Some(length) = length else {
            return Some((Reply::Line { line: line.to_vec(), body: None }, end + 2));
        };
        let whole = end + 2 + length as usize + 2;
        let body = input.get(end + 2..whole)?;
        let body = Some(body[..length as usize].to_vec());
        Some((Reply::Line { line: line.to_vec(), body }, whole))
    }

    pub fn line(&self) -> &[u8] {
        match self {
            Reply::Line { line, .. } => line,
            Reply::End => b"",
        }
    }

    pub fn first_word(&self) -> &[u8] {
        self.line().split(|byte| *byte == b' ').next().unwrap_or_default()
    }

    /// The job that the reply is about, if its line names one.
    pub fn id(&self) -> Option<u64> {
        match self.first_word() {
            b"INSERTED" | b"RESERVED" | b"FOUND" | b"BURIED" => {
                decimal(self.line().split(|byte| *byte == b' ').nth(1)?)
            }
            _ => None,
        }
    }

    /// The fields of statistics, in their order; `None` if the reply is something else.
    pub fn fields(&self) -> Option<Vec<(&str, &str)>> {
        let Reply::Line { line, body: Some(body) } = self else { return None };
        let text = std::str::from_utf8(body).ok().filter(|_| line.starts_with(b"OK "))?;
        text.strip_prefix("---\n")?.lines().map(|line| line.split_once(": ")).collect()
    }

    /// The items of a list; `None` if the reply is something else.
    pub fn items(&self) -> Option<Vec<&str>> {
        let Reply::Line { line, body: Some(body) } = self else { return None };
        let text = std::str::from_utf8(body).ok().filter(|_| line.starts_with(b"OK "))?;
        text.strip_prefix("---\n")?.lines().map(|line| line.strip_prefix("- ")).collect()
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::End => write!(f, "(end of the connection)"),
            Reply::Line { line, body: None } => write!(f, "\"{}\"", line.escape_ascii()),
            Reply::Line { line, body: Some(body) } => {
                write!(f, "\"{}\" \"{}\"", line.escape_ascii(), body.escape_ascii())
            }
        }
    }
}

pub fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_is_taken_when_it_is_whole() {
        let input = b"RESERVED 7 3\r\na\r\n\r\nNOT_FOUND\r\n";
        for length in 0..19 {
            assert_eq!(Reply::take(&input[..length]), None, "{length}");
        }
        let (reply, length) = Reply::take(input).unwrap();
        assert_eq!((reply.id(), length), (Some(7), 19));
        assert_eq!(reply, Reply::Line { line: b"RESERVED 7 3".to_vec(), body: Some(b"a\r\n".to_vec()) });
        assert_eq!(Reply::take(&input[19..]).unwrap().0.line(), b"NOT_FOUND");
    }

    #[test]
    fn statistics_and_lists_are_told_apart() {
        let (stats, _) = Reply::take(b"OK 14\r\n---\na: 1\nb: x\n\r\n").unwrap();
        assert_eq!(stats.fields(), Some(vec![("a", "1"), ("b", "x")]));
        assert_eq!(stats.items(), None);
        let (list, _) = Reply::take(b"OK 14\r\n---\n- default\n\r\n").unwrap();
        assert_eq!(list.items(), Some(vec!["default"]));
        assert_eq!(list.fields(), None);
    }

    #[test]
    fn kicked_has_a_number_but_no_job() {
        let (reply, _) = Reply::take(b"KICKED 3\r\n").unwrap();
        assert_eq!(reply.id(), None);
    }
}
