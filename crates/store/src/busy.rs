//! How busy the storage was recently, from stored samples. The scheduler reads it while it waits for idle storage.

use super::{Doing, Store, StoreError};
use benchmesh_model::mesh::{HostId, MeshMicros};
use benchmesh_model::systems::OWN;
use benchmesh_results::real;
use sqlx::Row;

/// One sampled daemon or disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Busy {
    pub host: HostId,
    /// `None` for a disk.
    pub daemon: Option<String>,
    /// The daemon's instance, or the disk's name.
    pub name: String,
    /// CPU time in percent of one CPU for a daemon; busy time in percent of elapsed time for a disk.
    pub percent: f64,
    /// How much of the requested time its samples cover.
    pub covered_us: i64,
}

/// `daemons.last_seen_us` of a watched daemon is updated at least this often.
const SEEN_WITHIN_US: i64 = 65_000_000;

impl Store {
    /// The daemons that are now alive on a host, by name: "ceph-osd (3)".
    pub async fn daemons_alive(&self, host: HostId) -> Result<Vec<String>, StoreError> {
        self.flush().await;
        sqlx::query_as(
            "SELECT name, count(*) FROM daemons
             WHERE host_id = ?1 AND ended_us IS NULL AND name <> ?2 AND last_seen_us >=
                 (SELECT max(at_us) FROM host_samples WHERE host_id = ?1) - ?3
             GROUP BY name ORDER BY name",
        )
        .bind(host.0)
        .bind(OWN)
        .bind(SEEN_WITHIN_US)
        .fetch_all(self.reader())
        .await
        .map(|names: Vec<(String, i64)>| {
            let said = |(name, count): &(String, i64)| format!("{name} ({count})");
            names.iter().map(said).collect()
        })
        .doing("read the daemons of a host")
    }

    /// The work of each daemon and disk of a host between its first and last sample since `since`, and how much of
    /// that time the host's own samples cover (0 without samples).
    pub async fn busy_since(
        &self,
        host: HostId,
        since: MeshMicros,
    ) -> Result<(i64, Vec<Busy>), StoreError> {
        self.flush().await;
        let covered: Option<i64> = sqlx::query_scalar(
            "SELECT max(at_us) - min(at_us) FROM host_samples WHERE host_id = ? AND at_us >= ?",
        )
        .bind(host.0)
        .bind(since.0)
        .fetch_one(self.reader())
        .await
        .doing("read the samples of a host")?;
        // Counters of one daemon or disk only grow. One that decreased was restarted and counts as busy.
        let rows = sqlx::query(
            "SELECT d.name AS daemon, coalesce(d.instance, '') AS name, max(s.at_us) - min(s.at_us) AS covered_us,
                    max(s.cpu_user_us + s.cpu_system_us) - min(s.cpu_user_us + s.cpu_system_us) AS took_us
             FROM daemons AS d CROSS JOIN daemon_samples AS s ON s.daemon_id = d.id AND s.at_us >= ?2
             WHERE d.host_id = ?1 AND d.name <> ?3 GROUP BY d.id
             UNION ALL
             SELECT NULL, k.name, max(s.at_us) - min(s.at_us), max(s.busy_us) - min(s.busy_us)
             FROM disks AS k CROSS JOIN disk_samples AS s ON s.disk_id = k.id AND s.at_us >= ?2
             WHERE k.host_id = ?1 GROUP BY k.id",
        )
        .bind(host.0)
        .bind(since.0)
        .bind(OWN)
        .try_map(|row: sqlx::sqlite::SqliteRow| {
            let covered_us: i64 = row.try_get("covered_us")?;
            let took_us: i64 = row.try_get("took_us")?;
            Ok(Busy {
                host,
                daemon: row.try_get("daemon")?,
                name: row.try_get("name")?,
                percent: real(took_us) * 100.0 / real(covered_us.max(1)),
                covered_us,
            })
        })
        .fetch_all(self.reader())
        .await
        .doing("read how busy a host was")?;
        let sampled = rows.into_iter().filter(|one| one.covered_us > 0).collect();
        Ok((covered.unwrap_or(0), sampled))
    }
}
