//! Removal of kept data sets: every agent with a part of a set is asked, one after the other.
//!
//! Removed parts are forgotten at once, so a repeated request continues where an earlier one ended.

use super::super::audit::{self, RemovalOutcome, Requester};
use super::super::wire::store_status;
use super::{ControlService, ResponseStream};
use benchmesh_model::kept_data;
use benchmesh_model::mesh::{AgentId, RunState};
use benchmesh_plan::{self as plan, KeptFacts};
use benchmesh_proto::v1;
use benchmesh_scheduler::sessions::{
    Call, Fleet,
    command::{CallError, Command},
};
use benchmesh_store::rows::RunRow;
use benchmesh_store::{KeptSet, Store, off_runtime};
use benchmesh_workloads::error_chain;
use futures::stream;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status};

/// Maximum wait for a detached agent.
const LOSS_AFTER: Duration = Duration::from_secs(5);
/// Interval between progress reports.
const TOLD_EVERY: Duration = Duration::from_millis(500);
/// Queue of replies, small because a caller that does not read is not waited for long.
const QUEUED_REPLIES: usize = 4;

/// The caller has disconnected.
struct CallerGone;

struct Removal {
    fleet: Fleet,
    store: Store,
    /// Parts on detached agents are forgotten, and stay there.
    forgets_away: bool,
    replies: mpsc::Sender<Result<v1::RemoveDataReply, Status>>,
    /// Written after each part, because the removal ends with its caller.
    outcome: Mutex<RemovalOutcome>,
}

impl ControlService {
    pub(super) async fn data_removed(
        &self,
        request: Request<v1::RemoveDataRequest>,
    ) -> Result<Response<ResponseStream<v1::RemoveDataReply>>, Status> {
        let by = Requester::of(&request);
        let wanted = request.into_inner();
        let sets = self.sets_to_remove(&wanted).await?;
        let (replies, coming) = mpsc::channel(QUEUED_REPLIES);
        let removal = Removal {
            fleet: self.fleet.clone(),
            store: self.store.clone(),
            forgets_away: wanted.forget_away,
            replies,
            outcome: Mutex::default(),
        };
        let (closing, clock) = (self.closing.clone(), Arc::clone(&self.clock));
        tokio::spawn(async move {
            tokio::select! {
                () = closing.cancelled() => {}
                // The agent completes its removal by itself, and the next request finds it done.
                () = removal.replies.closed() => {}
                _ = removal.remove(&sets) => {}
            }
            let parts = sets.iter().map(|set| set.agents.len()).sum();
            let outcome = removal.outcome.into_inner();
            let outcome = outcome.unwrap_or_else(PoisonError::into_inner);
            audit::data_removed(&removal.store, &clock, &wanted.name, parts, &outcome, &by).await;
        });
        let replies = stream::unfold(coming, |mut coming| async {
            coming.recv().await.map(|reply| (reply, coming))
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn sets_to_remove(&self, wanted: &v1::RemoveDataRequest) -> Result<Vec<KeptSet>, Status> {
        let status = |error| store_status(&error);
        let mut sets = self.store.kept_data().await.map_err(status)?;
        sets.retain(|set| set.facts.name == wanted.name);
        sets.retain(|set| wanted.path.is_empty() || set.facts.path == wanted.path);
        if sets.is_empty() {
            let at = match wanted.path.as_str() {
                "" => String::new(),
                path => format!(" at {path}"),
            };
            return Err(Status::not_found(format!(
                "no data are kept as `{}`{at}: `benchmesh data` lists all kept data",
                wanted.name
            )));
        }
        for run in self.store.unfinished_runs().await.map_err(status)? {
            let mut sets = sets.iter();
            let verb = match run.state {
                RunState::Queued => "needs",
                _ => "uses",
            };
            let needed = needed_sets(&run).await;
            if sets.any(|set| set.used_run_uid == run.uid || needed.contains(&place(&set.facts))) {
                return Err(Status::failed_precondition(format!(
                    "run {}, which is {}, {verb} the data `{}`: wait for its end, or stop it with `benchmesh stop {}`",
                    run.id,
                    run.state.as_str(),
                    wanted.name,
                    run.id
                )));
            }
        }
        Ok(sets)
    }
}

/// Name and path of the sets that any phase of a run uses. A run that has begun may use each of them again.
async fn needed_sets(run: &RunRow) -> BTreeSet<(String, String)> {
    let (text, name) = (run.plan_text.clone(), run.name.clone());
    // The plan of an accepted run is valid.
    off_runtime(move || plan::parse(&text, &name))
        .await
        .map(|plan| plan.kept_sets())
        .unwrap_or_default()
}

fn place(set: &KeptFacts) -> (String, String) {
    (set.name.clone(), set.path.clone())
}

impl Removal {
    async fn remove(&self, sets: &[KeptSet]) -> Result<(), CallerGone> {
        for set in sets {
            for agent in &set.agents {
                self.remove_part(set, *agent).await?;
            }
        }
        Ok(())
    }

    async fn remove_part(&self, set: &KeptSet, agent: AgentId) -> Result<(), CallerGone> {
        let name = self
            .fleet
            .member(agent)
            .map(|member| member.hello.name.clone());
        let mut reply = v1::RemoveDataReply {
            agent: name.unwrap_or_else(|| format!("agent {agent}")),
            path: set.facts.path.clone(),
            ..v1::RemoveDataReply::default()
        };
        let command = Command::RemoveRunDirectory {
            run_uid: kept_data::uid(&set.facts.name),
            path: set.facts.path.clone(),
        };
        let (told, progress) = watch::channel(Default::default());
        let call = Call::to(agent, command, LOSS_AFTER).with_progress(told);
        let answer = self.fleet.call(call);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                () = tokio::time::sleep(TOLD_EVERY) => {
                    reply.files = progress.borrow().done;
                    self.tell(reply.clone()).await?;
                }
            }
        };
        reply.files = progress.borrow().done;
        reply.over = true;
        let is_forgotten = match &answer {
            Ok(_) => true,
            Err(error) => self.forgets_away && error.is_lost(),
        };
        // Counted before the next await, because the removal may end there.
        self.outcome().removed += usize::from(answer.is_ok());
        if let Err(error) = answer {
            reply.problem = problem(&error, is_forgotten);
        }
        if is_forgotten && let Err(error) = self.store.kept_data_removed(set.id, agent).await {
            reply.problem = error_chain(&error);
        }
        if !reply.problem.is_empty() {
            self.outcome().problems.push(format!(
                "agent `{}` at {}: {}",
                reply.agent, reply.path, reply.problem
            ));
        }
        self.tell(reply).await
    }

    fn outcome(&self) -> MutexGuard<'_, RemovalOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(&self, reply: v1::RemoveDataReply) -> Result<(), CallerGone> {
        let sent = self.replies.send(Ok(reply)).await;
        sent.map_err(|_| CallerGone)
    }
}

fn problem(error: &CallError, is_forgotten: bool) -> String {
    let error = error_chain(error);
    match is_forgotten {
        true => {
            format!(
                "{error}; the part is forgotten, and `benchmesh agent clean` on its host lists it"
            )
        }
        false => error,
    }
}
