//! Appoints samplers: one agent per host for daemons and disks, one per network namespace for interfaces.
//!
//! Pure. A place's own agent is appointed whenever it is attached. While it is away, the last appointed agent stays
//! appointed. If there is none, the agent with the lowest id is taken after the own and the last agent have been away
//! for long enough.

use benchmesh_model::mesh::AgentId;
use std::collections::BTreeMap;

/// The reason for appointing an attached agent to a place; the smallest value wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The place belongs to the agent.
    Own,
    /// It was appointed last.
    Last,
    /// No other agent is expected.
    Free,
    /// The former sampler may soon be back.
    Waits,
}

/// An attached agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub agent: AgentId,
    pub host: (String, Claim),
    pub net: (String, Claim),
}

/// The samples of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appointed {
    pub agent: AgentId,
    pub host_wide: bool,
    pub interfaces: bool,
}

/// The appointments of the candidates: one for each host, and one for each namespace.
pub fn appoint(candidates: &[Candidate]) -> Vec<Appointed> {
    let hosts = chosen(candidates, |candidate| &candidate.host);
    let nets = chosen(candidates, |candidate| &candidate.net);
    candidates
        .iter()
        .map(|candidate| Appointed {
            agent: candidate.agent,
            host_wide: hosts.get(candidate.host.0.as_str()) == Some(&candidate.agent),
            interfaces: nets.get(candidate.net.0.as_str()) == Some(&candidate.agent),
        })
        .collect()
}

fn chosen(
    candidates: &[Candidate],
    place: impl Fn(&Candidate) -> &(String, Claim),
) -> BTreeMap<&str, AgentId> {
    let mut chosen: BTreeMap<&str, (Claim, AgentId)> = BTreeMap::new();
    for candidate in candidates {
        let (place, claim) = place(candidate);
        if *claim == Claim::Waits {
            continue;
        }
        let claim = (*claim, candidate.agent);
        chosen
            .entry(place.as_str())
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

    fn candidate(agent: i64, host: (&str, Claim), net: &str) -> Candidate {
        Candidate {
            agent: AgentId(agent),
            host: (host.0.to_owned(), host.1),
            net: (net.to_owned(), Claim::Free),
        }
    }

    fn samples(candidates: &[Candidate]) -> Vec<(i64, bool, bool)> {
        let appointed = appoint(candidates);
        let of = |it: &Appointed| (it.agent.0, it.host_wide, it.interfaces);
        appointed.iter().map(of).collect()
    }

    #[test]
    fn one_per_host_and_one_per_namespace() {
        let got = samples(&[
            candidate(3, ("h", Claim::Free), "n1"),
            candidate(1, ("h", Claim::Free), "n1"),
            candidate(2, ("h", Claim::Free), "n2"),
            candidate(4, ("g", Claim::Free), "n3"),
        ]);
        let expected = [
            (3, false, false),
            (1, true, true),
            (2, false, true),
            (4, true, true),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn the_own_agent_comes_before_the_last_and_the_last_before_others() {
        for (claims, expected) in [
            ([Claim::Free, Claim::Last, Claim::Own], Some(3)),
            ([Claim::Free, Claim::Last, Claim::Free], Some(2)),
            ([Claim::Waits, Claim::Free, Claim::Free], Some(2)),
            ([Claim::Waits, Claim::Waits, Claim::Waits], None),
        ] {
            let candidates: Vec<Candidate> = claims
                .into_iter()
                .zip(1..)
                .map(|(claim, agent)| candidate(agent, ("h", claim), "n"))
                .collect();
            let got = samples(&candidates);
            let sampler = got.iter().find(|(_, host_wide, _)| *host_wide);
            assert_eq!(sampler.map(|(agent, ..)| *agent), expected, "{claims:?}");
        }
    }
}
