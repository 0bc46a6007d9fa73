//! Limits of concurrent calls of one kind: in total, and per client.
//!
//! A client is an address, or the holder of a certificate. A call over a limit is refused at once, with the limit in
//! the message. Calls are never queued.

use super::peer::Peer;
use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};
use tonic::{Request, Status};

/// The size of a quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaLimits {
    /// Plural noun for messages.
    pub what: &'static str,
    /// The word for a client in messages.
    pub client: &'static str,
    pub in_all: usize,
    pub per_client: usize,
}

#[derive(Debug)]
pub(super) struct Quota<C: Eq + Hash = Option<IpAddr>> {
    limits: QuotaLimits,
    clients: Mutex<HashMap<C, usize>>,
}

impl Quota {
    /// Takes a place for the sender of `request`, until the permit is dropped.
    pub fn enter<T>(self: &Arc<Self>, request: &Request<T>) -> Result<Permit, Status> {
        self.enter_as(Peer::address(request))
    }
}

impl<C: Eq + Hash + Clone> Quota<C> {
    pub fn new(limits: QuotaLimits) -> Self {
        Self {
            limits,
            clients: Mutex::default(),
        }
    }

    /// Takes a place for this client, until the permit is dropped.
    pub fn enter_as(self: &Arc<Self>, client: C) -> Result<Permit<C>, Status> {
        let QuotaLimits {
            what,
            client: word,
            in_all,
            per_client,
        } = self.limits;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.values().sum::<usize>() >= in_all {
            return Err(Status::resource_exhausted(format!(
                "this collector serves at most {in_all} {what} at once; try again when one has ended"
            )));
        }
        let own = clients.entry(client.clone()).or_default();
        if *own >= per_client {
            return Err(Status::resource_exhausted(format!(
                "this {word} already has {per_client} {what}, the limit for one {word}; try again when one has ended"
            )));
        }
        *own += 1;
        Ok(Permit {
            quota: Arc::clone(self),
            client,
        })
    }
}

/// One running call; it releases its place on drop.
#[derive(Debug)]
pub(super) struct Permit<C: Eq + Hash = Option<IpAddr>> {
    quota: Arc<Quota<C>>,
    client: C,
}

impl<C: Eq + Hash> Drop for Permit<C> {
    fn drop(&mut self) {
        let mut clients = self
            .quota
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = clients.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_client_and_all_together_have_their_quota_and_get_room_back() {
        let quota = Arc::new(Quota::new(QuotaLimits {
            what: "queries",
            client: "host",
            in_all: 3,
            per_client: 2,
        }));
        let from = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let first = quota.enter_as(from(1)).unwrap();
        let _second = quota.enter_as(from(1)).unwrap();
        let refused = quota.enter_as(from(1)).unwrap_err();
        assert!(
            refused
                .message()
                .contains("this host already has 2 queries"),
            "{refused}"
        );
        let _third = quota.enter_as(from(2)).unwrap();
        let refused = quota.enter_as(from(3)).unwrap_err();
        assert!(
            refused.message().contains("at most 3 queries at once"),
            "{refused}"
        );
        drop(first);
        let _fourth = quota.enter_as(from(3)).unwrap();
        assert_eq!(quota.clients.lock().unwrap().len(), 3);
    }
}
