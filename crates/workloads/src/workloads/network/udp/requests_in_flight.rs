//! Requests that wait for their responses, with the time of each, and their expiry.
//!
//! A pure table of fixed size. The number of a request determines its slot, so lookup is immediate, and a response to
//! an expired request matches nothing.

use crate::engine::author::*;
use std::time::Duration;

const SLOT_BITS: u32 = 16;

#[derive(Debug)]
pub(super) struct RequestsInFlight {
    /// Number and send time of the request in each slot.
    slots: Box<[Option<(u64, MonoNanos)>]>,
    free: Vec<u16>,
    timeout: Duration,
    numbered: u64,
    /// No request expires before this.
    next_expiry: MonoNanos,
}

impl RequestsInFlight {
    pub(super) fn new(depth: u16, timeout: Duration) -> Self {
        Self {
            slots: vec![None; depth.into()].into(),
            free: (0..depth).rev().collect(),
            timeout,
            numbered: 0,
            next_expiry: MonoNanos(u64::MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// A free slot and the number of the next request in it.
    #[inline]
    pub(super) fn next(&self) -> Option<(u16, u64)> {
        let slot = self.free.last()?;
        Some((*slot, self.numbered << SLOT_BITS | u64::from(*slot)))
    }

    /// Records that the request of [`RequestsInFlight::next`] was sent.
    #[inline]
    pub(super) fn sent(&mut self, now: MonoNanos) {
        if let Some((slot, number)) = self.next()
            && let Some(entry) = self.slots.get_mut(usize::from(slot))
        {
            *entry = Some((number, now));
            self.free.pop();
            self.numbered += 1;
            self.next_expiry = self.next_expiry.min(now.saturating_add(self.timeout));
        }
    }

    /// Records a response; returns the slot of its request, unless it was answered or expired before.
    #[inline]
    pub(super) fn answered(&mut self, number: u64) -> Option<u16> {
        let slot = u16::try_from(number & u64::from(u16::MAX)).ok()?;
        let entry = self.slots.get_mut(usize::from(slot))?;
        entry.take_if(|(waits, _)| *waits == number)?;
        self.free.push(slot);
        Some(slot)
    }

    /// Earliest time at which a request may expire.
    #[inline]
    pub(super) fn next_expiry(&self) -> MonoNanos {
        self.next_expiry
    }

    /// Drops requests that have reached the timeout; calls `each` with their slots.
    pub(super) fn expire(&mut self, now: MonoNanos, mut each: impl FnMut(u16)) {
        if now < self.next_expiry {
            return;
        }
        self.next_expiry = MonoNanos(u64::MAX);
        for (slot, entry) in (0_u16..).zip(&mut self.slots) {
            let Some((_, since)) = entry else { continue };
            let until = since.saturating_add(self.timeout);
            if until <= now {
                *entry = None;
                self.free.push(slot);
                each(slot);
            } else {
                self.next_expiry = self.next_expiry.min(until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_is_answered_once_or_expires_once() {
        let at = |millis: u64| MonoNanos(millis * 1_000_000);
        let mut requests = RequestsInFlight::new(2, Duration::from_millis(10));
        let send = |requests: &mut RequestsInFlight, millis| {
            let (slot, number) = requests.next().unwrap();
            requests.sent(at(millis));
            (slot, number)
        };
        let (first_slot, first) = send(&mut requests, 1);
        let (second_slot, second) = send(&mut requests, 4);
        assert_ne!(first_slot, second_slot);
        assert_eq!(requests.next(), None);
        assert_eq!(requests.answered(second), Some(second_slot));
        assert_eq!(requests.answered(second), None, "a duplicate");
        let mut expired = Vec::new();
        requests.expire(at(10), |slot| expired.push(slot));
        assert_eq!(
            (expired.as_slice(), requests.next_expiry()),
            ([].as_slice(), at(11))
        );
        requests.expire(at(11), |slot| expired.push(slot));
        assert_eq!(expired, [first_slot]);
        assert!(requests.is_empty());
        assert_eq!(requests.answered(first), None, "too late");
        let (again, third) = send(&mut requests, 12);
        assert_eq!(again, first_slot);
        assert_eq!(
            requests.answered(first),
            None,
            "the slot is another request's"
        );
        assert_eq!(requests.answered(third), Some(again));
        assert_eq!(requests.answered(u64::MAX), None);
    }
}
