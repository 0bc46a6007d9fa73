//! The tasks of a step: which have not ended, and how the others ended.

use crate::sessions::command::End;
use benchmesh_model::mesh::{AgentId, TaskId, TaskState};
use benchmesh_store::rows::{SpoolPosition, TaskRow};
use benchmesh_workloads::recorder::is_errors_limit;
use std::collections::{BTreeMap, BTreeSet};

/// A task that an agent may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskHandle {
    pub task: TaskId,
    pub agent: AgentId,
    /// The agent of the receiving end.
    pub peer: Option<AgentId>,
}

impl TaskHandle {
    /// The agents that hold a part of the task.
    pub fn ends(self) -> impl Iterator<Item = AgentId> {
        let peer = self.peer.filter(|peer| *peer != self.agent);
        [Some(self.agent), peer].into_iter().flatten()
    }
}

/// The receiver's address, and the token that the sender presents there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkEndpoint {
    pub address: String,
    pub token: String,
}

/// For a sender: where its receiver listens.
pub(super) type LinkEndpoints = BTreeMap<TaskId, LinkEndpoint>;

/// The error of a task that was stopped before its start and has no row from its agent.
pub(crate) const NEVER_BEGAN: &str = "it was stopped before its start";

/// How one task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskOutcome {
    pub state: TaskState,
    /// Empty if there is no error.
    pub error: String,
    /// The batch with the task's last rows. `None` if it is stored or does not exist.
    pub last_batch: Option<SpoolPosition>,
}

impl TaskOutcome {
    /// From the agent's report; the rest comes with the rows.
    pub fn from_end(end: End) -> Self {
        let error = match end.last_batch {
            Some(_) => "",
            None => NEVER_BEGAN,
        };
        Self {
            state: end.state,
            error: error.to_owned(),
            last_batch: end.last_batch,
        }
    }

    /// Whether the task's client left the running step before the end of its load. Nothing else stops tasks of a
    /// running step.
    pub fn has_left_early(&self) -> bool {
        matches!(self.state, TaskState::Lost | TaskState::Stopped) && !is_steady_stop(self)
    }

    /// From the stored row. `None` if the task has not ended.
    pub fn from_row(row: &TaskRow) -> Option<Self> {
        has_ended(row.state).then(|| Self {
            state: row.state,
            error: row.error.clone().unwrap_or_default(),
            last_batch: row.last_batch.clone(),
        })
    }
}

/// The stop reason of tasks whose load is in steady state; it appears in their last rows.
pub(super) const STEADY: &str = "the load is in steady state";

pub(super) fn is_steady_stop(outcome: &TaskOutcome) -> bool {
    outcome.state == TaskState::Stopped && outcome.error == STEADY
}

/// Whether a task with this outcome is lost to its step although its agent is not: its target failed every operation
/// until its `errors-limit`, or its link broke. `on-loss` treats it like a lost agent.
fn is_load_lost(handle: TaskHandle, outcome: &TaskOutcome) -> bool {
    outcome.state == TaskState::Failed && (handle.peer.is_some() || is_errors_limit(&outcome.error))
}

/// Whether `on-loss` and `on-stall` may still have to decide about a failed task, judging from its row: the position of
/// its last batch is stored with the decision.
pub(crate) fn is_undecided(row: &TaskRow) -> bool {
    row.state == TaskState::Failed && row.last_batch.is_none()
}

/// Whether this state of a task is final.
pub(crate) fn has_ended(state: TaskState) -> bool {
    matches!(
        state,
        TaskState::Done | TaskState::Stopped | TaskState::Failed | TaskState::Lost
    )
}

#[derive(Clone, Debug)]
struct TaskEntry {
    handle: TaskHandle,
    /// The index among the planned tasks, which is that of the client's first part.
    index: usize,
    /// From 1; higher if its client has come back into the step.
    part: u32,
    /// It was made for a client that came back, and does not run yet.
    is_returning: bool,
    /// Its workers have ended; its agent may still do finishing work.
    load_over: bool,
    outcome: Option<TaskOutcome>,
}

