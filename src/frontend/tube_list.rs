//! `list-tubes` over all owners: each is asked for its tubes, and the answers become one list.

/// One question to all owners, on its way.
pub struct TubeQuery {
    /// Its number within the session.
    pub number: u32,
    answers: Vec<Answer>,
}

#[derive(Default)]
struct Answer {
    names: Vec<u8>,
    whole: bool,
}

impl TubeQuery {
    pub fn new(number: u32, slots: u16) -> TubeQuery {
        TubeQuery { number, answers: (0..slots).map(|_| Answer::default()).collect() }
    }

    /// A piece of a slot's answer: names, a line each.
    pub fn add(&mut self, slot: u16, names: &[u8], whole: bool) {
        let answer = &mut self.answers[usize::from(slot)];
        answer.names.extend_from_slice(names);
        answer.whole = whole;
    }

    /// Asks a slot once more: its owner died before its answer was whole. `false`: it was.
    pub fn again(&mut self, slot: u16) -> bool {
        let answer = &mut self.answers[usize::from(slot)];
        if answer.whole {
            return false;
        }
        answer.names.clear();
        true
    }

    pub fn is_complete(&self) -> bool {
        self.answers.iter().all(|a| a.whole)
    }

    /// The whole reply. Each owner's order is kept; `default`, which one of them has, comes first.
    pub fn render(&self) -> Vec<u8> {
        let names =
            || self.answers.iter().flat_map(|a| a.names.split(|&b| b == b'\n')).filter(|n| !n.is_empty());
        let first = names().filter(|n| *n == b"default");
        let rest = names().filter(|n| *n != b"default");
        list(first.chain(rest))
    }
}

/// A list reply, line and body.
pub fn list<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut body = b"---\n".to_vec();
    for name in names {
        body.extend_from_slice(b"- ");
        body.extend_from_slice(name);
        body.push(b'\n');
    }
    [format!("OK {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_several_owners_become_one_list_with_default_first() {
        let mut query = TubeQuery::new(1, 3);
        query.add(0, b"a\n", false);
        query.add(1, b"", true);
        assert!(!query.is_complete());
        query.add(0, b"b\n", true);
        query.add(2, b"c\ndefault\n", true);
        assert!(query.is_complete());
        assert_eq!(query.render(), b"OK 26\r\n---\n- default\n- a\n- b\n- c\n\r\n");
    }
}
