//! Cold means cold: every kernel that serves the step drops its caches, and what could not be dropped is kept as a fact.
//!
//! Asked once per kernel, not per agent: agents in several namespaces of one kernel share its page cache. Where one agent
//! may not drop, another on the same kernel is asked. Caches inside processes (daemons, FUSE clients) cannot be dropped
//! from outside, so they are recorded as not dropped, host by host.

use super::{
    drive::{Drive, Fact},
    ends::Crew,
};
use crate::{
    model::{AgentId, Severity},
    plan::PlannedStep,
    sessions::{
        Call, MemberFacts,
        command::{Answer, CacheDrop, Command},
    },
    store::{
        StoreError,
        rows::{NewCacheDrop, StepRow},
    },
};
use futures::future::join_all;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Dropping caches takes no longer on a host that works.
const DROP_WITHIN: Duration = Duration::from_secs(120);

/// One kernel and its agents, those that carry load first.
#[derive(Debug, Default)]
struct Kernel {
    agents: Vec<MemberFacts>,
}

impl Drive {
    /// Drops caches on the clients and on every host that is labelled as storage, and waits for each; stores what
    /// became of it.
    pub(super) async fn drop_caches(
        &self,
        step: &PlannedStep,
        row: &StepRow,
        crew: &Crew,
    ) -> Result<(), StoreError> {
        let clients: BTreeSet<AgentId> = crew.live().map(|held| held.agent).collect();
        let kernels = self.kernels(&clients);
        let asked = kernels.values().map(|kernel| self.drop_on(row, kernel));
        let mut drops: Vec<NewCacheDrop> = join_all(asked).await.into_iter().flatten().collect();
        let unreached = self.storage_away();
        drops.extend(unreached.into_iter().map(|agent| {
            self.kept(
                agent,
                "page-cache",
                String::from("the agent is labelled as storage and is not attached"),
            )
        }));
        let kept: Vec<String> = drops
            .iter()
            .filter(|one| !one.dropped)
            .map(|one| {
                let why = one.error.as_deref().unwrap_or("not confirmed");
                format!("{} on `{}`: {why}", one.what, self.name_of(one.agent))
            })
            .collect();
        if !kept.is_empty() {
            self.event(Fact {
                step: Some(row.id),
                agent: None,
                severity: Severity::Warning,
                kind: "cache-not-dropped",
                message: format!("the step is not quite cold: {}", kept.join("; ")),
            })
            .await?;
        }
        drops.extend(self.in_processes(step, &clients, &kernels).await?);
        self.store.add_cache_drops(row.id, drops).await
    }

    /// The kernels of the clients and of the storage, by boot id, each with every agent on it.
    fn kernels(&self, clients: &BTreeSet<AgentId>) -> BTreeMap<String, Kernel> {
        let members = self.fleet.members();
        let takes_part = |member: &MemberFacts| {
            clients.contains(&member.id) || (member.attached && member.is_storage())
        };
        let mut kernels: BTreeMap<String, Kernel> = members
            .iter()
            .filter(|member| takes_part(member))
            .map(|member| (member.hello.boot_id.clone(), Kernel::default()))
            .collect();
        let (first, rest): (Vec<_>, Vec<_>) = members
            .into_iter()
            .filter(|member| member.attached || clients.contains(&member.id))
            .partition(takes_part);
        for member in first.into_iter().chain(rest) {
            if let Some(kernel) = kernels.get_mut(&member.hello.boot_id) {
                kernel.agents.push(member);
            }
        }
        kernels
    }

    /// Asks the agents of one kernel in turn until one has dropped everything; else what the first one said.
    async fn drop_on(&self, row: &StepRow, kernel: &Kernel) -> Vec<NewCacheDrop> {
        let mut said = None;
        for member in &kernel.agents {
            let command = Command::DropCaches { step: row.id };
            let call = Call::to(member.id, command, self.loss_after()).within(DROP_WITHIN);
            let drops = match self.fleet.call(call).await {
                Ok(Answer::Dropped(drops)) if !drops.is_empty() => drops,
                Ok(_) => vec![not_dropped(String::from("not confirmed"))],
                Err(error) => vec![not_dropped(error.to_string())],
            };
            let all = drops.iter().all(|one| one.dropped);
            let at = self.clock.now();
            let drops = drops.into_iter().map(|one| NewCacheDrop {
                agent: member.id,
                at,
                what: one.what,
                dropped: one.dropped,
                error: (!one.error.is_empty()).then_some(one.error),
            });
            if all {
                return drops.collect();
            }
            said.get_or_insert_with(|| drops.collect());
        }
        said.unwrap_or_default()
    }

    /// Agents of the run that are labelled as storage and are not there.
    fn storage_away(&self) -> Vec<AgentId> {
        self.team
            .members()
            .filter(|(_, facts)| {
                facts
                    .labels
                    .get("role")
                    .is_some_and(|role| role == "storage")
            })
            .map(|(agent, _)| agent)
            .filter(|agent| {
                self.fleet
                    .member(*agent)
                    .is_none_or(|member| !member.attached)
            })
            .collect()
    }

    /// Caches that only their own process could drop: of FUSE clients, and of the daemons that are watched.
    async fn in_processes(
        &self,
        step: &PlannedStep,
        clients: &BTreeSet<AgentId>,
        kernels: &BTreeMap<String, Kernel>,
    ) -> Result<Vec<NewCacheDrop>, StoreError> {
        let mut kept = Vec::new();
        let mut seen = BTreeSet::new();
        for member in kernels.values().flat_map(|kernel| &kernel.agents) {
            let file_system = self.team.file_system(member.id, &step.path);
            if clients.contains(&member.id)
                && file_system.starts_with("fuse")
                && seen.insert(member.hello.boot_id.clone())
            {
                kept.push(self.kept(
                    member.id,
                    "fuse-client",
                    format!("the {file_system} client may cache in its own process, which cannot be told to drop it"),
                ));
            }
        }
        let samplers = kernels
            .values()
            .flat_map(|kernel| &kernel.agents)
            .filter(|member| member.attached && member.sampling.host_wide);
        for member in samplers {
            let daemons = self.store.daemons_alive(member.host).await?;
            if !daemons.is_empty() {
                kept.push(self.kept(
                    member.id,
                    "daemon-caches",
                    format!(
                        "{} may cache in their own processes, which cannot be told to drop it",
                        daemons.join(", ")
                    ),
                ));
            }
        }
        Ok(kept)
    }

    fn kept(&self, agent: AgentId, what: &str, error: String) -> NewCacheDrop {
        NewCacheDrop {
            agent,
            at: self.clock.now(),
            what: what.to_owned(),
            dropped: false,
            error: Some(error),
        }
    }

    fn name_of(&self, agent: AgentId) -> String {
        self.fleet.member(agent).map_or_else(
            || self.team.name(agent).to_owned(),
            |member| member.hello.name,
        )
    }
}

fn not_dropped(error: String) -> CacheDrop {
    CacheDrop {
        what: String::from("page-cache"),
        dropped: false,
        error,
    }
}
