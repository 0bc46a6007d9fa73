//! Checks whether the agents' own policies allow what the steps of a plan request.
//!
//! Pure. The agents enforce their policies themselves; this check reports violations before anything runs. It does not
//! know what other runs have claimed meanwhile.

use super::{AgentFacts, AgentPolicy, Expansion, PlannedStep, source::Mistakes};
use benchmesh_workloads::figures::bytes;
use std::collections::BTreeMap;

/// The combined demand of one agent's tasks in a step.
#[derive(Clone, Copy, Debug, Default)]
struct AgentDemand {
    threads: u64,
    memory_bytes: u64,
}

pub(super) fn check(expansion: &Expansion, agents: &[AgentFacts], mistakes: &mut Mistakes<'_>) {
    let by_name: BTreeMap<&str, &AgentFacts> = agents
        .iter()
        .map(|agent| (agent.name.as_str(), agent))
        .collect();
    // All repeats are equal.
    for step in expansion.steps.iter().filter(|step| step.repeat == 1) {
        for (name, sum) in sums(step) {
            let Some(agent) = by_name.get(name) else {
                continue;
            };
            if let Some(policy) = &agent.policy {
                refuse_too_much(step, name, policy, sum, mistakes);
            }
        }
    }
}

/// By agent. The receiving end of a link counts as much as its sender.
fn sums(step: &PlannedStep) -> BTreeMap<&str, AgentDemand> {
    let mut sums: BTreeMap<&str, AgentDemand> = BTreeMap::new();
    for task in step.tasks.iter() {
        let Some(load) = step.load(task) else {
            continue;
        };
        for agent in [Some(&task.agent), task.peer.as_ref()]
            .into_iter()
            .flatten()
        {
            let sum = sums.entry(agent).or_default();
            sum.threads += u64::from(load.footprint.workers);
            sum.memory_bytes = sum.memory_bytes.saturating_add(load.footprint.memory_bytes);
        }
    }
    sums
}

fn refuse_too_much(
    step: &PlannedStep,
    agent: &str,
    policy: &AgentPolicy,
    sum: AgentDemand,
    mistakes: &mut Mistakes<'_>,
) {
    let mut refuse = |key: &str, value: String, asked: String| {
        mistakes.at(
            &step.at,
            format!(
                "`{}` asks for more than the policy of agent `{agent}` allows: its `{key}` is {value}, and {asked}",
                step.mode
            ),
            format!("ask for less, or start the agent with a larger --{key}"),
        );
    };
    if sum.threads > u64::from(policy.threads) {
        refuse(
            "threads",
            policy.threads.to_string(),
            format!("its tasks take {}", sum.threads),
        );
    }
    if sum.memory_bytes > policy.memory_bytes {
        refuse(
            "memory",
            bytes(policy.memory_bytes),
            format!("its tasks take {}", bytes(sum.memory_bytes)),
        );
    }
}
