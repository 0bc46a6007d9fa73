//! The commands' client of the collector: one function per call, with answers in types that the collector's crates share.
//!
//! The edge of this crate: only `client` uses generated types. Every error names the collector and the request, and
//! suggests what to do if the collector is unreachable.

pub mod trust;

use crate::failure::{self, WrongUsage};
use anyhow::Context;
use benchmesh_answers::compare;
use benchmesh_answers::query::{ResultRow, Value};
use benchmesh_answers::report::Report;
use benchmesh_proto::v1::control_client::ControlClient;
use benchmesh_proto::{CONTROL_VERSION, MAX_MESSAGE_BYTES, v1};
use benchmesh_scheduler::snapshot::{
    AgentNow, ArchiveNow, RunListed, RunResumed, RunStarted, RunUpdate,
};
use benchmesh_store::annotate::{Annotated, Annotation, RunSearch};
use benchmesh_store::import::ImportedRun;
use benchmesh_store::retention;
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Timeout of a call that the collector answers from memory.
const SHORT_CALL: Duration = Duration::from_secs(30);

/// Maximum size of the part of an imported run in one message.
const IMPORT_PIECE_BYTES: usize = 1 << 20;

/// A plan to send to the collector.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub run_uid: String,
    /// The file's name, for messages.
    pub plan_name: String,
    /// The text, with overrides applied.
    pub plan: String,
    /// Wait until this many agents have attached; 0 takes those already attached.
    pub agents: u32,
    pub agents_wait: Duration,
    pub dry_run: bool,
    /// Also use agents that have been in no run yet.
    pub new_agents: bool,
    /// In microseconds of the wall clock; 0 for immediately.
    pub due_us: i64,
}

/// When a run ends on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhen {
    Now,
    /// At the end of the loop in progress, as done.
    AfterLoop,
}

/// A run with a stop request.
#[derive(Clone, Debug, Serialize)]
pub struct StopDone {
    pub run_id: i64,
    pub state: String,
}

