//! A counter that never decreases, even if the kernel's does.
//!
//! Some of the kernel's counters fall: switches are summed over the live threads, so an ending thread takes its own
//! away. The decrease is added back: the stored counter stays constant for one sample and then continues. No rate
//! computed from it is ever negative or near 2^64.

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counter {
    base: u64,
    last: u64,
    fell: bool,
}

impl Counter {
    /// The value to publish for the kernel's `raw`.
    pub(crate) fn advance(&mut self, raw: u64) -> u64 {
        let value = self.base.saturating_add(raw);
        if value < self.last {
            self.base = self.base.saturating_add(self.last.saturating_sub(value));
            self.fell = true;
        } else {
            self.last = value;
        }
        self.last
    }

    /// Whether the kernel's value has ever fallen.
    pub(crate) fn fell(&self) -> bool {
        self.fell
    }
}

/// Advances all of a row's counters at once; returns the database's integers.
pub(crate) fn advance_all<const COUNT: usize>(
    counters: &mut [Counter; COUNT],
    raws: [u64; COUNT],
) -> [i64; COUNT] {
    let mut counters = counters.iter_mut();
    raws.map(|raw| {
        counters
            .next()
            .map_or(0, |counter| super::parse::signed(counter.advance(raw)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fall_is_flat_and_then_goes_on() {
        let mut counter = Counter::default();
        let published: Vec<u64> = [10, 25, 5, 5, 9, 30]
            .into_iter()
            .map(|raw| counter.advance(raw))
            .collect();
        assert_eq!(published, [10, 25, 25, 25, 29, 50]);
        assert!(counter.fell());
    }

    #[test]
    fn a_healthy_counter_is_left_as_it_is() {
        let mut counter = Counter::default();
        assert_eq!(
            [0, 3, 3, u64::MAX].map(|raw| counter.advance(raw)),
            [0, 3, 3, u64::MAX]
        );
        assert!(!counter.fell());
    }

    #[test]
    fn each_its_own() {
        let mut counters = [Counter::default(), Counter::default()];
        assert_eq!(advance_all(&mut counters, [5, 9]), [5, 9]);
        assert_eq!(advance_all(&mut counters, [2, 10]), [5, 10]);
        assert_eq!(advance_all(&mut counters, [3, u64::MAX]), [6, i64::MAX]);
    }

    proptest! {
        #[test]
        fn never_backwards(raws in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut counter = Counter::default();
            let mut last = 0;
            for raw in raws {
                let value = counter.advance(raw);
                prop_assert!(value >= last);
                last = value;
            }
        }
    }
}
