//! The `Control` service, for commands: start, watch, stop, resume, list, query, report, compare, annotate.

mod data;
mod documents;
mod last_samples;
mod prune;
mod resume;
mod start;
mod watched;
mod watcher;

use super::{
    audit::{self, Requester},
    gate::Gate,
    peer::Peer,
    wire::{
        annotate_status, compare_status, import_status, query_reply, query_status, state_word,
        store_status,
    },
};
use crate::overview::{self, Overview};
use benchmesh_answers::{
    compare, pictures,
    query::{self, Limits},
    report::{self, ReportError},
};
use benchmesh_model::mesh::RunId;
use benchmesh_proto::{v1, v1::control_server::Control};
use benchmesh_scheduler::{
    RunProgress, Scheduler, WatcherPosition,
    sessions::{Fleet, ForgetError},
};
use benchmesh_store::{
    Store, annotate::Annotation, clock::MeshClock, off_runtime, retention::Retainer, rows::RunRow,
};
use benchmesh_workloads::error_chain;
use documents::{document, file};
use futures::{Stream, StreamExt, stream};
use serde::{Serialize, de::DeserializeOwned};
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use watched::WatchPosition;
use watcher::RunWatcher;

/// Time limit of a query. Longer queries can be run on the database file itself, without a limit.
const QUERY_TIME_LIMIT: Duration = Duration::from_secs(120);
/// Limits the queries, and so their memory. Each has a thread and holds a snapshot of the database while it runs.
const MAX_QUERIES: usize = 8;
/// Limits the queries of one operator, so that others have places too.
pub(super) const MAX_QUERIES_OF_OPERATOR: usize = MAX_QUERIES / 2;
/// Limits the reports. Each holds a whole report in memory.
const MAX_REPORTS: usize = 8;
/// Time limit for a restarted collector to continue unfinished runs, and the interval of the checks.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(10);
const TAKEN_UP_POLL: Duration = Duration::from_millis(20);
/// Limits the watchers. Each is woken by every change of its run.
const MAX_WATCHERS: usize = 256;
/// Limits the plans being expanded, and the runs that wait for their agents.
const MAX_STARTS: usize = 64;
/// Upper limit of an imported run, as JSON.
const MAX_IMPORT_BYTES: usize = 256 << 20;

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Debug)]
pub(super) struct ControlService {
    scheduler: Scheduler,
    fleet: Fleet,
    store: Store,
    clock: Arc<MeshClock>,
    overview: Overview,
    retainer: Retainer,
    gate: Arc<Gate>,
    closing: CancellationToken,
    queries: CallPlaces,
    reports: CallPlaces,
    watchers: CallPlaces,
    starts: CallPlaces,
}

/// Bounds the concurrent calls of one kind. A call over the bound is refused at once.
#[derive(Debug)]
struct CallPlaces {
    /// Plural noun for messages.
    what: &'static str,
    most: usize,
    free: Arc<Semaphore>,
}

impl CallPlaces {
    fn new(what: &'static str, most: usize) -> Self {
        Self {
            what,
            most,
            free: Arc::new(Semaphore::new(most)),
        }
    }

    /// Takes a place until the permit is dropped.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "this collector serves at most {} {} at once; try again when one has ended",
                self.most, self.what
            ))
        })
    }
}

impl ControlService {
    async fn compared(
        &self,
        request: v1::CompareRequest,
    ) -> Result<compare::CompareAnswer, Status> {
        let wanted = parsed("comparison request", &request.request_json)?;
        self.store.refresh().await;
        compare::compare(self.store.reader(), &wanted)
            .await
            .map_err(|error| compare_status(&error))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of the collector that commands reach, each of a type of its own"
    )]
    pub fn new(
        scheduler: Scheduler,
        fleet: Fleet,
        store: Store,
        clock: Arc<MeshClock>,
        overview: Overview,
        retainer: Retainer,
        gate: Arc<Gate>,
        closing: CancellationToken,
    ) -> Self {
        Self {
            scheduler,
            fleet,
            store,
            clock,
            overview,
            retainer,
            gate,
            closing,
            queries: CallPlaces::new("queries", MAX_QUERIES),
            reports: CallPlaces::new("reports", MAX_REPORTS),
            watchers: CallPlaces::new("watchers of runs", MAX_WATCHERS),
            starts: CallPlaces::new("starting runs", MAX_STARTS),
        }
    }

    /// Finds a run by id, uid or name; empty and `last` mean the newest.
    async fn find(&self, wanted: &str) -> Result<RunRow, Status> {
        let wanted = if wanted == "last" { "" } else { wanted };
        self.store
            .find_run(wanted)
            .await
            .map_err(|error| store_status(&error))
    }
}

