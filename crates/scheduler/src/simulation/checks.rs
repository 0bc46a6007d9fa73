//! Invariants that are checked during a schedule and after it.

use super::{
    agent::SimTaskState,
    plans::name,
    world::{World, micros},
};
use crate::{
    machine::{NEVER_BEGAN, event::Token, has_ended},
    sessions::command::Command,
};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunState, StepId, StepState, TaskId, TaskState};
use benchmesh_plan::Loops;
use benchmesh_store::rows::{FinishedStep, StepRow, TaskRow};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the agent of a task has reported that it ended before its first operation.
fn never_began(task: &TaskRow) -> bool {
    // A row of its end may have come after the step had ended without it.
    task.ended.is_none() && task.error.as_deref() == Some(NEVER_BEGAN)
}

/// Tokens below are not of a run.
const FIRST_OF_RUNS: u64 = 1 << 41;

impl World {
    /// An ended task is not asked for again.
    pub fn check_ask(&self, token: Token, command: &Command) {
        if let Command::ForgetTask { task } = command {
            let row = self.store.task(*task);
            assert_ne!(
                row.state,
                TaskState::Running,
                "task {task} is to be forgotten before its end is stored"
            );
        }
        if let Command::Arm { task, .. } = command {
            let state = self.store.task(*task).state;
            assert_eq!(
                state,
                TaskState::Armed,
                "task {task} is armed before that is stored"
            );
        }
        let task = match command {
            Command::AwaitEnd { task } | Command::Arm { task, .. } => *task,
            Command::Prepare(prepare) => prepare.task,
            _ => return,
        };
        if token.0 < FIRST_OF_RUNS {
            return;
        }
        // An abandoned task may still load on an agent that attaches again: it is stopped, and its end awaited.
        let ended = self.ended_at_load.get(&task);
        let abandoned = matches!(ended, Some(TaskState::Lost | TaskState::Stopped));
        let tidies = abandoned && matches!(command, Command::AwaitEnd { .. });
        assert!(
            tidies || ended.is_none(),
            "task {task} had ended before the collector started, and is asked to {}",
            command.action()
        );
        if !matches!(command, Command::AwaitEnd { .. }) {
            let row = self.store.task(task);
            let over = matches!(row.state, TaskState::Done | TaskState::Lost);
            assert!(
                !over,
                "task {task} is {}, and is asked to {}",
                row.state,
                command.action()
            );
        }
    }

    /// A client's next part begins after the one before it has ended on its agent.
    fn check_one_part(&self, agent: usize, task: TaskId) {
        let row = self.store.task(task);
        for (other, held) in &self.agents[agent].tasks {
            let known = self.store.task(*other);
            let is_same = (known.step, known.client_index) == (row.step, row.client_index);
            assert!(
                !is_same || *other == task || matches!(held.state, SimTaskState::Ended(_)),
                "task {task} is to begin on agent {} beside part {} of the same client",
                name(agent),
                known.part
            );
        }
    }

    /// The parts of each client are numbered without a gap, and all have ended.
    pub fn check_parts(&self) {
        let mut parts: BTreeMap<(StepId, u32), Vec<&TaskRow>> = BTreeMap::new();
        for task in &self.store.tasks {
            let of_client = parts.entry((task.step, task.client_index)).or_default();
            of_client.push(task);
        }
        for ((step, client), parts) in parts {
            let numbers: Vec<u32> = parts.iter().map(|task| task.part).collect();
            let expected: Vec<u32> = (1..).take(parts.len()).collect();
            assert_eq!(numbers, expected, "parts of client {client} in step {step}");
            let first = parts[0];
            assert_eq!(first.task_index, client);
            assert!(parts.iter().all(|task| task.agent == first.agent));
            // A failed run may leave tasks of a step as they were.
            let has_more = parts.len() > 1 && self.store.run.state == RunState::Done;
            let ended = |task: &&TaskRow| has_ended(task.state);
            assert!(
                !has_more || parts.iter().all(ended),
                "a part of client {client} in step {step} has not ended"
            );
        }
        let mut indices: Vec<(StepId, u32)> = Vec::new();
        for task in &self.store.tasks {
            indices.push((task.step, task.task_index));
        }
        indices.sort_unstable();
        let all = indices.len();
        indices.dedup();
        assert_eq!(indices.len(), all, "a task_index is used twice");
    }

