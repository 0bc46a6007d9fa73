//! The kinds of events that only the collector records, and texts that it looks for in agents' messages.

/// Suffix of the error of a task that its agent stopped after losing contact.
pub const LEASE_IS_OVER: &str = "(the lease)";

/// In order. An agent that sends one of these kinds makes a false claim about runs, certificates or other agents.
pub const OF_COLLECTOR: &[&str] = &[
    "agent-back",
    "agent-changed",
    "agent-flood",
    "agent-lost",
    "agent-renamed",
    "agent-tidied",
    "alarm",
    "alarm-command",
    "alarm-over",
    "cache-not-dropped",
    "cell-begun-anew",
    "cell-left",
    "certificate-issued",
    "certificate-renewed",
    "certificate-revoked",
    "client-returned",
    "data-removed",
    "database-blocked",
    "database-low",
    "database-room",
    "directory-left",
    "directory-removed",
    "errors-limit",
    "host-of-another",
    "insecure",
    "last-loop-requested",
    "link-broken",
    "load-stopped",
    "mode-left-out",
    "not-steady",
    "objective-broken",
    "prepare-failed",
    "prune-requested",
    "rate-shared-again",
    "resume-requested",
    "rows-left-out",
    "rows-missing",
    "rows-too-late",
    "run-done",
    "run-failed",
    "run-resumed",
    "run-stopped",
    "sampler-changed",
    "search-found",
    "search-not-found",
    "settle-blind",
    "settle-limit",
    "size-limit",
    "size-limit-exceeded",
    "spool-blocked",
    "start-requested",
    "steady",
    "step-failed",
    "step-late",
    "step-partial",
    "step-resumed",
    "stop-requested",
    "target-changed",
    "target-lost",
    "target-not-mounted",
    "task-stopped",
    "tasks-of-others",
    "token-cancelled",
    "token-exhausted",
    "token-made",
    "token-used",
    "uid-of-another",
];

/// Events that a host's sampler records about its daemons.
pub const OF_HOSTS: [&str; 5] = [
    "daemon-continued",
    "daemon-ended",
    "daemon-restarted",
    "daemon-started",
    "daemon-stopped",
];

/// Events that the sampler of a network namespace records about its interfaces.
pub const OF_INTERFACES: [&str; 3] = ["carrier-back", "carrier-lost", "link-errors"];

/// Whether an agent may send events of this kind, including unknown kinds of later versions.
#[must_use]
pub fn may_be_agents(kind: &str) -> bool {
    OF_COLLECTOR.binary_search(&kind).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_the_collector_are_found() {
        assert!(OF_COLLECTOR.is_sorted());
        assert!(OF_COLLECTOR.iter().all(|kind| !may_be_agents(kind)));
        assert!(may_be_agents("daemon-started"));
    }
}
