//! Preparing a task, on a thread of its own: the target may be slow, and a preparation can be stopped.

use super::{PendingAction, Preparation, SlotState, Slots, TaskSlot, UNSTARTED, discard};
use crate::command::{Answer, DataOwner, Prepare, ProgressReport, Refusal, RefusalKind};
use crate::policy::Denial;
use crate::runner::claimed_task::ClaimedTask;
use crate::runner::reply::{ProgressReporter, ReplyHandle};
use crate::runner::slots::threads::unpanicked;
use crate::runner::space::SpaceGuard;
use crate::runner::task_events::StallReports;
use crate::runner::{RunnerRequest, permissions};
use crate::telemetry::TaskId;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::registry;
use benchmesh_workloads::task::{LayingOut, Place, PrepareControl, StallEvent};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::mpsc;

/// Maximum number of tasks, including ended ones; beyond it, the oldest ended one is dropped.
const MAX_TASKS: usize = 1024;

impl Slots {
    pub(super) fn prepare(&mut self, asked: Prepare, reply_to: ReplyHandle) {
        let id = asked.task;
        if let Some(slot) = self.tasks.get_mut(&id) {
            if slot.asked != asked {
                return reply_to.reply(Err(Refusal::failed(format!(
                    "task {id} is already here, with other parameters; forget it first"
                ))));
            }
            match &mut slot.state {
                SlotState::Preparing {
                    reporter, waiting, ..
                } => {
                    reporter.turn_to(reply_to.clone());
                    waiting.push(reply_to);
                }
                _ => reply_to.reply(Ok(Answer::Done)),
            }
            return;
        }
        let Some(mesh) = self.mesh.clone() else {
            return reply_to.reply(Err(Refusal::failed("the agent is not attached yet")));
        };
        if let Err(refusal) = self.make_room() {
            return reply_to.reply(Err(refusal));
        }
        let preparation = Preparation(self.preparation.0.wrapping_add(1));
        self.preparation = preparation;
        let control = Arc::new(AtomicBool::new(false));
        let reporter = Arc::new(ProgressReporter::new(reply_to.clone()));
        let reporting = Arc::clone(&reporter);
        let prepare_control = PrepareControl::new(Arc::clone(&control), move |it| {
            reporting.report(ProgressReport {
                done: it.done,
                total: it.total,
                unit: it.unit,
            });
        });
        let prepare_control = prepare_control
            .reporting_stalls(self.on_stalls(&asked, preparation))
            .limited_by(self.deps.permissions.policy.rate.clone())
            .with_laying_out(match asked.data {
                DataOwner::Existing(_) => LayingOut::Refused,
                DataOwner::Cell | DataOwner::Kept(_) => LayingOut::Allowed,
            });
        let (permissions, requests) = (self.deps.permissions.clone(), self.requests.clone());
        let space = self.deps.space.clone();
        let spec_of = asked.clone();
        let target = asked.place.as_ref().map(|place| place.target.clone());
        let started = self.threads.run("bm-prepare", target, move || {
            let prepared = unpanicked(|| {
                let params = spec_of.params.clone();
                prepare_control.watched(&params, || {
                    let target = spec_of.place.as_ref().map(|place| place.target.to_string());
                    // A kept set and its nonce outlive the run, but samples of free space belong to the run.
                    let kept = spec_of.data.kept_set().and(spec_of.place.clone());
                    let (spec, mut claim) = permissions.spec(&mesh, spec_of)?;
                    let nonce = |place: &Place| match &kept {
                        Some(name) => permissions.run_nonce(&mesh, name),
                        None => place.nonce().map(str::to_owned),
                    };
                    let space_guard = match target.zip(spec.place.clone()) {
                        Some((target, place)) => {
                            let floors = permissions.floors(&spec, &place);
                            let breached = on_breach(requests.clone(), id);
                            space.watch(target, nonce(&place), place, floors, breached)?
                        }
                        None => None,
                    };
                    let task = registry::prepare_here(&spec, &prepare_control)
                        .map_err(|error| permissions::refusal(&error))?;
                    claim.grow_to(task.workers())?;
                    task.attach_to_workers(claim.split());
                    let space_guard = match permissions.floors_hold_for_load(&spec) {
                        true => space_guard,
                        false => space_guard.map(SpaceGuard::without_floors),
                    };
                    Ok(Box::new(ClaimedTask { space_guard, task }))
                })
            });
            if let Some(requests) = requests.upgrade() {
                // If the actor has ended, the task is dropped, which ends its workers.
                let _ = requests.blocking_send(RunnerRequest::Prepared(id, preparation, prepared));
            }
        });
        match started {
            Ok(()) => {
                let state = SlotState::Preparing {
                    preparation,
                    control,
                    reporter,
                    waiting: vec![reply_to],
                    pending: PendingAction::Keep,
                };
                self.tasks.insert(
                    id,
                    TaskSlot {
                        asked,
                        state,
                        lease_is_over: false,
                    },
                );
            }
            Err(refusal) => reply_to.reply(Err(refusal)),
        }
    }

