//! The agent's tasks, and the effect of each command on them.
//!
//! A task is preparing, prepared, running or ended, and is removed when it is forgotten. Every method returns at once;
//! work that may block runs on a thread, which reports back with a request.

mod directory_queues;
mod files;
mod frozen;
mod gaps;
mod leases;
mod lost_runs;
mod prepare;
mod receivers;
mod run;
mod threads;

use super::caches::MAX_DROPS;
use super::claimed_task::ClaimedTask;
use super::denials::DenialLog;
use super::per_minute::PerMinute;
use super::reply::{ProgressReporter, ReplyHandle};
use super::running::StopReason;
use super::{RunnerDeps, RunnerRequest};
use crate::command::{
    Answer, Command, CommandRequest, CommandResult, Prepare, Refusal, RefusalKind, Sampling,
    TaskEnded,
};
use crate::envelope::Sequence;
use crate::sampler::Mark;
use crate::spool::SpoolEntry;
use crate::telemetry::{EndState, Event, MeshMicros, RunScope, TaskId, TelemetryRow};
use crate::wire::reply::Outgoing;
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::task::StopHandle;
use directory_queues::DirectoryQueues;
pub(super) use lost_runs::RunPath;
use receivers::Receivers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use threads::CommandThreads;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of marks per minute: the shortest steps need two each, and each one samples the whole host.
const MAX_MARKS: usize = 3000;

/// One task.
struct TaskSlot {
    asked: Prepare,
    state: SlotState,
    /// The task was stopped because its lease ended without contact.
    lease_is_over: bool,
}

enum SlotState {
    Preparing {
        preparation: Preparation,
        control: Arc<AtomicBool>,
        reporter: Arc<ProgressReporter>,
        waiting: Vec<ReplyHandle>,
        pending: PendingAction,
    },
    Prepared(Box<ClaimedTask>),
    Running {
        start: MeshMicros,
        lead_us: i64,
        stopper: StopHandle,
        stop_reason: StopReason,
        waiting: Vec<ReplyHandle>,
        /// The task's workers have ended.
        load_over: bool,
        pending: PendingAction,
    },
    Ended(TaskEnded),
}

/// Number of a preparation on this agent. It distinguishes the late result of an abandoned preparation from its
/// successor's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preparation(u64);

/// What to do with a task when its thread reports back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PendingAction {
    Keep,
    /// It was stopped before it began.
    Stop(String),
    Forget,
}

/// All tasks and their dependencies.
pub(super) struct Slots {
    deps: RunnerDeps,
    requests: mpsc::WeakSender<RunnerRequest>,
    mesh: Option<String>,
    tasks: BTreeMap<TaskId, TaskSlot>,
    /// The newest preparation.
    preparation: Preparation,
    receivers: Receivers,
    threads: CommandThreads,
    /// Commands on a directory wait for earlier ones.
    queues: DirectoryQueues,
    recent_drops: Arc<PerMinute>,
    recent_marks: PerMinute,
    surveys: Arc<AtomicUsize>,
    denials: Arc<DenialLog>,
    stopping: Vec<oneshot::Sender<()>>,
    /// Last poll of the clock, while a load runs.
    polled: Option<MonoNanos>,
    reported_conflicts: BTreeSet<String>,
    /// Directories that this agent has created for runs, with the position that was acked before.
    made: BTreeMap<RunPath, Sequence>,
    /// Messages of events `watch-conflict` that could not be dated yet.
    undated: Vec<String>,
}

impl Slots {
    pub(super) fn new(deps: RunnerDeps, requests: mpsc::WeakSender<RunnerRequest>) -> Self {
        Self {
            deps,
            mesh: None,
            tasks: BTreeMap::new(),
            preparation: Preparation::default(),
            receivers: Receivers::new(requests.clone()),
            requests,
            threads: CommandThreads::default(),
            queues: DirectoryQueues::default(),
            recent_drops: Arc::new(PerMinute::new(MAX_DROPS)),
            recent_marks: PerMinute::new(MAX_MARKS),
            surveys: Arc::default(),
            denials: Arc::default(),
            stopping: Vec::new(),
            polled: None,
            reported_conflicts: BTreeSet::new(),
            made: BTreeMap::new(),
            undated: Vec::new(),
        }
    }

