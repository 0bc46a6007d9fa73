//! The histograms of a run with repeats, of which its cells' percentiles are made.

use super::steps::places;
use super::{ReportError, Statement, rows};
use crate::model::RunId;
use crate::report::StepReport;
use benchmesh_workloads::histogram::Histogram;
use sqlx::{Row, SqliteConnection};

pub(super) const HISTOGRAMS: Statement = Statement {
    what: "step_results",
    sql: "SELECT r.step_id, r.group_name, r.op, r.histogram, r.response_histogram
          FROM steps AS s CROSS JOIN step_results AS r ON r.step_id = s.id WHERE s.run_id = ? ORDER BY r.id",
};

/// Slots of a histogram, each its highest value and its count.
type Slots = Vec<(u64, u64)>;

/// Gives each operation its slots; without repeats there is nothing to merge.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    if steps.iter().all(|step| step.repeat <= 1) {
        return Ok(());
    }
    let found = rows(connection, HISTOGRAMS, run, |row| {
        let slots = |column: &str| -> Result<Slots, sqlx::Error> {
            let Some(blob) = row.try_get::<Option<Vec<u8>>, _>(column)? else {
                return Ok(Slots::new());
            };
            let histogram =
                Histogram::from_v2_deflate(&blob).map_err(|source| sqlx::Error::ColumnDecode {
                    index: column.to_owned(),
                    source: Box::new(source),
                })?;
            Ok(histogram.slots().collect())
        };
        let group: Option<String> = row.try_get("group_name")?;
        let key = (
            row.try_get::<i64, _>("step_id")?,
            group.unwrap_or_default(),
            row.try_get::<String, _>("op")?,
        );
        Ok((key, slots("histogram")?, slots("response_histogram")?))
    })
    .await?;
    let at = places(steps);
    for ((step, group, name), service, response) in found {
        let step = at.get(&step).and_then(|at| steps.get_mut(*at));
        let op = step.and_then(|step| {
            step.ops
                .iter_mut()
                .find(|op| op.group == group && op.op == name)
        });
        if let Some(op) = op {
            (op.service_slots, op.response_slots) = (service, response);
        }
    }
    Ok(())
}