/// The newest task of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientPart<'t> {
    pub handle: TaskHandle,
    pub index: usize,
    pub part: u32,
    /// `None` if the task has not ended.
    pub outcome: Option<&'t TaskOutcome>,
}

/// The tasks of a step, by their index.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskSet {
    entries: Vec<TaskEntry>,
}

impl TaskSet {
    pub fn new(handles: impl IntoIterator<Item = TaskHandle>) -> Self {
        let entry = |(index, handle)| TaskEntry {
            handle,
            index,
            part: 1,
            is_returning: false,
            load_over: false,
            outcome: None,
        };
        Self {
            entries: handles.into_iter().enumerate().map(entry).collect(),
        }
    }

    /// Builds it from the stored rows. A task that counts as lost may have done all of its work.
    pub fn of_rows(rows: &[TaskRow]) -> Self {
        let entry = |row: &TaskRow| TaskEntry {
            handle: TaskHandle {
                task: row.id,
                agent: row.agent,
                peer: row.peer,
            },
            index: usize::try_from(row.client_index).unwrap_or(usize::MAX),
            part: row.part,
            is_returning: false,
            load_over: false,
            outcome: TaskOutcome::from_row(row),
        };
        Self {
            entries: rows.iter().map(entry).collect(),
        }
    }

    /// Adds a further task of a client that came back.
    pub fn add_part(&mut self, handle: TaskHandle, index: usize, part: u32) {
        self.entries.push(TaskEntry {
            handle,
            index,
            part,
            is_returning: true,
            load_over: false,
            outcome: None,
        });
    }

