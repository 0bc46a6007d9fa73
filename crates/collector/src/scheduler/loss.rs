//! What a lost agent does to a step: a policy, and a fact that is stored.

use super::{
    drive::{Drive, Fact},
    ends::Crew,
};
use crate::{
    model::{AgentId, Severity, StepId, TaskState},
    plan::OnLoss,
    store::StoreError,
};

/// Whether the step goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    Abort { reason: String },
}

/// What the policy says when `left` agents of a step are left.
pub(super) fn judge(policy: OnLoss, left: usize, why: &str) -> Verdict {
    let needed = match policy {
        OnLoss::Abort => {
            return Verdict::Abort {
                reason: format!("{why}, and on-loss = \"abort\""),
            };
        }
        OnLoss::Continue => 1,
        OnLoss::AtLeast(least) => usize::try_from(least).unwrap_or(usize::MAX),
    };
    if left >= needed {
        return Verdict::GoOn;
    }
    let reason = match policy {
        OnLoss::AtLeast(least) => {
            format!("{why}: {left} agents of the step are left, and on-loss wants at least {least}")
        }
        _ => format!("{why}: no agent of the step is left"),
    };
    Verdict::Abort { reason }
}

impl Drive {
    /// Takes a lost agent out of a step, stores that, and says whether the step goes on without it.
    pub(super) async fn lose(
        &self,
        step: StepId,
        crew: &mut Crew,
        agent: AgentId,
        why: &str,
    ) -> Result<Verdict, StoreError> {
        let lost = crew.lose(agent, why);
        if lost.is_empty() {
            return Ok(Verdict::GoOn);
        }
        self.mark_partial();
        for held in lost {
            self.store
                .set_task_state(held.task, TaskState::Lost, Some(why.to_owned()))
                .await?;
        }
        let left = crew.agents_left();
        let verdict = judge(self.plan.on_loss, left, why);
        let next = match &verdict {
            Verdict::GoOn => format!("the step goes on with {left}"),
            Verdict::Abort { .. } => String::from("the run ends"),
        };
        self.event(Fact {
            step: Some(step),
            agent: Some(agent),
            severity: Severity::Warning,
            kind: "agent-lost",
            message: format!("{why}; {next}"),
        })
        .await?;
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides() {
        let check = |policy, left, goes_on| {
            assert_eq!(
                judge(policy, left, "x is lost") == Verdict::GoOn,
                goes_on,
                "{policy:?} {left}"
            );
        };
        check(OnLoss::Continue, 3, true);
        check(OnLoss::Continue, 1, true);
        check(OnLoss::Continue, 0, false);
        check(OnLoss::Abort, 3, false);
        check(OnLoss::AtLeast(2), 2, true);
        check(OnLoss::AtLeast(2), 1, false);
    }
}
