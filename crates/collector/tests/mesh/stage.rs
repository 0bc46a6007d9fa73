//! A collector with its own database, and requests to it.

use super::fake_agent::{FakeAgent, Script};
use benchmesh_collector::archive::ArchiveConfig;
use benchmesh_collector::trust::{CERTIFICATE_LIFETIME, Security};
use benchmesh_collector::web::{HttpConfig, HttpListen};
use benchmesh_collector::{Collector, CollectorConfig};
use benchmesh_proto::{
    CONTROL_VERSION,
    v1::{self, control_client::ControlClient},
};
use benchmesh_scheduler::snapshot::{AgentNow, RunStarted, RunUpdate};
use benchmesh_trust::credentials::{self, Credentials};
use benchmesh_trust::dial::{self, TcpConnection};
use serde::de::DeserializeOwned;
use std::{net::SocketAddr, path::PathBuf, time::Duration};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, transport::Channel};

/// Only a hang takes longer than this.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A serving collector.
pub struct Stage {
    pub directory: TempDir,
    pub address: SocketAddr,
    /// The page's URL, with its token.
    pub url: String,
    /// How its clients connect.
    security: dial::Security,
    cancel: CancellationToken,
    served: JoinHandle<()>,
}

impl Stage {
    pub async fn new() -> Self {
        Self::on(TempDir::new().unwrap()).await
    }

    /// Uses a directory; the collector continues its `mesh.db`, if there is one.
    pub async fn on(directory: TempDir) -> Self {
        Self::bound(
            directory,
            ([127, 0, 0, 1], 0).into(),
            Security::Insecure,
            None,
        )
        .await
    }

    /// One that copies its runs into an archive.
    #[allow(dead_code, reason = "not for the fleet bench, which shares this file")]
    pub async fn archiving(directory: TempDir, archive: ArchiveConfig) -> Self {
        let listen = ([127, 0, 0, 1], 0).into();
        Self::bound(directory, listen, Security::Insecure, Some(archive)).await
    }

    /// A collector with certificates, at this address; it continues the directory's database, if there is one.
    #[allow(dead_code, reason = "for the fleet bench, which shares this file")]
    pub async fn secured(directory: TempDir, listen: SocketAddr) -> Self {
        let security = Security::Tls {
            directory: None,
            credentials: Some(directory.path().to_owned()),
            lifetime: CERTIFICATE_LIFETIME,
        };
        let mut stage = Self::bound(directory, listen, security, None).await;
        stage.security = dial::Security::of(&stage.owner()).unwrap();
        stage
    }

    /// The credentials that a collector with certificates has written for its own user.
    pub fn owner(&self) -> Credentials {
        let file = credentials::file_for(self.directory.path(), &self.address.to_string());
        Credentials::load(&file).unwrap().unwrap()
    }

    async fn bound(
        directory: TempDir,
        listen: SocketAddr,
        security: Security,
        archive: Option<ArchiveConfig>,
    ) -> Self {
        let collector = Collector::bind(CollectorConfig {
            listen,
            db: directory.path().join("mesh.db"),
            security,
            retention: benchmesh_store::retention::Retention::default(),
            on_alarm: None,
            archive,
            clock_ppm: 0,
            newcomer_timeout: None,
            http: HttpConfig {
                listen: HttpListen::At("127.0.0.1:0".parse().unwrap()),
                ..HttpConfig::default()
            },
        })
        .await
        .unwrap();
        let address = collector.address();
        let url = collector.page_url().unwrap();
        let cancel = CancellationToken::new();
        let served = tokio::spawn({
            let cancel = cancel.clone();
            async move { collector.serve(cancel).await.unwrap() }
        });
        Self {
            directory,
            address,
            url,
            security: dial::Security::Plain,
            cancel,
            served,
        }
    }

    pub fn db(&self) -> PathBuf {
        self.directory.path().join("mesh.db")
    }

    /// Ends this collector; the next one has the same database.
    pub async fn restarted(self) -> Self {
        Self::on(self.ended().await).await
    }

    /// Ends this collector; returns its directory.
    pub async fn ended(self) -> TempDir {
        self.cancel.cancel();
        timeout(LIMIT, self.served).await.unwrap().unwrap();
        self.directory
    }