    /// Marks a further task of a client as running.
    pub fn set_running(&mut self, task: TaskId) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.handle.task == task) {
            entry.is_returning = false;
        }
    }

    /// Further tasks that do not run yet.
    pub fn returning(&self) -> impl Iterator<Item = TaskHandle> + '_ {
        self.entries
            .iter()
            .filter(|entry| entry.is_returning && entry.outcome.is_none())
            .map(|entry| entry.handle)
    }

    /// Tasks that run.
    pub fn running(&self) -> impl Iterator<Item = TaskHandle> + '_ {
        self.entries
            .iter()
            .filter(|entry| !entry.is_returning && entry.outcome.is_none())
            .map(|entry| entry.handle)
    }

    /// The newest part of each client of an agent, with its index, its number and its end.
    pub fn clients_of(&self, agent: AgentId) -> Vec<ClientPart<'_>> {
        let mut newest: BTreeMap<usize, ClientPart<'_>> = BTreeMap::new();
        for entry in self
            .entries
            .iter()
            .filter(|entry| entry.handle.agent == agent)
        {
            let part = ClientPart {
                handle: entry.handle,
                index: entry.index,
                part: entry.part,
                outcome: entry.outcome.as_ref(),
            };
            newest.insert(entry.index, part);
        }
        newest.into_values().collect()
    }

    pub fn part(&self, task: TaskId) -> u32 {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.handle.task == task);
        entry.map_or(1, |entry| entry.part)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn all(&self) -> impl Iterator<Item = TaskHandle> + '_ {
        self.entries.iter().map(|entry| entry.handle)
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> impl Iterator<Item = TaskHandle> + '_ {
        self.entries
            .iter()
            .filter(|entry| entry.outcome.is_none())
            .map(|entry| entry.handle)
    }

    /// Awaits the end of a task again.
    pub fn await_again(&mut self, task: TaskId) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.handle.task == task) {
            entry.outcome = None;
        }
    }

    /// Notes that the workers of a task have ended.
    pub fn set_load_over(&mut self, task: TaskId) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.handle.task == task) {
            entry.load_over = true;
        }
    }

    /// Whether workers of any task may still run.
    pub fn has_load(&self) -> bool {
        let may_run = |entry: &TaskEntry| entry.outcome.is_none() && !entry.load_over;
        self.entries.iter().any(may_run)
    }

    /// Tasks that are lost to the step, with or without their agents.
    pub fn lost(&self) -> impl Iterator<Item = (TaskHandle, &TaskOutcome)> {
        self.outcomes().filter(|(handle, outcome)| {
            outcome.state == TaskState::Lost || is_load_lost(*handle, outcome)
        })
    }

    pub fn is_lost(&self, task: TaskId) -> bool {
        self.lost().any(|(handle, _)| handle.task == task)
    }

    /// Whether all tasks of the step are lost.
    pub fn all_are_lost(&self) -> bool {
        self.lost().count() == self.entries.len()
    }

    pub fn has_live(&self) -> bool {
        self.live().next().is_some()
    }

    pub fn ids(&self) -> Vec<TaskId> {
        self.all().map(|handle| handle.task).collect()
    }

    pub fn outcomes(&self) -> impl Iterator<Item = (TaskHandle, &TaskOutcome)> {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry.handle, entry.outcome.as_ref()?)))
    }

    pub fn get(&self, task: TaskId) -> Option<TaskHandle> {
        self.all().find(|handle| handle.task == task)
    }

    /// The index among the planned tasks of the step.
    pub fn index(&self, task: TaskId) -> Option<usize> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.handle.task == task)?;
        Some(entry.index)
    }

    pub fn is_live(&self, task: TaskId) -> bool {
        self.live().any(|handle| handle.task == task)
    }

    /// Number of agents that the step began with.
    pub fn agents(&self) -> usize {
        self.all()
            .map(|handle| handle.agent)
            .collect::<BTreeSet<AgentId>>()
            .len()
    }

    /// Number of agents left: those with a client whose newest task has begun and is not lost.
    pub fn agents_left(&self) -> usize {
        self.agents_left_but(|_| false)
    }

    /// Number of other agents left.
    pub fn agents_left_without(&self, agent: AgentId) -> usize {
        self.agents_left_but(|handle| handle.agent == agent)
    }

    /// Number of agents left if these tasks are lost too.
    pub fn agents_left_but(&self, is_lost: impl Fn(&TaskHandle) -> bool) -> usize {
        // Later parts of a client follow its first one.
        let newest: BTreeMap<usize, &TaskEntry> = self
            .entries
            .iter()
            .map(|entry| (entry.index, entry))
            .collect();
        let left = newest.into_values().filter(|entry| !entry.is_returning);
        let left = left.map(|entry| entry.handle);
        let left = left.filter(|task| !self.is_lost(task.task) && !is_lost(task));
        left.map(|task| task.agent)
            .collect::<BTreeSet<AgentId>>()
            .len()
    }

    /// Ends the live tasks of a lost agent, at either end of a link, and returns them.
    pub fn lose(&mut self, agent: AgentId, error: &str) -> Vec<TaskHandle> {
        self.lose_those(error, |handle| {
            handle.agent == agent || handle.peer == Some(agent)
        })
    }

    /// Ends the live tasks that send to a lost agent, and returns them.
    pub fn lose_links_to(&mut self, receiver: AgentId, error: &str) -> Vec<TaskHandle> {
        self.lose_those(error, |handle| handle.peer == Some(receiver))
    }

    /// Ends the live tasks that are lost, and returns them.
    pub fn lose_those(
        &mut self,
        error: &str,
        is_lost: impl Fn(&TaskHandle) -> bool,
    ) -> Vec<TaskHandle> {
        let lost: Vec<TaskHandle> = self.live().filter(is_lost).collect();
        for handle in &lost {
            self.end(handle.task, TaskState::Lost, error);
        }
        lost
    }

    /// Ends a task without rows.
    pub fn end(&mut self, task: TaskId, state: TaskState, error: &str) {
        self.set(
            task,
            TaskOutcome {
                state,
                error: error.to_owned(),
                last_batch: None,
            },
        );
    }

    pub fn set(&mut self, task: TaskId, outcome: TaskOutcome) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.handle.task == task) {
            entry.outcome = Some(outcome);
        }
    }

    /// Notes that the last row of a task is stored, or will not come.
    pub fn stored(&mut self, task: TaskId) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.handle.task == task)
            && let Some(outcome) = &mut entry.outcome
        {
            outcome.last_batch = None;
        }
    }
}
