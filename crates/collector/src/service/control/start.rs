//! Starts a run: checks its plan, and queues it unless too many runs are waiting.

use super::{ControlService, json};
use crate::service::{
    audit::{self, Requester},
    memory,
    peer::Peer,
    wire::store_status,
};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_proto::{CONTROL_VERSION, v1};
use benchmesh_scheduler::{
    StartError, StartRequest,
    admission::{Admission, NewAgents},
    snapshot::{RunStarted, StepPlanned},
};
use benchmesh_workloads::error_chain;
use std::time::Duration;
use tonic::{Code, Request, Response, Status};

/// Limit of queued runs: all their plans are read again when a run ends.
const MAX_QUEUED_RUNS: u32 = 100;
/// Limit of queued runs with a later start, so that others have room in the queue.
const MAX_SCHEDULED_RUNS: u32 = 50;
/// Limit of a later start: a year.
const MAX_AHEAD_US: i64 = 366 * 86_400 * 1_000_000;
/// Planned steps of one message are cut off at this size.
const MAX_PLANNED_STEPS_BYTES: usize = 6 << 20;
/// After the expansion of a plan with more steps, freed memory is returned to the system.
const MANY_STEPS: usize = 10_000;

impl ControlService {
    pub(super) async fn start(
        &self,
        request: Request<v1::StartRunRequest>,
    ) -> Result<Response<v1::StartRunReply>, Status> {
        let by = Requester::of(&request);
        let is_dry = request.get_ref().dry_run;
        self.started(request).await.inspect_err(|status| {
            if !is_dry && is_refusal(status) {
                let reason = status.message().lines().next().unwrap_or_default();
                self.gate
                    .log_refusal_of(&by.to_string(), &format!("cannot start a run: {reason}"));
            }
        })
    }

    async fn started(
        &self,
        request: Request<v1::StartRunRequest>,
    ) -> Result<Response<v1::StartRunReply>, Status> {
        let _permit = self.starts.enter()?;
        // The call may wait for agents for a long time without sending data.
        let _call = Peer::begin_call(&request);
        let by = Requester::of(&request);
        let request = request.into_inner();
        if request.wire_version != CONTROL_VERSION {
            return Err(Status::failed_precondition(format!(
                "this command uses version {} of the wire, but the collector (benchmesh {}) uses version {CONTROL_VERSION}: run \
                the same version of benchmesh on both",
                request.wire_version,
                env!("CARGO_PKG_VERSION"),
            )));
        }
        let now = self.clock.now();
        if request.due_us.saturating_sub(now.0) > MAX_AHEAD_US {
            return Err(Status::invalid_argument(
                "the run would start in more than a year: choose an earlier time with --at",
            ));
        }
        if !request.dry_run {
            let is_later = request.due_us > now.0;
            self.check_room(&request.run_uid, is_later).await?;
        }
        let start = StartRequest {
            run_uid: request.run_uid,
            plan_name: request.plan_name,
            plan_text: request.plan_toml,
            agents: request.agents,
            agents_wait: duration(request.agents_wait_us),
            mode: if request.dry_run {
                Admission::DryRun
            } else {
                Admission::Queue
            },
            new_agents: match request.new_agents {
                true => NewAgents::Taken,
                false => NewAgents::LeftOut,
            },
            due: (request.due_us > 0).then_some(MeshMicros(request.due_us)),
        };
        let started = tokio::select! {
            started = self.scheduler.start(start) => started.map_err(|error| start_status(&error))?,
            () = self.closing.cancelled() => return Err(Status::unavailable("the collector is closing")),
        };
        if let (Some(run), false) = (started.run, started.known) {
            audit::run_started(&self.store, &self.clock, run, &by).await;
        }
        let mut room_left = MAX_PLANNED_STEPS_BYTES;
        let steps: Vec<StepPlanned> = started
            .steps
            .iter()
            .map(StepPlanned::from)
            .map_while(|step| {
                room_left = room_left.checked_sub(json(&step).ok()?.len() + 1)?;
                Some(step)
            })
            .collect();
        let mut warnings = started.warnings;
        let planned = started.steps.len();
        if steps.len() < planned {
            warnings.push(format!(
                "the first {} of {planned} steps are shown",
                steps.len()
            ));
        }
        drop((started.steps, started.room));
        if planned > MANY_STEPS {
            memory::give_back();
        }
        let started_json = json(&RunStarted {
            run_id: started.run.map_or(0, |run| run.0),
            run_uid: started.uid,
            known: started.known,
            steps,
            warnings,
        })?;
        Ok(Response::new(v1::StartRunReply { started_json }))
    }

    /// Refuses runs that would keep the queue full until their time.
    async fn check_scheduled(&self) -> Result<(), Status> {
        let now = self.clock.now();
        let scheduled = self.store.count_scheduled_runs(now).await;
        if scheduled.map_err(|error| store_status(&error))? < MAX_SCHEDULED_RUNS {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "{MAX_SCHEDULED_RUNS} runs already wait for their time; stop some (`benchmesh runs` lists them)"
        )))
    }

    /// Refuses a new run if there is no room for it; a run with a known uid is answered.
    async fn check_room(&self, uid: &str, is_later: bool) -> Result<(), Status> {
        let mut room = self.check_queue().await;
        if room.is_ok() && is_later {
            room = self.check_scheduled().await;
        }
        let Err(full) = room else {
            return Ok(());
        };
        match self.store.find_run(uid).await {
            Ok(row) if row.uid == uid => Ok(()),
            _ => Err(full),
        }
    }

    /// Refuses another run while too many are waiting, or the disk is almost full.
    pub(super) async fn check_queue(&self) -> Result<(), Status> {
        if self.store.is_low_on_space() {
            return Err(Status::resource_exhausted(
                "the disk of the collector's database is almost full, and the rest is reserved for results of \
                current runs: free space on it, and start this run again",
            ));
        }
        let unfinished = self.store.count_unfinished_runs().await;
        if unfinished.map_err(|error| store_status(&error))? < MAX_QUEUED_RUNS {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "{MAX_QUEUED_RUNS} runs are already queued or running; start this one when some have ended, or stop some \
            (`benchmesh runs` lists them)"
        )))
    }
}

/// Whether the client, its plan or its agents are at fault, not the collector.
fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::FailedPrecondition | Code::ResourceExhausted
    )
}

/// Why a run is not started.
fn start_status(error: &StartError) -> Status {
    let message = error_chain(error);
    match error {
        StartError::BadUid { .. } | StartError::Plan(_) => {
            Status::invalid_argument(error.to_string())
        }
        StartError::AgentsMissing { .. }
        | StartError::AgentsAway { .. }
        | StartError::AgentsNew { .. } => Status::failed_precondition(message),
        StartError::Store { .. } => Status::internal(message),
    }
}

fn duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}
