//! The commands' side: start, watch, stop, list, query, report.

use super::wire::{query_reply, query_status, run_facts, state_word, store_status};
use crate::{
    causes::chain,
    clock::MeshClock,
    query,
    report::{self, ReportError},
    scheduler::{
        Scheduler, StartError, StartRequest,
        admission::Admission,
        board::{RunBoard, RunView},
    },
    sessions::Fleet,
    store::{
        Store,
        rows::{RunRow, steps_done},
    },
};
use benchmesh_proto::{WIRE_VERSION, v1, v1::control_server::Control};
use futures::{Stream, StreamExt, stream};
use prost::Message;
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Updates come at each change, but not closer together than this, and at least this often while something runs.
const UPDATE_MIN: Duration = Duration::from_millis(200);
const UPDATE_MAX: Duration = Duration::from_secs(1);
/// A query that runs longer was a slip of the pen; the database file can be asked without a limit.
const QUERY_WITHIN: Duration = Duration::from_secs(120);
/// Each has a thread, a connection and, while it lasts, a snapshot of the database.
const QUERIES_AT_ONCE: usize = 16;
/// As much of a report as goes into one message, in bytes.
const REPORT_PIECE: usize = 1 << 20;
/// As many planned steps go into one message as fit into so many bytes.
const SHOWN_BYTES: usize = 4 << 20;
const MAX_LISTED_RUNS: u32 = 1000;
const DEFAULT_LISTED_RUNS: u32 = 50;

type Sent<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[derive(Debug)]
pub(super) struct ControlService {
    scheduler: Scheduler,
    fleet: Fleet,
    store: Store,
    clock: Arc<MeshClock>,
    closing: CancellationToken,
    queries: Arc<Semaphore>,
}

impl ControlService {
    pub fn new(
        scheduler: Scheduler,
        fleet: Fleet,
        store: Store,
        clock: Arc<MeshClock>,
        closing: CancellationToken,
    ) -> Self {
        Self {
            scheduler,
            fleet,
            store,
            clock,
            closing,
            queries: Arc::new(Semaphore::new(QUERIES_AT_ONCE)),
        }
    }

    /// The run that a person means; empty and `last`: the newest.
    async fn find(&self, wanted: &str) -> Result<RunRow, Status> {
        let wanted = if wanted == "last" { "" } else { wanted };
        self.store
            .find_run(wanted)
            .await
            .map_err(|error| store_status(&error))
    }
}

fn refused(error: &StartError) -> Status {
    let message = chain(error);
    match error {
        StartError::BadUid { .. } | StartError::Plan(_) => {
            Status::invalid_argument(error.to_string())
        }
        StartError::AgentsMissing { .. } => Status::failed_precondition(message),
        StartError::Store { .. } => Status::internal(message),
    }
}

fn duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

#[tonic::async_trait]
impl Control for ControlService {
    type WatchRunStream = Sent<v1::RunUpdate>;
    type QueryStream = Sent<v1::QueryReply>;
    type ReportStream = Sent<v1::ReportReply>;

    async fn start_run(
        &self,
        request: Request<v1::StartRunRequest>,
    ) -> Result<Response<v1::StartRunReply>, Status> {
        let request = request.into_inner();
        if request.wire_version != WIRE_VERSION {
            return Err(Status::failed_precondition(format!(
                "this command speaks version {} of the wire, the collector (benchmesh {}) version {WIRE_VERSION}: run the same version of benchmesh on both",
                request.wire_version,
                env!("CARGO_PKG_VERSION"),
            )));
        }
        let wish = StartRequest {
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
        };
        let started = tokio::select! {
            started = self.scheduler.start(wish) => started.map_err(|error| refused(&error))?,
            () = self.closing.cancelled() => return Err(Status::unavailable("the collector is closing")),
        };
        let mut room = SHOWN_BYTES;
        let steps: Vec<v1::PlannedStep> = started
            .steps
            .iter()
            .map(v1::PlannedStep::from)
            .map_while(|step| {
                room = room.checked_sub(step.encoded_len())?;
                Some(step)
            })
            .collect();
        let mut warnings = started.warnings;
        if steps.len() < started.steps.len() {
            warnings.push(format!(
                "the first {} of {} steps are shown",
                steps.len(),
                started.steps.len()
            ));
        }
        Ok(Response::new(v1::StartRunReply {
            run_id: started.run.map_or(0, |run| run.0),
            run_uid: started.uid,
            known: started.known,
            steps,
            warnings,
        }))
    }

    async fn watch_run(
        &self,
        request: Request<v1::WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        let row = self.find(&request.into_inner().run).await?;
        let Some(board) = self.scheduler.board().run(row.id) else {
            let steps = self
                .store
                .steps(row.id)
                .await
                .map_err(|error| store_status(&error))?;
            let update = super::wire::past_run(&row, steps_done(&steps), steps.len());
            return Ok(Response::new(Box::pin(stream::once(async { Ok(update) }))));
        };
        let watching = Watching {
            changes: board.changes(),
            board,
            clock: Arc::clone(&self.clock),
            closing: self.closing.clone(),
            messages: 0,
            finished: 0,
            sent: None,
            ended: false,
        };
        Ok(Response::new(Box::pin(stream::unfold(
            watching,
            Watching::next,
        ))))
    }