    /// A removal does not overtake the making of the directory that it is to remove.
    pub fn check_arrival(&self, agent: usize, command: &Command) {
        if let Command::Prepare(prepare) = command {
            self.check_one_part(agent, prepare.task);
        }
        if let Command::Arm { task, .. } = command {
            self.check_one_part(agent, *task);
        }
        let Command::RemoveRunDirectory { path, .. } = command else {
            return;
        };
        let under_way = self.agents[agent].directories.get(path);
        let opens = under_way.into_iter().flatten().any(|(token, command)| {
            token.is_some() && matches!(command, Command::OpenRunDirectory { .. })
        });
        assert!(
            !opens,
            "agent {} is to remove the directory on {path} that it is still opening",
            name(agent)
        );
    }

    /// A step that is done was measured by tasks that started at one instant, or each so long after the one before it.
    pub fn check_step(&self, step: StepId, finished: &FinishedStep) {
        if finished.state != StepState::Done {
            return;
        }
        let row = self.store.step(step);
        let stagger = self
            .planned_step(row.ordinal)
            .map_or(0, |step| micros(step.stagger));
        for (task, turn) in self.store.tasks_of(step).iter().zip(0..) {
            let start = row.start.map(|start| MeshMicros(start.0 + turn * stagger));
            if task.state != TaskState::Done {
                assert!(finished.partial, "step {} is not partial", row.ordinal);
                continue;
            }
            // A client that came back has a start of its own.
            if task.part > 1 {
                continue;
            }
            let has_event = |kind| {
                let mut events = self.store.events.iter();
                events.any(|event| {
                    event.kind == kind
                        && event.step == Some(step)
                        && event.agent == Some(task.agent)
                })
            };
            // The rows of a lost task may come after the tasks were read.
            let is_unknown = task.start.is_none() && has_event(EventKind::RowsMissing);
            assert!(
                task.start == start || is_unknown || has_event(EventKind::AgentLost),
                "task {} started apart",
                task.id
            );
        }
    }

    /// A stop reached every agent that could be reached.
    pub fn check_stop(&self, reached: &[(usize, u64, TaskId)], generation: u64) {
        if generation != self.generation || self.machine.is_none() {
            return;
        }
        for (agent, session, task) in reached {
            let one = &self.agents[*agent];
            let held = one.tasks.get(task);
            let loads = held
                .is_some_and(|held| !held.stopped && !matches!(held.state, SimTaskState::Ended(_)));
            assert!(
                one.session != *session || !loads || held.is_some_and(|held| held.ignored_stop),
                "a second after the stop agent {} still has task {task}",
                name(*agent)
            );
        }
    }

    /// A task that ended for its step, as lost or stopped, has been stopped on an agent that is attached all the time,
    /// or the stop is being awaited.
    pub fn check_stopped_on_agent(
        &self,
        agent: usize,
        session: u64,
        task: TaskId,
        generation: u64,
    ) {
        let one = &self.agents[agent];
        if generation != self.generation
            || self.machine.is_none()
            || session == 0
            || one.session != session
        {
            return;
        }
        // While the database is blocked, its end is stored after the unanswered stop was abandoned.
        let ignored = one.tasks.get(&task).is_some_and(|held| held.ignored_stop);
        assert!(
            ignored || one.loads().all(|loads| loads != task) || self.is_stop_asked(agent, task),
            "task {task} is {}, and agent {} still loads and is not asked to stop it",
            self.store.task(task).state,
            name(agent)
        );
    }

