//! The database of a schedule: it applies rows as the statements of the store do.

use super::agent::Spooled;
use crate::machine::has_ended;
use benchmesh_model::mesh::{
    AgentId, MeshMicros, RunId, RunState, StepId, StepState, TaskId, TaskState,
};
use benchmesh_store::{
    DirectoryLeft,
    rows::{
        FinishedStep, NewEvent, NewStep, NewTask, Row, RunDirectoryRow, RunRow, StepRow, TaskRow,
    },
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct SimStore {
    pub run: RunRow,
    /// Every attempt.
    pub steps: Vec<StepRow>,
    pub tasks: Vec<TaskRow>,
    pub events: Vec<NewEvent>,
    pub directories: Vec<RunDirectoryRow>,
    /// The last sequence stored of each agent's spool.
    pub positions: BTreeMap<AgentId, u64>,
    pub with_rows: Vec<TaskId>,
    /// Steps that were ever running.
    pub ran: BTreeSet<StepId>,
    /// The run's environment was written.
    pub environment: bool,
    /// Of a run that was resumed.
    pub pauses: Vec<(i64, i64)>,
    /// A request or the policy ended the load at one of its ends.
    pub was_halted: bool,
    /// Steps that no resumption may repeat.
    pub kept: BTreeSet<StepId>,
}

impl SimStore {
    pub fn new(run: RunRow) -> Self {
        Self {
            run,
            steps: Vec::new(),
            tasks: Vec::new(),
            events: Vec::new(),
            directories: Vec::new(),
            positions: BTreeMap::new(),
            with_rows: Vec::new(),
            ran: BTreeSet::new(),
            environment: false,
            pauses: Vec::new(),
            was_halted: false,
            kept: BTreeSet::new(),
        }
    }

    /// Queues an ended run again. False: it has not ended.
    pub fn resume(&mut self) -> bool {
        let run = &mut self.run;
        if !run.state.is_end() {
            return false;
        }
        self.was_halted |= run.halted.is_some();
        run.state = RunState::Queued;
        run.reason = None;
        run.stop_reason = None;
        run.halted = None;
        let ended = run.ended.take().filter(|_| run.started.is_some());
        run.paused_from = run.paused_from.or(ended);
        true
    }

    pub fn left_out(&self) -> BTreeSet<StepId> {
        let events = self.events.iter();
        let left_out = events.filter(|event| event.kind == "mode-left-out");
        left_out.filter_map(|event| event.step).collect()
    }

    /// The last probes of searches that have ended. Each ends once.
    pub fn searched(&self) -> BTreeSet<StepId> {
        let ended =
            |event: &&NewEvent| matches!(event.kind.as_str(), "search-found" | "search-not-found");
        let ended: Vec<StepId> = self
            .events
            .iter()
            .filter(ended)
            .filter_map(|it| it.step)
            .collect();
        let once: BTreeSet<StepId> = ended.iter().copied().collect();
        assert_eq!(once.len(), ended.len(), "a search has ended twice");
        once
    }

    /// Applies one transaction. Returns the new ids.
    pub fn apply(&mut self, rows: &[Row]) -> Vec<Vec<i64>> {
        rows.iter().filter_map(|row| self.apply_one(row)).collect()
    }

    fn apply_one(&mut self, row: &Row) -> Option<Vec<i64>> {
        match row {
            Row::Run { change, .. } => {
                assert!(
                    !self.run.state.is_end(),
                    "a run that is {} becomes {}",
                    self.run.state,
                    change.state
                );
                let begins = change.state == RunState::Running;
                if let (true, Some(from)) = (begins, self.run.paused_from) {
                    self.pauses.push((from.0, change.at.0));
                    self.run.partial = false;
                    self.run.end_pause(change.at);
                }
                self.run.state = change.state;
                self.run.partial |= change.partial;
                self.run.reason = match change.state {
                    RunState::Running => change.reason.clone(),
                    _ => change.reason.clone().or(self.run.reason.take()),
                };
                if begins {
                    self.run.started.get_or_insert(change.at);
                }
                self.run.ended = change.state.is_end().then_some(change.at);
            }
            Row::Abort { reason, at, .. } => {
                self.run.reason = Some(reason.clone());
                self.run.partial = true;
                self.run.halted.get_or_insert(*at);
            }
            Row::Environment { .. } => {
                assert!(
                    self.steps.is_empty(),
                    "the environment is written after the steps"
                );
                assert!(!self.environment, "the environment is written twice");
                self.environment = true;
            }
            Row::Steps { steps, .. } => {
                assert!(
                    self.environment,
                    "steps are made before the environment is written"
                );
                return Some(steps.iter().map(|step| self.make_step(step)).collect());
            }
            Row::Step { step, change } => {
                let row = self.step_mut(*step);
                assert!(
                    !row.state.is_end(),
                    "step {} of attempt {} ended twice: it is {} and becomes {}",
                    row.ordinal,
                    row.attempt,
                    row.state,
                    change.state
                );
                row.state = change.state;
                if change.state == StepState::Running {
                    self.ran.insert(*step);
                }
                let row = self.step_mut(*step);
                row.start = change.start.or(row.start);
                row.ended = change.ended.or(row.ended);
                row.reason = change.reason.clone().or(row.reason.take());
            }
            Row::Tasks { step, tasks } => {
                let made = tasks.iter().map(|task| self.make_task(*step, task));
                return Some(made.collect());
            }
            Row::Parts { step, parts } => {
                let made = parts.iter().map(|part| {
                    let id = self.make_task(*step, &part.task);
                    let row = self.task_mut(TaskId(id));
                    (row.part, row.client_index) = (part.part, part.client_index);
                    id
                });
                return Some(made.collect());
            }
            Row::Task {
                task,
                state,
                error,
                last_batch,
            } => {
                let overrides = matches!(
                    state,
                    TaskState::Done | TaskState::Failed | TaskState::Stopped
                );
                let row = self.task_mut(*task);
                row.last_batch = last_batch.clone().or(row.last_batch.take());
                let is_stored = matches!(
                    row.state,
                    TaskState::Done | TaskState::Failed | TaskState::Stopped
                );
                if overrides || !is_stored {
                    row.state = *state;
                    row.error = match state {
                        TaskState::Done => None,
                        _ => error.clone().or(row.error.take()),
                    };
                }
            }
            Row::StartsCleared { step } => {
                self.step_mut(*step).start = None;
                for task in &mut self.tasks {
                    if task.step == *step && task.ended.is_none() {
                        task.start = None;
                    }
                }
            }
            Row::TaskAgain { task } => {
                let row = self.task_mut(*task);
                row.state = TaskState::Planned;
                row.error = None;
                row.start = None;
                row.ended = None;
                row.last_begun = None;
                row.last_batch = None;
            }
            Row::TaskStarts(starts) => {
                for (task, start) in starts {
                    self.task_mut(*task).start = Some(*start);
                }
            }
            Row::Directory(directory) => {
                self.directories
                    .retain(|known| known.agent != directory.agent || known.path != directory.path);
                self.directories.push(directory.clone());
            }
            Row::NoDirectory { agent, path, .. } => {
                self.directories
                    .retain(|known| known.agent != *agent || known.path != *path);
            }
            Row::DirectoriesGone { .. } => self.directories.clear(),
            Row::OpenFailed { reason, .. } => {
                for step in &mut self.steps {
                    if step.state != StepState::Planned && !step.state.is_end() {
                        step.state = StepState::Failed;
                        step.reason.get_or_insert_with(|| reason.clone());
                    }
                }
            }
            Row::Event(event) => self.events.push(event.clone()),
            Row::CacheDrops { .. } | Row::KeptData(_) | Row::KeptDataWhole { .. } => {}
        }
        None
    }

    fn make_step(&mut self, step: &NewStep) -> i64 {
        let id = i64::try_from(self.steps.len()).unwrap() + 1;
        let again = self
            .steps
            .iter()
            .any(|known| known.ordinal == step.ordinal && known.attempt == step.attempt);
        assert!(
            !again,
            "step {} has two attempts {}",
            step.ordinal, step.attempt
        );
        self.steps.push(StepRow {
            id: StepId(id),
            run: RunId(1),
            ordinal: step.ordinal,
            loop_number: step.loop_number,
            repeat: step.repeat,
            attempt: step.attempt,
            phase: step.phase.clone(),
            cell: step.cell.clone(),
            target: step.target.clone(),
            system: step.system.clone(),
            workload: step.workload.clone(),
            mode: step.mode.clone(),
            params_json: step.params_json.clone(),
            clients: step.clients,
            cache: step.cache.clone(),
            state: StepState::Planned,
            partial: false,
            flags_json: String::new(),
            reason: None,
            start: None,
            ended: None,
        });
        id
    }

    fn make_task(&mut self, step: StepId, task: &NewTask) -> i64 {
        let id = i64::try_from(self.tasks.len()).unwrap() + 1;
        self.tasks.push(TaskRow {
            id: TaskId(id),
            step,
            task_index: task.task_index,
            part: 1,
            client_index: task.task_index,
            agent: task.agent,
            peer: task.peer,
            state: TaskState::Planned,
            workers: task.workers,
            start: None,
            skew_us: None,
            skew_error_us: None,
            first_done: None,
            ended: None,
            last_begun: None,
            cpu_user_us: None,
            cpu_system_us: None,
            wait_cpu_us: None,
            harness_ns_per_op: None,
            error: None,
            last_batch: None,
        });
        id
    }

    pub fn step_mut(&mut self, step: StepId) -> &mut StepRow {
        &mut self.steps[usize::try_from(step.0).unwrap() - 1]
    }

    pub fn step(&self, step: StepId) -> &StepRow {
        &self.steps[usize::try_from(step.0).unwrap() - 1]
    }

    pub fn task_mut(&mut self, task: TaskId) -> &mut TaskRow {
        &mut self.tasks[usize::try_from(task.0).unwrap() - 1]
    }

    pub fn task(&self, task: TaskId) -> &TaskRow {
        &self.tasks[usize::try_from(task.0).unwrap() - 1]
    }

    pub fn tasks_of(&self, step: StepId) -> Vec<TaskRow> {
        let tasks = self.tasks.iter().filter(|task| task.step == step);
        tasks.cloned().collect()
    }

    /// The newest attempt of each step, in order.
    pub fn newest_steps(&self) -> Vec<StepRow> {
        let mut newest: BTreeMap<u32, &StepRow> = BTreeMap::new();
        for step in &self.steps {
            let known = newest.entry(step.ordinal).or_insert(step);
            if step.attempt >= known.attempt {
                *known = step;
            }
        }
        newest.into_values().cloned().collect()
    }

    pub fn finish(&mut self, step: StepId, finished: &FinishedStep) {
        let row = self.step_mut(step);
        assert!(!row.state.is_end(), "step {} ended twice", row.ordinal);
        row.state = finished.state;
        row.partial |= finished.partial;
        row.ended = Some(finished.ended);
        row.reason = finished.reason.clone().or(row.reason.take());
    }

    /// The end of a task arrives with its agent's spool.
    pub fn task_ended(&mut self, spooled: &Spooled, ended: MeshMicros) {
        let Spooled {
            state,
            error,
            start,
            ..
        } = spooled;
        let row = self.task_mut(spooled.task);
        if row.state != TaskState::Lost || *state == TaskState::Done {
            row.state = *state;
        }
        row.start = spooled.began.then_some(*start).or(row.start);
        row.skew_us = Some(10);
        row.ended = Some(ended);
        row.last_begun = spooled.began.then_some(*start);
        if !error.is_empty() {
            row.error = Some(error.clone());
        }
        if spooled.began {
            self.with_rows.push(spooled.task);
        }
    }

    /// Whether the task's step or run is over, or the task has ended.
    pub fn is_stray(&self, task: TaskId) -> bool {
        let row = self.task(task);
        let step = self.step(row.step);
        self.run.state.is_end() || step.state.is_end() || has_ended(row.state)
    }

    /// The directories that stay on an agent and have not been removed since.
    pub fn directories_left(&self, agent: AgentId) -> Vec<DirectoryLeft> {
        if !self.run.state.is_end() {
            return Vec::new();
        }
        let path = |event: &NewEvent| -> Option<String> {
            let detail: serde_json::Value =
                serde_json::from_str(event.detail_json.as_deref()?).ok()?;
            Some(detail.get("path")?.as_str()?.to_owned())
        };
        let mut left: BTreeSet<String> = BTreeSet::new();
        for event in self.events.iter().filter(|it| it.agent == Some(agent)) {
            match event.kind.as_str() {
                "directory-left" => left.extend(path(event)),
                "directory-removed" => left.retain(|left| Some(left) != path(event).as_ref()),
                _ => {}
            }
        }
        let left = left.into_iter().map(|path| DirectoryLeft {
            run: self.run.id,
            run_uid: self.run.uid.clone(),
            path,
        });
        left.collect()
    }
}
