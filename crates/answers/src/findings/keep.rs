//! Stores the findings of ended runs.
//!
//! A run without stored findings is due for computation. Late data delete the findings of a run, and merged runs have
//! none; they are handled like a run that has just ended.

use super::{FindingsError, of_run};
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::RunId;
use benchmesh_store::{Store, StoreError};
use std::collections::HashSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between two checks for runs without findings.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Why the findings of a run could not be stored.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Findings(#[from] FindingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Computes and stores missing findings, newest run first, until it is cancelled.
#[boxed]
#[inline(never)]
pub async fn keep(store: Store, closing: CancellationToken) {
    let mut failed: HashSet<RunId> = HashSet::new();
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        let runs = match store.runs_without_findings().await {
            Ok(runs) => runs,
            Err(error) => {
                tracing::debug!(%error, "look for runs without findings");
                continue;
            }
        };
        let Some(run) = runs.into_iter().find(|run| !failed.contains(run)) else {
            continue;
        };
        let kept = tokio::select! {
            () = closing.cancelled() => return,
            kept = keep_of(&store, run) => kept,
        };
        if let Err(error) = kept {
            failed.insert(run);
            tracing::warn!(%run, %error, "the findings of a run could not be stored");
        }
    }
}

async fn keep_of(store: &Store, run: RunId) -> Result<(), KeepError> {
    // Late data wait meanwhile, so that the stored findings are never older than the figures.
    let _claims = store.claim_steps(run).await?;
    let mut connection = store
        .reader()
        .acquire()
        .await
        .map_err(super::reading("the database"))?;
    let found = of_run(&mut connection, run).await?;
    drop(connection);
    store.store_findings(run, found).await?;
    Ok(())
}
