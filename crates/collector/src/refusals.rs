//! Rate limit of logged refusals: one line a minute for each client and reason.
//!
//! Clients choose their reasons and, in part, their addresses, so both are bounded: the number of reasons per minute is
//! limited for each client, and for all clients together.

use benchmesh_scheduler::cut::printable;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// Interval between two log lines about the same refusal of the same client.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of reasons of one client in that time: more than an honest client has, and many may share an address.
const MAX_REASONS: usize = 32;
/// Maximum number of reasons of all clients in that time.
const MAX_LINES: usize = 512;
/// Maximum length of a reason, which may contain the refused input.
const MAX_REASON_CHARS: usize = 1024;
/// Maximum length of a client's name.
const MAX_CLIENT_CHARS: usize = 256;

/// What to do with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogAction {
    Line,
    /// Log this line, then no more of this client within the minute.
    LastOfClient,
    /// Log this line, then no more of any client within the minute.
    LastOfAll,
    Drop,
}

impl LogAction {
    /// The text to append; `None` if the line is dropped.
    fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Line => Some(""),
            Self::LastOfClient => {
                Some("; further refusals of this client are not logged for a minute")
            }
            Self::LastOfAll => Some("; further refusals are not logged for a minute"),
            Self::Drop => None,
        }
    }
}

/// Clients, each with its reasons and the time of their last line.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<String, HashMap<String, Instant>>>);

impl Refusals {
    /// Logs a refusal of the client at this address.
    pub fn log(&self, address: Option<IpAddr>, problem: &str) {
        let address = address.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
        let problem = printable(MAX_REASON_CHARS, problem);
        if let Some(suffix) = self.action(&address, &problem).suffix() {
            info!(%address, problem = format!("{problem}{suffix}"), "a client is refused");
        }
    }

    /// Logs a refusal of a named client.
    pub fn log_of(&self, client: &str, problem: &str) {
        let client = printable(MAX_CLIENT_CHARS, client);
        let problem = printable(MAX_REASON_CHARS, problem);
        if let Some(suffix) = self.action(&client, &problem).suffix() {
            info!(%client, problem = format!("{problem}{suffix}"), "a client is refused");
        }
    }

    /// Logs a fault of an attached agent, and the result that may be incomplete because of it.
    pub fn log_fault_of(&self, agent: &str, what: &'static str, problem: &str) {
        let agent = printable(MAX_CLIENT_CHARS, agent);
        if let Some(suffix) = self.action(&agent, what).suffix() {
            let problem = printable(MAX_REASON_CHARS, problem);
            warn!(%agent, %problem, "{what}{suffix}");
        }
    }

    /// Number of lines logged within the interval.
    #[cfg(test)]
    pub fn lines(&self) -> usize {
        let clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clients.values().map(HashMap::len).sum()
    }

    fn action(&self, client: &str, reason: &str) -> LogAction {
        self.action_at(client, reason, Instant::now())
    }

    fn action_at(&self, client: &str, reason: &str, now: Instant) -> LogAction {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.duration_since(*at) < INTERVAL;
        let known = clients.get(client).and_then(|reasons| reasons.get(reason));
        if known.is_some_and(is_recent) {
            return LogAction::Drop;
        }
        clients.retain(|_, reasons| {
            reasons.retain(|_, at| is_recent(at));
            !reasons.is_empty()
        });
        let lines: usize = clients.values().map(HashMap::len).sum();
        let own = clients.get(client).map_or(0, HashMap::len);
        if lines >= MAX_LINES || own >= MAX_REASONS {
            return LogAction::Drop;
        }
        let reasons = clients.entry(client.to_owned()).or_default();
        reasons.insert(reason.to_owned(), now);
        if lines + 1 == MAX_LINES {
            LogAction::LastOfAll
        } else if own + 1 == MAX_REASONS {
            LogAction::LastOfClient
        } else {
            LogAction::Line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_logged_once_a_minute_for_each_client() {
        let refusals = Refusals::default();
        let now = Instant::now();
        let action = |client, reason, now| refusals.action_at(client, reason, now);
        assert_eq!(action("a", "x", now), LogAction::Line);
        assert_eq!(action("a", "x", now + INTERVAL / 2), LogAction::Drop);
        assert_eq!(action("a", "y", now), LogAction::Line);
        assert_eq!(action("b", "x", now), LogAction::Line);
        assert_eq!(action("a", "x", now + INTERVAL), LogAction::Line);
    }

    #[test]
    fn new_reasons_and_new_clients_do_not_get_the_log() {
        let refusals = Refusals::default();
        let now = Instant::now();
        let lines = |client: &dyn Fn(usize) -> String, now| {
            let actions = (0..10_000).map(|n| refusals.action_at(&client(n), &n.to_string(), now));
            actions.filter(|action| *action != LogAction::Drop).count()
        };
        assert_eq!(lines(&|_| "one".to_owned(), now), MAX_REASONS);
        assert_eq!(lines(&|n| n.to_string(), now), MAX_LINES - MAX_REASONS);
        assert_eq!(refusals.action_at("honest", "z", now), LogAction::Drop);
        let later = now + INTERVAL;
        assert_eq!(refusals.action_at("honest", "z", later), LogAction::Line);
    }
}
