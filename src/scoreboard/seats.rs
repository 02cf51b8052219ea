//! Where the clients of all frontends are from, for a limit that has to hold over all of them: a word a client.
//!
//! Each frontend writes its own row, and reads those of the others when it takes a client. Nobody waits for
//! anybody. A row is emptied when its frontend is dead.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Words of a row before its seats: how many of them were ever taken, and seven that keep rows apart in the
/// cache.
const HEAD_WORDS: usize = 8;

/// Words of a row with so many seats.
pub(super) fn row_words(seats: usize) -> usize {
    if seats == 0 { 0 } else { HEAD_WORDS + seats.next_multiple_of(8) }
}

/// The rows of all frontends, as one of them sees them.
#[derive(Clone, Copy)]
pub struct Seats<'a> {
    words: &'a [AtomicU64],
    seats: usize,
    own: usize,
}

impl<'a> Seats<'a> {
    pub(super) fn new(words: &'a [AtomicU64], seats: usize, own: u16) -> Seats<'a> {
        Seats { words, seats, own: own.into() }
    }

    fn rows(&self) -> impl Iterator<Item = &'a [AtomicU64]> {
        self.words.chunks_exact(row_words(self.seats).max(1))
    }

    fn own(&self) -> &'a [AtomicU64] {
        self.rows().nth(self.own).expect("it has a row")
    }

    /// Takes a seat of this frontend for a client from `place` (not 0). `false`, and the seat stays free: there
    /// are `most` from there already. Of two frontends that do this at the same moment for the last one, both
    /// may say so, but never neither: each writes first and counts then, in one order for all.
    pub fn take(&self, seat: usize, place: u64, most: usize) -> bool {
        let row = self.own();
        if row[0].load(SeqCst) <= seat as u64 {
            row[0].store(seat as u64 + 1, SeqCst);
        }
        row[HEAD_WORDS + seat].store(place, SeqCst);
        let fits = self.count(place) <= most;
        if !fits {
            self.leave(seat);
        }
        fits
    }

    pub fn leave(&self, seat: usize) {
        self.own()[HEAD_WORDS + seat].store(0, SeqCst);
    }

    /// Looks at each seat that was ever taken: some ten microseconds for fifty thousand.
    fn count(&self, place: u64) -> usize {
        let taken = |row: &'a [AtomicU64]| {
            let used = (row[0].load(SeqCst) as usize).min(self.seats);
            row[HEAD_WORDS..HEAD_WORDS + used].iter().filter(|word| word.load(SeqCst) == place).count()
        };
        self.rows().map(taken).sum()
    }

    /// This frontend is gone, and its clients with it. Without seats there is nothing to do.
    pub fn clear(&self) {
        if self.seats > 0 {
            self.own().iter().for_each(|word| word.store(0, SeqCst));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scoreboard;

    #[test]
    fn places_are_counted_over_all_frontends() {
        let (board, _fd) = Scoreboard::create(1, 2, 3).unwrap();
        let [first, second] = [0, 1].map(|number| board.seats(number));
        assert!(first.take(0, 7, 2) && second.take(2, 7, 2));
        assert!(!first.take(1, 7, 2) && !second.take(0, 7, 2), "a third");
        assert!(first.take(1, 8, 1), "from elsewhere");
        second.leave(2);
        assert!(first.take(2, 7, 2), "its place is free again");
        first.clear();
        assert!(second.take(0, 7, 1) && second.take(1, 8, 1));
    }

    #[test]
    fn board_without_seats_has_nothing_to_clear() {
        let (board, _fd) = Scoreboard::create(1, 1, 0).unwrap();
        board.seats(0).clear();
    }
}
