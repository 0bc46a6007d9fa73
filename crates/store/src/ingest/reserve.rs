//! The disk's space: what one agent may fill within an hour, and what is reserved for results. Below the reserve,
//! samples are left out and counted as lost, and no run is started. Intervals and ends of tasks, events and states of
//! runs are stored until the disk is full.

use super::batch::{Batch, Loss};
use super::statements::execute;
use super::tables;
use crate::database::StoreError;
use benchmesh_model::mesh::{AgentId, LossKind, MeshMicros};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The reserve is the file system's size divided by this.
const PART: u64 = 20;
const MAX_RESERVE_BYTES: u64 = 1 << 30;
/// An agent may fill the file system's size divided by this within an hour.
const AGENT_PART: u64 = 8;
/// The largest agent known needs 5.5 GiB (docs/operations.md).
const MAX_AGENT_BYTES: u64 = 8 << 30;
/// Half of it has room for the largest message, with the most rows (22 MB).
const MIN_AGENT_BYTES: u64 = 64 << 20;
/// Consecutive losses of one kind within this time share a row.
const SAME_LOSS_US: i64 = 60_000_000;

/// Monitors the free space of the database's disk.
#[derive(Debug)]
pub(crate) struct Reserve {
    directory: PathBuf,
    is_low: AtomicBool,
    /// Whether space was low at any time since `take_was_low`.
    was_low: AtomicBool,
}

/// The reserve: a twentieth of the file system, at most 1 GiB.
fn reserve_bytes(size_bytes: u64) -> u64 {
    (size_bytes / PART).min(MAX_RESERVE_BYTES)
}

fn agent_bytes(size_bytes: u64) -> u64 {
    (size_bytes / AGENT_PART).clamp(MIN_AGENT_BYTES, MAX_AGENT_BYTES)
}

/// Hysteresis: once space is low, it stays so until a quarter more is free.
fn is_low(was_low: bool, free_bytes: u64, size_bytes: u64) -> bool {
    let reserve = reserve_bytes(size_bytes);
    free_bytes
        < if was_low {
            reserve + reserve / 4
        } else {
            reserve
        }
}

impl Reserve {
    pub fn of(database: &Path) -> Self {
        let directory = match database.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Self {
            directory: directory.to_owned(),
            is_low: AtomicBool::new(false),
            was_low: AtomicBool::new(false),
        }
    }

    /// The bytes that one agent may have stored within an hour.
    pub fn agent_bytes_per_hour(&self) -> u64 {
        rustix::fs::statvfs(&self.directory).map_or(MAX_AGENT_BYTES, |fs| {
            agent_bytes(fs.f_blocks.saturating_mul(fs.f_frsize))
        })
    }

    /// Whether the free space is below the reserve. A file system that does not report its free space counts as not
    /// full.
    pub fn poll(&self) -> bool {
        let was_low = self.is_low.load(Ordering::Relaxed);
        let is_low = rustix::fs::statvfs(&self.directory).is_ok_and(|fs| {
            let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
            is_low(was_low, bytes(fs.f_bavail), bytes(fs.f_blocks))
        });
        self.is_low.store(is_low, Ordering::Relaxed);
        self.was_low.fetch_or(is_low, Ordering::Relaxed);
        is_low
    }

    /// Whether space was low at any check since the last call.
    pub fn take_was_low(&self) -> bool {
        self.was_low.swap(false, Ordering::Relaxed)
    }
}

