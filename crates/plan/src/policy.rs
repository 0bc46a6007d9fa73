//! Checks whether a loss policy can be met: one that no step can meet would end the run at the first loss.
//!
//! Pure. The text alone shows it if every phase bounds its clients; otherwise it shows once the agents are known.

use super::{
    Group, OnLoss, Phase, Plan, PlannedStep,
    select::{Selected, Selector},
    source::Mistakes,
};

/// Checks the text, as far as it bounds the clients of every cell.
pub(super) fn check_text(plan: &Plan, mistakes: &mut Mistakes<'_>) {
    let cells = plan
        .phases
        .iter()
        .flat_map(|phase| (0..phase.cells()).map(move |cell| most(plan, phase, cell)));
    if let Some(bounds) = cells.collect::<Option<Vec<_>>>() {
        refuse(plan, bounds.into_iter().max(), mistakes);
    }
}

/// The maximum number of agents of a cell, over all of its groups; `None` if the text does not bound it.
fn most(plan: &Plan, phase: &Phase, cell: usize) -> Option<usize> {
    // Clients do not bound senders that are selected separately.
    if phase.groups.iter().any(|group| group.links.from.is_some()) {
        return None;
    }
    let of_group = |group: &Group| {
        let names = match group.select.as_ref().or(plan.clients.as_ref()) {
            Some(Selected {
                selector: Selector::Names(names),
                ..
            }) => Some(names.len()),
            _ => None,
        };
        let asked = group.cells.get(cell).and_then(|cell| cell.clients);
        let asked = asked.and_then(|clients| usize::try_from(clients).ok());
        names.into_iter().chain(asked).min()
    };
    phase.groups.iter().map(of_group).sum()
}

/// Checks the expanded steps.
pub(super) fn check_steps(plan: &Plan, steps: &[PlannedStep], mistakes: &mut Mistakes<'_>) {
    let most = steps.iter().map(|step| step.agents().len()).max();
    // Steps without agents have already been refused.
    refuse(plan, most.filter(|most| *most > 0), mistakes);
}

fn refuse(plan: &Plan, most: Option<usize>, mistakes: &mut Mistakes<'_>) {
    let (OnLoss::AtLeast(least), Some(most)) = (plan.on_loss, most) else {
        return;
    };
    if usize::try_from(least).unwrap_or(usize::MAX) > most {
        mistakes.at(
            &plan.on_loss_at,
            format!(
                "on-loss requires at least {least} agents, and no step has more than {most}: this can never be met"
            ),
            "require fewer, or let more agents take part",
        );
    }
}
