//! Limits of concurrent calls of one kind: in all, and per client.
//!
//! A client is an address. A call over a limit is refused at once, with the limit in the message; nothing queues.

use super::connection::Peer;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};
use tonic::{Request, Status};

/// The size of a quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaLimits {
    /// In the plural, for messages.
    pub what: &'static str,
    pub in_all: usize,
    pub per_client: usize,
}

#[derive(Debug)]
pub(super) struct Quota {
    limits: QuotaLimits,
    clients: Mutex<HashMap<Option<IpAddr>, usize>>,
}

impl Quota {
    pub fn new(limits: QuotaLimits) -> Self {
        Self {
            limits,
            clients: Mutex::default(),
        }
    }

    /// Room for one more by the sender of `request`, until the permit is dropped.
    pub fn enter<T>(self: &Arc<Self>, request: &Request<T>) -> Result<Permit, Status> {
        self.enter_from(Peer::address(request))
    }

    fn enter_from(self: &Arc<Self>, client: Option<IpAddr>) -> Result<Permit, Status> {
        let QuotaLimits {
            what,
            in_all,
            per_client,
        } = self.limits;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.values().sum::<usize>() >= in_all {
            return Err(Status::resource_exhausted(format!(
                "{in_all} {what} are under way, which is as many as this collector serves at once; try again when one has ended"
            )));
        }
        let own = clients.entry(client).or_default();
        if *own >= per_client {
            return Err(Status::resource_exhausted(format!(
                "{per_client} {what} of this host are under way, which is as many as one host may have; try again when one has ended"
            )));
        }
        *own += 1;
        Ok(Permit {
            quota: Arc::clone(self),
            client,
        })
    }
}

/// One piece of work; it makes room when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    quota: Arc<Quota>,
    client: Option<IpAddr>,
}

impl Drop for Permit {
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
            in_all: 3,
            per_client: 2,
        }));
        let from = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let first = quota.enter_from(from(1)).unwrap();
        let _second = quota.enter_from(from(1)).unwrap();
        let refused = quota.enter_from(from(1)).unwrap_err();
        assert!(
            refused.message().contains("2 queries of this host"),
            "{refused}"
        );
        let _third = quota.enter_from(from(2)).unwrap();
        let refused = quota.enter_from(from(3)).unwrap_err();
        assert!(
            refused.message().contains("3 queries are under way"),
            "{refused}"
        );
        drop(first);
        let _fourth = quota.enter_from(from(3)).unwrap();
        assert_eq!(quota.clients.lock().unwrap().len(), 3);
    }
}
