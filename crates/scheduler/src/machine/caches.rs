//! `cache = "cold"`: every kernel that serves the step drops its caches, and each cache that could not be dropped is
//! recorded. `cache = "other-client"`: only the clients that are allowed to drop their caches do, because they still
//! hold data that an earlier repeat read.
//!
//! Each kernel is asked once, not each agent: agents in several namespaces of one kernel share its page cache. If one
//! agent may not drop caches, another on the same kernel is asked. Caches inside processes (daemons, FUSE clients)
//! cannot be dropped from outside, so they are recorded as not dropped, host by host.

use super::{
    effect::{Lookup, Within},
    members::Presence,
    next::Next,
    run::Run,
    stage::{Dropping, Kernel, Stage},
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CacheDrop, CallError, Command};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros};
use benchmesh_plan::Cache;
use benchmesh_store::rows::{NewCacheDrop, Row};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// On a healthy host, dropping caches takes less than this.
const DROP_TIMEOUT: Duration = Duration::from_secs(120);

impl Run {
    /// Drops caches on the clients and, for a cold step, on every host labelled as storage.
    pub(super) fn drop_caches(&mut self) -> Option<Next> {
        match self.active_plan().map(|step| step.cache) {
            Some(Cache::Cold) => {}
            Some(Cache::OtherClient) if !self.kernels().is_empty() => {}
            _ => return Some(Next::Arm),
        }
        let kernels: Vec<Kernel> = self
            .kernels()
            .into_values()
            .map(|agents| Kernel {
                agents: agents.iter().map(|member| member.id).collect(),
                ..Kernel::default()
            })
            .collect();
        let count = kernels.len();
        self.stage = Stage::DroppingCaches(Dropping {
            kernels,
            daemons: None,
        });
        for kernel in 0..count {
            self.ask_next_of(kernel);
        }
        None
    }

    pub(super) fn clients(&self) -> BTreeSet<AgentId> {
        self.live().into_iter().map(|task| task.agent).collect()
    }

    fn is_cold(&self) -> bool {
        self.active_plan()
            .is_some_and(|step| step.cache == Cache::Cold)
    }

    /// The kernels that drop their caches, by boot id, each with its agents to ask. For a cold step: the kernels of the
    /// clients and of the storage, with every agent. Otherwise: those of the clients that are allowed to drop caches.
    fn kernels(&self) -> BTreeMap<String, Vec<Presence>> {
        let clients = self.clients();
        let is_cold = self.is_cold();
        let is_asked = |member: &&Presence| {
            let policy = || self.agents.facts_of(member.id)?.policy.as_ref();
            is_cold || policy().is_some_and(|policy| policy.drop_caches)
        };
        let takes_part = |member: &&Presence| {
            clients.contains(&member.id) || (is_cold && member.attached && member.is_storage)
        };
        let mut kernels: BTreeMap<String, Vec<Presence>> = self
            .members
            .all()
            .filter(is_asked)
            .filter(takes_part)
            .map(|member| (member.boot_id.clone(), Vec::new()))
            .collect();
        let (first, rest): (Vec<_>, Vec<_>) = self
            .members
            .all()
            .filter(is_asked)
            .filter(|member| member.attached || clients.contains(&member.id))
            .partition(takes_part);
        for member in first.into_iter().chain(rest) {
            if let Some(kernel) = kernels.get_mut(&member.boot_id) {
                kernel.push(member.clone());
            }
        }
        kernels
    }

    /// Asks the agents of one kernel in turn until one has dropped everything.
    fn ask_next_of(&mut self, kernel: usize) {
        let Some(step) = self.step.as_ref().map(|step| step.id) else {
            return;
        };
        let Stage::DroppingCaches(dropping) = &mut self.stage else {
            return;
        };
        let Some(one) = dropping.kernels.get_mut(kernel) else {
            return;
        };
        let Some(agent) = one.agents.get(one.asked).copied() else {
            return;
        };
        one.asked += 1;
        let waiting = Waiting::Dropped { kernel, agent };
        let command = Command::DropCaches { step };
        self.ask(waiting, agent, command, Within::For(DROP_TIMEOUT));
    }

    pub(super) fn on_dropped(
        &mut self,
        kernel: usize,
        agent: AgentId,
        answer: Result<AgentAnswer, CallError>,
    ) {
        let drops = match answer {
            Ok(AgentAnswer::Dropped(drops)) if !drops.is_empty() => drops,
            Ok(_) => vec![not_dropped(String::from("not confirmed"))],
            Err(error) => vec![not_dropped(error.to_string())],
        };
        let all = drops.iter().all(|one| one.dropped);
        let at = self.now;
        let drops = drops.into_iter().map(|one| NewCacheDrop {
            agent,
            at,
            what: one.what,
            dropped: one.dropped,
            error: (!one.error.is_empty()).then_some(one.error),
        });
        if let Stage::DroppingCaches(dropping) = &mut self.stage
            && let Some(one) = dropping.kernels.get_mut(kernel)
        {
            if all || one.drops.is_none() {
                one.drops = Some(drops.collect());
            }
            if !all {
                self.ask_next_of(kernel);
            }
        }
    }