    /// Executes one command.
    pub(super) fn command(&mut self, command: Command, outgoing: mpsc::Sender<Outgoing>) {
        let reply_to =
            ReplyHandle::new(command.id, outgoing).with_denials(Arc::clone(&self.denials));
        let outcome = match command.request {
            CommandRequest::Sampling(sampling) => {
                self.deps.cluster.set_run(sampling.run);
                let appointed = self.deps.watch.appoint(sampling);
                self.report_conflicts();
                appointed.map(|()| Answer::Done)
            }
            CommandRequest::Mark { at } => self.mark(at),
            CommandRequest::Arm { task, start, end } => self.arm(task, start, end),
            CommandRequest::StopTask { task, reason } => self.stop(task, &reason),
            CommandRequest::ShareRate {
                task,
                task_index,
                tasks,
                from,
            } => self.share_rate(task, (task_index, tasks), from),
            CommandRequest::ForgetTask { task } => self.forget(task),
            CommandRequest::Prepare(prepare) => return self.prepare(prepare, reply_to),
            CommandRequest::AwaitEnd { task } => return self.await_end(task, reply_to),
            CommandRequest::Listen(listen) => return self.listen(listen, reply_to),
            request => return self.on_files(request, command.run, reply_to),
        };
        reply_to.reply(outcome);
    }

    pub(super) fn appoint(&mut self, sampling: Sampling) {
        self.deps.cluster.set_run(sampling.run);
        // `appoint` has logged the error.
        let _ = self.deps.watch.appoint(sampling);
        self.report_conflicts();
    }

    /// Reports rules that contradict each other, each once.
    fn report_conflicts(&mut self) {
        for message in self.deps.watch.conflicts() {
            if self.reported_conflicts.insert(message.clone()) {
                tracing::warn!("{message}");
                self.undated.push(message);
            }
        }
    }

    /// Sends events that were delayed until mesh time was known.
    pub(super) fn date_events(&mut self) {
        if self.undated.is_empty() {
            return;
        }
        let Some(map) = self.deps.dating.map() else {
            return;
        };
        let at = map.to_mesh(MonoNanos::now());
        let events = self.undated.drain(..).map(|message| {
            TelemetryRow::Event(Event {
                at,
                scope: RunScope::default(),
                kind: EventKind::WatchConflict.into(),
                message,
                detail: String::new(),
            })
        });
        let _ = self
            .deps
            .entries
            .try_send(SpoolEntry::Rows(events.collect()));
    }

    pub(super) fn mesh(&mut self, uid: String) {
        if self.mesh.as_ref().is_some_and(|mesh| *mesh != uid) {
            self.start_over("the collector has another database than before");
        }
        self.mesh = Some(uid);
    }

    /// Stops and forgets every task, and drops the rows that they still produce.
    pub(super) fn start_over(&mut self, reason: &str) {
        let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in tasks {
            if let Some(TaskSlot {
                state: SlotState::Running { stop_reason, .. },
                ..
            }) = self.tasks.get(&task)
            {
                stop_reason.abandon();
            }
            self.drop_task(task, reason);
        }
        self.receivers.close_all();
        self.deps.watch.start_over();
    }

    /// The tasks whose sending or receiving end is on this agent.
    pub(super) fn held(&self) -> Vec<i64> {
        let receivers = self.receivers.tasks();
        let tasks = self.tasks.keys().copied().chain(receivers);
        let held: BTreeSet<TaskId> = tasks.collect();
        held.into_iter().map(|task| task.0).collect()
    }

    /// Takes a sample. A mark with an instant is the start of a step; a mark without one is a step's end or set by a
    /// user.
    fn mark(&self, at: Option<MeshMicros>) -> CommandResult {
        if !self.recent_marks.permit(Instant::now()) {
            return Err(Refusal::new(
                RefusalKind::NotAllowed,
                format!("this agent takes samples on demand at most {MAX_MARKS} times a minute"),
            ));
        }
        if at.is_none() {
            self.deps.cluster.mark();
        }
        let now = MonoNanos::now();
        let mark = match at {
            None => Mark::StepEnd(now),
            Some(at) => Mark::StepStart(self.map()?.to_mono(at).unwrap_or(now)),
        };
        self.deps.watch.mark(mark);
        Ok(Answer::Done)
    }

    /// The best known mapping to mesh time, for actions at an instant of mesh time.
    fn map(&self) -> Result<crate::clock::MeshMap, Refusal> {
        self.deps
            .dating
            .newest()
            .map(|estimate| estimate.map)
            .ok_or_else(|| {
                Refusal::failed(
                    "this agent does not know mesh time yet: no clock exchange has been made",
                )
            })
    }

