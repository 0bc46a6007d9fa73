//! Targets that ran out of space or inodes, or nearly did, and those that will at their rate of growth.
//!
//! During a load of workload `fill`, a full target is intended, so those steps are excluded.

mod growth;
mod resources;
mod scarce;
mod targets;

use super::FindingsError;
use super::mesh::Mesh;
use super::steps::Step;
use benchmesh_model::mesh::RunId;
use benchmesh_results::Finding;
use rusqlite::Connection;

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let targets = targets::load(connection, run, mesh)?;
    let mut found = scarce::find(connection, &targets, steps, mesh)?;
    found.extend(growth::find(connection, &targets, steps)?);
    Ok(found)
}
