//! Claims on steps whose figures are being computed. Each step is computed by one task at a time, different steps
//! concurrently, so that a step that ends does not wait for the late data of another one.

use crate::Store;
use benchmesh_model::mesh::StepId;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often a waiter commits what its predecessor may be waiting for.
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// The claimed steps.
#[derive(Debug, Default)]
pub(crate) struct StepClaims {
    held: Mutex<HashSet<StepId>>,
    freed: Notify,
}

/// A claim on a step, released on drop.
#[derive(Debug)]
pub struct StepClaim<'c> {
    claims: &'c StepClaims,
    step: StepId,
}

impl StepClaims {
    /// Waits until no other task has claimed the step. Cancel-safe.
    async fn claim(&self, step: StepId) -> StepClaim<'_> {
        loop {
            // Created before the check, so that no release in between is missed.
            let freed = self.freed.notified();
            let is_free = {
                let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                held.insert(step)
            };
            if is_free {
                return StepClaim { claims: self, step };
            }
            freed.await;
        }
    }
}

impl Store {
    /// Claims a step. The task that has it may wait for the next commit of gathered rows (`CommitPolicy::WhenDue`),
    /// which can be minutes away; so they are committed while this waits.
    pub(crate) async fn claim(&self, step: StepId) -> StepClaim<'_> {
        loop {
            tokio::select! {
                biased;
                claim = self.shared.computing.claim(step) => return claim,
                () = tokio::time::sleep(FLUSH_INTERVAL) => self.flush().await,
            }
        }
    }
}

impl Drop for StepClaim<'_> {
    fn drop(&mut self) {
        let mut held = (self.claims.held.lock()).unwrap_or_else(PoisonError::into_inner);
        held.remove(&self.step);
        self.claims.freed.notify_waiters();
    }
}
