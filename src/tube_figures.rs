//! What an owner tells the supervisor of single tubes (`Kind::Tubes`): a line a tube, its name and nine numbers.
//!
//! Pure. `owner::survey` writes, `supervisor::tubes` reads; a line that is none is an error, as everything that a
//! child says may be.

use crate::limits::TUBE_NAME_BYTES;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tube {
    pub name: String,
    pub figures: Figures,
}

/// As in the reply to `stats-tube`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    pub ready: u64,
    pub reserved: u64,
    pub delayed: u64,
    pub buried: u64,
    pub using: u64,
    pub watching: u64,
    pub waiting: u64,
    pub total_jobs: u64,
    pub pauses: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no line about a tube: {0:?}")]
pub struct BadLine(String);

impl Figures {
    /// In the order of a line.
    fn numbers(&self) -> [u64; 9] {
        let Figures { ready, reserved, delayed, buried, using, watching, waiting, total_jobs, pauses } =
            *self;
        [ready, reserved, delayed, buried, using, watching, waiting, total_jobs, pauses]
    }

    fn from_numbers(numbers: [u64; 9]) -> Figures {
        let [ready, reserved, delayed, buried, using, watching, waiting, total_jobs, pauses] = numbers;
        Figures { ready, reserved, delayed, buried, using, watching, waiting, total_jobs, pauses }
    }
}

impl Tube {
    /// Appends this tube's line.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name.as_bytes());
        for number in self.figures.numbers() {
            out.push(b' ');
            out.extend_from_slice(number.to_string().as_bytes());
        }
        out.push(b'\n');
    }
}

/// The tubes of one frame, which ends with the end of a line.
pub fn read(payload: &[u8]) -> Result<Vec<Tube>, BadLine> {
    let bad = |line: &[u8]| BadLine(String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned());
    payload
        .split_inclusive(|&byte| byte == b'\n')
        .map(|line| read_line(line).ok_or_else(|| bad(line)))
        .collect()
}

fn read_line(line: &[u8]) -> Option<Tube> {
    let mut words = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split(' ');
    let name = words.next().filter(|name| (1..=TUBE_NAME_BYTES).contains(&name.len()))?;
    let mut numbers = [0; 9];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then(|| Tube { name: name.to_owned(), figures: Figures::from_numbers(numbers) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tube(name: &str, first: u64) -> Tube {
        let figures = Figures::from_numbers(std::array::from_fn(|at| first + at as u64));
        Tube { name: name.to_owned(), figures }
    }

    #[test]
    fn tubes_written_read_as_themselves() {
        let tubes = vec![tube("a-b/c;d.$(e)", 0), tube(&"x".repeat(TUBE_NAME_BYTES), u64::MAX - 8)];
        let mut payload = Vec::new();
        tubes.iter().for_each(|tube| tube.write(&mut payload));
        assert!(payload.len() <= 2 * crate::limits::TUBE_LINE_BYTES);
        assert_eq!(read(&payload), Ok(tubes));
        assert_eq!(read(b""), Ok(vec![]));
    }

    #[test]
    fn line_that_is_none_is_refused() {
        let long = format!("{} 1 2 3 4 5 6 7 8 9\n", "x".repeat(TUBE_NAME_BYTES + 1));
        for line in [
            "a 1 2 3 4 5 6 7 8 9",
            "a 1 2 3 4 5 6 7 8\n",
            "a 1 2 3 4 5 6 7 8 9 10\n",
            "a 1 2 3 4 5 6 7 8 -9\n",
            "a 1 2 3 4 5 6 7 8 99999999999999999999\n",
            " 1 2 3 4 5 6 7 8 9\n",
            "\n",
            &long,
        ] {
            assert!(read(line.as_bytes()).is_err(), "{line:?}");
        }
        assert!(read(b"\xff 1 2 3 4 5 6 7 8 9\n").is_err());
    }
}
