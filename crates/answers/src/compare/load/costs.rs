//! What the operations of a step cost: CPU time of the storage's daemons and of the clients' workers, and traffic of the
//! clients' interfaces. Each is known for all operations of a load together, and is added to the cell of the most
//! frequent one.

use super::cells::UnreadCell;
use super::{CompareError, reading};
use crate::compare::cell::MeasuredCell;
use crate::rows::all_rows;
use benchmesh_model::mesh::RunId;
use benchmesh_results::real;
use benchmesh_workloads::op::Op;
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

const DAEMONS: &str =
    "SELECT step_id, name, cpu_us_per_op FROM v_cost WHERE run_id = ? AND cpu_us_per_op > 0";

/// A sum without one of its tasks tells nothing. CPU time is measured from the start, operations from a ramp's end.
const CLIENTS: &str = "
    SELECT t.step_id, coalesce(t.group_name, ''), sum(t.cpu_user_us + t.cpu_system_us)
    FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id WHERE s.run_id = ?
        AND (s.measured_from_us IS NULL OR s.measured_from_us = s.start_us)
    GROUP BY t.step_id, t.group_name HAVING count(t.cpu_user_us + t.cpu_system_us) = count(*)";

/// Likewise of a host.
const TRAFFIC: &str = "
    SELECT t.step_id, sum(t.received_bytes + t.sent_bytes)
    FROM steps AS s CROSS JOIN step_traffic AS t ON t.step_id = s.id WHERE s.run_id = ?
    GROUP BY t.step_id HAVING count(t.received_bytes + t.sent_bytes) = count(*)";

/// The operations of a step or of one of its groups.
struct CellLoad {
    /// The place of the most frequent operation's cell.
    at: usize,
    most: Option<i64>,
    /// `None` if one of the operations was not counted.
    ops: Option<i64>,
}

/// Adds the costs to the cells of a run.
pub(super) fn add(
    connection: &Connection,
    run: RunId,
    found: &mut [UnreadCell],
) -> Result<(), CompareError> {
    let of_steps = loads(found, |cell| cell.step);
    let of_groups = loads(found, |cell| (cell.step, cell.key.group.clone()));
    let mut daemons = daemons(connection, run)?;
    for (step, load) in &of_steps {
        if let (Some(costs), Some(one)) = (daemons.remove(step), found.get_mut(load.at)) {
            one.cell.cpu_us_per_op = costs;
        }
    }
    let clients: Vec<(i64, String, i64)> =
        all_rows(connection, CLIENTS, &[run.0.into()]).map_err(reading("tasks"))?;
    for (step, group, us) in clients {
        if let Some(load) = of_groups.get(&(step, group))
            && let Some(one) = found.get_mut(load.at)
        {
            one.cell.client_us_per_op = load.per_op(us);
        }
    }
    let traffic: Vec<(i64, i64)> =
        all_rows(connection, TRAFFIC, &[run.0.into()]).map_err(reading("step_traffic"))?;
    let mut groups: HashMap<i64, usize> = HashMap::new();
    for (step, _) in of_groups.keys() {
        *groups.entry(*step).or_default() += 1;
    }
    for (step, bytes) in traffic {
        // The loads of several groups share the interfaces.
        let alone = groups.get(&step) == Some(&1);
        if let Some(load) = of_steps.get(&step).filter(|_| alone)
            && let Some(one) = found.get_mut(load.at)
        {
            one.cell.net_bytes_per_op = load.per_op(bytes);
        }
    }
    Ok(())
}

impl CellLoad {
    fn per_op(&self, amount: i64) -> Option<f64> {
        let ops = self.ops.filter(|ops| *ops > 0)?;
        Some(real(amount) / real(ops))
    }
}

/// The loads of all cells, by their keys. What the other end of a link observed is no work of a load.
fn loads<K: Eq + Hash>(
    found: &[UnreadCell],
    key: impl Fn(&MeasuredCell) -> K,
) -> HashMap<K, CellLoad> {
    let mut loads: HashMap<K, CellLoad> = HashMap::new();
    let cells = found.iter().map(|one| &one.cell).enumerate();
    for (at, cell) in cells.filter(|(_, cell)| Op::is_work(&cell.key.op)) {
        let load = loads.entry(key(cell)).or_insert(CellLoad {
            at,
            most: None,
            ops: Some(0),
        });
        if cell.ops > load.most {
            (load.at, load.most) = (at, cell.ops);
        }
        load.ops = load.ops.zip(cell.ops).map(|(all, own)| all + own);
    }
    loads
}

/// Per step: CPU time per operation of each kind of daemon.
fn daemons(
    connection: &Connection,
    run: RunId,
) -> Result<HashMap<i64, BTreeMap<String, f64>>, CompareError> {
    let rows: Vec<(i64, String, f64)> =
        all_rows(connection, DAEMONS, &[run.0.into()]).map_err(reading("v_cost"))?;
    let mut costs: HashMap<i64, BTreeMap<String, f64>> = HashMap::new();
    for (step, name, cost) in rows {
        costs.entry(step).or_default().insert(name, cost);
    }
    Ok(costs)
}
