//! The list of the runs of a database file.

use crate::query::{QueryError, ReadOnly};
use benchmesh_store::annotate::{RunListed, RunSearch, search_runs};
use std::path::Path;

/// The newest runs that match a search, newest first. Never creates or changes the file.
pub async fn of_file(path: &Path, search: &RunSearch) -> Result<Vec<RunListed>, QueryError> {
    let mut file = ReadOnly::open(path).await?;
    let found = search_runs(&mut file.connection, search).await;
    file.close().await;
    found.map_err(|source| QueryError::Failed { source })
}
