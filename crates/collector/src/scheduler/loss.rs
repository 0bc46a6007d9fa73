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

/// What the policy says when `left` of the `all` agents of a step are left.
pub(super) fn judge(policy: OnLoss, left: usize, all: usize, why: &str) -> Verdict {
    match policy {
        OnLoss::Continue => Verdict::GoOn,
        OnLoss::Abort => Verdict::Abort {
            reason: format!("{why}, and on-loss = \"abort\""),
        },
        OnLoss::AtLeast(least) => {
            // A step of fewer agents than that needs all of its own.
            let needed = usize::try_from(least).unwrap_or(usize::MAX).min(all);
            if left >= needed {
                return Verdict::GoOn;
            }
            Verdict::Abort {
                reason: format!(
                    "{why}: {left} agents of the step are left, and on-loss wants at least {needed}"
                ),
            }
        }
    }
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
        let left = crew.agents_left();
        let verdict = judge(self.plan.on_loss, left, crew.agents(), why);
        if let Verdict::Abort { reason } = &verdict {
            self.abort(reason).await?;
        }
        for held in lost {
            self.store
                .set_task_state(held.task, TaskState::Lost, Some(why.to_owned()))
                .await?;
        }
        if !self.told_lost().insert(agent) && verdict == Verdict::GoOn {
            // It was lost to an earlier step already.
            return Ok(verdict);
        }
        let next = match (&verdict, left) {
            (Verdict::Abort { .. }, _) => String::from("the run ends"),
            (Verdict::GoOn, 0) => String::from("the step ends"),
            (Verdict::GoOn, left) => format!("the step goes on with {left}"),
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

    /// Tells of lost agents that are there again: they take part from this step on.
    pub(super) async fn welcome_back(&self, step: StepId) -> Result<(), StoreError> {
        let back: Vec<AgentId> = self
            .told_lost()
            .iter()
            .copied()
            .filter(|agent| {
                self.fleet
                    .member(*agent)
                    .is_some_and(|member| member.attached)
            })
            .collect();
        for agent in back {
            self.told_lost().remove(&agent);
            self.event(Fact {
                step: Some(step),
                agent: Some(agent),
                severity: Severity::Info,
                kind: "agent-back",
                message: format!("agent `{}` is back", self.team.name(agent)),
            })
            .await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides() {
        let check = |policy, left, all, goes_on| {
            assert_eq!(
                judge(policy, left, all, "x is lost") == Verdict::GoOn,
                goes_on,
                "{policy:?} {left} of {all}"
            );
        };
        check(OnLoss::Continue, 3, 4, true);
        check(OnLoss::Continue, 0, 1, true);
        check(OnLoss::Abort, 3, 4, false);
        check(OnLoss::AtLeast(2), 2, 3, true);
        check(OnLoss::AtLeast(2), 1, 3, false);
        check(OnLoss::AtLeast(2), 1, 1, true);
        check(OnLoss::AtLeast(2), 0, 1, false);
    }
}