impl ControlService {
    /// The progress of a run in this collector. Waits for a run that has not ended, because a restarted collector
    /// continues it a moment later.
    async fn progress_of(&self, row: &RunRow) -> Option<Arc<RunProgress>> {
        let deadline = Instant::now() + TAKEN_UP_WITHIN;
        loop {
            let progress = self.scheduler.progress().run(row.id);
            if progress.is_some() || row.state.is_end() || Instant::now() >= deadline {
                return progress;
            }
            sleep(TAKEN_UP_POLL).await;
        }
    }

    /// The progress of a run that may have ended after its row was read.
    async fn past(&self, run: RunId) -> Result<Arc<RunProgress>, Status> {
        let row = self.find(&run.to_string()).await?;
        if !row.state.is_end() {
            return Err(Status::unavailable("the run is not ready yet; try again"));
        }
        let counts = self.store.step_counts(run).await;
        let (done, steps) = counts.map_err(|error| store_status(&error))?;
        Ok(Arc::new(RunProgress::past(&row, done, steps)))
    }
}

#[tonic::async_trait]
impl Control for ControlService {
    type WatchRunStream = ResponseStream<v1::RunUpdate>;
    type QueryStream = ResponseStream<v1::QueryReply>;
    type ReportStream = ResponseStream<v1::ReportReply>;
    type ReportFileStream = ResponseStream<v1::ReportFileReply>;
    type CompareStream = ResponseStream<v1::ReportReply>;
    type CompareFileStream = ResponseStream<v1::ReportFileReply>;
    type PruneStream = ResponseStream<v1::PruneReply>;
    type RemoveDataStream = ResponseStream<v1::RemoveDataReply>;

    async fn start_run(
        &self,
        request: Request<v1::StartRunRequest>,
    ) -> Result<Response<v1::StartRunReply>, Status> {
        self.start(request).await
    }

    async fn watch_run(
        &self,
        request: Request<v1::WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        let permit = self.watchers.enter()?;
        let request = request.into_inner();
        let row = self.find(&request.run).await?;
        let progress = match self.progress_of(&row).await {
            Some(progress) => progress,
            None => self.past(row.id).await?,
        };
        let watcher = RunWatcher {
            _permit: permit,
            _viewer: self.store.live().viewer(),
            detail: request
                .detail
                .then(|| (self.overview.clone(), self.overview.viewer())),
            changes: progress.changes(),
            progress,
            clock: Arc::clone(&self.clock),
            closing: self.closing.clone(),
            seen: WatcherPosition::default(),
            position: WatchPosition::default(),
            sent: None,
            ended: false,
        };
        Ok(Response::new(Box::pin(stream::unfold(
            watcher,
            RunWatcher::next,
        ))))
    }