/// Removes the samples from a batch, except samples of targets, which are few.
pub(super) fn withhold(batch: &mut Batch) -> Vec<Loss> {
    let daemons = std::mem::take(&mut batch.daemon_samples);
    let hosts = std::mem::take(&mut batch.host_samples);
    let disks = std::mem::take(&mut batch.disk_samples);
    let nets = std::mem::take(&mut batch.net_samples);
    [
        lost(
            LossKind::DaemonSamples,
            daemons.iter().map(|sample| sample.at),
        ),
        lost(LossKind::HostSamples, hosts.iter().map(|sample| sample.at)),
        lost(LossKind::DiskSamples, disks.iter().map(|sample| sample.at)),
        lost(LossKind::NetSamples, nets.iter().map(|sample| sample.at)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn lost(what: LossKind, instants: impl Iterator<Item = MeshMicros>) -> Option<Loss> {
    instants.fold(None, |loss: Option<Loss>, at| {
        let (rows, from, until) =
            loss.map_or((0, at, at), |loss| (loss.rows, loss.from, loss.until));
        Some(Loss {
            what,
            rows: rows + 1,
            from: from.min(at),
            until: until.max(at),
        })
    })
}

/// Counts an agent's withheld rows as lost.
pub(super) fn record(
    connection: &Connection,
    agent: AgentId,
    losses: &[Loss],
) -> Result<(), StoreError> {
    for loss in losses {
        let added = execute(
            connection,
            "count samples that are left out",
            "UPDATE losses SET rows = rows + ?3, from_us = min(from_us, ?4), until_us = max(until_us, ?5)
             WHERE id = (SELECT max(id) FROM losses WHERE agent_id = ?1 AND what = ?2)
               AND until_us BETWEEN ?4 - ?6 AND ?5 + ?6",
            (
                agent.0,
                loss.what.as_str(),
                loss.rows,
                loss.from.0,
                loss.until.0,
                SAME_LOSS_US,
            ),
        )?;
        if added == 0 {
            tables::LOSSES.insert(connection, std::slice::from_ref(loss), |loss, row| {
                tables::loss(agent, loss, row);
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_model::figures::{DaemonFigures, Figures, UNKNOWN};
    use benchmesh_proto::v1 as proto;
    use prost::Message;

    #[test]
    fn an_agent_may_fill_an_eighth_of_the_disk_within_an_hour() {
        for (size, expected) in [
            (0, MIN_AGENT_BYTES),
            (16 << 30, 2 << 30),
            (1 << 40, MAX_AGENT_BYTES),
        ] {
            assert_eq!(agent_bytes(size), expected, "{size}");
        }
    }

    /// The agent's default `--spool-limit`, full of samples of daemons, its smallest rows in number.
    #[test]
    fn a_full_spool_may_be_stored_at_once_on_a_disk_of_8_gib() {
        const SPOOL_BYTES: u64 = 256 << 20;
        const ROWS: usize = 1000;
        let message = proto::Batch {
            spool_id: "s".to_owned(),
            first_sequence: 1,
            sequence: 1,
            daemon_samples: Some(proto::DaemonSamples {
                pid: vec![4_000_000; ROWS],
                start_ticks: vec![100_000_000; ROWS],
                at_us: vec![1_750_000_000_000_000; ROWS],
                // An idle daemon with 10 MB, whose files and I/O are not permitted to be read.
                figures: DaemonFigures {
                    cpu_user_us: 100_000,
                    cpu_system_us: 100_000,
                    rss_bytes: 10 << 20,
                    vsz_bytes: 100 << 20,
                    threads: 4,
                    ..DaemonFigures::from_values(std::iter::repeat(UNKNOWN))
                }
                .values()
                .map(|value| vec![value; ROWS].into())
                .to_vec(),
            }),
            ..proto::Batch::default()
        };
        let message_bytes = message.encoded_len();
        let batch = Batch::try_from(message).unwrap();
        let per_batch = batch.bytes_to_store(message_bytes);
        let batches = SPOOL_BYTES / u64::try_from(message_bytes).unwrap();
        let bytes = batches * per_batch;
        assert!(bytes <= agent_bytes(8 << 30), "{bytes}");
    }

    #[test]
    fn a_part_of_the_disk_is_kept_and_left_with_room_to_spare() {
        const GIB: u64 = 1 << 30;
        for (was_low, free, size, expected) in [
            (false, GIB, 1000 * GIB, false),
            (false, GIB - 1, 1000 * GIB, true),
            (true, GIB + 1, 1000 * GIB, true),
            (true, GIB + GIB / 4, 1000 * GIB, false),
            (false, 5, 100, false),
            (false, 4, 100, true),
            (false, 0, 0, false),
        ] {
            let of = (was_low, free, size);
            assert_eq!(is_low(was_low, free, size), expected, "{of:?}");
        }
    }
}
