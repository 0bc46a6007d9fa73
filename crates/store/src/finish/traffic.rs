//! Bytes that the load on each client's host moved in a step, beside the bytes that its interfaces and disks carried,
//! stored in `step_traffic`; and the flags that follow from them.

use super::daemons::Measured;
use super::flags;
use crate::database::{Doing, StoreError, WriteRows};
use benchmesh_model::mesh::StepId;
use benchmesh_results::Flag;
use benchmesh_results::direction::{Direction, direction_of};
use benchmesh_results::origin::{
    Carried, Moved, Origin, answered_by_cache, cached, is_suspect, origin, unwritten,
};
use benchmesh_results::usage::{Point, used};
use benchmesh_workloads::op::Op;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};
use std::collections::BTreeMap;

/// Maximum distance of a usable sample from a step's start or end. Hosts are sampled once per second.
const MAX_DISTANCE_US: i64 = 2_500_000;

/// A row of `step_traffic`.
#[derive(Debug, Default)]
pub(super) struct HostTraffic {
    host: i64,
    moved: Moved,
    network: Option<[i64; 2]>,
    disks: Option<[i64; 2]>,
    cached_bytes: Option<i64>,
    not_judged: Option<&'static str>,
    /// Written bytes that only reached a cache, and requests that one answered; `None`: not judged.
    unwritten_bytes: Option<i64>,
    answered_by_cache: Option<i64>,
}

/// Bytes carried by the devices of a kind, per host.
type Devices = BTreeMap<i64, Vec<[Vec<Point>; 2]>>;

const INTERFACES: &str = "SELECT n.host_id, n.id, x.at_us, x.rx_bytes AS came, x.tx_bytes AS went
    FROM interfaces AS n CROSS JOIN net_samples AS x ON x.interface_id = n.id
        AND (x.at_us BETWEEN ?1 AND ?2 OR x.at_us BETWEEN ?3 AND ?4)
    WHERE n.host_id IN (SELECT a.host_id FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id WHERE t.step_id = ?5)
    ORDER BY n.host_id, n.id, x.at_us";
const DISKS: &str = "SELECT n.host_id, n.id, x.at_us, x.read_bytes AS came, x.write_bytes AS went
    FROM disks AS n CROSS JOIN disk_samples AS x ON x.disk_id = n.id
        AND (x.at_us BETWEEN ?1 AND ?2 OR x.at_us BETWEEN ?3 AND ?4)
    WHERE n.stacked = 0
      AND n.host_id IN (SELECT a.host_id FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id WHERE t.step_id = ?5)
    ORDER BY n.host_id, n.id, x.at_us";
/// One device of a host.
const DEVICE: &str = "SELECT n.host_id, n.id, x.at_us, x.read_bytes AS came, x.write_bytes AS went
    FROM disks AS n CROSS JOIN disk_samples AS x ON x.disk_id = n.id
        AND (x.at_us BETWEEN ?1 AND ?2 OR x.at_us BETWEEN ?3 AND ?4)
    WHERE n.host_id = ?5 AND n.name = ?6 ORDER BY n.host_id, n.id, x.at_us";
/// benchmesh's own processes, of which the agent's do the load. If one of them is not covered, their sum is unknown.
const OWN: &str = "SELECT n.host_id, n.id, x.at_us, x.read_bytes AS came, x.write_bytes AS went
    FROM daemons AS n CROSS JOIN daemon_samples AS x ON x.daemon_id = n.id
        AND (x.at_us BETWEEN ?1 AND ?2 OR x.at_us BETWEEN ?3 AND ?4)
    WHERE n.name = 'benchmesh'
      AND n.host_id IN (SELECT a.host_id FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id WHERE t.step_id = ?5)
    ORDER BY n.host_id, n.id, x.at_us";