    pub async fn control(&self) -> ControlClient<Channel> {
        let connection = TcpConnection::at(&self.address.to_string()).await.unwrap();
        ControlClient::new(connection.dial(self.security.clone()).await.unwrap())
    }

    /// The collector's list of its agents.
    pub async fn listed(&self) -> Vec<AgentNow> {
        let mut control = self.control().await;
        let reply = control.list_agents(v1::ListAgentsRequest {}).await;
        shown(&reply.unwrap().get_ref().agents_json)
    }

    /// An attached agent that follows `script`.
    pub async fn agent(&self, name: &str, script: Script) -> FakeAgent {
        let agent = FakeAgent::new(name, script);
        agent.attach(self.address).await.unwrap();
        agent
    }

    pub async fn start(&self, plan: &str) -> Result<RunStarted, Status> {
        self.start_as("", plan).await
    }

    pub async fn start_as(&self, uid: &str, plan: &str) -> Result<RunStarted, Status> {
        self.start_at(0, uid, plan).await
    }

    pub async fn start_at(&self, due_us: i64, uid: &str, plan: &str) -> Result<RunStarted, Status> {
        let request = v1::StartRunRequest {
            wire_version: CONTROL_VERSION,
            run_uid: uid.to_owned(),
            plan_name: String::from("p.toml"),
            plan_toml: plan.to_owned(),
            new_agents: true,
            due_us,
            ..v1::StartRunRequest::default()
        };
        self.control()
            .await
            .start_run(request)
            .await
            .map(|reply| shown(&reply.get_ref().started_json))
    }

    /// Watches a run to its end; returns every update.
    pub async fn watch(&self, run: i64) -> Vec<RunUpdate> {
        let request = v1::WatchRunRequest {
            run: run.to_string(),
            detail: false,
        };
        let mut stream = self
            .control()
            .await
            .watch_run(request)
            .await
            .unwrap()
            .into_inner();
        let mut updates = Vec::new();
        timeout(LIMIT, async {
            while let Some(update) = stream.message().await.unwrap() {
                updates.push(shown(&update.update_json));
            }
        })
        .await
        .expect("the run ends");
        updates
    }

    /// Waits until the run's step is in `state`.
    pub async fn until_step(&self, run: i64, state: &str) {
        let request = v1::WatchRunRequest {
            run: run.to_string(),
            detail: false,
        };
        let mut stream = self
            .control()
            .await
            .watch_run(request)
            .await
            .unwrap()
            .into_inner();
        timeout(LIMIT, async {
            while let Some(update) = stream.message().await.unwrap() {
                let update: RunUpdate = shown(&update.update_json);
                let step = update.run.step;
                if step.is_some_and(|step| step.state.as_str() == state) {
                    return;
                }
            }
            panic!("the run ended before its step was {state}");
        })
        .await
        .expect("the step gets there");
    }

    /// Rows of the database, each as text with `|` between values.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        let request = v1::QueryRequest {
            sql: sql.to_owned(),
        };
        let mut stream = self
            .control()
            .await
            .query(request)
            .await
            .unwrap()
            .into_inner();
        let mut rows = Vec::new();
        while let Some(reply) = stream.message().await.unwrap() {
            for row in reply.rows {
                let values: Vec<String> = row.values.into_iter().map(text).collect();
                rows.push(values.join("|"));
            }
        }
        rows
    }
}

/// The final state of a run, and whether it is partial.
pub fn state(updates: &[RunUpdate]) -> (&str, bool) {
    let last = &updates.last().unwrap().run;
    (last.state.as_str(), last.partial)
}

/// All messages about a run.
pub fn messages(updates: &[RunUpdate]) -> String {
    updates
        .iter()
        .flat_map(|update| update.run.messages.clone())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What a reply carries as JSON.
pub fn shown<T: DeserializeOwned>(json: &[u8]) -> T {
    serde_json::from_slice(json).unwrap()
}

fn text(value: v1::QueryValue) -> String {
    use v1::query_value::Value;
    match value.value {
        None => String::from("NULL"),
        Some(Value::Integer(n)) => n.to_string(),
        Some(Value::Real(n)) => n.to_string(),
        Some(Value::Text(text)) => text,
        Some(Value::Blob(bytes)) => format!("{} bytes", bytes.len()),
    }
}