    async fn stop_run(
        &self,
        request: Request<v1::StopRunRequest>,
    ) -> Result<Response<v1::StopRunReply>, Status> {
        let by = Requester::of(&request);
        let request = request.into_inner();
        let row = match request.run.as_str() {
            "" => self.store.running_or_newest().await,
            "last" => self.store.find_run("").await,
            wanted => self.store.find_run_to_stop(wanted).await,
        };
        let row = row.map_err(|error| store_status(&error))?;
        let reason: String = request.reason.chars().take(1000).collect();
        if request.after_loop {
            let event = audit::last_loop_requested(&self.clock, row.id, &reason, &by);
            let state = self.scheduler.end_after_loop(&row, event).await;
            let state = state.map_err(|error| store_status(&error))?;
            return Ok(Response::new(v1::StopRunReply {
                run_id: row.id.0,
                state: state_word(state),
            }));
        }
        let state = self
            .scheduler
            .stop(&row, &reason)
            .await
            .map_err(|error| store_status(&error));
        if !row.state.is_end() {
            // If the database cannot be written, the command must not wait for it.
            let (store, clock, run) = (self.store.clone(), Arc::clone(&self.clock), row.id);
            tokio::spawn(async move { audit::run_stopped(&store, &clock, run, &by).await });
        }
        let state = state?;
        Ok(Response::new(v1::StopRunReply {
            run_id: row.id.0,
            state: state_word(state),
        }))
    }

    async fn resume_run(
        &self,
        request: Request<v1::ResumeRunRequest>,
    ) -> Result<Response<v1::ResumeRunReply>, Status> {
        self.resume(request).await
    }

    async fn list_agents(
        &self,
        _request: Request<v1::ListAgentsRequest>,
    ) -> Result<Response<v1::ListAgentsReply>, Status> {
        let agents_json = json(&overview::compute::agents(&self.fleet))?;
        Ok(Response::new(v1::ListAgentsReply { agents_json }))
    }

    async fn archive_queue(
        &self,
        _request: Request<v1::ArchiveQueueRequest>,
    ) -> Result<Response<v1::ArchiveQueueReply>, Status> {
        let Some(now) = self.overview.look().await else {
            return Err(Status::unavailable(
                "the collector cannot read its state now; try again",
            ));
        };
        let archive_json = json(&now.snapshot.health.archive)?;
        Ok(Response::new(v1::ArchiveQueueReply { archive_json }))
    }

