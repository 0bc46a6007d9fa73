//! Imbalance by bytes: daemons of one name that serve a target, and disks of one name on different hosts, which moved
//! far more than their peers.

use super::daemon::{self, FIRST_FIGURE, NamedDaemon, select_daemons};
use super::mesh::{Disk, Mesh};
use super::{FindingsError, finite, quoted, reading};
use benchmesh_analysis::equals::{MORE, unlike};
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

const MIB: f64 = 1_048_576.0;
/// Minimum relevant difference to the peers, in bytes per second.
const MIN_MORE: f64 = MIB;
/// A peer with a lower rate, in bytes per second, is assumed to serve something else: another pool, another class of
/// devices.
const MIN_PEER: f64 = MIB / 64.0;
/// Minimum share of the run that a mean must cover.
const MIN_SHARE: f64 = 0.5;

/// If the bytes of a step are unknown, those of the run are, too.
const DAEMONS: &str = select_daemons!(
    "sum(u.read_bytes + u.write_bytes) * 1e6 / sum(u.until_us - u.from_us), sum(u.until_us - u.from_us)",
    "steps AS s CROSS JOIN step_daemons AS u ON u.step_id = s.id JOIN daemons AS d ON d.id = u.daemon_id",
    "s.run_id = ?1 AND u.serves_target = 1
      AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
    GROUP BY d.id HAVING count(u.read_bytes + u.write_bytes) = count(*)
    ORDER BY d.name, d.id"
);

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let rows: Vec<(NamedDaemon, (f64, i64))> =
        daemon::load(connection, DAEMONS, &[run.0.into()], |row| {
            Ok((row.get(FIRST_FIGURE)?, row.get(FIRST_FIGURE + 1)?))
        })
        .map_err(reading("step_daemons"))?;
    let longest = rows.iter().map(|(_, (_, us))| *us).max().unwrap_or(0);
    let daemons: Vec<(NamedDaemon, f64)> = rows
        .into_iter()
        .filter(|(_, (_, us))| real(*us) >= MIN_SHARE * real(longest))
        .map(|(daemon, (rate, _))| (daemon, rate))
        .collect();
    let mut found: Vec<Finding> = daemons
        .chunk_by(|one, other| one.0.name == other.0.name)
        .flat_map(|equals| {
            let rates: Vec<f64> = equals.iter().map(|(_, rate)| *rate).collect();
            let of = |(at, (daemon, _)): (usize, &(NamedDaemon, f64))| {
                let more = more(&rates, at)?;
                Some(of_daemon(run, daemon, &more))
            };
            equals.iter().enumerate().filter_map(of).collect::<Vec<_>>()
        })
        .collect();
    found.extend(disks(mesh));
    Ok(found)
}

/// The own rate, and the median and number of the peers, in bytes per second.
struct More {
    rate: f64,
    usual: f64,
    peers: usize,
}

impl More {
    fn times(&self) -> f64 {
        self.rate / self.usual
    }

    fn in_words(&self) -> String {
        format!(
            "{} MiB/s over the run, {} times the {} of its {} peers",
            figures::rate(self.rate / MIB),
            figures::rate(self.times()),
            figures::rate(self.usual / MIB),
            self.peers
        )
    }
}

fn more(rates: &[f64], at: usize) -> Option<More> {
    let rate = *rates.get(at)?;
    let others = rates.iter().enumerate().filter(|(other, _)| *other != at);
    let peers = others
        .map(|(_, peer)| *peer)
        .filter(|peer| *peer >= MIN_PEER);
    let equals: Vec<f64> = std::iter::once(rate).chain(peers).collect();
    let usual = unlike(&equals, 0, MORE).filter(|usual| rate - usual >= MIN_MORE)?;
    let peers = equals.len() - 1;
    Some(More { rate, usual, peers })
}

