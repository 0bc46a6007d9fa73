//! The start instant: far enough ahead that every agent has confirmed it before it comes.
//!
//! That the step is armed is stored first; the instant is chosen after that commit, so that the lead covers the round
//! trip to the agents and no write to the disk. The lead follows measurements: the duration of the last confirmations,
//! and the round trips and clock errors of the step's own agents. Every confirmation has to arrive before the instant,
//! by a guard interval. If one does not, all tasks are stopped: when no task can have started they are prepared once
//! more with a longer lead; otherwise the cell is repeated as its next attempt.

use super::{
    close::Goal,
    effect::{Effect, Lookup, Within},
    event::ClockQuality,
    run::{NOBODY_LEFT, Run, Stage, after, micros},
    tasks::TaskHandle,
    waiting::Waiting,
};
use crate::{
    model::{AgentId, MeshMicros, Severity, StepState, TaskState},
    sessions::command::{Answer, CallError, Command, RefusalKind},
    store::rows::Row,
};
use std::{
    collections::{BTreeSet, VecDeque},
    ops::RangeInclusive,
    time::Duration,
};

const MIN_LEAD: Duration = Duration::from_millis(10);
const MAX_LEAD: Duration = Duration::from_secs(20);
/// Taken for an agent that has not measured its round trip yet.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(20);
/// One agent's share of the collector's own work, while all are armed at once.
const PER_TASK: Duration = Duration::from_millis(1);
const MIN_GUARD: Duration = Duration::from_millis(5);
/// Before any confirmation was measured, the answers to `Prepare` tell how long one takes, within these bounds. Half of it
/// is assumed after one was measured, a quarter after two.
const FIRST_DELAY: RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(150);
/// Upper limit of the delay that is assumed for a confirmation that came too late.
const LATE_DELAY: Duration = Duration::from_millis(300);
/// The lead doubles with each try of a step, at most this many times.
const DOUBLINGS: u32 = 3;
/// The lead is this multiple of the longest delay: on a loaded host one confirmation takes three times as long as
/// another.
const DELAY_FACTOR: u32 = 3;
/// Number of steps over which the longest delay is taken.
const DELAYS: usize = 16;

/// How often a step is prepared once more because it could not be armed in time.
pub(super) const ARM_TRIES: u32 = 6;

/// How long it took lately from the choice of an instant until the last agent had it.
#[derive(Clone, Debug)]
pub(super) struct LeadEstimate {
    /// Those of the last steps.
    delays: VecDeque<Duration>,
    /// Assumed while few were measured.
    first: Duration,
}

impl Default for LeadEstimate {
    fn default() -> Self {
        Self {
            delays: VecDeque::new(),
            first: *FIRST_DELAY.end(),
        }
    }
}

impl LeadEstimate {
    fn measured(&mut self, delay: Duration) {
        self.delays.push_back(delay);
        if self.delays.len() > DELAYS {
            self.delays.pop_front();
        }
    }

    /// `time` is how long the slowest agent took to prepare its task.
    pub(super) fn prepared_within(&mut self, time: Duration) {
        if self.delays.is_empty() {
            self.first = time.clamp(*FIRST_DELAY.start(), *FIRST_DELAY.end());
        }
    }

    fn delay(&self) -> Duration {
        let halvings = u32::try_from(self.delays.len()).unwrap_or(u32::MAX).min(20);
        let assumed = self.first / (1 << halvings);
        self.delays
            .iter()
            .max()
            .copied()
            .unwrap_or_default()
            .max(assumed)
    }
}

/// The lead on the `attempt`th try (from 0), and the guard: how long before the instant all must have confirmed.
/// `delay` is the duration of the slowest of the last confirmations.
pub(super) fn lead(
    round_trip: Duration,
    clock_error: Duration,
    delay: Duration,
    tasks: usize,
    attempt: u32,
) -> (Duration, Duration) {
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    let guard = (round_trip * 2 + clock_error).max(MIN_GUARD);
    let lead = guard + round_trip * 2 + delay * DELAY_FACTOR + PER_TASK.saturating_mul(tasks);
    let lead = lead
        .max(MIN_LEAD)
        .saturating_mul(1 << attempt.min(DOUBLINGS))
        .min(MAX_LEAD);
    (lead, guard.min(lead / 2))
}

