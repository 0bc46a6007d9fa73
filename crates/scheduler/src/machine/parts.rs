//! The further task of a client that came back into the running step. It is prepared like the first task and has a
//! start of its own. The other tasks do not wait for it, and it ends with them.

use super::{
    effect::{Show, Within},
    prepare::PREPARE_SILENCE,
    run::{Run, after, between, micros},
    stage::Stage,
    tasks::TaskHandle,
    waiting::Waiting,
};
use crate::sessions::command::{AgentAnswer, CallError, Command, RefusalKind};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_store::rows::{NewPart, NewTask, Row};
use benchmesh_workloads::figures;
use benchmesh_workloads::measure::interval::PERIOD;
use serde_json::json;
use std::time::Duration;

/// A prepared part starts only if at least this much time is left.
const MIN_RUN: Duration = Duration::from_secs(5);
/// Lead of a part's start. It doubles after each start that came too late.
const LEAD: Duration = Duration::from_secs(1);
const ARM_TRIES: u32 = 5;
/// A start must be confirmed at least this long before its instant.
const GUARD: Duration = Duration::from_millis(20);

/// The first second of a step at or after an instant. A part starts on one, so that its seconds are those of the other
/// tasks.
fn second_of(step_start: Option<MeshMicros>, at: MeshMicros) -> MeshMicros {
    let Some(start) = step_start else { return at };
    let second = micros(PERIOD);
    let into = at.0.saturating_sub(start.0).rem_euclid(second);
    MeshMicros(at.0.saturating_add((second - into) % second))
}

impl Run {
    /// Makes the next parts of an agent's clients, given by index.
    pub(super) fn make_parts(&mut self, agent: AgentId, parts: Vec<(usize, u32)>) {
        let (Some(step), Some(plan)) = (&self.step, self.active_plan()) else {
            return;
        };
        let being_made = self.waiting.values().map(|waiting| match waiting {
            Waiting::PartsMade { parts, .. } => parts.len(),
            _ => 0,
        });
        let next = step.tasks.len() + being_made.sum::<usize>();
        let index_of = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let link_bytes_per_s = self.link_speed_of(agent, &plan.path);
        let rows = parts.iter().zip(next..);
        let rows = rows.filter_map(|((index, part), task_index)| {
            let load = plan.load(plan.tasks.get(*index)?)?;
            Some(NewPart {
                task: NewTask {
                    agent,
                    peer: None,
                    task_index: index_of(task_index),
                    group: load.group.clone(),
                    workers: load.footprint.workers,
                    link_bytes_per_s,
                },
                part: *part,
                client_index: index_of(*index),
            })
        });
        let row = Row::Parts {
            step: step.id,
            parts: rows.collect(),
        };
        let token = self.wait_for(Waiting::PartsMade { agent, parts });
        self.out.made.push(token);
        self.out.rows.push(row);
    }

    pub(super) fn on_parts_made(
        &mut self,
        agent: AgentId,
        parts: Vec<(usize, u32)>,
        ids: &[TaskId],
    ) {
        let Some(step) = &mut self.step else { return };
        let handles = ids.iter().zip(parts).map(|(task, (index, part))| {
            let handle = TaskHandle {
                task: *task,
                agent,
                peer: None,
            };
            step.tasks.add_part(handle, index, part);
            handle
        });
        let handles: Vec<TaskHandle> = handles.collect();
        let show = Show::Parts {
            step: step.id,
            tasks: ids.to_vec(),
        };
        self.show(show);
        if !matches!(self.stage, Stage::Running) {
            return self.abandon_returning("the step ended before the agent could begin again");
        }
        for task in handles {
            let Some(prepare) = self.prepare_command(task) else {
                continue;
            };
            if let Some(step) = &mut self.step {
                step.returns.preparing_since.insert(task.task, self.now);
            }
            let waiting = Waiting::PartPrepared { task };
            let command = Command::Prepare(prepare);
            self.ask_long(waiting, agent, command, PREPARE_SILENCE);
        }
    }

    pub(super) fn on_part_prepared(
        &mut self,
        task: TaskHandle,
        answer: Result<AgentAnswer, CallError>,
    ) {
        if let Err(error) = answer {
            return self.cannot_return(task, &error);
        }
        let now = self.now;
        if let Some(step) = &mut self.step
            && let Some(since) = step.returns.preparing_since.remove(&task.task)
        {
            let took = between(since, now);
            step.returns.prepared_within(task.agent, took);
        }
        self.arm_part(task, 0);
    }

    fn arm_part(&mut self, task: TaskHandle, tries: u32) {
        let index = self
            .step
            .as_ref()
            .and_then(|step| step.tasks.index(task.task));
        let ends = index.and_then(|index| self.ends_at(index));
        let lead = LEAD.saturating_mul(1 << tries.min(ARM_TRIES));
        let step_start = self.step.as_ref().and_then(|step| step.start);
        let start = second_of(step_start, after(self.now, lead));
        let Some(end) = ends.filter(|end| between(start, *end) >= MIN_RUN) else {
            return self.abandon(
                task,
                "too little of the step was left when the agent was ready",
            );
        };
        self.set_task(task.task, TaskState::Armed, None);
        self.out
            .rows
            .push(Row::TaskStarts(vec![(task.task, start)]));
        if let Some(step) = &mut self.step {
            step.returns.starts.insert(task.task, (start, tries));
        }
        let command = Command::Arm {
            task: task.task,
            start,
            end: Some(end),
        };
        let until = MeshMicros(start.0.saturating_sub(micros(GUARD)));
        let waiting = Waiting::PartArmed { task, start };
        self.ask(waiting, task.agent, command, Within::Until(until));
    }