    /// Stops a task whose target has fallen below the policy's floor.
    pub(in crate::runner) fn end_for_floor(&mut self, id: TaskId, denial: &Denial) {
        tracing::warn!(task = %id, %denial, "its load is stopped: too little is left free");
        self.stop_slot(id, &format!("too little is left free: {denial}"));
    }

    /// Handles calls of a preparation that hang: reports them, and refuses the task if the plan does not wait. The
    /// hanging thread is abandoned, because it cannot be ended.
    fn on_stalls(
        &self,
        asked: &Prepare,
        preparation: Preparation,
    ) -> impl Fn(StallEvent) + Send + Sync + 'static {
        let (id, on_stall) = (asked.task, asked.on_stall);
        let reports = StallReports {
            scope: asked.scope.clone(),
            dating: self.deps.dating.clone(),
            entries: self.deps.entries.clone(),
        };
        let requests = self.requests.clone();
        move |stall| {
            reports.send(&stall);
            if let (Some(why), Some(requests)) = (
                stall.why_ended(on_stall, MonoNanos::now()),
                requests.upgrade(),
            ) {
                let refusal = Refusal::new(RefusalKind::Stalled, why);
                let _ = requests.blocking_send(RunnerRequest::AbandonPreparation(
                    id,
                    preparation,
                    refusal,
                ));
            }
        }
    }

    /// Whether the task is in exactly this preparation.
    fn is_preparing(&self, id: TaskId, preparation: Preparation) -> bool {
        self.tasks.get(&id).is_some_and(|slot| {
            matches!(slot.state, SlotState::Preparing { preparation: held, .. } if held == preparation)
        })
    }

    /// Refuses the task of a preparation that hangs. A later result is dropped.
    pub(in crate::runner) fn abandon_preparation(
        &mut self,
        id: TaskId,
        preparation: Preparation,
        why: Refusal,
    ) {
        if self.is_preparing(id, preparation)
            && let Some(mut slot) = self.tasks.remove(&id)
        {
            slot.stop("it hangs");
            if let SlotState::Preparing { waiting, .. } = slot.state {
                for reply_to in waiting {
                    reply_to.reply(Err(why.clone()));
                }
            }
        }
        self.report_stopped();
    }

    /// If the table is full, drops an ended task that was not forgotten.
    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.tasks.len() < MAX_TASKS {
            return Ok(());
        }
        let ended = self
            .tasks
            .iter()
            .find(|(_, slot)| matches!(slot.state, SlotState::Ended(_)));
        match ended.map(|(id, _)| *id) {
            Some(id) => {
                self.tasks.remove(&id);
                Ok(())
            }
            None => Err(Refusal::failed(format!(
                "the agent holds {MAX_TASKS} tasks already"
            ))),
        }
    }

    /// Handles the result of a preparation. The result of an abandoned one is dropped, whatever the state of the task.
    pub(in crate::runner) fn prepared(
        &mut self,
        id: TaskId,
        preparation: Preparation,
        result: Result<Box<ClaimedTask>, Refusal>,
    ) {
        if !self.is_preparing(id, preparation) {
            return discard(result.ok());
        }
        let Some(TaskSlot {
            asked,
            state: SlotState::Preparing {
                waiting, pending, ..
            },
            lease_is_over,
        }) = self.tasks.remove(&id)
        else {
            return discard(result.ok());
        };
        let outcome = match (result, pending) {
            (Ok(task), PendingAction::Keep) => {
                self.tasks.insert(
                    id,
                    TaskSlot {
                        asked,
                        state: SlotState::Prepared(task),
                        lease_is_over: false,
                    },
                );
                Ok(Answer::Done)
            }
            (Err(refusal), PendingAction::Keep) => Err(refusal),
            (result, PendingAction::Stop(reason)) => {
                discard(result.ok());
                self.tasks.insert(
                    id,
                    TaskSlot {
                        asked,
                        state: SlotState::Ended(UNSTARTED),
                        lease_is_over,
                    },
                );
                Err(Refusal::failed(format!(
                    "task {id} was stopped while it was prepared: {reason}"
                )))
            }
            (result, PendingAction::Forget) => {
                discard(result.ok());
                Err(Refusal::failed(format!(
                    "task {id} was forgotten while it was prepared"
                )))
            }
        };
        for reply_to in waiting {
            reply_to.reply(outcome.clone());
        }
        self.report_stopped();
    }
}

