//! Copies ended runs into the archive of `--archive`, beside the collector's work.
//!
//! Every few seconds the database is asked which runs are due (`benchmesh_store::archived`): that is the queue, so a
//! restart loses none of it. One run after another is copied; `queue` says which and when. Ingest is never waited for
//! and never waits: a run is read through a connection of its own. Only here does the collector know the archive.

mod queue;

use benchmesh_archive::postgres::push::{PushEvent, PushRequest, push_runs};
use benchmesh_archive::postgres::{Archive, ArchiveError, Patience, Server, Site};
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::MeshMicros;
use benchmesh_scheduler::snapshot::ArchiveNow;
use benchmesh_store::archived::{RunToArchive, RunsToArchive};
use benchmesh_store::clock::MeshClock;
use benchmesh_store::rows::NewEvent;
use benchmesh_store::{Store, StoreError};
use benchmesh_workloads::error_chain;
use queue::{Failed, Queue};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Time limit for storing an event: the database may be blocked.
const STORED_WITHIN: Duration = Duration::from_secs(5);
/// How often the archive's runs are compared with those that it should have: it may have been restored from a backup.
const COMPARE_EVERY: Duration = Duration::from_secs(3600);
/// A server that is only restarted is waited for; for a longer time the queue waits and not the connection.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(300),
    first_wait: Duration::from_millis(500),
    longest_wait: Duration::from_secs(5),
    give_up_after: Duration::from_secs(15),
};

/// Where ended runs are copied to.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    pub server: Server,
    pub site: Site,
    pub pace: Pace,
}

/// How often and how soon runs are copied. Shorter for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two looks at the database.
    pub look: Duration,
    /// A run is copied when it has not changed for so long: samples come for 5 s after its end.
    pub settled: Duration,
    /// How long a run without findings waits for them.
    pub findings: Duration,
    /// After a failure; doubled with each.
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(10),
            settled: Duration::from_secs(8),
            findings: Duration::from_secs(30),
            first_pause: Duration::from_secs(10),
            longest_pause: Duration::from_secs(600),
        }
    }
}

/// Copies ended runs until it is cancelled.
#[derive(Debug)]
pub struct Archiver {
    config: ArchiveConfig,
    store: Store,
    clock: Arc<MeshClock>,
    queue: Queue,
    last_look: RunsToArchive,
    compare_at: Instant,
    status: watch::Sender<ArchiveNow>,
    /// The last event about the archive says that it failed.
    is_failure_told: bool,
}

impl Archiver {
    pub fn new(
        config: ArchiveConfig,
        store: Store,
        clock: Arc<MeshClock>,
    ) -> (Self, watch::Receiver<ArchiveNow>) {
        let status = watch::Sender::new(ArchiveNow {
            server: config.server.to_string(),
            site: match &config.site {
                Site::Named(name) => Some(name.clone()),
                Site::Default(_) => None,
            },
            ..ArchiveNow::default()
        });
        let shown = status.subscribe();
        let archiver = Self {
            queue: Queue::new(config.pace),
            config,
            store,
            clock,
            last_look: RunsToArchive::default(),
            compare_at: Instant::now(),
            status,
            is_failure_told: false,
        };
        (archiver, shown)
    }