/// The traffic of every host with a task of the step, from the rows stored now.
pub(super) async fn traffic(
    reader: &SqlitePool,
    step: StepId,
    measured: Measured,
) -> Result<Vec<HostTraffic>, StoreError> {
    let moved = moved(reader, step).await?;
    if moved.is_empty() || measured.from_us >= measured.until_us {
        return Ok(Vec::new());
    }
    let origins = origins(reader, step).await?;
    let interfaces = devices(reader, INTERFACES, measured, step.0, None).await?;
    let disks = devices(reader, DISKS, measured, step.0, None).await?;
    let own = devices(reader, OWN, measured, step.0, None).await?;
    let mut hosts = Vec::new();
    for (host, moved) in moved {
        let moved = Moved {
            span_us: measured.until_us - measured.from_us,
            ..moved
        };
        let unknown = Origin::Unknown("how the target is mounted is not known");
        let origin = origins.get(&host).unwrap_or(&unknown);
        let device = match origin {
            Origin::Device(name, _) => devices(reader, DEVICE, measured, host, Some(name)).await?,
            _ => Devices::new(),
        };
        let sum = |devices: &Devices| carried(devices.get(&host)?, measured);
        let (network, disks, device) = (sum(&interfaces), sum(&disks), sum(&device));
        let most = |both: Option<[DirectionBytes; 2]>| both.map(|both| both.map(|one| one.most));
        let came = |both: Option<[DirectionBytes; 2]>| most(both).map(|[came, _]| came);
        let went = |both: Option<[DirectionBytes; 2]>| most(both).map(|[_, went]| went);
        let carried = Carried {
            received_bytes: came(network),
            sent_bytes: went(network),
            disk_read_bytes: came(disks),
            disk_written_bytes: went(disks),
            device_read_bytes: came(device),
            device_written_bytes: went(device),
            own_read_bytes: own
                .get(&host)
                .and_then(|own| carried(own, measured))
                .map(|[came, _]| came.most),
        };
        let judged = cached(origin, moved, carried);
        hosts.push(HostTraffic {
            host,
            moved,
            network: network.map(|both| both.map(|one| one.amount)),
            disks: disks.map(|both| both.map(|one| one.amount)),
            cached_bytes: judged.ok().flatten(),
            not_judged: judged.err(),
            unwritten_bytes: unwritten(origin, moved, carried),
            answered_by_cache: answered_by_cache(origin, moved, carried),
        });
    }
    Ok(hosts)
}

/// Per host: bytes that the tasks read from the target and wrote to it, and their requests about names. Links have no
/// target.
async fn moved(reader: &SqlitePool, step: StepId) -> Result<BTreeMap<i64, Moved>, StoreError> {
    let rows: Vec<(i64, String, String, i64, i64)> = sqlx::query_as(
        "SELECT coalesce(e.host_id, a.host_id), r.op, coalesce(g.mode, s.mode), sum(r.bytes), sum(r.ops)
         FROM tasks AS t
         JOIN steps AS s ON s.id = t.step_id AND s.target IS NOT NULL
         JOIN agents AS a ON a.id = t.agent_id
         LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
         LEFT JOIN step_groups AS g ON g.step_id = t.step_id AND g.name = t.group_name
         JOIN task_results AS r ON r.task_id = t.id
         WHERE t.step_id = ?1 GROUP BY 1, 2, 3",
    )
    .bind(step.0)
    .fetch_all(reader)
    .await
    .doing("read the bytes that a step moved")?;
    let mut hosts: BTreeMap<i64, Moved> = BTreeMap::new();
    for (host, op, mode, bytes, ops) in rows {
        let moved = hosts.entry(host).or_default();
        if matches!(Op::parse(&op), Some(Op::Stat | Op::List | Op::ListStat)) {
            moved.asked = moved.asked.saturating_add(ops);
        }
        let sum = match direction_of(&op, &mode) {
            Some(Direction::FromStorage) => &mut moved.read_bytes,
            Some(Direction::ToStorage) => &mut moved.written_bytes,
            None => continue,
        };
        *sum = sum.saturating_add(bytes);
    }
    Ok(hosts)
}

/// Per host: how its agents found the step's target mounted. Hosts whose agents disagree are not judged.
async fn origins(reader: &SqlitePool, step: StepId) -> Result<BTreeMap<i64, Origin>, StoreError> {
    let rows: Vec<(i64, String, String, String)> = sqlx::query_as(
        "SELECT DISTINCT a.host_id, coalesce(m.mount_type, ''), coalesce(m.mount_source, ''),
                coalesce(m.mount_options, '')
         FROM steps AS s
         JOIN run_targets AS m ON m.run_id = s.run_id AND m.target = s.target
         JOIN run_agents AS a ON a.run_id = m.run_id AND a.agent_id = m.agent_id
         WHERE s.id = ?1 AND m.agent_id IN (SELECT agent_id FROM tasks WHERE step_id = ?1)",
    )
    .bind(step.0)
    .fetch_all(reader)
    .await
    .doing("read how a step's target is mounted")?;
    let mut origins: BTreeMap<i64, Origin> = BTreeMap::new();
    for (host, file_system, source, options) in rows {
        let found = origin(&file_system, &source, &options);
        origins
            .entry(host)
            .and_modify(|known| {
                if *known != found {
                    *known = Origin::Unknown("its agents have it mounted in several ways");
                }
            })
            .or_insert(found);
    }
    Ok(origins)
}

