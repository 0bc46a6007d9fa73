//! The objectives of the run under way: the seconds so far, and the remaining budget of bad ones.

use benchmesh_model::mesh::StepId;
use benchmesh_plan::alarms::Objective;
use benchmesh_results::objective::is_above;
use benchmesh_results::real;
use benchmesh_scheduler::snapshot::ObjectiveNow;
use benchmesh_store::objectives::Tally;
use benchmesh_store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The seconds of one run, by objective.
#[derive(Debug, Default)]
pub struct Objectives {
    pub all: Vec<Objective>,
    /// The seconds of ended steps, by the objective's text.
    ended: BTreeMap<String, Tally>,
    running: Option<Running>,
    /// Objectives already reported as broken.
    pub told: BTreeSet<String>,
}

/// The step under way, up to an instant.
#[derive(Debug)]
struct Running {
    step: StepId,
    until_us: i64,
    tallies: Vec<Tally>,
}

/// Knowledge about the rest of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It continues for this long.
    For(Duration),
    /// It continues for an unknown time.
    Unknown,
    Over,
}

impl Objectives {
    pub fn new(all: Vec<Objective>, told: BTreeSet<String>) -> Self {
        Self {
            all,
            told,
            ..Self::default()
        }
    }

    /// Reads the data since the last call; `step` is the one under way.
    pub async fn read(
        &mut self,
        store: &Store,
        run: benchmesh_model::mesh::RunId,
        step: Option<StepId>,
    ) -> Result<(), StoreError> {
        let before = self.running.as_ref().map(|running| running.step);
        if before != step || before.is_none() {
            self.ended = store.tallies(run).await?;
            self.running = step.map(|step| Running {
                step,
                until_us: i64::MIN,
                tallies: vec![Tally::default(); self.all.len()],
            });
        }
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let from_us = running.until_us;
        let (new, until_us) = store.tally(running.step, from_us, &self.all).await?;
        running.until_us = until_us;
        for (tally, new) in running.tallies.iter_mut().zip(new) {
            tally.add(new);
        }
        Ok(())
    }

    /// Each objective in its displayed form.
    pub fn now(&self, rest: Rest) -> Vec<ObjectiveNow> {
        let running = self.running.as_ref();
        let of_running = |index: usize| running.and_then(|running| running.tallies.get(index));
        let all = self.all.iter().enumerate();
        all.map(|(index, objective)| {
            let mut tally = self
                .ended
                .get(&objective.holds)
                .copied()
                .unwrap_or_default();
            tally.add(of_running(index).copied().unwrap_or_default());
            judged(objective, tally, rest)
        })
        .collect()
    }
}

/// The budget is a share of the seconds so far and the remaining ones. An objective is broken once good seconds can no
/// longer save it.
fn judged(objective: &Objective, tally: Tally, rest: Rest) -> ObjectiveNow {
    let left_s = match rest {
        Rest::For(left) => left.as_secs_f64(),
        Rest::Unknown | Rest::Over => 0.0,
    };
    let budget_s = (1.0 - objective.share) * (real(tally.seconds) + left_s);
    // If the total is unknown, the first bad second may be the only one.
    let is_known = rest != Rest::Unknown || budget_s >= 1.0 || objective.share >= 1.0;
    ObjectiveNow {
        holds: objective.holds.clone(),
        seconds: tally.seconds,
        bad_seconds: tally.bad,
        budget_s,
        broken: is_known && is_above(tally.bad, budget_s),
    }
}

/// `objective "p99 < 10ms for 99.9% of seconds" is broken: ...`. The message of its event begins with this and the
/// objective's text.
pub fn broken(objective: &ObjectiveNow) -> String {
    format!(
        "{BROKEN}{}` is broken: {}",
        objective.holds,
        objective.in_seconds().words()
    )
}

const BROKEN: &str = "objective `";

/// The text of the objective that a message is about.
pub fn holds_of(message: &str) -> Option<&str> {
    message.strip_prefix(BROKEN)?.split('`').next()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_plan::alarms::{Side, StepFigure};

    #[test]
    fn the_budget_is_of_the_whole_run_and_broken_when_nothing_can_mend_it() {
        let objective = |share| Objective {
            holds: String::from("p99 < 10ms for some of seconds"),
            figure: StepFigure::P99,
            side: Side::Below,
            limit: 10.0,
            share,
        };
        let hour = Rest::For(Duration::from_secs(3600));
        for (share, seconds, bad, rest, budget, broken) in [
            (0.99, 400, 30, hour, 40.0, false),
            (0.99, 400, 41, hour, 40.0, true),
            (0.99, 400, 5, Rest::Over, 4.0, true),
            (0.99, 400, 4, Rest::Over, 4.0, false),
            // Too few seconds are known.
            (0.99, 50, 3, Rest::Unknown, 0.5, false),
            (0.99, 500, 6, Rest::Unknown, 5.0, true),
            (1.0, 5, 1, Rest::Unknown, 0.0, true),
            (1.0, 0, 0, Rest::Over, 0.0, false),
        ] {
            let now = judged(&objective(share), Tally { seconds, bad }, rest);
            assert!((now.budget_s - budget).abs() < 1e-6, "{now:?}");
            assert_eq!(now.broken, broken, "{now:?}");
            assert_eq!(holds_of(&super::broken(&now)), Some(now.holds.as_str()));
        }
    }
}