    /// After the schedule, with all agents attached.
    pub fn check_end(&self) {
        let run = &self.store.run;
        let stage = self.machine.as_ref().map(|machine| machine.stage());
        assert!(run.state.is_end(), "the run is {}: {stage:?}", run.state);
        assert!(
            self.machine
                .as_ref()
                .is_some_and(|machine| machine.is_idle()),
            "it is not idle: {stage:?}"
        );
        self.check_steps();
        self.check_parts();
        self.check_nothing_is_left();
        if self.stop_requested_at.is_some()
            && run.stop_reason.is_some()
            && run.state != RunState::Stopped
        {
            // The run was ending when the stop was requested.
            let ended = run.ended.map_or(0, |at| at.0);
            let requested_at = self.stop_requested_at.unwrap_or(0);
            assert!(
                ended - requested_at < 2_000_000,
                "the run is {} {} us after a stop",
                run.state,
                ended - requested_at
            );
        }
    }

    /// Every step has ended once, in its newest attempt; that it ended once the store checks.
    fn check_steps(&self) {
        let run = &self.store.run;
        let newest = self.store.newest_steps();
        self.check_loops(&newest);
        self.check_searches(&newest);
        for step in &self.store.steps {
            let is_newest = newest.iter().any(|newest| newest.id == step.id);
            let was_cut_short = run.state == RunState::Stopped || run.halted.is_some();
            let may_be_planned = is_newest && was_cut_short;
            assert!(
                step.state.is_end() || (may_be_planned && step.state == StepState::Planned),
                "step {} of attempt {} is {} at the end of a run that is {}",
                step.ordinal,
                step.attempt,
                step.state,
                run.state
            );
            let tasks = self.store.tasks_of(step.id);
            let was_halted = self.store.was_halted || run.halted.is_some();
            let may_have_begun = self.store.ran.contains(&step.id)
                || was_halted && tasks.iter().any(|task| !never_began(task));
            assert!(
                step.start.is_none() || may_have_begun,
                "step {} of attempt {} never ran, and has a start instant",
                step.ordinal,
                step.attempt
            );
            assert!(
                is_newest || !self.store.kept.contains(&step.id),
                "step {} was done with its cell, and is repeated",
                step.ordinal
            );
            if is_newest && step.state == StepState::Stopped {
                assert_eq!(run.state, RunState::Stopped, "step {}", step.ordinal);
            }
        }
        if run.state == RunState::Done {
            let failed = newest.iter().any(|step| step.state == StepState::Failed);
            assert!(
                !failed || run.partial,
                "a done run has failed steps, and is not partial"
            );
        }
    }

    /// Each search of a run that is done has ended, and found the rate if all of its probes are done.
    fn check_searches(&self, newest: &[StepRow]) {
        if self.store.run.state != RunState::Done {
            return;
        }
        let ended = self
            .store
            .events
            .iter()
            .filter(|it| it.kind.as_str().starts_with("search-"));
        let ended: Vec<StepId> = ended.filter_map(|it| it.step).collect();
        let searched: BTreeSet<StepId> = ended.iter().copied().collect();
        assert_eq!(searched.len(), ended.len(), "a search has ended twice");
        let rest = &mut newest.iter().peekable();
        while let Some(first) = rest.next() {
            let planned = self.planned_step(first.ordinal).unwrap();
            if planned.probe.is_none() {
                continue;
            }
            let mut probes = vec![first];
            let after = first.ordinal + planned.ordinals();
            while let Some(probe) = rest.next_if(|step| step.ordinal < after) {
                probes.push(probe);
            }
            let last = probes[probes.len() - 1];
            assert!(
                searched.contains(&last.id),
                "the search of step {} has no end",
                first.ordinal
            );
            let mut events = self.store.events.iter();
            let found =
                events.any(|it| it.step == Some(last.id) && it.kind == EventKind::SearchFound);
            let all_done = probes.iter().all(|probe| probe.state == StepState::Done);
            assert_eq!(found, all_done, "step {}", first.ordinal);
            assert!(!found || probes.len() == 6, "{} probes", probes.len());
        }
    }

