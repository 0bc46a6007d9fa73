//! Checks whether the agents' own policies allow what the steps of a plan request.
//!
//! Pure. The agents enforce their policies themselves; this check reports violations before anything runs. It does not
//! know what other runs have claimed meanwhile.

use super::{AgentFacts, AgentPolicy, Expansion, PlannedStep, source::Mistakes};
use benchmesh_model::limits::{Limit, PerLimit, Setting};
use std::collections::BTreeMap;

/// What the tasks of one agent take of each limit in a step.
type AgentDemand = PerLimit<u64>;

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
            for limit in Limit::ALL {
                sum[*limit] = sum[*limit].saturating_add(load.footprint.claim_of(*limit));
            }
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
    for limit in Limit::ALL {
        let (option, sum) = (limit.row().option, sum[*limit]);
        let Some(most) = policy.limits.amount(*limit).filter(|most| sum > *most) else {
            continue;
        };
        let about = |amount| limit.about(Setting::Amount(amount));
        mistakes.at(
            &step.at,
            format!(
                "`{}` asks for more than the policy of agent `{agent}` allows: its `{option}` is {}, and its tasks \
                 take {}",
                step.mode,
                about(most),
                about(sum)
            ),
            format!("ask for less, or start the agent with a larger --{option}"),
        );
    }
}