/// A connection to a collector.
#[derive(Clone, Debug)]
pub struct Client {
    address: String,
    control: ControlClient<Channel>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The collector is not listening, or the connection broke: a retry may help.
    #[error(
        "cannot reach the collector at {address}: {reason}\n  start one with `benchmesh collector`, or name another with \
         --collector or BENCHMESH_COLLECTOR"
    )]
    Away { address: String, reason: String },
    /// The server responded, but mutual authentication failed.
    #[error("{message}")]
    Distrust { message: String },
    /// The collector refused the request, with this reason.
    #[error("{message}")]
    Refused { code: Code, message: String },
    /// The answer is incomplete.
    #[error(
        "the answer of the collector at {address} lacks {missing}: it runs another version; see its log"
    )]
    Incomplete {
        address: String,
        missing: &'static str,
    },
    /// A part of the answer has another form.
    #[error(
        "cannot read {what} in the answer of the collector at {address}: it runs another version of benchmesh; run the \
         same version on both"
    )]
    Unreadable {
        address: String,
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl CallError {
    /// Converts to an error of a command: an invalid request is wrong usage.
    pub fn into_error(self) -> anyhow::Error {
        match &self {
            Self::Refused {
                code: Code::InvalidArgument | Code::NotFound,
                message,
            } => anyhow::Error::new(WrongUsage(message.clone())),
            _ => anyhow::Error::new(self),
        }
    }
}

impl Client {
    /// Connects to the collector with this user's credentials for it.
    pub async fn connect(address: &str) -> Result<Self, CallError> {
        let channel = trust::channel(address).await?;
        Ok(Self {
            address: address.to_owned(),
            control: ControlClient::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        })
    }

    /// Queues a plan. Idempotent: a repeated call with the same run uid returns the existing run.
    pub async fn start_run(&mut self, wanted: &RunRequest) -> Result<RunStarted, CallError> {
        let request = v1::StartRunRequest {
            wire_version: CONTROL_VERSION,
            run_uid: wanted.run_uid.clone(),
            plan_name: wanted.plan_name.clone(),
            plan_toml: wanted.plan.clone(),
            agents: wanted.agents,
            agents_wait_us: i64::try_from(wanted.agents_wait.as_micros()).unwrap_or(i64::MAX),
            dry_run: wanted.dry_run,
            new_agents: wanted.new_agents,
            due_us: wanted.due_us,
        };
        let mut request = tonic::Request::new(request);
        request.set_timeout(wanted.agents_wait.saturating_add(2 * SHORT_CALL));
        let reply = self.control.start_run(request).await;
        let reply = reply.map_err(|status| self.failed(&status))?;
        self.parsed("the started run", &reply.get_ref().started_json)
    }

    /// The current state of a run, then each change until it has ended. An empty name means the newest run.
    pub async fn watch_run(&mut self, run: &str, detail: Detail) -> Result<Watch, CallError> {
        let request = v1::WatchRunRequest {
            run: run.to_owned(),
            detail: detail == Detail::All,
        };
        let reply = self.control.watch_run(request).await;
        match reply {
            Ok(reply) => Ok(Watch {
                client: self.clone(),
                updates: reply.into_inner(),
            }),
            Err(status) => Err(self.failed(&status)),
        }
    }

    /// Requests a clean end of a run. The run continues until its agents have stopped, or until its loop has ended.
    pub async fn stop_run(
        &mut self,
        run: &str,
        reason: &str,
        when: StopWhen,
    ) -> Result<StopDone, CallError> {
        let request = v1::StopRunRequest {
            run: run.to_owned(),
            reason: reason.to_owned(),
            after_loop: when == StopWhen::AfterLoop,
        };
        let reply = self.control.stop_run(short(request)).await;
        let reply = reply.map_err(|status| self.failed(&status))?.into_inner();
        Ok(StopDone {
            run_id: reply.run_id,
            state: reply.state,
        })
    }

    /// Queues an ended run again. The collector contacts the run's agents before it answers.
    pub async fn resume_run(
        &mut self,
        run: &str,
        even_if_changed: bool,
    ) -> Result<RunResumed, CallError> {
        let mut request = tonic::Request::new(v1::ResumeRunRequest {
            run: run.to_owned(),
            even_if_changed,
        });
        request.set_timeout(2 * SHORT_CALL);
        let reply = self.control.resume_run(request).await;
        let reply = reply.map_err(|status| self.failed(&status))?;
        self.parsed("the resumed run", &reply.get_ref().resumed_json)
    }

    /// Every agent that the collector knows.
    pub async fn agents(&mut self) -> Result<Vec<AgentNow>, CallError> {
        let request = short(v1::ListAgentsRequest {});
        let reply = self.control.list_agents(request).await;
        let reply = reply.map_err(|status| self.failed(&status))?;
        self.parsed("the list of agents", &reply.get_ref().agents_json)
    }

    /// What waits for the collector's archive; `None` if it has none.
    pub async fn archive_queue(&mut self) -> Result<Option<ArchiveNow>, CallError> {
        let request = short(v1::ArchiveQueueRequest {});
        let reply = self.control.archive_queue(request).await;
        let reply = reply.map_err(|status| self.failed(&status))?;
        self.parsed("the queue of the archive", &reply.get_ref().archive_json)
    }

    /// Removes an agent from the list.
    pub async fn forget_agent(&mut self, name: &str) -> Result<(), CallError> {
        let name = name.to_owned();
        self.control
            .forget_agent(short(v1::ForgetAgentRequest { name }))
            .await
            .map(drop)
            .map_err(|status| self.failed(&status))
    }

    /// The newest runs that match a search.
    pub async fn runs(&mut self, search: &RunSearch) -> Result<Vec<RunListed>, CallError> {
        let search_json = written(search)?;
        let request = short(v1::ListRunsRequest { search_json });
        let reply = self.control.list_runs(request).await;
        let reply = reply.map_err(|status| self.failed(&status))?;
        self.parsed("the list of runs", &reply.get_ref().runs_json)
    }

    /// The report of a run.
    pub async fn report(&mut self, run: &str) -> anyhow::Result<Report> {
        let request = v1::ReportRequest {
            run: run.to_owned(),
        };
        let reply = self.control.report(short(request)).await;
        self.document(reply).await
    }

    /// A comparison.
    pub async fn compare(
        &mut self,
        wanted: &compare::Request,
    ) -> anyhow::Result<compare::CompareAnswer> {
        let reply = self.control.compare(short(compare_request(wanted)?)).await;
        self.document(reply).await
    }

    /// Assembles a document that arrives in pieces.
    async fn document<D: DeserializeOwned>(
        &self,
        reply: Result<tonic::Response<Streaming<v1::ReportReply>>, Status>,
    ) -> anyhow::Result<D> {
        let mut pieces = reply
            .map_err(|status| self.failed(&status).into_error())?
            .into_inner();
        let mut json = Vec::new();
        while let Some(piece) = pieces
            .message()
            .await
            .map_err(|status| self.failed(&status).into_error())?
        {
            json.extend(piece.report_json);
        }
        serde_json::from_slice(&json).with_context(|| {
            format!(
                "parse the answer of the collector at {}; does it run another version?",
                self.address
            )
        })
    }

    /// The report of a run as one HTML file.
    pub async fn report_file(&mut self, run: &str) -> anyhow::Result<String> {
        let request = v1::ReportRequest {
            run: run.to_owned(),
        };
        let reply = self.control.report_file(short(request)).await;
        self.file(reply).await
    }

    /// A comparison as one HTML file.
    pub async fn compare_file(&mut self, wanted: &compare::Request) -> anyhow::Result<String> {
        let reply = self
            .control
            .compare_file(short(compare_request(wanted)?))
            .await;
        self.file(reply).await
    }

    /// Assembles a file that arrives in pieces.
    async fn file(
        &self,
        reply: Result<tonic::Response<Streaming<v1::ReportFileReply>>, Status>,
    ) -> anyhow::Result<String> {
        let mut pieces = reply
            .map_err(|status| self.failed(&status).into_error())?
            .into_inner();
        let mut html = Vec::new();
        while let Some(piece) = pieces
            .message()
            .await
            .map_err(|status| self.failed(&status).into_error())?
        {
            html.extend(piece.html);
        }
        String::from_utf8(html).context("read the report as text")
    }

    /// Annotates a run; an empty name means the running one, otherwise the newest.
    pub async fn annotate(
        &mut self,
        run: &str,
        annotation: Annotation,
    ) -> Result<Annotated, CallError> {
        let request = v1::AnnotateRequest {
            run: run.to_owned(),
            annotation_json: written(&annotation)?,
        };
        let reply = self.control.annotate(short(request)).await;
        let reply = reply.map_err(|status| self.failed(&status))?;
        self.parsed("the annotated run", &reply.get_ref().annotated_json)
    }

    /// Merges or deletes rows of seconds; ends early if the answer is dropped.
    pub async fn prune(&mut self, wanted: &retention::Request) -> Result<Pruning, CallError> {
        let tags = wanted.keep_tags.iter();
        let request = v1::PruneRequest {
            older_us: i64::try_from(wanted.older.as_micros()).unwrap_or(i64::MAX),
            resolution_s: u32::try_from(wanted.to.seconds()).unwrap_or(0),
            keep_tags: tags.map(|(key, value)| format!("{key}={value}")).collect(),
            dry_run: wanted.dry_run,
        };
        let reply = self.control.prune(request).await;
        match reply {
            Ok(reply) => Ok(Pruning {
                client: self.clone(),
                replies: reply.into_inner(),
            }),
            Err(status) => Err(self.failed(&status)),
        }
    }

    /// Removes kept data; ends early if the answer is dropped.
    pub async fn remove_data(
        &mut self,
        name: &str,
        path: Option<&str>,
        forget_away: bool,
    ) -> Result<DataRemoval, CallError> {
        let request = v1::RemoveDataRequest {
            name: name.to_owned(),
            path: path.unwrap_or_default().to_owned(),
            forget_away,
        };
        match self.control.remove_data(request).await {
            Ok(reply) => Ok(DataRemoval {
                client: self.clone(),
                replies: reply.into_inner(),
            }),
            Err(status) => Err(self.failed(&status)),
        }
    }

    /// Stores an imported run; returns its id.
    pub async fn import_run(&mut self, run: &ImportedRun) -> Result<i64, CallError> {
        let run_json = written(run)?;
        let pieces: Vec<v1::ImportRunRequest> = run_json
            .chunks(IMPORT_PIECE_BYTES)
            .map(|piece| v1::ImportRunRequest {
                run_json: piece.to_vec(),
            })
            .collect();
        let reply = self.control.import_run(tokio_stream::iter(pieces)).await;
        reply
            .map(|reply| reply.into_inner().run_id)
            .map_err(|status| self.failed(&status))
    }

    /// The answer to a query, in parts.
    pub async fn query(&mut self, sql: &str) -> Result<Rows, CallError> {
        let request = v1::QueryRequest {
            sql: sql.to_owned(),
        };
        let mut parts = match self.control.query(request).await {
            Ok(reply) => reply.into_inner(),
            Err(status) => return Err(self.failed(&status)),
        };
        let first = parts
            .message()
            .await
            .map_err(|status| self.failed(&status))?;
        let first = first.ok_or_else(|| CallError::Incomplete {
            address: self.address.clone(),
            missing: "columns",
        })?;
        let rows = first.rows.into_iter().map(row).collect();
        Ok(Rows {
            client: self.clone(),
            columns: first.columns,
            first: Some(rows),
            parts,
        })
    }

    /// What a reply carries as JSON.
    fn parsed<T: DeserializeOwned>(&self, what: &'static str, json: &[u8]) -> Result<T, CallError> {
        serde_json::from_slice(json).map_err(|source| CallError::Unreadable {
            address: self.address.clone(),
            what,
            source,
        })
    }

    fn failed(&self, status: &Status) -> CallError {
        // The cause of a transport error is more precise than the status text.
        let text = std::error::Error::source(status)
            .map_or_else(|| status.message().to_owned(), failure::causes);
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::Unknown => CallError::Away {
                address: self.address.clone(),
                reason: text,
            },
            Code::DeadlineExceeded => CallError::Away {
                address: self.address.clone(),
                reason: format!("no answer in time ({text})"),
            },
            Code::Unimplemented => CallError::Refused {
                code: Code::Unimplemented,
                message: format!(
                    "the collector at {} does not know this command: it runs another version",
                    self.address
                ),
            },
            code => CallError::Refused {
                code,
                message: status.message().to_owned(),
            },
        }
    }
}

