//! Resumes a run that has ended.

use super::{ControlService, json};
use crate::service::{
    audit::{self, Requester},
    peer::Peer,
};
use benchmesh_proto::v1;
use benchmesh_scheduler::{ChangedTargets, ResumeError, snapshot::RunResumed};
use benchmesh_workloads::error_chain;
use std::sync::Arc;
use tonic::{Request, Response, Status};

impl ControlService {
    pub(super) async fn resume(
        &self,
        request: Request<v1::ResumeRunRequest>,
    ) -> Result<Response<v1::ResumeRunReply>, Status> {
        let _permit = self.starts.enter()?;
        // The call waits for the agents' answers without sending data.
        let _call = Peer::begin_call(&request);
        let by = Requester::of(&request);
        let request = request.into_inner();
        let row = self.find(&request.run).await?;
        let changed = match request.even_if_changed {
            true => ChangedTargets::Accepted,
            false => ChangedTargets::Refused,
        };
        if row.state.is_end() {
            self.check_queue().await?;
        }
        let (scheduler, store, clock) = (
            self.scheduler.clone(),
            self.store.clone(),
            Arc::clone(&self.clock),
        );
        let (run, closing) = (row.id, self.closing.clone());
        // Continues when the client disconnects, because the scheduler must be notified of a queued run.
        let resumed = tokio::spawn(async move {
            let resumed = tokio::select! {
                resumed = scheduler.resume(run, changed) => resumed,
                () = closing.cancelled() => return Err(Status::unavailable("the collector is closing")),
            };
            let resumed = resumed.map_err(|error| resume_status(&error))?;
            audit::run_resumed(&store, &clock, run, &by).await;
            Ok(resumed)
        });
        let resumed = resumed
            .await
            .map_err(|error| Status::internal(error_chain(&error)))??;
        let resumed_json = json(&RunResumed {
            run_id: row.id.0,
            run_uid: row.uid,
            run: row.name,
            steps_done: resumed.steps_done,
            steps_total: resumed.steps_total,
            changes: resumed.changes,
        })?;
        Ok(Response::new(v1::ResumeRunReply { resumed_json }))
    }
}

fn resume_status(error: &ResumeError) -> Status {
    match error {
        ResumeError::Store { .. } => Status::internal(error_chain(error)),
        _ => Status::failed_precondition(error_chain(error)),
    }
}
