//! The environment of a run, read when the run begins: every agent's host, and the agent's facts about each target.
//!
//! A queued run may wait for hours, so the facts from admission are used only for an agent that cannot be asked now.

use super::{Inner, agents::RunAgents, survey};
use crate::sessions::{
    MemberFacts,
    command::{Inventory, Survey},
};
use benchmesh_model::mesh::RunId;
use benchmesh_plan::{self as plan, AgentPolicy, PathFacts, Plan};
use benchmesh_store::{
    StoreError,
    rows::{NewRunAgent, NewRunTarget},
};
use futures::future::join_all;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Surveys the run's agents and all attached agents. A detached agent of the run has `loss_after` to attach again;
/// after that its row holds its last report.
pub(super) async fn read(
    inner: &Inner,
    run: RunId,
    loss_after: Duration,
) -> Result<Vec<NewRunAgent>, StoreError> {
    let row = inner.store.run(run).await?;
    let Ok(plan) = plan::parse(&row.plan_text, &row.name) else {
        return Ok(Vec::new());
    };
    let agents = RunAgents::from_json(&row.agents_json).unwrap_or_default();
    let members = inner.fleet.members().into_iter();
    let wanted = members.filter(|member| member.attached || agents.facts_of(member.id).is_some());
    let (plan, agents) = (&plan, &agents);
    let rows = wanted.map(async |member| {
        let paths = plan.target_paths();
        let survey = survey::ask(&inner.fleet, member.id, paths, Vec::new(), loss_after).await;
        // It may have attached with another hello since.
        let member = inner.fleet.member(member.id).unwrap_or(member);
        let Survey {
            paths, inventory, ..
        } = survey.unwrap_or_default();
        let mut found: BTreeMap<String, PathFacts> = paths.into_iter().collect();
        if let (true, Some(facts)) = (found.is_empty(), agents.facts_of(member.id)) {
            found.extend(facts.surveyed.clone());
        }
        of_agent(plan, &member, &found, &inventory)
    });
    Ok(join_all(rows).await)
}

pub(super) fn of_agent(
    plan: &Plan,
    member: &MemberFacts,
    found: &BTreeMap<String, PathFacts>,
    inventory: &Inventory,
) -> NewRunAgent {
    let hello = &member.hello;
    let some = |value: String, empty: bool| (!empty).then_some(value);
    let targets = plan.targets.iter().filter_map(|target| {
        let facts = found.get(&target.locator.to_string())?;
        let known = facts.allowed && (!facts.file_system.is_empty() || facts.problem.is_empty());
        known.then(|| of_target(target, facts, &inventory.packages))
    });
    NewRunAgent {
        agent: member.id,
        distribution: inventory.distribution.clone(),
        cpu_model: inventory.cpu_model.clone(),
        interfaces_json: some(json(&inventory.interfaces), inventory.interfaces.is_empty()),
        disks_json: some(json(&inventory.disks), inventory.disks.is_empty()),
        packages_json: some(json(&inventory.packages), inventory.packages.is_empty()),
        policy_json: hello.policy.as_ref().map(|policy| {
            json(&StoredPolicy {
                allowed_paths: &hello.allowed,
                readable_paths: &hello.readable,
                policy,
            })
        }),
        targets: targets.collect(),
    }
}

/// An agent's policy in the form of `run_agents.policy`.
#[derive(serde::Serialize)]
struct StoredPolicy<'a> {
    allowed_paths: &'a [PathBuf],
    readable_paths: &'a [PathBuf],
    #[serde(flatten)]
    policy: &'a AgentPolicy,
}

fn of_target(
    target: &benchmesh_plan::Target,
    facts: &PathFacts,
    packages: &BTreeMap<String, String>,
) -> NewRunTarget {
    let place = facts.place(&target.system);
    let own: BTreeMap<&String, &String> = packages
        .iter()
        .filter(|(package, _)| place.has_package(package))
        .collect();
    NewRunTarget {
        target: target.name.clone(),
        system: target.system.clone(),
        path: target.locator.to_string(),
        mount_source: facts.mount_source.clone(),
        mount_type: facts.file_system.clone(),
        mount_options: facts.mount_options.clone(),
        beneath_json: (!facts.beneath.is_empty()).then(|| json(&facts.beneath)),
        size_bytes: i64::try_from(facts.size_bytes)
            .ok()
            .filter(|size| *size > 0),
        free_bytes: i64::try_from(facts.free_bytes).ok(),
        packages_json: (!own.is_empty()).then(|| json(&own)),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| String::from("null"))
}