/// The level of detail of a run's updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The run and its current step.
    Step,
    /// Also the slowest clients, the busiest daemons, and events.
    All,
}

/// The updates of one run.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    updates: Streaming<v1::RunUpdate>,
}

impl Watch {
    /// The next update; `None` once the run has ended.
    pub async fn next(&mut self) -> Result<Option<RunUpdate>, CallError> {
        let update = self
            .updates
            .message()
            .await
            .map_err(|status| self.client.failed(&status))?;
        update
            .map(|update| {
                self.client
                    .parsed("the state of the run", &update.update_json)
            })
            .transpose()
    }
}

/// The progress of a pruning.
#[derive(Debug)]
pub struct Pruning {
    client: Client,
    replies: Streaming<v1::PruneReply>,
}

impl Pruning {
    /// The next progress, and whether it is the last; `None` if the collector ended early.
    pub async fn next(&mut self) -> Result<Option<(retention::PruneProgress, bool)>, CallError> {
        let reply = self
            .replies
            .message()
            .await
            .map_err(|status| self.client.failed(&status))?;
        Ok(reply.map(|reply| {
            let progress = retention::PruneProgress {
                steps: reply.steps,
                steps_total: reply.steps_total,
                runs_total: reply.runs_total,
                rows: reply.rows,
                longest: Duration::from_micros(u64::try_from(reply.longest_us).unwrap_or(0)),
                used_bytes: reply.used_bytes,
                file_bytes: reply.file_bytes,
            };
            (progress, reply.done)
        }))
    }
}