/// The confirmations of a step's tasks so far.
#[derive(Clone, Debug)]
pub(super) struct Arming {
    chosen: MeshMicros,
    start: MeshMicros,
    /// The least that was left when an agent had it.
    margin: Option<Duration>,
    /// Why the step is not armed.
    late: Option<String>,
}

impl Run {
    /// Stores that the step is armed: a collector that starts after this one has to know that tasks may have been armed.
    /// The clocks are read after the commit.
    pub(super) fn begin_arming(&mut self) {
        let live = self.live();
        if live.is_empty() {
            self.failing = Some(String::from(NOBODY_LEFT));
            return;
        }
        for task in &live {
            self.set_task(task.task, TaskState::Armed, None);
        }
        if let Some(step) = &mut self.step {
            step.start = None;
            step.may_start = live.iter().map(|task| task.task).collect();
        }
        self.enter(StepState::Armed, None);
        let agents: BTreeSet<AgentId> = live.into_iter().map(|task| task.agent).collect();
        self.lookup(
            Waiting::Clocks,
            Lookup::Clocks(agents.into_iter().collect()),
        );
        self.stage = Stage::ReadingClocks;
    }

    /// Chooses the instant and sends it to every task of the step. It is stored at the same time: that tasks may have been
    /// armed is known already.
    pub(super) fn on_clocks(&mut self, clocks: &[ClockQuality]) {
        let live = self.live();
        if live.is_empty() {
            self.failing = Some(String::from(NOBODY_LEFT));
            return;
        }
        let round_trip = |clock: &ClockQuality| match clock.round_trip {
            Duration::ZERO => UNKNOWN_ROUND_TRIP,
            known => known,
        };
        let round_trip = clocks.iter().map(round_trip).max().unwrap_or_default();
        let error = clocks.iter().map(|clock| clock.error).max();
        let attempt = self.step.as_ref().map_or(0, |step| step.arm_try);
        let (lead, guard) = lead(
            round_trip,
            error.unwrap_or_default(),
            self.lead.delay(),
            live.len(),
            attempt,
        );
        let start = after(self.now, lead);
        self.at_once(Effect::Mark { at: Some(start) });
        if let Some(step) = &mut self.step {
            step.start = Some(start);
        }
        self.enter(StepState::Armed, Some(start));
        let starts: Vec<(TaskHandle, MeshMicros)> = live
            .iter()
            .map(|task| (*task, self.start_of(*task, start)))
            .collect();
        // Stored where it differs from the step's start, because a lost task never reports it.
        if starts.iter().any(|(_, of_task)| *of_task != start) {
            let starts = starts.iter().map(|(task, start)| (task.task, *start));
            self.out.rows.push(Row::TaskStarts(starts.collect()));
        }
        let until = MeshMicros(start.0.saturating_sub(micros(guard)));
        for (task, start) in starts {
            let command = Command::Arm {
                task: task.task,
                start,
            };
            self.ask_at_once(
                Waiting::Armed { task },
                task.agent,
                command,
                Within::Until(until),
            );
        }
        self.stage = Stage::Arming(Arming {
            chosen: self.now,
            start,
            margin: None,
            late: None,
        });
    }

    /// When a task starts in a step that starts at `start`: at the common instant, or one after the other.
    pub(super) fn start_of(&self, task: TaskHandle, start: MeshMicros) -> MeshMicros {
        let stagger_us = self.active_plan().map_or(0, |step| micros(step.stagger));
        let index = self
            .step
            .as_ref()
            .and_then(|step| step.tasks.index(task.task));
        let index = i64::try_from(index.unwrap_or(0)).unwrap_or(i64::MAX);
        MeshMicros(start.0.saturating_add(stagger_us.saturating_mul(index)))
    }