fn outlier(subject: &str, more: &More, sentence: String) -> Finding {
    Finding {
        figure: Some("bytes_per_s".to_owned()),
        size: finite(more.times()),
        unit: Some("times".to_owned()),
        ..Finding::new(
            Severity::Warning,
            FindingKind::Outlier,
            FindingVerdict::Found,
            subject,
            sentence,
        )
    }
}

fn of_daemon(run: RunId, daemon: &NamedDaemon, more: &More) -> Finding {
    let sentence = format!("{} read and wrote {}", daemon.label, more.in_words());
    Finding {
        host_id: Some(daemon.host_id),
        daemon_id: Some(daemon.id),
        sql: Some(format!(
            "SELECT host, instance, sum(read_mib) AS read_mib, sum(written_mib) AS written_mib FROM v_daemon_usage \
             WHERE run_id = {} AND name = {} GROUP BY daemon_id ORDER BY sum(read_mib) + sum(written_mib) DESC",
            run.0,
            quoted(&daemon.name)
        )),
        ..outlier(&daemon.label, more, sentence)
    }
}

/// Bytes per second from the first to the last sample.
fn rate_of(mesh: &Mesh, disk: &Disk) -> Option<f64> {
    let mut known = disk.samples.iter().flatten();
    let first = known.next()?;
    let last = known.last()?;
    let [_, _, _, before] = first.figures;
    let [_, _, _, after] = last.figures;
    let time_us = last.at_us - first.at_us;
    let is_long = real(time_us) >= MIN_SHARE * real(mesh.until_us - mesh.from_us);
    (is_long && after >= before).then(|| real(after - before) * 1e6 / real(time_us))
}

fn disks(mesh: &Mesh) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<(&Disk, f64)>> = BTreeMap::new();
    for disk in &mesh.disks {
        if let Some(rate) = rate_of(mesh, disk) {
            by_name.entry(&disk.name).or_default().push((disk, rate));
        }
    }
    let of_name = |equals: &Vec<(&Disk, f64)>| {
        let rates: Vec<f64> = equals.iter().map(|(_, rate)| *rate).collect();
        let of = |(at, (disk, _)): (usize, &(&Disk, f64))| {
            let more = more(&rates, at)?;
            let sentence = format!("disk {} moved {}", disk.label, more.in_words());
            Some(Finding {
                host_id: Some(disk.host_id),
                from_us: Some(mesh.from_us),
                until_us: Some(mesh.until_us),
                sql: Some(format!(
                    "SELECT h.name AS host, k.name AS disk, (max(x.read_bytes) - min(x.read_bytes)) / {MIB} AS read_mib, \
                     (max(x.write_bytes) - min(x.write_bytes)) / {MIB} AS written_mib FROM disks AS k \
                     JOIN hosts AS h ON h.id = k.host_id JOIN disk_samples AS x ON x.disk_id = k.id \
                     WHERE k.name = {} AND x.at_us BETWEEN {} AND {} GROUP BY k.id ORDER BY read_mib + written_mib DESC",
                    quoted(&disk.name),
                    mesh.from_us,
                    mesh.until_us
                )),
                ..outlier(&format!("disk {}", disk.label), &more, sentence)
            })
        };
        equals.iter().enumerate().filter_map(of).collect::<Vec<_>>()
    };
    by_name.values().flat_map(of_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_of_an_idle_pool_are_no_peers() {
        let busy = [12.0, 11.0, 11.5].map(|rate| rate * MIB);
        let rates: Vec<f64> = busy.into_iter().chain([0.0; 12]).collect();
        for at in 0..busy.len() {
            assert!(more(&rates, at).is_none(), "{at}");
        }
    }

    #[test]
    fn one_that_moves_more_than_its_peers_is_found() {
        let rates = [2.0, 9.0, 2.1, 1.9, 2.0, 0.0].map(|rate| rate * MIB);
        let found = more(&rates, 1).expect("it is unlike them");
        assert_eq!(found.peers, 4);
        assert_eq!(found.times(), 4.5);
        assert!(more(&rates, 0).is_none());
    }
}