/// The progress of removing one agent's part of kept data.
#[derive(Clone, Debug)]
pub struct PartRemoval {
    pub agent: String,
    pub path: String,
    pub files: u64,
    pub is_over: bool,
    /// Why the part was not removed; empty if it was, or is being removed.
    pub problem: String,
}

/// A removal of kept data.
#[derive(Debug)]
pub struct DataRemoval {
    client: Client,
    replies: Streaming<v1::RemoveDataReply>,
}

impl DataRemoval {
    /// The next part; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<PartRemoval>, CallError> {
        let reply = self
            .replies
            .message()
            .await
            .map_err(|status| self.client.failed(&status))?;
        Ok(reply.map(|reply| PartRemoval {
            agent: reply.agent,
            path: reply.path,
            files: reply.files,
            is_over: reply.over,
            problem: reply.problem,
        }))
    }
}

/// The rows of one query.
#[derive(Debug)]
pub struct Rows {
    client: Client,
    pub columns: Vec<String>,
    first: Option<Vec<ResultRow>>,
    parts: Streaming<v1::QueryReply>,
}

impl Rows {
    /// The next rows; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<ResultRow>>, CallError> {
        if let Some(first) = self.first.take().filter(|rows| !rows.is_empty()) {
            return Ok(Some(first));
        }
        let part = self
            .parts
            .message()
            .await
            .map_err(|status| self.client.failed(&status))?;
        Ok(part.map(|part| part.rows.into_iter().map(row).collect()))
    }
}

/// What a request carries as JSON.
fn written(wanted: &impl Serialize) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(wanted).map_err(|error| CallError::Refused {
        code: Code::InvalidArgument,
        message: format!("the request cannot be sent: {error}"),
    })
}

fn short<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(SHORT_CALL);
    request
}

fn row(row: v1::QueryRow) -> ResultRow {
    row.values.into_iter().map(value).collect()
}

/// The value of a query's row on the wire.
fn value(value: v1::QueryValue) -> Value {
    match value.value {
        None => Value::Null,
        Some(v1::query_value::Value::Integer(integer)) => Value::Integer(integer),
        Some(v1::query_value::Value::Real(real)) => Value::Real(real),
        Some(v1::query_value::Value::Text(text)) => Value::Text(text),
        Some(v1::query_value::Value::Blob(blob)) => Value::Blob(blob),
    }
}

fn compare_request(wanted: &compare::Request) -> anyhow::Result<v1::CompareRequest> {
    Ok(v1::CompareRequest {
        request_json: serde_json::to_vec(wanted).context("encode the request")?,
    })
}