/// The counters of devices at the ends of the measured part: of the step `of`, or of the host `of` and the device's
/// `name`.
async fn devices(
    reader: &SqlitePool,
    sql: &'static str,
    measured: Measured,
    of: i64,
    name: Option<&str>,
) -> Result<Devices, StoreError> {
    const DOING: &str = "read the traffic of devices in a step";
    let query = sqlx::query(sql)
        .bind(measured.from_us.saturating_sub(MAX_DISTANCE_US))
        .bind(measured.from_us.saturating_add(MAX_DISTANCE_US))
        .bind(measured.until_us.saturating_sub(MAX_DISTANCE_US))
        .bind(measured.until_us.saturating_add(MAX_DISTANCE_US))
        .bind(of);
    let query = match name {
        Some(name) => query.bind(name),
        None => query,
    };
    let rows = query.fetch_all(reader).await.doing(DOING)?;
    let mut devices = Devices::new();
    let mut last = None;
    let mut add = |row: &SqliteRow| -> Result<(), sqlx::Error> {
        let (host, device): (i64, i64) = (row.try_get("host_id")?, row.try_get("id")?);
        let of_host = devices.entry(host).or_default();
        if last.replace(device) != Some(device) {
            of_host.push([Vec::new(), Vec::new()]);
        }
        let at: i64 = row.try_get("at_us")?;
        // A counter that cannot be read has no points.
        let read: (Option<i64>, Option<i64>) = (row.try_get("came")?, row.try_get("went")?);
        if let ((Some(came), Some(went)), Some([all_came, all_went])) = (read, of_host.last_mut()) {
            all_came.push((at, came));
            all_went.push((at, went));
        }
        Ok(())
    };
    for row in &rows {
        add(row).doing(DOING)?;
    }
    Ok(devices)
}

/// Bytes that all devices of a host carried in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct DirectionBytes {
    amount: i64,
    /// `amount` plus the uncertainty between two samples.
    most: i64,
}

/// Both directions; `None` if the samples do not cover the time, or a counter was reset in it.
fn carried(devices: &[[Vec<Point>; 2]], measured: Measured) -> Option<[DirectionBytes; 2]> {
    let Measured { from_us, until_us } = measured;
    let mut sums: Option<[DirectionBytes; 2]> = None;
    for device in devices {
        let mut both = device
            .iter()
            .map(|points| used(points, from_us, until_us, None));
        let (Some(Some(came)), Some(Some(went))) = (both.next(), both.next()) else {
            return None;
        };
        if (came.from_us, came.until_us) != (from_us, until_us) {
            return None;
        }
        let sums = sums.get_or_insert_default();
        for (sum, one) in sums.iter_mut().zip([came, went]) {
            sum.amount = sum.amount.saturating_add(one.amount);
            sum.most = sum
                .most
                .saturating_add(one.amount.saturating_add(one.error));
        }
    }
    sums
}

/// Replaces the rows of a step, and its flags if the rows allow a judgment.
pub(super) async fn store(
    step: StepId,
    traffic: &[HostTraffic],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    const DOING: &str = "store the traffic of a step";
    sqlx::query("DELETE FROM step_traffic WHERE step_id = ?")
        .bind(step.0)
        .write(connection, DOING)
        .await?;
    for one in traffic {
        let mut row = sqlx::query(
            "INSERT INTO step_traffic (step_id, host_id, read_bytes, written_bytes, received_bytes, sent_bytes,
                 disk_read_bytes, disk_written_bytes, cached_bytes, not_judged)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(step.0)
        .bind(one.host)
        .bind(one.moved.read_bytes)
        .bind(one.moved.written_bytes);
        for both in [one.network, one.disks] {
            row = row
                .bind(both.map(|[came, _]| came))
                .bind(both.map(|[_, went]| went));
        }
        row.bind(one.cached_bytes)
            .bind(one.not_judged)
            .write(connection, DOING)
            .await?;
    }
    flag(step, traffic, connection).await
}

/// Bytes are better evidence than a link's speed, so this replaces the flag that was based on the speed. In a warm
/// step caching of what is read is intended.
async fn flag(
    step: StepId,
    traffic: &[HostTraffic],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let unwritten = |one: &HostTraffic| Some((one.unwritten_bytes?, one.moved.written_bytes));
    let write_cached = traffic
        .iter()
        .filter_map(unwritten)
        .any(|(unwritten, written)| is_suspect(unwritten, written));
    flags::set(step, Flag::WriteCached, write_cached, connection).await?;
    let cache: String = sqlx::query_scalar("SELECT cache FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_one(&mut *connection)
        .await
        .doing("read a step")?;
    let read = |one: &HostTraffic| Some((one.cached_bytes?, one.moved.read_bytes));
    let answered = |one: &HostTraffic| Some((one.answered_by_cache?, one.moved.asked));
    let judged: Vec<(i64, i64)> = traffic
        .iter()
        .filter_map(read)
        .chain(traffic.iter().filter_map(answered))
        .collect();
    let suspect = cache != "warm" && judged.iter().any(|(cached, all)| is_suspect(*cached, *all));
    let all_judged = !judged.is_empty() && traffic.iter().all(|one| one.not_judged.is_none());
    match suspect || all_judged {
        true => flags::set(step, Flag::CacheSuspect, suspect, connection).await,
        false => Ok(()),
    }
}