    fn stop(&mut self, id: TaskId, reason: &str) -> CommandResult {
        let known_receiver = self.receivers.close(id);
        if !self.tasks.contains_key(&id) {
            return match known_receiver {
                true => Ok(Answer::Done),
                false => Err(Refusal::unknown_task(id)),
            };
        }
        self.stop_slot(id, reason);
        Ok(Answer::Done)
    }

    fn stop_slot(&mut self, id: TaskId, reason: &str) {
        if let Some(slot) = self.tasks.get_mut(&id) {
            slot.stop(reason);
        }
    }

    fn forget(&mut self, id: TaskId) -> CommandResult {
        self.receivers.close(id);
        match self.tasks.get(&id).map(|slot| &slot.state) {
            Some(SlotState::Running { .. }) => Err(Refusal::failed(format!(
                "task {id} still runs; stop it and await its end first"
            ))),
            Some(_) => {
                self.drop_task(id, "it was forgotten");
                Ok(Answer::Done)
            }
            // Repeated requests to forget a task succeed.
            None => Ok(Answer::Done),
        }
    }

    /// Stops the task, and removes it as soon as possible.
    fn drop_task(&mut self, id: TaskId, reason: &str) {
        let Some(slot) = self.tasks.get_mut(&id) else {
            return;
        };
        slot.stop(reason);
        match &mut slot.state {
            SlotState::Preparing { pending, .. } | SlotState::Running { pending, .. } => {
                *pending = PendingAction::Forget
            }
            SlotState::Prepared(_) | SlotState::Ended(_) => {
                self.tasks.remove(&id);
            }
        }
    }

    pub(super) fn stop_sampler(&mut self) -> Option<std::thread::JoinHandle<()>> {
        self.deps.watch.stop()
    }

    pub(super) fn stop_all(&mut self, done: oneshot::Sender<()>) {
        self.receivers.close_all();
        self.deps.cluster.stop();
        for slot in self.tasks.values_mut() {
            slot.stop("the agent was stopped");
        }
        self.stopping.push(done);
        self.report_stopped();
    }

    fn report_stopped(&mut self) {
        let live = |slot: &TaskSlot| {
            matches!(
                slot.state,
                SlotState::Preparing { .. } | SlotState::Running { .. }
            )
        };
        if !self.tasks.values().any(live) {
            for done in self.stopping.drain(..) {
                let _ = done.send(());
            }
        }
    }
}

impl TaskSlot {
    /// Whether a load runs or is prepared.
    fn is_live(&self) -> bool {
        match &self.state {
            SlotState::Preparing { pending, .. } | SlotState::Running { pending, .. } => {
                *pending == PendingAction::Keep
            }
            SlotState::Prepared(_) => true,
            SlotState::Ended(_) => false,
        }
    }

    /// Stops new operations. A task that has ended keeps its end.
    fn stop(&mut self, reason: &str) {
        match &mut self.state {
            SlotState::Preparing {
                control, pending, ..
            } => {
                control.store(true, Ordering::Relaxed);
                if *pending == PendingAction::Keep {
                    *pending = PendingAction::Stop(reason.to_owned());
                }
            }
            SlotState::Prepared(_) => {
                let ended = SlotState::Ended(UNSTARTED);
                if let SlotState::Prepared(task) = std::mem::replace(&mut self.state, ended) {
                    discard(Some(task));
                }
            }
            SlotState::Running {
                stopper,
                stop_reason,
                pending,
                ..
            } => {
                stop_reason.because(reason);
                stopper.stop();
                if *pending == PendingAction::Keep {
                    *pending = PendingAction::Stop(reason.to_owned());
                }
            }
            SlotState::Ended(_) => {}
        }
    }
}

/// The end of a task that never began, which has no row.
const UNSTARTED: TaskEnded = TaskEnded {
    state: EndState::Stopped,
    last_row: None,
    stalled: false,
};

/// Ends the workers of an unwanted task. Uses a thread, because it waits for the workers and must not block the
/// runtime.
fn discard(task: Option<Box<ClaimedTask>>) {
    if let Some(task) = task {
        // If no thread can be started, the task is dropped here.
        let _ = std::thread::Builder::new()
            .name("bm-discard".to_owned())
            .spawn(move || drop(task));
    }
}
