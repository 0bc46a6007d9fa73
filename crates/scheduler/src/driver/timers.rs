//! Timers by mesh time, which never jumps.

use crate::machine::event::Token;
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::clock::{MeshClock, until};
use std::collections::{BTreeSet, HashMap};
use tokio::time::sleep;

/// Pending timers, earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(MeshMicros, Token)>,
    at: HashMap<Token, MeshMicros>,
}

impl Timers {
    pub fn add(&mut self, token: Token, at: MeshMicros) {
        self.order.insert((at, token));
        self.at.insert(token, at);
    }

    /// Removes a timer; returns whether it was pending.
    pub fn remove(&mut self, token: Token) -> bool {
        let Some(at) = self.at.remove(&token) else {
            return false;
        };
        self.order.remove(&(at, token))
    }

    /// Resolves when the first timer is due; never if there is none.
    pub fn next(&self, clock: &MeshClock) -> impl Future<Output = ()> + use<> {
        let wait = self.order.first().map(|(at, _)| until(clock, *at));
        async move {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Removes and returns the timers that are due.
    pub fn due(&mut self, now: MeshMicros) -> Vec<Token> {
        let mut due = Vec::new();
        while let Some((_, token)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            self.remove(token);
            due.push(token);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_in_order_and_once() {
        let mut timers = Timers::default();
        for (token, at) in [(1, 30), (2, 10), (3, 20), (4, 20)] {
            timers.add(Token(token), MeshMicros(at));
        }
        assert!(timers.remove(Token(3)));
        assert!(!timers.remove(Token(3)));
        assert_eq!(timers.due(MeshMicros(9)), []);
        assert_eq!(timers.due(MeshMicros(20)), [Token(2), Token(4)]);
        assert_eq!(timers.due(MeshMicros(99)), [Token(1)]);
        assert_eq!(timers.due(MeshMicros(99)), []);
    }
}