    pub(super) fn on_part_armed(
        &mut self,
        task: TaskHandle,
        start: MeshMicros,
        answer: Result<AgentAnswer, CallError>,
    ) {
        let starts = self.step.as_ref().map(|step| &step.returns.starts);
        let tries = starts.and_then(|starts| starts.get(&task.task));
        let tries = tries.map_or(0, |(_, tries)| *tries) + 1;
        let error = match answer {
            // After a missed deadline the task may still have its start; its end reports that.
            Ok(_) | Err(CallError::Deadline { .. }) => return self.run_part(task, start),
            Err(error) => error,
        };
        let is_late = matches!(error, CallError::TooLateToAsk { .. })
            || error.refusal() == Some(RefusalKind::TooLate);
        match is_late && tries < ARM_TRIES {
            true => self.arm_part(task, tries),
            false => self.cannot_return(task, &error),
        }
    }

    fn run_part(&mut self, task: TaskHandle, start: MeshMicros) {
        let Some(step) = &mut self.step else { return };
        step.tasks.set_running(task.task);
        let part = step.tasks.part(task.task);
        let step_start = step.start.unwrap_or(start);
        self.set_task(task.task, TaskState::Running, None);
        self.await_end(Waiting::Ended { task }, task, Within::Contact);
        self.wait_until(Waiting::BeginningDue, start.max(self.now));
        self.known_lost.remove(&task.agent);
        self.record_return(task, start, part);
        self.share_with_returned(task);
        let ramp = self.ramp_of(task).unwrap_or_default();
        self.watch_steadiness(step_start, after(start, ramp));
    }

    fn ramp_of(&self, task: TaskHandle) -> Option<Duration> {
        let index = self.step.as_ref()?.tasks.index(task.task)?;
        let plan = self.active_plan()?;
        plan.load(plan.tasks.get(index)?)?.ramp_time()
    }

    /// Records the return of an agent once, however many tasks it has.
    fn record_return(&mut self, task: TaskHandle, start: MeshMicros, part: u32) {
        let departure = self
            .step
            .as_mut()
            .and_then(|step| step.returns.departures.get_mut(&task.agent));
        let Some(departure) = departure.filter(|departure| !departure.is_reported) else {
            return;
        };
        departure.is_reported = true;
        let (since, gap) = (departure.since, between(departure.since, start));
        let message = format!(
            "agent `{}` is back in the step after {}: its client returned as part {part} of its load",
            self.agents.name(task.agent),
            figures::span(gap)
        );
        let detail = json!({
            "task_id": task.task.0,
            "part": part,
            "gap_us": micros(gap),
            "from_us": since.0,
            "until_us": start.0,
        });
        let step = self.step.as_ref().map(|step| step.id);
        let (agent, detail) = (Some(task.agent), Some(detail.to_string()));
        self.record_event_of(step, agent, EventKind::ClientReturned, message, detail);
    }

    fn cannot_return(&mut self, task: TaskHandle, error: &CallError) {
        match error {
            CallError::Refused {
                kind: RefusalKind::Stalled,
                ..
            } => self.handle_failure(task.agent, error),
            CallError::Refused {
                kind: RefusalKind::UnknownTask,
                ..
            } => {
                self.note_restart(task);
                self.lose(task.agent, &error.to_string());
            }
            CallError::Lost { .. } | CallError::Deadline { .. } => {
                self.lose(task.agent, &error.to_string());
            }
            _ => self.abandon(task, &error.to_string()),
        }
    }

    /// Excludes a client from this step until its agent attaches anew.
    fn abandon(&mut self, task: TaskHandle, why: &str) {
        self.end_returning(task, why);
        let message = format!(
            "agent `{}` does not rejoin the step: {why}; it takes part in the next step",
            self.agents.name(task.agent)
        );
        let agent = Some(task.agent);
        self.record_event(agent, EventKind::PrepareFailed, message);
    }

    /// Abandons all parts that have not begun.
    pub(super) fn abandon_returning(&mut self, why: &str) {
        let step = self.step.as_ref();
        let returning = step.map(|step| step.tasks.returning().collect::<Vec<_>>());
        for task in returning.unwrap_or_default() {
            self.end_returning(task, why);
        }
    }

    /// After a restart of the collector, ends the parts that had not begun. Their loss was decided about before.
    pub(super) fn end_unbegun_parts(&mut self) {
        let Some(step) = &self.step else { return };
        let unbegun = step.tasks.live().filter(|task| {
            let mut rows = step.rows.iter();
            rows.any(|row| row.id == task.task && row.part > 1 && row.start.is_none())
        });
        let unbegun: Vec<TaskHandle> = unbegun.collect();
        for task in unbegun {
            self.end_returning(task, "the collector restarted before its load began");
        }
    }

    fn end_returning(&mut self, task: TaskHandle, why: &str) {
        self.cancel(|waiting| waiting.task() == Some(task));
        self.set_task(task.task, TaskState::Lost, Some(why.to_owned()));
        if let Some(step) = &mut self.step {
            step.tasks.end(task.task, TaskState::Lost, why);
        }
        self.note_lost(&[task]);
        self.stop_lost(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_starts_on_a_second_of_its_step() {
        let at = |start, at| second_of(Some(MeshMicros(start)), MeshMicros(at)).0;
        assert_eq!(at(500_007, 6_842_011), 7_500_007);
        assert_eq!(at(500_007, 7_500_007), 7_500_007);
        assert_eq!(second_of(None, MeshMicros(3)), MeshMicros(3));
    }
}