/// Reports a breached floor to the actor.
fn on_breach(requests: mpsc::WeakSender<RunnerRequest>, id: TaskId) -> impl FnOnce(Denial) + Send {
    move |denial| {
        if let Some(requests) = requests.upgrade() {
            let _ = requests.blocking_send(RunnerRequest::FloorReached(id, denial));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::clock::{Dating, Estimate, Exchange, Filter};
    use crate::command::{CommandResult, DataOwner, PlaceName};
    use crate::policy::{Policy, PolicyConfig};
    use crate::runner::{
        ClusterWatch, Contact, Permissions, RunMounts, RunnerDeps, SamplerControl, SpaceWatch,
    };
    use crate::sampler::DaemonRule;
    use crate::spool::{Acked, Samples};
    use crate::targets::TargetNames;
    use crate::telemetry::{MeshMicros, RunScope};
    use crate::wire::reply::Outgoing;
    use benchmesh_workloads::task::{Cache, OnStall};
    use std::time::Duration;
    use tokio::sync::{mpsc, watch};

    fn estimate() -> Estimate {
        let mono = MonoNanos::now();
        let mesh_ns = 1_700_000_000_000_000_000;
        let exchange = Exchange {
            sent: mono,
            mesh_received_ns: mesh_ns,
            mesh_sent_ns: mesh_ns,
            received: mono,
            slept_ns: 0,
        };
        Filter::default().add(exchange).unwrap()
    }

    fn null_task(id: TaskId) -> Prepare {
        Prepare {
            task: id,
            workload: "null".to_owned(),
            mode: "run".to_owned(),
            params: serde_json::from_str(r#"{"ops": 1000000000}"#).unwrap(),
            place: None::<PlaceName>,
            data: DataOwner::Cell,
            task_index: 0,
            tasks: 1,
            cache: Cache::AsIs,
            peer: None,
            lease: Duration::from_secs(60),
            scope: RunScope::default(),
            on_stall: OnStall::Abort,
        }
    }

    /// A preparation hangs and is abandoned, the task is prepared and armed again, and then the first preparation
    /// returns.
    #[tokio::test]
    async fn the_late_result_of_an_abandoned_preparation_leaves_the_running_task_alone() {
        let (requests, mut requests_in) = mpsc::channel(16);
        // The receiver of its rows is dropped; the task ends nevertheless.
        let (entries, _) = mpsc::channel(16);
        let (_clock, clock) = watch::channel(Some(estimate()));
        let dating = Dating::new(clock);
        let contact = Contact::default();
        contact.touch();
        let policy = PolicyConfig {
            targets: TargetNames::directories(["/tmp"]),
            ..PolicyConfig::default()
        };
        let mut slots = Slots::new(
            RunnerDeps {
                permissions: Permissions {
                    policy: Arc::new(Policy::open(&policy).unwrap()),
                    scratch: None,
                    run_mounts: RunMounts::default(),
                },
                watch: SamplerControl::new(
                    Vec::<DaemonRule>::new(),
                    Duration::from_secs(1),
                    Samples::default(),
                ),
                cluster: ClusterWatch::default(),
                space: SpaceWatch::new(&dating, &entries),
                dating,
                entries,
                acked: Acked::default(),
                contact,
                start_log: None,
            },
            requests.downgrade(),
        );
        slots.mesh("mesh-1".to_owned());
        let (outgoing, mut replies) = mpsc::channel(16);
        let id = TaskId(1);
        let ask = |command| ReplyHandle::new(command, outgoing.clone());
        let mut prepare_once = async |slots: &mut Slots, command| {
            slots.prepare(null_task(id), ask(command));
            match requests_in.recv().await {
                Some(RunnerRequest::Prepared(_, preparation, result)) => (preparation, result),
                other => panic!("{other:?}"),
            }
        };
        let (hung, late_result) = prepare_once(&mut slots, 1).await;
        slots.abandon_preparation(id, hung, Refusal::new(RefusalKind::Stalled, "it hangs"));
        assert!(slots.held().is_empty());
        let (preparation, result) = prepare_once(&mut slots, 2).await;
        slots.prepared(id, preparation, result);
        // The start is far ahead, so that it is never in the past, even if this thread is late. The task is stopped
        // before it.
        let start = slots.map().unwrap().to_mesh(MonoNanos::now()).0 + 60_000_000;
        slots.arm(id, MeshMicros(start), None).unwrap();

        slots.prepared(id, hung, late_result);
        assert_eq!(slots.held(), [1]);
        let state = &slots.tasks.get(&id).unwrap().state;
        assert!(matches!(state, SlotState::Running { .. }));
        // The stop still reaches it.
        slots.stop_slot(id, "the test is over");
        let load_over = requests_in.recv().await.unwrap();
        assert!(
            matches!(load_over, RunnerRequest::LoadOver(_)),
            "{load_over:?}"
        );
        let ended = match requests_in.recv().await.unwrap() {
            RunnerRequest::Ended(_, ended) => ended,
            other => panic!("{other:?}"),
        };
        assert_eq!(ended.state.as_str(), "stopped");
        let mut outcomes: Vec<(u64, CommandResult)> = Vec::new();
        while let Ok(Outgoing::Reply { id, outcome }) = replies.try_recv() {
            outcomes.push((id, outcome));
        }
        assert!(
            matches!(outcomes[..], [(1, Err(_)), (2, Ok(Answer::Done))]),
            "{outcomes:?}"
        );
    }
}
