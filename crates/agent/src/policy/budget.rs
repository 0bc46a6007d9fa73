//! Threads and memory shared by all load of an agent: claimed before a task is prepared, released when it is gone. Every
//! limit of all load is counted so; a task claims nothing of those that are kept in another way (`Footprint::claim_of`).

use super::Denial;
use benchmesh_model::limits::{Limit, Limits, PerLimit, Setting};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An amount of each limit.
pub type Demand = PerLimit<u64>;

/// The total amounts and the claimed parts, shared by all clones.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    claimed: Mutex<Demand>,
    /// Signalled when a claim is released.
    released: Condvar,
}

impl Shared {
    fn claimed(&self) -> MutexGuard<'_, Demand> {
        // Each change is two additions that cannot panic.
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claimed part of the budget, released on drop.
#[derive(Debug)]
pub struct Claim {
    shared: Arc<Shared>,
    held: Demand,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = self.shared.claimed();
        *claimed = Demand::from_fn(|limit| claimed[limit].saturating_sub(self.held[limit]));
        drop(claimed);
        self.shared.released.notify_all();
    }
}

impl Claim {
    /// One claim for each thread, with an equal part of the rest: a thread that hangs keeps its own.
    #[must_use]
    pub fn split(mut self) -> Vec<Claim> {
        let mut held = std::mem::take(&mut self.held);
        let mut parts = Vec::new();
        while held[Limit::Threads] > 0 {
            let part = Demand::from_fn(|limit| held[limit] / held[Limit::Threads]);
            held = Demand::from_fn(|limit| held[limit] - part[limit]);
            parts.push(Claim {
                shared: Arc::clone(&self.shared),
                held: part,
            });
        }
        // The rest of a task without threads.
        self.held = held;
        parts
    }

    /// Claims more threads, for a task that needs more than its parameters declare.
    ///
    /// # Errors
    /// If not enough threads are left.
    pub fn grow_to(&mut self, threads: u32) -> Result<(), Denial> {
        let held = &mut self.held[Limit::Threads];
        let mut more = Demand::default();
        more[Limit::Threads] = u64::from(threads).saturating_sub(*held);
        let mut taken = Budget(Arc::clone(&self.shared)).claim(more, Duration::ZERO)?;
        *held = held.saturating_add(taken.held[Limit::Threads]);
        // This claim owns them from now on.
        taken.held = Demand::default();
        Ok(())
    }
}

impl Budget {
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self(Arc::new(Shared {
            limits: *limits,
            claimed: Mutex::default(),
            released: Condvar::new(),
        }))
    }

    /// Claims everything or nothing. Waits at most `patience` for amounts that others hold: the threads of a task that
    /// was just dropped may still be ending.
    ///
    /// # Errors
    /// When one of the amounts is not available.
    pub fn claim(&self, wanted: Demand, patience: Duration) -> Result<Claim, Denial> {
        let fits = |claimed: &mut Demand| self.sum(claimed, wanted).is_ok();
        let waited = self.0.released.wait_timeout_while(
            self.0.claimed(),
            self.patience(wanted, patience),
            |it| !fits(it),
        );
        let (mut claimed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *claimed = self.sum(&claimed, wanted)?;
        Ok(Claim {
            shared: Arc::clone(&self.0),
            held: wanted,
        })
    }

    /// Zero for a demand that exceeds the total, because waiting cannot help.
    fn patience(&self, wanted: Demand, patience: Duration) -> Duration {
        match self.sum(&Demand::default(), wanted) {
            Ok(_) => patience,
            Err(_) => Duration::ZERO,
        }
    }

    /// The sum of both, if the limits allow it.
    fn sum(&self, claimed: &Demand, wanted: Demand) -> Result<Demand, Denial> {
        let sum = Demand::from_fn(|limit| claimed[limit].saturating_add(wanted[limit]));
        for limit in Limit::ALL {
            let Some(most) = self
                .0
                .limits
                .amount(*limit)
                .filter(|most| sum[*limit] > *most)
            else {
                continue;
            };
            let about = |amount| limit.about(Setting::Amount(amount));
            let requested = about(wanted[*limit]);
            let asked = match claimed[*limit] {
                0 => format!("{requested} were requested"),
                held => format!("{requested} were requested beside {} in use", about(held)),
            };
            return Err(Denial::limit(*limit, Setting::Amount(most), asked));
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn demand(threads: u64, memory_bytes: u64) -> Demand {
        Demand::from_fn(|limit| match limit {
            Limit::Threads => threads,
            Limit::Memory => memory_bytes,
            _ => 0,
        })
    }

    fn budget(threads: u64, memory_bytes: u64) -> Budget {
        let limits = Limits::default()
            .with(Limit::Threads, Setting::Amount(threads))
            .with(Limit::Memory, Setting::Amount(memory_bytes));
        Budget::new(&limits)
    }

    #[test]
    fn tasks_share_one_budget_and_give_back_what_they_claimed() {
        let budget = budget(8, 1 << 20);
        let first = budget.claim(demand(5, 600 << 10), NOW).unwrap();
        let denial = budget.claim(demand(4, 0), NOW).unwrap_err();
        assert_eq!((denial.key, denial.value.as_str()), ("threads", "8"));
        assert_eq!(denial.asked, "4 were requested beside 5 in use");
        let denial = budget.clone().claim(demand(1, 500 << 10), NOW).unwrap_err();
        assert_eq!((denial.key, denial.value.as_str()), ("memory", "1.00 MiB"));
        // The refused claim has not taken any of the other resource.
        let second = budget.claim(demand(3, 400 << 10), NOW).unwrap();
        drop(first);
        let third = budget.claim(demand(5, 600 << 10), NOW).unwrap();
        drop((second, third));
        assert_eq!(*budget.0.claimed(), Demand::default());
    }

    #[test]
    fn what_a_task_gives_back_in_time_is_waited_for() {
        let budget = budget(8, 0);
        let held = budget.claim(demand(8, 0), NOW).unwrap();
        let giving = std::thread::spawn(move || drop(held));
        let long = Duration::from_secs(60);
        drop(budget.claim(demand(8, 0), long).unwrap());
        giving.join().unwrap();
        // A demand above the total is refused at once.
        assert_eq!(budget.claim(demand(9, 0), long).unwrap_err().key, "threads");
    }

    #[test]
    fn a_split_claim_is_given_back_thread_by_thread() {
        let budget = budget(8, 100);
        let mut parts = budget.claim(demand(3, 10), NOW).unwrap().split();
        assert_eq!(*budget.0.claimed(), demand(3, 10));
        assert_eq!(parts.len(), 3);
        drop(parts.pop());
        assert_eq!(*budget.0.claimed(), demand(2, 6));
        drop(parts);
        assert_eq!(*budget.0.claimed(), Demand::default());
    }

    #[test]
    fn a_claim_grows_within_the_limits() {
        let budget = budget(8, 0);
        let mut claim = budget.claim(demand(2, 0), NOW).unwrap();
        claim.grow_to(8).unwrap();
        assert_eq!(claim.grow_to(9).unwrap_err().key, "threads");
        // A smaller number changes nothing.
        claim.grow_to(1).unwrap();
        assert_eq!(budget.0.claimed()[Limit::Threads], 8);
        drop(claim);
        assert_eq!(*budget.0.claimed(), Demand::default());
    }
}
