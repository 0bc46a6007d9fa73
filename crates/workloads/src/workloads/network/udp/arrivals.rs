//! Tracks which datagrams of a stream have arrived, in which order, and with which jitter.
//!
//! A pure state machine over sequence numbers and two clocks that need not agree. A missing datagram is settled as lost
//! when the owner calls `settle`; if it arrives after that, it is late. Invariant: after `settle(n)`, with `n`
//! datagrams sent, `received + lost == n`, in constant memory.

/// Datagrams behind the newest one whose arrival is remembered. Older ones that arrive are late.
const WINDOW: u64 = 1 << 20;
const WORDS: usize = 1 << 14;

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub received: u64,
    pub bytes: u64,
    pub lost: u64,
    pub reordered: u64,
    pub duplicates: u64,
    pub late: u64,
}

#[derive(Debug)]
pub(super) struct Arrivals {
    /// One bit per sequence number, modulo the window.
    seen: Box<[u64; WORDS]>,
    /// One more than the highest sequence number that has arrived.
    next: u64,
    /// Missing datagrams below this have been counted as lost.
    settled: u64,
    counts: Counts,
    /// Transit time of the latest arrival: arrival minus departure, wrapping.
    transit_ns: Option<u64>,
    jitter_ns: f64,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            seen: Box::new([0; WORDS]),
            next: 0,
            settled: 0,
            counts: Counts::default(),
            transit_ns: None,
            jitter_ns: 0.0,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// One more than the highest sequence number that has arrived.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// RFC 3550, 6.4.1: J += (|D| - J) / 16, where D is the difference of two transit times in the order of arrival.
    /// `None` before the second datagram.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mean of absolute differences of 64 bits"
    )]
    pub(super) fn jitter_ns(&self) -> Option<u64> {
        (self.counts.received > 1).then_some(self.jitter_ns as u64)
    }

    /// Records an arrival.
    #[inline]
    pub(super) fn arrived(&mut self, sequence: u64, bytes: u64, sent_ns: u64, arrived_ns: u64) {
        if sequence >= self.next {
            self.skip_to(sequence);
            self.next = sequence.saturating_add(1);
        } else if sequence < self.next.saturating_sub(WINDOW) {
            self.counts.late += 1;
            return;
        } else if self.is_seen(sequence) {
            self.counts.duplicates += 1;
            return;
        } else if sequence < self.settled {
            // A further copy of it is a duplicate.
            self.mark(sequence);
            self.counts.late += 1;
            return;
        } else {
            self.counts.reordered += 1;
        }
        self.mark(sequence);
        self.counts.received += 1;
        self.counts.bytes += bytes;
        let transit = arrived_ns.wrapping_sub(sent_ns);
        if let Some(before) = self.transit_ns.replace(transit) {
            let difference = transit.wrapping_sub(before).cast_signed().unsigned_abs();
            self.jitter_ns += (difference as f64 - self.jitter_ns) / 16.0;
        }
    }

    /// Counts missing datagrams below `end` as lost.
    pub(super) fn settle(&mut self, end: u64) {
        let known = end.min(self.next);
        let mut lost = end.saturating_sub(self.next.max(self.settled));
        for sequence in self.settled..known {
            lost += u64::from(!self.is_seen(sequence));
        }
        self.counts.lost += lost;
        self.settled = self.settled.max(end);
        if end > self.next {
            self.forget(self.next, end);
            self.next = end;
        }
    }

    /// Moves the window forward so that `sequence` fits.
    fn skip_to(&mut self, sequence: u64) {
        let oldest = sequence.saturating_add(1).saturating_sub(WINDOW);
        if oldest > self.settled {
            self.settle(oldest);
        }
        self.forget(self.next, sequence);
    }

    /// Clears the arrivals of this range.
    fn forget(&mut self, from: u64, end: u64) {
        if end.saturating_sub(from) >= WINDOW {
            self.seen.fill(0);
            return;
        }
        for sequence in from..end {
            let (word, bit) = place(sequence);
            if let Some(word) = self.seen.get_mut(word) {
                *word &= !bit;
            }
        }
    }

    fn is_seen(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        self.seen.get(word).is_some_and(|word| word & bit != 0)
    }

    #[inline]
    fn mark(&mut self, sequence: u64) {
        let (word, bit) = place(sequence);
        if let Some(word) = self.seen.get_mut(word) {
            *word |= bit;
        }
    }
}

