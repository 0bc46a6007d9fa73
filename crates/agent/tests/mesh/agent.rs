//! A real agent on its own thread and runtime, in its own directory.

use crate::collector::Collector;
use benchmesh_agent::policy::{NetworkRule, PolicyConfig};
use benchmesh_agent::targets::TargetNames;
use benchmesh_agent::{AgentConfig, AgentError};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

pub struct Home {
    pub directory: TempDir,
}

impl Home {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("target")).unwrap();
        Self { directory }
    }

    pub fn target(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("target")
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub fn config(&self, collector: &Collector) -> AgentConfig {
        AgentConfig {
            collector: collector.address.to_string(),
            policy: PolicyConfig {
                targets: TargetNames::directories([self.target()]),
                allow_network: vec![NetworkRule::Local],
                allow_drop_caches: true,
                ..PolicyConfig::default()
            },
            insecure: true,
            ..AgentConfig::new("agent-1", self.state())
        }
    }

    pub fn spool_files(&self) -> usize {
        let files = std::fs::read_dir(self.state()).unwrap();
        files
            .filter(|file| is_spool(&file.as_ref().unwrap().path()))
            .count()
    }
}

fn is_spool(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "db")
}

pub struct Agent {
    runtime: Option<Runtime>,
    cancel: CancellationToken,
    over: mpsc::Receiver<Result<(), AgentError>>,
}

impl Agent {
    pub fn start(config: AgentConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let cancel = CancellationToken::new();
        let (sender, over) = mpsc::sync_channel(1);
        let agent = benchmesh_agent::run(config, cancel.clone());
        runtime.spawn(async move {
            let _ = sender.send(agent.await);
        });
        Self {
            runtime: Some(runtime),
            cancel,
            over,
        }
    }

    /// The result of an agent that ended on its own.
    pub fn ended(&self) -> Result<(), AgentError> {
        self.over
            .recv_timeout(Duration::from_secs(60))
            .expect("the agent does not end")
    }

    /// Stops it gracefully.
    pub fn stop(mut self) {
        self.cancel.cancel();
        self.ended().unwrap();
        self.runtime.take();
    }

    /// Kills it without closing or flushing anything.
    pub fn crash(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}
