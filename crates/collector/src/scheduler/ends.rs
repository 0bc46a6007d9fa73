//! The crew of a step: which tasks are still in it, and how the others ended.

use super::drive::Held;
use crate::{
    model::{AgentId, TaskState},
    sessions::command::End,
    store::rows::TaskRow,
};
use std::collections::BTreeSet;

/// How one task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskOutcome {
    pub held: Held,
    pub state: TaskState,
    /// Empty: none.
    pub error: String,
    /// The last row is here: spool and sequence.
    pub last: Option<(String, u64)>,
}

impl TaskOutcome {
    /// As its agent says.
    pub fn of_end(held: Held, end: End) -> Self {
        Self {
            held,
            state: end.state,
            error: end.error,
            last: (!end.spool_id.is_empty()).then_some((end.spool_id, end.sequence)),
        }
    }

    /// As it was stored, for a step whose tasks had all ended.
    pub fn of_row(row: &TaskRow) -> Self {
        let state = match row.state {
            TaskState::Done | TaskState::Failed | TaskState::Stopped => row.state,
            _ => TaskState::Lost,
        };
        Self {
            held: Held {
                task: row.id,
                agent: row.agent,
                peer: row.peer,
            },
            state,
            error: row.error.clone().unwrap_or_default(),
            last: None,
        }
    }
}

/// The tasks of a step.
#[derive(Debug)]
pub(super) struct Crew {
    tasks: Vec<(Held, Option<TaskOutcome>)>,
}

impl Crew {
    pub fn new(held: impl IntoIterator<Item = Held>) -> Self {
        Self {
            tasks: held.into_iter().map(|held| (held, None)).collect(),
        }
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> impl Iterator<Item = Held> + '_ {
        self.tasks
            .iter()
            .filter(|(_, outcome)| outcome.is_none())
            .map(|(held, _)| *held)
    }

    /// The index among the step's tasks.
    pub fn index(&self, task: crate::model::TaskId) -> Option<usize> {
        self.tasks.iter().position(|(held, _)| held.task == task)
    }

    pub fn all(&self) -> impl Iterator<Item = Held> + '_ {
        self.tasks.iter().map(|(held, _)| *held)
    }

    /// How many agents it began with.
    pub fn agents(&self) -> usize {
        self.all()
            .map(|held| held.agent)
            .collect::<BTreeSet<AgentId>>()
            .len()
    }

    /// How many agents are not lost.
    pub fn agents_left(&self) -> usize {
        self.tasks
            .iter()
            .filter(|(_, outcome)| {
                outcome
                    .as_ref()
                    .is_none_or(|ended| ended.state != TaskState::Lost)
            })
            .map(|(held, _)| held.agent)
            .collect::<BTreeSet<AgentId>>()
            .len()
    }

    /// Ends what a lost agent had under way, at either end of a link; which tasks that were.
    pub fn lose(&mut self, agent: AgentId, error: &str) -> Vec<Held> {
        let lost: Vec<Held> = self
            .live()
            .filter(|held| held.agent == agent || held.peer == Some(agent))
            .collect();
        for held in &lost {
            self.end(held.task, TaskState::Lost, error);
        }
        lost
    }

    /// Ends a task without rows.
    pub fn end(&mut self, task: crate::model::TaskId, state: TaskState, error: &str) {
        if let Some((held, outcome)) = self.tasks.iter_mut().find(|(held, _)| held.task == task) {
            *outcome = Some(TaskOutcome {
                held: *held,
                state,
                error: error.to_owned(),
                last: None,
            });
        }
    }

    /// A task that ended as it should has failed after all.
    pub fn fail(&mut self, task: crate::model::TaskId, why: &str) {
        if let Some((_, Some(outcome))) = self.tasks.iter_mut().find(|(held, _)| held.task == task)
        {
            outcome.state = TaskState::Failed;
            outcome.error = why.to_owned();
        }
    }

    pub fn ended(&mut self, ended: TaskOutcome) {
        if let Some((_, outcome)) = self
            .tasks
            .iter_mut()
            .find(|(held, _)| held.task == ended.held.task)
        {
            *outcome = Some(ended);
        }
    }

    /// As outcomes of tasks that were stopped, whatever they came to.
    pub fn stopped(&self) -> Vec<TaskOutcome> {
        let stopped = |held| TaskOutcome {
            held,
            state: TaskState::Stopped,
            error: String::new(),
            last: None,
        };
        self.all().map(stopped).collect()
    }

    pub fn outcomes(&self) -> Vec<TaskOutcome> {
        self.tasks
            .iter()
            .filter_map(|(_, outcome)| outcome.clone())
            .collect()
    }
}