    /// Each loop that began has all of its steps, and as many began as the plan wants.
    fn check_loops(&self, newest: &[StepRow]) {
        let run = &self.store.run;
        let (ordinals, of_a_loop) = (self.planned.ordinals(), self.planned.steps.len());
        let planned: Vec<u32> = self.planned.steps.iter().map(|step| step.ordinal).collect();
        let is_planned = |step: &&StepRow| planned.contains(&((step.ordinal - 1) % ordinals + 1));
        let newest: Vec<&StepRow> = newest.iter().filter(is_planned).collect();
        let loops = newest.len() / of_a_loop;
        assert!(
            newest.len().is_multiple_of(of_a_loop),
            "{} steps, {of_a_loop} in a loop",
            newest.len()
        );
        for (place, step) in newest.iter().enumerate() {
            let number = u32::try_from(place / of_a_loop).unwrap() + 1;
            let ordinal = planned[place % of_a_loop] + (number - 1) * ordinals;
            assert_eq!((step.loop_number, step.ordinal), (number, ordinal));
        }
        if let Some(last) = self.last_loop {
            assert!(loops <= last as usize, "loop {loops} began after {last}");
        }
        let was_cut_short =
            run.state == RunState::Stopped || run.halted.is_some() || self.last_loop.is_some();
        match self.planned.loops() {
            Loops::Times(times) if was_cut_short => {
                assert!(loops <= times as usize, "{loops} of {times} loops");
            }
            Loops::Times(times) => assert_eq!(loops, times as usize, "{:?}", run.reason),
            Loops::For(time) => {
                let started = run.started.map_or(0, |at| at.0);
                let others = of_a_loop * loops.saturating_sub(1);
                let ended = newest.iter().take(others).filter_map(|step| step.ended);
                let last = ended.max().map_or(started, |at| at.0);
                let ran_for = |until: i64| {
                    let pauses = self.store.pauses.iter();
                    let before = |(from, to): &(i64, i64)| (until.min(*to) - from).max(0);
                    until - started - pauses.map(before).sum::<i64>()
                };
                assert!(
                    ran_for(last) < micros(time),
                    "a loop began although the one before ended {} us after the start",
                    ran_for(last)
                );
                let ended = run.ended.map_or(0, |at| at.0);
                assert!(
                    was_cut_short || ran_for(ended) >= micros(time),
                    "no loop followed {} us after the start",
                    ran_for(ended)
                );
            }
        }
    }

    fn check_nothing_is_left(&self) {
        for (agent, one) in self.agents.iter().enumerate() {
            for (task, held) in &one.tasks {
                // A task that hung was abandoned, and is forgotten when its agent comes back.
                let hung =
                    held.hangs && (held.stopped || matches!(held.state, SimTaskState::Ended(_)));
                // A task whose preparation hangs is removed when its thread returns.
                let stuck = matches!(held.state, SimTaskState::Preparing { .. }) && held.stopped;
                // An agent that ignored a stop is asked again when it attaches the next time.
                assert!(
                    hung || stuck || held.ignored_stop,
                    "agent {} still holds task {task}: {held:?}",
                    name(agent)
                );
            }
            assert!(
                one.receivers.is_empty(),
                "agent {} still listens for {:?}",
                name(agent),
                one.receivers
            );
        }
        for (path, file_system) in self.disks.keys() {
            let messages = self
                .agents
                .iter()
                .filter(|agent| agent.file_system == *file_system)
                .any(|agent| {
                    let left = self.store.directories_left(agent.id);
                    left.iter().any(|left| left.path == *path)
                });
            assert!(
                messages,
                "{path} stays on file system {file_system}, and no event says so"
            );
        }
    }
}