    pub async fn keep(mut self, closing: CancellationToken) {
        match self.store.is_archive_failure_told().await {
            Ok(is_told) => self.is_failure_told = is_told,
            Err(error) => tracing::debug!(%error, "cannot read the last event about the archive"),
        }
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.config.pace.look;
            if Instant::now() >= self.compare_at {
                let compared = closing.run_until_cancelled(self.compare()).await;
                self.compare_at = Instant::now()
                    + match compared {
                        None => return,
                        Some(Ok(())) => COMPARE_EVERY,
                        Some(Err(error)) => {
                            let error = error_chain(&*error);
                            tracing::debug!(error, "cannot compare the runs of the archive");
                            self.config.pace.longest_pause
                        }
                    };
            }
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "cannot look for runs to archive");
                continue;
            }
            let found = self.last_look.due.len();
            while let Some(run) = self.queue.next(Instant::now()) {
                let copied = tokio::select! {
                    () = closing.cancelled() => return,
                    copied = self.copy(&run, &closing) => copied,
                };
                self.show();
                if !copied {
                    break;
                }
            }
            // A look returns only a part of many missing runs.
            let missing = usize::try_from(self.last_look.missing).unwrap_or(usize::MAX);
            if self.queue.is_empty() && missing > found {
                wait = Duration::ZERO;
            }
        }
    }

    /// Makes runs due again that the archive should have and has not.
    async fn compare(&mut self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut archive = Archive::connect(&self.config.server, &PATIENCE).await?;
        let uids = archive
            .pushed_runs(self.store.mesh_uid(), &self.config.site)
            .await?;
        archive.close().await;
        self.store.forget_archived_except(&uids).await?;
        Ok(())
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        let from = self.last_look.compared_until;
        let look = self.store.runs_to_archive(from, &self.queue.runs()).await?;
        self.queue
            .found(look.due.clone(), Instant::now(), self.clock.now());
        self.last_look = look;
        self.show();
        Ok(())
    }

    /// Returns whether the run is in the archive.
    async fn copy(&mut self, run: &RunToArchive, closing: &CancellationToken) -> bool {
        // Its last samples may not be in the file yet.
        self.store.flush().await;
        let request = PushRequest {
            db: self.store.path().to_owned(),
            runs: vec![run.run.to_string()],
            site: self.config.site.clone(),
            server: self.config.server.clone(),
            patience: PATIENCE,
        };
        let mut is_reached = false;
        let status = &self.status;
        let mut progress = |event: PushEvent<'_>| match event {
            PushEvent::Note(note) => tracing::warn!("the archive: {note}"),
            PushEvent::Site(site) => status.send_modify(|now| now.site = Some(site.to_owned())),
            PushEvent::Run { .. } => is_reached = true,
            PushEvent::Again { error, .. } => {
                tracing::debug!(%error, "the archive's server is tried again");
            }
            PushEvent::Rows { .. } | PushEvent::Pushed { .. } => {}
        };
        let pushed = push_runs(&request, closing, &mut progress).await;
        match pushed {
            Ok(_) => self.pushed(run).await,
            Err(ArchiveError::Cancelled) => false,
            // It is no longer due: it was resumed or deleted.
            Err(ArchiveError::Source(error)) if error.is_request() => {
                tracing::debug!(run = %run.run, %error, "a run is not archived");
                false
            }
            Err(error) => {
                let whose = match is_reached && error.is_of_one_run() {
                    true => Failed::Run,
                    false => Failed::Archive,
                };
                self.failed(run, whose, &error).await;
                false
            }
        }
    }

    async fn pushed(&mut self, run: &RunToArchive) -> bool {
        let now = self.clock.now();
        let noted = self.store.set_archived(run.run, run.signature.clone(), now);
        if let Err(error) = noted.await {
            // The next push finds that the archive has it.
            tracing::warn!(run = %run.run, %error, "cannot note that a run is archived");
        }
        self.queue.pushed(run.run);
        if !run.is_archived {
            self.last_look.missing = self.last_look.missing.saturating_sub(1);
        }
        self.status.send_modify(|status| {
            status.pushed_runs += 1;
            status.last_pushed_us = Some(now.0);
        });
        tracing::debug!(run = %run.run, "archived");
        if self.is_failure_told && !self.queue.is_failing() {
            self.is_failure_told = false;
            let message = format!(
                "runs are copied into the archive again ({})",
                self.config.server
            );
            tracing::info!("{message}");
            self.tell(EventKind::ArchiveWorks, message).await;
        }
        true
    }

    async fn failed(&mut self, run: &RunToArchive, whose: Failed, error: &ArchiveError) {
        self.queue.failed(run.run, whose, Instant::now());
        let error = error_chain(error);
        let now = self.clock.now();
        self.status.send_modify(|status| {
            status.failing_since_us.get_or_insert(now.0);
            status.error = Some(error.clone());
        });
        if self.is_failure_told {
            tracing::debug!(run = %run.run, error, "a run cannot be archived");
            return;
        }
        self.is_failure_told = true;
        let message = format!(
            "run {} ({}) waits for the archive: {error}",
            run.run, run.name
        );
        tracing::warn!("{message}");
        self.tell(EventKind::ArchiveFailed, message).await;
    }

    async fn tell(&self, kind: EventKind, message: String) {
        let event = NewEvent::new(self.clock.now(), kind, message);
        match timeout(STORED_WITHIN, self.store.add_event(event)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot store an event about the archive"),
            Err(_) => tracing::warn!("an event about the archive is not stored yet"),
        }
    }

    /// Publishes how many runs wait.
    fn show(&self) {
        let changed = u32::try_from(self.queue.changed()).unwrap_or(u32::MAX);
        let waiting = self.last_look.missing.saturating_add(changed);
        let missing = self
            .last_look
            .oldest_missing
            .filter(|_| self.last_look.missing > 0);
        let oldest = match self.queue.is_empty() {
            true => missing,
            false => self.queue.oldest(),
        };
        let is_failing = self.queue.is_failing();
        self.status.send_if_modified(|status| {
            let former = status.clone();
            status.waiting_runs = waiting;
            status.oldest_waiting_us = oldest.map(|at: MeshMicros| at.0);
            if !is_failing {
                status.failing_since_us = None;
                status.error = None;
            }
            *status != former
        });
    }
}
