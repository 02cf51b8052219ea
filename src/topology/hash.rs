//! A tube name to a number: XXH64 over the exact bytes of the name.
//!
//! No case folding, no locale, nothing random per process: the value decides where a tube's jobs are kept,
//! so it may never change for data that exists. The vectors in `tests/data/xxh64.txt` come from the
//! reference implementation (`tests/hash_vectors.py` computes them again).

use xxhash_rust::xxh64::xxh64;

/// XXH64 of the name's bytes. Total: any bytes have a hash, legal tube name or not.
#[inline]
pub fn tube_hash(name: &[u8], seed: u64) -> u64 {
    xxh64(name, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use std::collections::HashSet;

    const VECTORS: &str = include_str!("../../tests/data/xxh64.txt");

    fn vectors() -> Vec<(&'static str, u64)> {
        VECTORS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let (hash, name) = line.split_once(' ').expect("a vector is: hash, space, name");
                (name, u64::from_str_radix(hash, 16).expect("sixteen hexadecimal digits"))
            })
            .collect()
    }

    #[test]
    fn hash_equals_every_vector_of_the_reference() {
        for (name, hash) in vectors() {
            assert_eq!(tube_hash(name.as_bytes(), 0), hash, "tube {name}");
        }
    }

    #[test]
    fn vectors_cover_the_edges_of_legal_names() {
        let names: Vec<&str> = vectors().into_iter().map(|(name, _)| name).collect();
        let one_byte: HashSet<&str> = names.iter().copied().filter(|name| name.len() == 1).collect();
        // 71 characters are legal; `-` may not come first, so it has no name of its own.
        assert_eq!(one_byte.len(), 70);
        assert!(names.iter().filter(|name| name.len() == limits::TUBE_NAME_BYTES).count() >= 3);
        assert!(names.contains(&"default") && names.contains(&"Default") && names.contains(&"DEFAULT"));
        let lengths: HashSet<usize> = names.iter().map(|name| name.len()).collect();
        // XXH64 takes another path at 4, 8 and 32 bytes: each side of each edge is there.
        assert!([3, 4, 5, 7, 8, 9, 31, 32, 33, 63, 64, 65].iter().all(|length| lengths.contains(length)));
    }

    #[test]
    fn hash_of_another_case_differs() {
        assert_ne!(tube_hash(b"emails", 0), tube_hash(b"Emails", 0));
    }
}
