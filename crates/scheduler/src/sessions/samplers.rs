//! The sampler of each host and of the interfaces of each network namespace, with its periods.
//!
//! A place belongs to its first agent until that agent is forgotten: only this agent describes the place, and its rows
//! count from then on. Another agent stands in while the first one is gone; its rows count for that time. Agents are
//! identified by the names in their certificates, because a new uid costs nothing.

use benchmesh_model::mesh::{AgentId, MeshMicros};
use benchmesh_store::ingest::appointed::Appointed;
use std::collections::HashMap;

/// Maximum number of remembered appointments of one place, besides the first.
const MAX_PERIODS: usize = 256;

/// An object that samplers are appointed to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampledPlace {
    /// A host, by `Hello::host_key`.
    Host(String),
    /// The interfaces of a namespace, by `Hello::net_key`.
    Interfaces(String),
}

/// The time from one appointment to the next.
#[derive(Clone, Debug)]
pub struct Period {
    pub agent: AgentId,
    pub name: String,
    pub from: MeshMicros,
    pub until: Option<MeshMicros>,
}

impl Period {
    fn is_of(&self, agent: AgentId, name: &str) -> bool {
        self.agent == agent || self.name == name
    }
}

/// All appointments with their times.
#[derive(Debug, Default)]
pub struct Samplers {
    /// The periods of each place, in their order.
    places: HashMap<SampledPlace, Vec<Period>>,
    /// Since when an agent has had its own place.
    since: HashMap<AgentId, MeshMicros>,
}

impl Samplers {
    /// Adds a period that was stored.
    pub fn add(&mut self, place: SampledPlace, period: Period) {
        let periods = self.places.entry(place).or_default();
        match periods.last_mut() {
            Some(last) => {
                last.until.get_or_insert(period.from);
            }
            None => {
                let since = self.since.entry(period.agent).or_insert(period.from);
                *since = period.from.min(*since);
            }
        }
        periods.push(period);
        if periods.len() > MAX_PERIODS {
            periods.remove(1);
        }
    }

    /// The place's own agent.
    pub fn own(&self, place: &SampledPlace) -> Option<&Period> {
        self.places.get(place)?.first()
    }

    pub fn is_own(&self, place: &SampledPlace, agent: AgentId, name: &str) -> bool {
        self.own(place).is_some_and(|own| own.is_of(agent, name))
    }

    /// The last appointment.
    pub fn current(&self, place: &SampledPlace) -> Option<&Period> {
        self.places.get(place)?.last()
    }

    /// Appoints an agent, unless it already is; returns whether anything changed.
    pub fn appoint(
        &mut self,
        place: &SampledPlace,
        agent: AgentId,
        name: &str,
        at: MeshMicros,
    ) -> bool {
        if let Some(current) = self
            .places
            .get_mut(place)
            .and_then(|periods| periods.last_mut())
        {
            if current.agent == agent && current.until.is_none() {
                return false;
            }
            current.until.get_or_insert(at);
        }
        let period = Period {
            agent,
            name: name.to_owned(),
            from: at,
            until: None,
        };
        self.add(place.clone(), period);
        true
    }

    /// When an agent's rows about a place count.
    pub fn appointed(&self, place: &SampledPlace, agent: AgentId, name: &str) -> Appointed {
        let is_own = self.is_own(place, agent, name);
        let periods = self.places.get(place).map_or(&[][..], Vec::as_slice);
        let mut periods = periods.iter().filter(|period| period.is_of(agent, name));
        let always = MeshMicros(i64::MAX);
        let spans = match is_own {
            // The own agent may have continued without a connection while another agent stood in. Its spooled rows from
            // before a reboot, or from an earlier container, describe the place at that time.
            true => {
                let since = |from| self.since.get(&agent).copied().unwrap_or(from).min(from);
                Vec::from_iter(periods.next().map(|period| (since(period.from), always)))
            }
            false => periods
                .map(|period| (period.from, period.until.unwrap_or(always)))
                .collect(),
        };
        Appointed { is_own, spans }
    }

    /// Removes an agent's ownership of its places.
    pub fn forget(&mut self, agent: AgentId) {
        for periods in self.places.values_mut() {
            periods.retain(|period| period.agent != agent);
        }
        self.places.retain(|_, periods| !periods.is_empty());
        self.since.remove(&agent);
    }

    pub fn rename(&mut self, agent: AgentId, name: &str) {
        for period in self.places.values_mut().flatten() {
            if period.agent == agent {
                name.clone_into(&mut period.name);
            }
        }
    }
}
