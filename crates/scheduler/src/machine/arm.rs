//! The start instant: far enough ahead that every agent has confirmed it before it comes.
//!
//! The armed state is stored first. The instant is chosen after that commit, so that the lead covers the round trip to
//! the agents but no write to the disk. The lead follows measurements: the duration of recent confirmations, and the
//! round trips and clock errors of the step's own agents. Every confirmation has to arrive a guard interval before the
//! instant. If one does not, all tasks are stopped. If no task can have started, they are prepared once more with a
//! longer lead; otherwise the cell is repeated as its next attempt.

use super::{
    effect::{Effect, Lookup, Within},
    ended::NOBODY_LEFT,
    event::ClockQuality,
    lead::{DELAY_FACTOR, LATE_DELAY, UNKNOWN_ROUND_TRIP, lead},
    next::Next,
    run::{Run, after, between, micros},
    stage::{Arming, Goal, Stage},
    tasks::TaskHandle,
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command, RefusalKind};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, StepState, TaskState};
use benchmesh_store::rows::Row;
use std::{collections::BTreeSet, time::Duration};

impl Run {
    /// Stores that the step is armed, because a restarted collector has to know that tasks may have been armed. The
    /// clocks are read after the commit.
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

    /// Chooses the instant and sends it to every task of the step. It is stored at the same time, because the armed
    /// state has been stored already.
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
        self.at_once(Effect::Mark {
            run: self.row.id,
            at: Some(start),
        });
        if let Some(step) = &mut self.step {
            step.start = Some(start);
        }
        self.enter(StepState::Armed, Some(start));
        let starts: Vec<(TaskHandle, MeshMicros)> = live
            .iter()
            .map(|task| (*task, self.start_of(*task, start)))
            .collect();
        // Stored if it differs from the step's start, because a lost task never reports it.
        if starts.iter().any(|(_, of_task)| *of_task != start) {
            let starts = starts.iter().map(|(task, start)| (task.task, *start));
            self.out.rows.push(Row::TaskStarts(starts.collect()));
        }
        let until = MeshMicros(start.0.saturating_sub(micros(guard)));
        for (task, start) in starts {
            let command = Command::Arm {
                task: task.task,
                start,
                end: None,
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
            unconfirmed: BTreeSet::new(),
        });
    }

    /// When a task starts in a step that starts at `start`: at the common instant, or one after the other. A client
    /// that came back has a start of its own.
    pub(super) fn start_of(&self, task: TaskHandle, start: MeshMicros) -> MeshMicros {
        if let Some(own) = self.own_start(task.task) {
            return own;
        }
        let stagger_us = self.active_plan().map_or(0, |step| micros(step.stagger));
        let index = self
            .step
            .as_ref()
            .and_then(|step| step.tasks.index(task.task));
        let index = i64::try_from(index.unwrap_or(0)).unwrap_or(i64::MAX);
        MeshMicros(start.0.saturating_add(stagger_us.saturating_mul(index)))
    }

    pub(super) fn on_armed(&mut self, task: TaskHandle, answer: Result<AgentAnswer, CallError>) {
        let name = self.agents.name(task.agent).to_owned();
        let Stage::Arming(arming) = &mut self.stage else {
            return;
        };
        match answer {
            Ok(AgentAnswer::Armed { lead_us }) => {
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
            Ok(_) => {
                arming.unconfirmed.insert(task.agent);
                arming.late = Some(format!("agent `{name}` did not confirm its start"));
            }
            Err(error) => {
                arming.late = Some(error.to_string());
                let not_asked = matches!(error, CallError::TooLateToAsk { .. });
                if !not_asked {
                    arming.unconfirmed.insert(task.agent);
                }
                let refused = matches!(
                    error.refusal(),
                    Some(RefusalKind::TooLate | RefusalKind::UnknownTask)
                );
                if (refused || not_asked)
                    && let Some(step) = &mut self.step
                {
                    step.may_start.remove(&task.task);
                }
            }
        }
    }

    /// Ends the arming, when every agent has answered or time is up.
    pub(super) fn armed(&mut self, arming: Arming) -> Next {
        let Arming {
            chosen,
            start,
            margin,
            late,
            unconfirmed,
        } = arming;
        let lead = between(chosen, start);
        let too_late = self.now >= start;
        match (late, margin) {
            (None, Some(margin)) if !too_late => {
                self.lead.measured(lead.saturating_sub(margin));
                self.unconfirmed.clear();
                Next::StartLoad(start)
            }
            (late, _) => {
                // The confirmation took longer than the lead, by an unknown amount.
                self.lead
                    .measured((lead * 2 / DELAY_FACTOR).min(LATE_DELAY));
                let reason =
                    late.unwrap_or_else(|| String::from("the confirmations arrived too late"));
                let title = self.active_plan().map(benchmesh_plan::PlannedStep::title);
                let message = format!("{} is armed again: {reason}", title.unwrap_or_default());
                self.record_event(None, EventKind::StepLate, message);
                if margin.is_some() {
                    self.count_unconfirmed(&unconfirmed, &reason);
                }
                Next::Close(Goal::Retry { reason })
            }
        }
    }
}
