//! A random order of numbers, each once, in constant memory: for passes in random order over any number of items.

use crate::measure::random::Random;

/// A permutation of `0..count` without a table: an invertible mixing of just enough bits, applied repeatedly until the
/// result is below `count` (cycle walking; at most two steps on average).
#[derive(Debug)]
pub(crate) struct Shuffle {
    count: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 4],
}

impl Shuffle {
    pub(crate) fn new(count: u64, random: &mut Random) -> Shuffle {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Shuffle {
            count,
            mask: 1_u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1),
            shift: (bits / 2).max(1),
            keys: std::array::from_fn(|_| random.next_u64() | 1),
        }
    }

    #[inline]
    /// The number at this position, which must be below `count`.
    pub(crate) fn place_of(&self, position: u64) -> u64 {
        let mut place = position;
        loop {
            for key in self.keys {
                // Adding, multiplying by an odd number and a shifted xor are each invertible within the mask.
                place = place.wrapping_add(key >> 7).wrapping_mul(key) & self.mask;
                place ^= place >> self.shift;
            }
            if place < self.count {
                return place;
            }
        }
    }
}