    async fn stop_run(
        &self,
        request: Request<v1::StopRunRequest>,
    ) -> Result<Response<v1::StopRunReply>, Status> {
        let request = request.into_inner();
        let row = match request.run.as_str() {
            "" | "last" => self.find("").await?,
            wanted => self
                .store
                .find_run_to_stop(wanted)
                .await
                .map_err(|error| store_status(&error))?,
        };
        let reason: String = request.reason.chars().take(1000).collect();
        let state = self
            .scheduler
            .stop(&row, &reason)
            .await
            .map_err(|error| store_status(&error))?;
        Ok(Response::new(v1::StopRunReply {
            run_id: row.id.0,
            state: state_word(state),
        }))
    }

    async fn list_agents(
        &self,
        _request: Request<v1::ListAgentsRequest>,
    ) -> Result<Response<v1::ListAgentsReply>, Status> {
        let mut agents: Vec<v1::AgentFacts> =
            self.fleet.members().into_iter().map(Into::into).collect();
        agents.sort_by(|a, b| (!a.attached, &a.name).cmp(&(!b.attached, &b.name)));
        Ok(Response::new(v1::ListAgentsReply { agents }))
    }

    async fn list_runs(
        &self,
        request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsReply>, Status> {
        let limit = match request.into_inner().limit {
            0 => DEFAULT_LISTED_RUNS,
            limit => limit.min(MAX_LISTED_RUNS),
        };
        let rows = self
            .store
            .runs(limit)
            .await
            .map_err(|error| store_status(&error))?;
        let mut runs = Vec::with_capacity(rows.len());
        for row in rows {
            let steps = self
                .store
                .steps(row.id)
                .await
                .map_err(|error| store_status(&error))?;
            runs.push(run_facts(row, steps_done(&steps), steps.len()));
        }
        Ok(Response::new(v1::ListRunsReply { runs }))
    }

    async fn query(
        &self,
        request: Request<v1::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let sql = request.into_inner().sql;
        let turn = Arc::clone(&self.queries).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{QUERIES_AT_ONCE} queries are being answered already; try again when one of them has ended"
            ))
        })?;
        let answer = query::run(self.store.path(), &sql, QUERY_WITHIN)
            .await
            .map_err(|error| query_status(&error))?;
        let head = v1::QueryReply {
            columns: answer.columns,
            rows: Vec::new(),
        };
        let rows = stream::unfold((answer.rows, turn), |(mut rows, turn)| async {
            let batch = rows.recv().await?;
            let reply = batch.map(query_reply).map_err(|error| query_status(&error));
            Some((reply, (rows, turn)))
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
        let wanted = request.into_inner().run;
        let report =
            report::load(self.store.reader(), &wanted)
                .await
                .map_err(|error| match &error {
                    ReportError::NoRun { .. } | ReportError::NoRuns => {
                        Status::not_found(chain(&error))
                    }
                    _ => Status::internal(chain(&error)),
                })?;
        let report_json = serde_json::to_vec(&report).map_err(|error| {
            Status::internal(format!("the report cannot be written as JSON: {error}"))
        })?;
        let pieces: Vec<_> = report_json
            .chunks(REPORT_PIECE)
            .map(|piece| {
                Ok(v1::ReportReply {
                    report_json: piece.to_vec(),
                })
            })
            .collect();
        Ok(Response::new(Box::pin(stream::iter(pieces))))
    }
}

/// One who watches a run: what it has been told already.
struct Watching {
    board: Arc<RunBoard>,
    changes: watch::Receiver<u64>,
    clock: Arc<MeshClock>,
    closing: CancellationToken,
    messages: usize,
    finished: usize,
    sent: Option<Instant>,
    ended: bool,
}

impl Watching {
    /// The next update: at a change, or after a while.
    async fn next(mut self) -> Option<(Result<v1::RunUpdate, Status>, Self)> {
        if self.ended {
            return None;
        }
        if let Some(sent) = self.sent {
            tokio::select! {
                () = self.closing.cancelled() => {
                    self.ended = true;
                    return Some((Err(Status::unavailable("the collector is closing")), self));
                }
                () = sleep_until(sent + UPDATE_MAX) => {}
                () = async {
                    sleep_until(sent + UPDATE_MIN).await;
                    // An error says that the board is gone, which it cannot be while it is held here.
                    let _ = self.changes.changed().await;
                } => {}
            }
        }
        self.changes.mark_unchanged();
        self.sent = Some(Instant::now());
        let board = Arc::clone(&self.board);
        let update = board.look(|view| self.update(view));
        Some((Ok(update), self))
    }

    /// What is new of the run.
    fn update(&mut self, view: &RunView) -> v1::RunUpdate {
        let update = super::wire::update(view, self.messages, self.finished, &self.clock);
        self.ended = view.state.is_end();
        self.messages = view.messages_gone + view.messages.len();
        self.finished = view.finished_gone + view.finished.len();
        update
    }
}