#[inline]
fn place(sequence: u64) -> (usize, u64) {
    let at = sequence % WINDOW;
    let word = usize::try_from(at / 64).unwrap_or(usize::MAX);
    (word, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn after(sequences: &[u64], sent: u64) -> Counts {
        let mut arrivals = Arrivals::new();
        for sequence in sequences {
            arrivals.arrived(*sequence, 100, 0, 0);
        }
        arrivals.settle(sent);
        arrivals.counts()
    }

    #[test]
    fn losses_reorderings_and_duplicates() {
        let all = |received, lost, reordered, duplicates| Counts {
            received,
            bytes: received * 100,
            lost,
            reordered,
            duplicates,
            late: 0,
        };
        assert_eq!(after(&[0, 1, 2], 3), all(3, 0, 0, 0));
        assert_eq!(after(&[0, 2, 3], 5), all(3, 2, 0, 0));
        assert_eq!(after(&[0, 2, 1, 3], 4), all(4, 0, 1, 0));
        assert_eq!(after(&[1, 1, 0, 0, 2], 3), all(3, 0, 1, 2));
        assert_eq!(after(&[], 7), all(0, 7, 0, 0));
        assert_eq!(
            after(&[5 * WINDOW], 5 * WINDOW + 1),
            all(1, 5 * WINDOW, 0, 0)
        );
    }

    #[test]
    fn one_that_was_settled_as_lost_is_late_and_its_copy_a_duplicate() {
        let mut arrivals = Arrivals::new();
        arrivals.arrived(0, 1, 0, 0);
        arrivals.arrived(2, 1, 0, 0);
        arrivals.settle(3);
        arrivals.settle(2);
        arrivals.arrived(1, 1, 0, 0);
        arrivals.arrived(1, 1, 0, 0);
        arrivals.arrived(3 + WINDOW, 1, 0, 0);
        arrivals.arrived(2, 1, 0, 0);
        arrivals.settle(4 + WINDOW);
        let counts = arrivals.counts();
        assert_eq!((counts.received, counts.lost), (3, 1 + WINDOW));
        assert_eq!((counts.late, counts.duplicates), (2, 1));
    }

    /// Worked example: transit times 10, 14, 14, 6 give J = 0.25, 0.234375, 0.7197265625.
    #[test]
    fn jitter_is_that_of_rfc_3550() {
        let mut arrivals = Arrivals::new();
        let far = u64::MAX - 20_000_000;
        for (sequence, transit) in (0..).zip([10, 14, 14, 6]) {
            let sent = far.wrapping_add(sequence * 7_000_000);
            arrivals.arrived(sequence, 1, sent, sent.wrapping_add(transit * 1_000_000));
        }
        assert_eq!(arrivals.jitter_ns(), Some(719_726));
    }

    proptest! {
        /// Holds for any drops, repetitions and reordering, settled at any time.
        #[test]
        fn what_was_sent_was_received_or_lost(
            order in proptest::collection::vec(0_u64..300, 0..600),
            settled in proptest::collection::vec((0_usize..600, 0_u64..300), 0..5),
        ) {
            let mut arrivals = Arrivals::new();
            let mut have: HashSet<u64> = HashSet::new();
            let (mut copies, mut highest, mut behind) = (0, None, 0);
            for (index, sequence) in order.iter().enumerate() {
                for (_, below) in settled.iter().filter(|(at, _)| *at == index) {
                    arrivals.settle((*below).min(arrivals.next()));
                }
                arrivals.arrived(*sequence, 1, 0, 0);
                match have.insert(*sequence) {
                    false => copies += 1,
                    true => behind += u64::from(highest.is_some_and(|highest| *sequence < highest)),
                }
                highest = highest.max(Some(*sequence));
            }
            arrivals.settle(300);
            let counts = arrivals.counts();
            prop_assert_eq!(counts.received + counts.lost, 300);
            prop_assert_eq!(counts.received + counts.late, have.len() as u64);
            prop_assert_eq!(counts.duplicates, copies);
            prop_assert_eq!(counts.reordered + counts.late, behind);
        }
    }
}
