//! RBD images: checks what a plan may request of `io` on a pool, and whether the clients have the library for it.

use super::{AgentFacts, Group, Target, source::Mistakes};
use benchmesh_model::targets::{IMAGE_LIBRARY, POOL, POOL_NAME};

/// The workload that creates images in a pool.
const WORKLOAD: &str = "io";

fn is_on_images(group: &Group, target: &Target) -> bool {
    group.workload.0.name() == WORKLOAD && target.locator.key == &POOL_NAME
}

/// Refuses keys and modes that do not apply to images.
pub(super) fn check_text<'t>(
    group: &Group,
    targets: impl Iterator<Item = &'t Target>,
    mistakes: &mut Mistakes<'_>,
) {
    for target in targets.filter(|target| is_on_images(group, target)) {
        for (cell, mode) in group
            .cells
            .iter()
            .flat_map(|cell| group.modes.iter().map(move |mode| (cell, mode)))
        {
            let Err(error) = group.workload.0.check_target(mode, &cell.params, &POOL) else {
                continue;
            };
            let position = error.key.as_ref().and_then(|key| cell.positions.get(key));
            mistakes.at(
                position.unwrap_or(&group.at),
                error.message,
                format!(
                    "target `{}` is a pool; name others in the phase's `targets`",
                    target.name
                ),
            );
        }
    }
}

/// Refuses clients without librbd.
pub(super) fn check_library(
    group: &Group,
    target: &Target,
    selected: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) {
    if !is_on_images(group, target) {
        return;
    }
    for agent in selected {
        let facts = agent.surveyed.get(&target.locator.to_string());
        let Some(facts) = facts.filter(|facts| facts.allowed && facts.problem.is_empty()) else {
            continue;
        };
        let mut options = facts.mount_options.split(',');
        if !options.any(|option| option.split('=').next() == Some(IMAGE_LIBRARY)) {
            mistakes.at(
                &target.at,
                format!(
                    "agent `{}` has no librbd.so.1, which `{WORKLOAD}` needs for RBD images",
                    agent.name
                ),
                "install Ceph's client library there (package librbd1) and start the agent again, or leave it out with \
                 [clients] select",
            );
        }
    }
}
