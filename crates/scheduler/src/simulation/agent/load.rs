//! The load of a simulated agent: a task is prepared, runs, and ends with a last row in the agent's spool.

use super::{Faults, GAVE_UP, Later, Replies, Reply, SimAgent, SimTaskState, UNSTARTED};
use crate::sessions::command::{AgentAnswer, End, RefusalKind};
use benchmesh_model::mesh::{MeshMicros, TaskId, TaskState};
use benchmesh_proto::v1;
use benchmesh_store::rows::SpoolPosition;
use benchmesh_workloads::random::Random;

impl SimAgent {
    /// Applies a delayed consequence. Returns the answers with their tokens.
    pub fn later(
        &mut self,
        later: &Later,
        now: MeshMicros,
        faults: &Faults,
        random: &mut Random,
    ) -> Replies {
        match later {
            Later::Prepared(id) => {
                let Some(task) = self.tasks.get_mut(id) else {
                    return Vec::new();
                };
                let SimTaskState::Preparing { waiting } = &mut task.state else {
                    return Vec::new();
                };
                let waiting = std::mem::take(waiting);
                let reply: Reply = match task.stopped {
                    true => {
                        task.state = SimTaskState::Ended(UNSTARTED);
                        Err((RefusalKind::Failed, String::from("it was stopped")))
                    }
                    false => {
                        task.state = SimTaskState::Prepared;
                        Ok(AgentAnswer::Done)
                    }
                };
                if task.forgotten {
                    self.tasks.remove(id);
                }
                waiting
                    .into_iter()
                    .map(|token| (token, reply.clone()))
                    .collect()
            }
            Later::Over(id, armed_for) => self.end(*id, *armed_for, now, faults, random),
            Later::Directory(_) => Vec::new(),
        }
    }

    fn end(
        &mut self,
        id: TaskId,
        start: MeshMicros,
        now: MeshMicros,
        faults: &Faults,
        random: &mut Random,
    ) -> Replies {
        let Some(task) = self.tasks.get_mut(&id) else {
            return Vec::new();
        };
        let waiting = match &task.state {
            SimTaskState::Running { start: of, waiting } if *of == start => waiting.clone(),
            _ => return Vec::new(),
        };
        // A task that was stopped before its start has a row without operations.
        let began = now >= start && !task.cancelled && task.begins;
        let (state, error) = match task.stopped {
            true => (TaskState::Stopped, task.stop_reason.as_str()),
            false if !task.begins => (TaskState::Failed, "no worker has started"),
            false if self.target_is_dead => (TaskState::Failed, GAVE_UP),
            false if random.below(1000) < faults.fails => {
                (TaskState::Failed, "read: Input/output error")
            }
            false => (TaskState::Done, ""),
        };
        task.began = began.then_some(start);
        self.sequence += 1;
        let end = End {
            state,
            last_batch: Some(SpoolPosition {
                spool_id: format!("spool-{}", self.id),
                sequence: self.sequence,
            }),
            stalled: state == TaskState::Failed
                && error != GAVE_UP
                && random.below(4) == 0
                // If all loads fail, only failures are checked.
                && faults.fails < 1000,
        };
        let start_us = match random.below(1000) < faults.starts_apart {
            true => start.0 + 2_000_000,
            false => start.0,
        };
        let task_id = id.0;
        // All that it has done.
        let interval = v1::OpInterval {
            task_id,
            at_us: start_us,
            span_us: (now.0 - start_us).max(1),
            op: task.op.to_owned(),
            ops: 1,
            service: Some(v1::Distribution::default()),
            ..v1::OpInterval::default()
        };
        let row = v1::TaskEnd {
            task_id,
            state: state.as_str().to_owned(),
            start_us: if began { start_us } else { 0 },
            last_begun_us: if began { start_us } else { 0 },
            ended_us: now.0,
            error: error.to_owned(),
            ..v1::TaskEnd::default()
        };
        self.spool.push(v1::Batch {
            spool_id: format!("spool-{}", self.id),
            first_sequence: self.sequence,
            sequence: self.sequence,
            op_intervals: began.then_some(interval).into_iter().collect(),
            task_ends: vec![row],
            ..v1::Batch::default()
        });
        task.state = SimTaskState::Ended(end.clone());
        waiting
            .into_iter()
            .map(|token| (token, Ok(AgentAnswer::End(end.clone()))))
            .collect()
    }
}
