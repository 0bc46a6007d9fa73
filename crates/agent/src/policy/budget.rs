//! Threads and memory shared by all load of an agent: claimed before a task is prepared, released when it is gone.

use super::Denial;
use super::config::Bytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An amount of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub threads: u32,
    /// Memory of buffers, recorders and stacks; the page cache is not counted.
    pub memory_bytes: u64,
}

/// The total amounts and the claimed parts, shared by all clones.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Demand,
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
        claimed.threads = claimed.threads.saturating_sub(self.held.threads);
        claimed.memory_bytes = claimed.memory_bytes.saturating_sub(self.held.memory_bytes);
        drop(claimed);
        self.shared.released.notify_all();
    }
}

impl Claim {
    /// One claim for each thread, with an equal part of the memory: a thread that hangs keeps its own.
    #[must_use]
    pub fn split(mut self) -> Vec<Claim> {
        let mut held = std::mem::take(&mut self.held);
        let mut parts = Vec::new();
        while let Some(memory_bytes) = held.memory_bytes.checked_div(held.threads.into()) {
            held.threads -= 1;
            held.memory_bytes -= memory_bytes;
            parts.push(Claim {
                shared: Arc::clone(&self.shared),
                held: Demand {
                    threads: 1,
                    memory_bytes,
                },
            });
        }
        // Of a task without threads, the memory.
        self.held = held;
        parts
    }

    /// Claims more threads, for a task that needs more than its parameters declare.
    ///
    /// # Errors
    /// If not enough threads are left.
    pub fn grow_to(&mut self, threads: u32) -> Result<(), Denial> {
        let more = Demand {
            threads: threads.saturating_sub(self.held.threads),
            memory_bytes: 0,
        };
        let mut taken = Budget(Arc::clone(&self.shared)).claim(more, Duration::ZERO)?;
        self.held.threads = self.held.threads.saturating_add(taken.held.threads);
        // This claim owns them from now on.
        taken.held = Demand::default();
        Ok(())
    }
}

impl Budget {
    #[must_use]
    pub fn new(limits: Demand) -> Self {
        Self(Arc::new(Shared {
            limits,
            claimed: Mutex::default(),
            released: Condvar::new(),
        }))
    }

    #[must_use]
    pub fn limits(&self) -> Demand {
        self.0.limits
    }

    /// Claims everything or nothing. Waits at most `patience` for amounts that others hold: the threads of a task that
    /// was just dropped may still be ending.
    ///
    /// # Errors
    /// When one of the two amounts is not available.
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
        let limits = self.0.limits;
        let threads = claimed.threads.saturating_add(wanted.threads);
        let memory_bytes = claimed.memory_bytes.saturating_add(wanted.memory_bytes);
        if threads > limits.threads {
            return Err(Denial::new(
                "threads",
                limits.threads.to_string(),
                match claimed.threads {
                    0 => format!("{} were requested", wanted.threads),
                    held => format!("{} were requested beside {held} in use", wanted.threads),
                },
            ));
        }
        if memory_bytes > limits.memory_bytes {
            return Err(Denial::new(
                "memory",
                Bytes(limits.memory_bytes).about(),
                match claimed.memory_bytes {
                    0 => format!("{} were requested", Bytes(wanted.memory_bytes).about()),
                    held => format!(
                        "{} were requested beside {} in use",
                        Bytes(wanted.memory_bytes).about(),
                        Bytes(held).about()
                    ),
                },
            ));
        }
        Ok(Demand {
            threads,
            memory_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn demand(threads: u32, memory_bytes: u64) -> Demand {
        Demand {
            threads,
            memory_bytes,
        }
    }

    #[test]
    fn tasks_share_one_budget_and_give_back_what_they_claimed() {
        let budget = Budget::new(demand(8, 1 << 20));
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
        let budget = Budget::new(demand(8, 0));
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
        let budget = Budget::new(demand(8, 100));
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
        let budget = Budget::new(demand(8, 0));
        let mut claim = budget.claim(demand(2, 0), NOW).unwrap();
        claim.grow_to(8).unwrap();
        assert_eq!(claim.grow_to(9).unwrap_err().key, "threads");
        // A smaller number changes nothing.
        claim.grow_to(1).unwrap();
        assert_eq!(budget.0.claimed().threads, 8);
        drop(claim);
        assert_eq!(*budget.0.claimed(), Demand::default());
    }
}
