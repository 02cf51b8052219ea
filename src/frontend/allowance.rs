//! What the clients of one frontend may take: its part of what the server allows all of them.
//!
//! Pure: it knows numbers and no sockets; `accepting` and `requests` ask it. Frontends don't talk to each
//! other, so each keeps to its part, and the parts add up to what the server was told, never to more.

use std::net::IpAddr;

use crate::ipc::control::ClientLimits;
use crate::limits::FRONTEND_DESCRIPTORS;

/// One frontend among those of its server.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub number: u16,
    pub frontends: u16,
}

pub struct Allowance {
    connections: usize,
    /// It would be more if the process had more descriptors.
    lacks_descriptors: bool,
    /// Declared bytes of bodies that have not wholly arrived. `unfinished <= unfinished_max`
    unfinished: u64,
    unfinished_max: u64,
}

impl Allowance {
    /// `descriptors`: how many this process may have open. `slots`: with a link to each.
    pub fn new(limits: &ClientLimits, place: Place, descriptors: u64, slots: u32) -> Allowance {
        let part = place.part_of(limits.connections);
        let left = descriptors.saturating_sub(FRONTEND_DESCRIPTORS + u64::from(slots)).max(1);
        Allowance {
            connections: part.min(left) as usize,
            lacks_descriptors: left < part,
            unfinished: 0,
            unfinished_max: place.part_of(limits.unfinished_bytes),
        }
    }

    /// Clients that it takes at a time.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Why no more are taken, in words, while there are so many.
    pub fn full(&self, clients: usize) -> Option<&'static str> {
        if clients < self.connections {
            None
        } else if self.lacks_descriptors {
            Some("too few descriptors; raise the limit on open files")
        } else {
            Some("as many clients as this frontend's part of --max-connections")
        }
    }
}

impl Allowance {
    /// Declared bytes of bodies that have not wholly arrived.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// Whether a body of so many bytes may begin to arrive.
    pub fn allows_body(&self, bytes: u64) -> bool {
        self.unfinished + bytes <= self.unfinished_max
    }

    pub fn body_begins(&mut self, bytes: u64) {
        self.unfinished += bytes;
        assert!(self.unfinished <= self.unfinished_max, "allowed before");
    }

    /// It has arrived, or will not.
    pub fn body_ends(&mut self, bytes: u64) {
        self.unfinished = self.unfinished.checked_sub(bytes).expect("it began");
    }
}

/// What is counted as one address, never 0: of IPv6 the first half, of which one network has no more than one.
pub fn place_of(address: IpAddr) -> u64 {
    match address.to_canonical() {
        // No network of IPv6 that is nobody's or multicast is a client's.
        IpAddr::V4(address) => 0xff00_0000_0000_0000 | u64::from(address.to_bits()),
        IpAddr::V6(address) => ((address.to_bits() >> 64) as u64).max(1),
    }
}

impl Place {
    /// What is left over goes to the first ones, one each.
    fn part_of(self, total: u64) -> u64 {
        let (of, number) = (u64::from(self.frontends), u64::from(self.number));
        total / of + u64::from(number < total % of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Words;

    fn limits(connections: u64) -> ClientLimits {
        ClientLimits {
            connections,
            unfinished_bytes: 100,
            idle_s: None,
            body_s: None,
            per_address: None,
            refused: Words::default(),
        }
    }

    fn place(number: u16, frontends: u16) -> Place {
        Place { number, frontends }
    }

    #[test]
    fn parts_add_up_to_the_whole_and_differ_by_one_at_most() {
        for total in [4, 5, 7, 1000] {
            let parts: Vec<u64> = (0..4).map(|number| place(number, 4).part_of(total)).collect();
            assert_eq!(parts.iter().sum::<u64>(), total);
            assert!(parts.is_sorted_by(|a, b| a >= b) && parts[0] - parts[3] <= 1, "{parts:?}");
        }
    }

    #[test]
    fn frontend_is_full_with_its_part_and_says_which_limit_it_is() {
        let allowance = Allowance::new(&limits(5), place(1, 2), 1024, 4);
        assert_eq!((allowance.connections(), allowance.full(1)), (2, None));
        assert!(allowance.full(2).unwrap().contains("--max-connections"));

        let poor = Allowance::new(&limits(1000), place(0, 2), FRONTEND_DESCRIPTORS + 4 + 10, 4);
        assert_eq!((poor.connections(), poor.full(9)), (10, None));
        assert!(poor.full(10).unwrap().contains("descriptors"));
        assert_eq!(Allowance::new(&limits(1000), place(0, 2), 3, 4).connections(), 1);
    }

    #[test]
    fn bodies_fill_the_part_to_the_last_byte_and_give_it_back() {
        let mut allowance = Allowance::new(&limits(5), place(1, 3), 1024, 4);
        assert!(allowance.allows_body(33) && !allowance.allows_body(34));
        allowance.body_begins(30);
        assert!(allowance.allows_body(3) && !allowance.allows_body(4));
        allowance.body_begins(3);
        allowance.body_ends(30);
        assert_eq!(allowance.unfinished(), 3);
        assert!(allowance.allows_body(30) && allowance.allows_body(0));
    }

    #[test]
    fn addresses_are_told_apart_and_those_of_one_host_are_not() {
        let place = |text: &str| place_of(text.parse().unwrap());
        assert_eq!(place("10.0.0.1"), place("::ffff:10.0.0.1"));
        assert_eq!(place("2001:db8::1"), place("2001:db8::ffff:1"));
        let all = ["10.0.0.1", "10.0.0.2", "0.0.0.0", "::1", "2001:db8::1", "2001:db8:0:1::1", "fe80::1"];
        let places: std::collections::BTreeSet<u64> = all.into_iter().map(place).collect();
        assert_eq!(places.len(), all.len());
        assert!(!places.contains(&0));
    }
}
