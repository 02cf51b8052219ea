//! The words of the commands, and sets of them.

use serde::{Deserialize, Serialize};

/// All of them, as clients write them.
pub const WORDS: [&str; 25] = [
    "put",
    "reserve",
    "reserve-with-timeout",
    "reserve-job",
    "delete",
    "release",
    "bury",
    "touch",
    "use",
    "watch",
    "ignore",
    "peek",
    "peek-ready",
    "peek-delayed",
    "peek-buried",
    "kick",
    "kick-job",
    "pause-tube",
    "stats",
    "stats-job",
    "stats-tube",
    "list-tubes",
    "list-tube-used",
    "list-tubes-watched",
    "quit",
];

/// Some of the words: a bit each, in the order above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Words(u32);

const _: () = assert!(WORDS.len() <= u32::BITS as usize);

impl Words {
    /// Reads words with commas between them. The error is the first that is none.
    pub fn parse(list: &str) -> Result<Words, String> {
        let mut bits = 0;
        for word in list.split(',') {
            let at = WORDS.iter().position(|known| *known == word).ok_or(word.to_owned())?;
            bits |= 1 << at;
        }
        Ok(Words(bits))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the word of this command line is among them. The line must be one that `command` knows: then
    /// the longest word that it begins with is its own.
    pub fn has_word_of(self, line: &[u8]) -> bool {
        let begins = |word: &&str| line.starts_with(word.as_bytes());
        let own =
            WORDS.iter().enumerate().filter(|(_, word)| begins(word)).max_by_key(|(_, word)| word.len());
        own.is_some_and(|(at, _)| self.0 & (1 << at) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, command};
    use super::*;

    /// A line of each command, in the order of `WORDS`.
    const LINES: [&str; 25] = [
        "put 0 0 1 1",
        "reserve",
        "reserve-with-timeout 5",
        "reserve-job 5",
        "delete 5",
        "release 5 0 0",
        "bury 5 0",
        "touch 5",
        "use reserve-job",
        "watch put",
        "ignore put",
        "peek 5",
        "peek-ready",
        "peek-delayed",
        "peek-buried",
        "kick 5",
        "kick-job 5",
        "pause-tubex 5",
        "stats",
        "stats-job 5",
        "stats-tube put",
        "list-tubes",
        "list-tube-used",
        "list-tubes-watched",
        "quitter",
    ];

    #[test]
    fn each_command_has_its_own_word_and_no_other() {
        for (word, line) in WORDS.iter().zip(LINES) {
            assert_ne!(command(line.as_bytes(), 10), Command::Other, "{line}");
            let only = Words::parse(word).unwrap();
            for (other, of) in WORDS.iter().zip(LINES) {
                assert_eq!(only.has_word_of(of.as_bytes()), other == word, "{word}: {of}");
            }
        }
    }

    #[test]
    fn list_has_all_its_words_and_unknown_ones_are_named() {
        let words = Words::parse("kick,pause-tube,kick").unwrap();
        assert!(words.has_word_of(b"kick 5") && words.has_word_of(b"pause-tube a 5"));
        assert!(!words.has_word_of(b"kick-job 5") && !words.is_empty());
        assert!(Words::default().is_empty() && !Words::default().has_word_of(b"quit"));
        for (list, wrong) in
            [("kick,kik", "kik"), ("", ""), ("kick,", ""), ("kick, put", " put"), ("PUT", "PUT")]
        {
            assert_eq!(Words::parse(list), Err(wrong.to_owned()), "{list:?}");
        }
    }
}
