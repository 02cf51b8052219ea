//! The tubes that a session watches, in the order that stock's multiset keeps: new ones at the end, and the
//! last one moves into the hole that a removed one leaves.

use crate::protocol::TubeName;

#[derive(Debug)]
pub struct WatchList(Vec<TubeName>);

impl WatchList {
    pub fn of(first: TubeName) -> WatchList {
        WatchList(vec![first])
    }

    pub fn contains(&self, tube: &TubeName) -> bool {
        self.0.contains(tube)
    }

    /// Adds a tube; one that is there stays once.
    pub fn add(&mut self, tube: TubeName) {
        if !self.contains(&tube) {
            self.0.push(tube);
        }
    }

    pub fn remove(&mut self, tube: &TubeName) {
        if let Some(at) = self.0.iter().position(|t| t == tube) {
            self.0.swap_remove(at);
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &TubeName> {
        self.0.iter()
    }

    /// The tube, if it is the only one.
    pub fn only(&self) -> Option<&TubeName> {
        match &self.0[..] {
            [tube] => Some(tube),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_tube_is_replaced_by_the_last() {
        let name = |n: &str| TubeName::new(n.as_bytes()).unwrap();
        let mut list = WatchList::of(name("default"));
        for tube in ["a", "b", "c", "a"] {
            list.add(name(tube));
        }
        list.remove(&name("a"));
        assert_eq!(list.iter().map(|t| t.to_string()).collect::<Vec<_>>(), ["default", "c", "b"]);
        list.remove(&name("default"));
        assert_eq!(list.iter().map(|t| t.to_string()).collect::<Vec<_>>(), ["b", "c"]);
    }
}
