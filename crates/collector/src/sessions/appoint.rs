//! Appoints samplers: one agent per host for daemons and disks, one per network namespace for interfaces.
//!
//! Pure. An appointed agent stays appointed while it is attached; otherwise the agent with the lowest id is taken.

use crate::model::AgentId;
use std::collections::BTreeMap;

/// An attached agent, and what it is appointed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub agent: AgentId,
    pub host: String,
    pub net: String,
    pub host_wide: bool,
    pub interfaces: bool,
}

/// The candidates with one appointment per host and one per namespace.
pub fn appoint(candidates: &[Candidate]) -> Vec<Candidate> {
    let hosts = chosen(candidates, |c| &c.host, |c| c.host_wide);
    let nets = chosen(candidates, |c| &c.net, |c| c.interfaces);
    candidates
        .iter()
        .map(|candidate| Candidate {
            host_wide: hosts.get(candidate.host.as_str()) == Some(&candidate.agent),
            interfaces: nets.get(candidate.net.as_str()) == Some(&candidate.agent),
            ..candidate.clone()
        })
        .collect()
}

fn chosen<'c>(
    candidates: &'c [Candidate],
    place: impl Fn(&'c Candidate) -> &'c String,
    holds: impl Fn(&Candidate) -> bool,
) -> BTreeMap<&'c str, AgentId> {
    let mut chosen: BTreeMap<&str, (bool, AgentId)> = BTreeMap::new();
    for candidate in candidates {
        // An incumbent sorts first, then the lowest id.
        let claim = (!holds(candidate), candidate.agent);
        chosen
            .entry(place(candidate).as_str())
            .and_modify(|best| *best = (*best).min(claim))
            .or_insert(claim);
    }
    chosen
        .into_iter()
        .map(|(place, (_, agent))| (place, agent))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(
        agent: i64,
        host: &str,
        net: &str,
        host_wide: bool,
        interfaces: bool,
    ) -> Candidate {
        Candidate {
            agent: AgentId(agent),
            host: host.to_owned(),
            net: net.to_owned(),
            host_wide,
            interfaces,
        }
    }

    #[test]
    fn one_per_host_and_one_per_namespace() {
        let got = appoint(&[
            candidate(3, "h", "n1", false, false),
            candidate(1, "h", "n1", false, false),
            candidate(2, "h", "n2", false, false),
            candidate(4, "g", "n3", false, false),
        ]);
        assert_eq!(
            got,
            [
                candidate(3, "h", "n1", false, false),
                candidate(1, "h", "n1", true, true),
                candidate(2, "h", "n2", false, true),
                candidate(4, "g", "n3", true, true),
            ]
        );
    }

    #[test]
    fn an_appointed_sampler_stays_appointed() {
        let got = appoint(&[
            candidate(1, "h", "n", false, false),
            candidate(2, "h", "n", true, true),
        ]);
        assert_eq!(
            got,
            [
                candidate(1, "h", "n", false, false),
                candidate(2, "h", "n", true, true)
            ]
        );
    }
}