    pub(super) fn on_daemons(&mut self, daemons: Vec<(HostId, Vec<String>)>) {
        if let Stage::DroppingCaches(dropping) = &mut self.stage {
            dropping.daemons = Some(daemons);
        }
    }

    /// Every kernel has answered: adds the caches inside processes and stores all drops.
    pub(super) fn caches_dropped(&mut self, dropping: Dropping) -> Option<Next> {
        let kernels = self.kernels();
        let Some(daemons) = dropping.daemons else {
            let samplers = kernels.values().flatten();
            let samplers = samplers.filter(|member| member.attached && member.samples_host);
            let hosts = samplers.map(|member| member.host).collect();
            self.lookup(Waiting::Daemons, Lookup::Daemons(hosts));
            return None;
        };
        let mut drops: Vec<NewCacheDrop> = dropping
            .kernels
            .into_iter()
            .flat_map(|kernel| kernel.drops.unwrap_or_default())
            .collect();
        drops.extend(self.storage_away().into_iter().map(|agent| {
            failed_drop(
                self.now,
                agent,
                "page-cache",
                String::from("the agent is labelled as storage and is not attached"),
            )
        }));
        let warm: Vec<String> = drops
            .iter()
            .filter(|one| !one.dropped)
            .map(|one| {
                let why = one.error.as_deref().unwrap_or("not confirmed");
                format!("{} on `{}`: {why}", one.what, self.name_of(one.agent))
            })
            .collect();
        if !warm.is_empty() {
            let message = format!(
                "not all caches of the step were dropped: {}",
                warm.join("; ")
            );
            self.record_event(None, EventKind::CacheNotDropped, message);
        }
        drops.extend(self.process_caches(&kernels, &daemons));
        if let Some(step) = self.step.as_ref().map(|step| step.id) {
            self.out.rows.push(Row::CacheDrops { step, drops });
        }
        Some(Next::Arm)
    }

    /// Agents of the run that are labelled as storage but are detached, so their caches stay warm.
    fn storage_away(&self) -> Vec<AgentId> {
        if !self.is_cold() {
            return Vec::new();
        }
        let is_storage = |labels: &BTreeMap<String, String>| {
            labels.get("role").is_some_and(|role| role == "storage")
        };
        self.agents
            .members()
            .filter(|(_, facts)| is_storage(&facts.labels))
            .map(|(agent, _)| agent)
            .filter(|agent| !self.members.is_attached(*agent))
            .collect()
    }

    /// Caches that only their own process could drop: those of FUSE clients and of the watched daemons.
    fn process_caches(
        &self,
        kernels: &BTreeMap<String, Vec<Presence>>,
        daemons: &[(HostId, Vec<String>)],
    ) -> Vec<NewCacheDrop> {
        let path = self.active_plan().map_or("", |step| &step.path);
        let clients = self.clients();
        let mut failed_drops = Vec::new();
        let mut seen = BTreeSet::new();
        for member in kernels.values().flatten() {
            let file_system = self.agents.file_system(member.id, path);
            if clients.contains(&member.id)
                && file_system.starts_with("fuse")
                && seen.insert(&member.boot_id)
            {
                let error = format!(
                    "the {file_system} client may cache data in its own process, and benchmesh cannot drop that cache"
                );
                failed_drops.push(failed_drop(self.now, member.id, "fuse-client", error));
            }
        }
        let samplers = kernels.values().flatten();
        for member in samplers.filter(|member| member.attached && member.samples_host) {
            let here = daemons.iter().find(|(host, _)| *host == member.host);
            let Some((_, names)) = here.filter(|(_, names)| !names.is_empty()) else {
                continue;
            };
            let error = format!(
                "{} may cache data in their own processes, and benchmesh cannot drop those caches",
                names.join(", ")
            );
            failed_drops.push(failed_drop(self.now, member.id, "daemon-caches", error));
        }
        failed_drops
    }

    fn name_of(&self, agent: AgentId) -> String {
        let there = self.members.get(agent);
        there.map_or_else(
            || self.agents.name(agent).to_owned(),
            |member| member.name.clone(),
        )
    }
}

fn failed_drop(at: MeshMicros, agent: AgentId, what: &str, error: String) -> NewCacheDrop {
    NewCacheDrop {
        agent,
        at,
        what: what.to_owned(),
        dropped: false,
        error: Some(error),
    }
}

fn not_dropped(error: String) -> CacheDrop {
    CacheDrop {
        what: String::from("page-cache"),
        dropped: false,
        error,
    }
}