    async fn forget_agent(
        &self,
        request: Request<v1::ForgetAgentRequest>,
    ) -> Result<Response<v1::ForgetAgentReply>, Status> {
        let name = request.into_inner().name;
        let agent = self.fleet.forget(&name).await.map_err(|error| {
            let message = error_chain(&error);
            match error {
                ForgetError::Unknown { .. } => Status::not_found(message),
                ForgetError::Attached { .. } | ForgetError::InRun { .. } => {
                    Status::failed_precondition(message)
                }
                ForgetError::Store { .. } => Status::internal(message),
            }
        })?;
        Ok(Response::new(v1::ForgetAgentReply { agent_id: agent.0 }))
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsReply>, Status> {
        let search = parsed("search of runs", &request.get_ref().search_json)?;
        let runs = self.store.search_runs(&search).await;
        let runs_json = json(&runs.map_err(|error| store_status(&error))?)?;
        Ok(Response::new(v1::ListRunsReply { runs_json }))
    }

    async fn query(
        &self,
        request: Request<v1::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let permit = self.queries.enter()?;
        let own = Peer::take_large_call(&request).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "this collector serves at most {MAX_QUERIES_OF_OPERATOR} queries of one operator at once; try again \
                 when one has ended"
            ))
        })?;
        let sql = request.into_inner().sql;
        let limits = Limits::shared(QUERY_TIME_LIMIT);
        self.store.refresh().await;
        let answer = query::run(self.store.path(), &sql, limits, (permit, own))
            .await
            .map_err(|error| query_status(&error))?;
        let head = v1::QueryReply {
            columns: answer.columns,
            rows: Vec::new(),
        };
        let rows = stream::unfold(answer.rows, |mut rows| async {
            let batch = rows.recv().await?;
            let reply = batch.map(query_reply).map_err(|error| query_status(&error));
            Some((reply, rows))
        });
        let whole = stream::once(async { Ok(head) }).chain(rows);
        Ok(Response::new(Box::pin(
            whole.take_until(self.closing.clone().cancelled_owned()),
        )))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let permit = self.reports.enter()?;
        let wanted = request.into_inner().run;
        self.await_last_samples(&wanted).await;
        let report = report::load(self.store.reader(), &wanted)
            .await
            .map_err(|error| report_status(&error))?;
        document(report, permit).await
    }

    async fn report_file(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<Self::ReportFileStream>, Status> {
        let permit = self.reports.enter()?;
        let wanted = request.into_inner().run;
        self.await_last_samples(&wanted).await;
        let report = report::load(self.store.reader(), &wanted)
            .await
            .map_err(|error| report_status(&error))?;
        let report = Arc::new(report);
        let pictures = pictures::load(self.store.path(), Arc::clone(&report))
            .await
            .map_err(|error| Status::internal(error_chain(&error)))?;
        let html = spawn_blocking(move || pictures::html(&report, &pictures))
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(file(html, permit))
    }

    async fn compare(
        &self,
        request: Request<v1::CompareRequest>,
    ) -> Result<Response<Self::CompareStream>, Status> {
        let permit = self.reports.enter()?;
        let answer = self.compared(request.into_inner()).await?;
        document(answer, permit).await
    }

    async fn compare_file(
        &self,
        request: Request<v1::CompareRequest>,
    ) -> Result<Response<Self::CompareFileStream>, Status> {
        let permit = self.reports.enter()?;
        let answer = self.compared(request.into_inner()).await?;
        let overlays = pictures::overlays(self.store.path(), answer.clone())
            .await
            .map_err(|error| Status::internal(error_chain(&error)))?;
        let html = spawn_blocking(move || pictures::comparison_html(&answer, &overlays))
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(file(html, permit))
    }

    async fn annotate(
        &self,
        request: Request<v1::AnnotateRequest>,
    ) -> Result<Response<v1::AnnotateReply>, Status> {
        let request = request.into_inner();
        let annotation = parsed("annotation of the run", &request.annotation_json)?;
        let is_mark_of_now = matches!(annotation, Annotation::Mark { at: None, .. });
        let annotated = self
            .store
            .annotate(&request.run, annotation, self.clock.now())
            .await
            .map_err(|error| annotate_status(&error))?;
        if is_mark_of_now {
            self.scheduler.read_at_mark(annotated.run_id);
        }
        let annotated_json = json(&annotated)?;
        Ok(Response::new(v1::AnnotateReply { annotated_json }))
    }

    async fn prune(
        &self,
        request: Request<v1::PruneRequest>,
    ) -> Result<Response<Self::PruneStream>, Status> {
        self.pruned(request).await
    }

    async fn remove_data(
        &self,
        request: Request<v1::RemoveDataRequest>,
    ) -> Result<Response<Self::RemoveDataStream>, Status> {
        self.data_removed(request).await
    }

    async fn import_run(
        &self,
        request: Request<Streaming<v1::ImportRunRequest>>,
    ) -> Result<Response<v1::ImportRunReply>, Status> {
        let _permit = self.reports.enter()?;
        let mut pieces = request.into_inner();
        let mut run_json = Vec::new();
        while let Some(piece) = pieces.message().await? {
            run_json.extend(piece.run_json);
            if run_json.len() > MAX_IMPORT_BYTES {
                return Err(Status::invalid_argument("the imported run is too large"));
            }
        }
        let run = off_runtime(move || serde_json::from_slice(&run_json))
            .await
            .map_err(|error| Status::invalid_argument(format!("the imported run: {error}")))?;
        let run = self
            .store
            .import_run(run)
            .await
            .map_err(|error| import_status(&error))?;
        Ok(Response::new(v1::ImportRunReply { run_id: run.0 }))
    }
}

fn report_status(error: &ReportError) -> Status {
    let message = error_chain(error);
    match error {
        ReportError::NoRun { .. } | ReportError::NoRuns => Status::not_found(message),
        _ => Status::internal(message),
    }
}

/// What operators see, as a reply carries it: JSON of the types in the scheduler's `snapshot`.
fn json(seen: &impl Serialize) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(seen).map_err(|error| Status::internal(error.to_string()))
}

/// What a request carries as JSON.
fn parsed<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, Status> {
    serde_json::from_slice(json)
        .map_err(|error| Status::invalid_argument(format!("invalid {what}: {error}")))
}