    pub(super) fn on_armed(&mut self, task: TaskHandle, answer: Result<Answer, CallError>) {
        let name = self.agents.name(task.agent).to_owned();
        let Stage::Arming(arming) = &mut self.stage else {
            return;
        };
        match answer {
            Ok(Answer::Armed { lead_us }) => {
                let stagger_us = self
                    .step
                    .as_ref()
                    .and_then(|step| {
                        let planned = self.steps.get(step.index)?;
                        let index = i64::try_from(step.tasks.index(task.task)?).ok()?;
                        Some(micros(planned.stagger).saturating_mul(index))
                    })
                    .unwrap_or(0);
                let left = lead_us.saturating_sub(stagger_us).max(0).unsigned_abs();
                let left = Duration::from_micros(left);
                arming.margin = Some(arming.margin.map_or(left, |least| least.min(left)));
            }
            Err(error @ CallError::Lost { .. }) => {
                arming.late = Some(error.to_string());
                self.lose(task.agent, &error.to_string());
            }
            Ok(_) => arming.late = Some(format!("agent `{name}` did not confirm its start")),
            Err(error) => {
                arming.late = Some(error.to_string());
                let refused = matches!(
                    error.refusal(),
                    Some(RefusalKind::TooLate | RefusalKind::UnknownTask)
                );
                let not_asked = matches!(error, CallError::TooLateToAsk { .. });
                if (refused || not_asked)
                    && let Some(step) = &mut self.step
                {
                    step.may_start.remove(&task.task);
                }
            }
        }
    }

    /// Everyone has answered, or the time is up.
    pub(super) fn armed(&mut self, arming: Arming) {
        let Arming {
            chosen,
            start,
            margin,
            late,
        } = arming;
        let lead = super::run::between(chosen, start);
        let too_late = self.now >= start;
        match (late, margin) {
            (None, Some(margin)) if !too_late => {
                self.lead.measured(lead.saturating_sub(margin));
                self.start_running(start);
            }
            (late, _) => {
                // It took longer than the lead, by an unknown amount.
                self.lead
                    .measured((lead * 2 / DELAY_FACTOR).min(LATE_DELAY));
                let reason =
                    late.unwrap_or_else(|| String::from("the confirmations came too late"));
                let title = self.active_plan().map(crate::plan::PlannedStep::title);
                let message = format!("{} is armed again: {reason}", title.unwrap_or_default());
                self.record_event(None, Severity::Warning, "step-late", message);
                self.close(Goal::Retry { reason });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_lead_covers_the_slowest_confirmation() {
        let none = Duration::ZERO;
        assert_eq!(lead(MS(0), none, MS(0), 1, 0), (MS(10), MS(5)));
        assert_eq!(lead(MS(1), none, MS(2), 3, 0), (MS(16), MS(5)));
        assert_eq!(lead(MS(1), none, MS(150), 3, 0), (MS(460), MS(5)));
        assert_eq!(lead(MS(100), MS(20), none, 10, 0), (MS(430), MS(215)));
        assert_eq!(lead(MS(1), none, MS(2), 3, 2), (MS(64), MS(5)));
        assert_eq!(lead(MS(1), none, MS(2), 3, 10).0, MS(128));
        assert_eq!(lead(MS(8000), none, MS(2), 3, 0).0, MAX_LEAD);
    }

    #[test]
    fn the_slowest_of_the_last_steps_counts() {
        let mut estimate = LeadEstimate::default();
        assert_eq!(estimate.delay(), MS(150));
        for (prepared, assumed) in [(3, 20), (50, 50), (9000, 150)] {
            estimate.prepared_within(MS(prepared));
            assert_eq!(estimate.delay(), MS(assumed));
        }
        estimate.measured(MS(70));
        for _ in 0..DELAYS - 1 {
            estimate.measured(MS(3));
        }
        assert_eq!(estimate.delay(), MS(70));
        estimate.measured(MS(3));
        assert_eq!(estimate.delay(), MS(3));
    }

    #[test]
    fn the_guard_is_shorter_than_the_lead() {
        for round_trip in [0, 1, 50, 1000, 60_000] {
            for attempt in 0..ARM_TRIES {
                let (lead, guard) = lead(MS(round_trip), MS(round_trip), MS(0), 100, attempt);
                assert!(guard < lead, "{round_trip} {attempt}");
            }
        }
    }
}
