//! The start instant: far enough ahead that every agent has confirmed it before it comes.
//!
//! A confirmation has to be there a guard before the instant. Where one is not, all tasks are let go: if that was done
//! before the instant, nobody has started and they are prepared once more with a longer lead; otherwise the cell is
//! begun anew.

use super::{
    drive::{Drive, Held},
    ends::Crew,
    loss::Verdict,
};
use crate::{
    model::{MeshMicros, StepState},
    sessions::{
        Call,
        command::{Answer, CallError, Command},
    },
    store::{StoreError, rows::StepRow},
};
use futures::future::join_all;
use std::time::Duration;

const MIN_LEAD: Duration = Duration::from_millis(200);
const MAX_LEAD: Duration = Duration::from_secs(20);
/// Taken for an agent that has not measured its round trip yet.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(20);
/// One agent's share of the collector's own work, while all are armed at once.
const PER_TASK: Duration = Duration::from_millis(1);
const MIN_GUARD: Duration = Duration::from_millis(50);

/// How often a step is prepared once more because it could not be armed in time.
pub(super) const ARM_TRIES: u32 = 6;

/// How far ahead the instant is on the `attempt`th try (from 0), and how long before it all must have confirmed.
/// `write` is what the database takes to keep the instant before it is told.
pub(super) fn lead(
    round_trip: Duration,
    clock_error: Duration,
    write: Duration,
    tasks: usize,
    attempt: u32,
) -> (Duration, Duration) {
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    let guard = (round_trip * 2 + clock_error).max(MIN_GUARD);
    let lead = guard + round_trip * 4 + write * 2 + PER_TASK.saturating_mul(tasks);
    let lead = lead
        .max(MIN_LEAD)
        .saturating_mul(1 << attempt.min(10))
        .min(MAX_LEAD);
    (lead, guard.min(lead / 2))
}

/// What became of arming.
#[derive(Debug)]
pub(super) enum Arming {
    Armed {
        start: MeshMicros,
    },
    Aborted {
        reason: String,
    },
    /// Not all have confirmed in time; nobody starts before `start`.
    Late {
        start: MeshMicros,
        reason: String,
    },
}

impl Drive {
    /// Arms every task of the crew. `write`: how long the database took for the last transition.
    pub(super) async fn arm(
        &self,
        row: &StepRow,
        crew: &mut Crew,
        write: Duration,
        attempt: u32,
    ) -> Result<Arming, StoreError> {
        let (round_trip, clock_error) = self.worst_clock(crew);
        let (lead, guard) = lead(round_trip, clock_error, write, crew.live().count(), attempt);
        let start = MeshMicros(self.clock.now().0.saturating_add(micros(lead)));
        // At once: after the writes below, the instant could be past before the samplers know of it.
        self.mark(Some(start));
        // Before it takes effect: whoever starts after us has to know that tasks may have been armed.
        self.enter(row.id, StepState::Armed, Some(start)).await?;
        let remaining = crate::clock::until(&self.clock, start).saturating_sub(guard);
        let starts = self.starts(row, crew, start).await?;
        let asked = starts
            .into_iter()
            .map(|(held, start)| self.arm_one(held, start, remaining));
        let mut late = None;
        for (held, answer) in join_all(asked).await {
            match answer {
                Ok(Answer::Armed { .. }) => {}
                Err(error @ CallError::Lost { .. }) => {
                    let verdict = self
                        .lose(row.id, crew, held.agent, &error.to_string())
                        .await?;
                    if let Verdict::Abort { reason } = verdict {
                        return Ok(Arming::Aborted { reason });
                    }
                    late = Some(error.to_string());
                }
                Ok(_) => {
                    late = Some(format!(
                        "agent `{}` did not confirm its start",
                        self.team.name(held.agent)
                    ))
                }
                Err(error) => late = Some(error.to_string()),
            }
        }
        Ok(match late {
            None if self.clock.now() < start => Arming::Armed { start },
            late => Arming::Late {
                start,
                reason: late.unwrap_or_else(|| String::from("the confirmations came too late")),
            },
        })
    }

    /// When each task starts: at the common instant, or one after the other. Where that is not the step's start it is
    /// kept, because a task that is lost never tells.
    async fn starts(
        &self,
        row: &StepRow,
        crew: &Crew,
        start: MeshMicros,
    ) -> Result<Vec<(Held, MeshMicros)>, StoreError> {
        let starts: Vec<(Held, MeshMicros)> = crew
            .live()
            .map(|held| (held, self.start_of_task(row, crew, held, start)))
            .collect();
        if starts.iter().any(|(_, of_task)| *of_task != start) {
            let told = starts.iter().map(|(held, start)| (held.task, *start));
            self.store.set_task_starts(told.collect()).await?;
        }
        Ok(starts)
    }

    /// When a task starts in a step that starts at `start`.
    pub(super) fn start_of_task(
        &self,
        row: &StepRow,
        crew: &Crew,
        held: Held,
        start: MeshMicros,
    ) -> MeshMicros {
        let step = self.steps.iter().find(|step| step.ordinal == row.ordinal);
        let stagger_us = step.map_or(0, |step| micros(step.stagger));
        let index = crew.index(held.task).unwrap_or(0);
        let after = stagger_us.saturating_mul(i64::try_from(index).unwrap_or(i64::MAX));
        MeshMicros(start.0.saturating_add(after))
    }

    async fn arm_one(
        &self,
        held: Held,
        start: MeshMicros,
        within: Duration,
    ) -> (Held, Result<Answer, CallError>) {
        let command = Command::Arm {
            task: held.task,
            start,
        };
        let call = Call::to(held.agent, command, self.loss_after()).within(within);
        (held, self.fleet.call(call).await)
    }

    /// The longest round trip and the largest clock error of those that are to start together.
    fn worst_clock(&self, crew: &Crew) -> (Duration, Duration) {
        crew.live()
            .filter_map(|held| self.fleet.member(held.agent))
            .map(|member| {
                let round_trip = match u64::try_from(member.round_trip_us) {
                    Ok(us) if us > 0 => Duration::from_micros(us),
                    _ => UNKNOWN_ROUND_TRIP,
                };
                let error =
                    Duration::from_micros(u64::try_from(member.clock_error_us).unwrap_or(0));
                (round_trip, error)
            })
            .fold((Duration::ZERO, Duration::ZERO), |worst, one| {
                (worst.0.max(one.0), worst.1.max(one.1))
            })
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_lead_covers_the_slowest_confirmation() {
        let none = Duration::ZERO;
        assert_eq!(lead(MS(1), none, none, 3, 0), (MS(200), MS(50)));
        assert_eq!(lead(MS(1), none, MS(150), 3, 0), (MS(357), MS(50)));
        assert_eq!(lead(MS(100), MS(20), none, 10, 0), (MS(630), MS(220)));
        assert_eq!(lead(MS(1), none, none, 3, 2), (MS(800), MS(50)));
        assert_eq!(lead(MS(1), none, none, 3, 9).0, MAX_LEAD);
    }

    #[test]
    fn there_is_always_time_left_to_confirm() {
        for round_trip in [0, 1, 50, 1000, 60_000] {
            for attempt in 0..ARM_TRIES {
                let (lead, guard) = lead(MS(round_trip), MS(round_trip), MS(0), 100, attempt);
                assert!(guard < lead, "{round_trip} {attempt}");
            }
        }
    }
}
