//! The sampler's rows as messages: daemons one by one, their samples in columns, the rest as rows.

use crate::sampler::{
    BusyOthers, DaemonChange, DaemonSample, DaemonSeen, DiskSample, HostSample, NetSample,
};
use crate::telemetry::{At, MeshMicros, TargetSample};
use benchmesh_model::figures::{Figures, TargetFigures, columns};
use benchmesh_proto::v1;
use benchmesh_workloads::clock::MonoNanos;

pub(super) fn daemon_seen(At { at, row }: &At<DaemonSeen>) -> v1::DaemonSeen {
    v1::DaemonSeen {
        pid: row.pid,
        start_ticks: row.start_ticks,
        name: row.name.clone(),
        instance: row.instance.clone(),
        cmdline: row.cmdline.clone(),
        at_us: at.0,
        ended: row.ended,
        born_us: at.0.saturating_sub(row.age_us),
        is_parent: row.change == DaemonChange::Parent,
        version: row.version.clone(),
        is_replaced: row.is_replaced,
    }
}

impl From<v1::DaemonSeen> for At<DaemonSeen> {
    fn from(row: v1::DaemonSeen) -> Self {
        Self {
            at: MeshMicros(row.at_us),
            row: DaemonSeen {
                // The agent's own instant is not sent; the batch carries mesh time instead.
                at: MonoNanos(0),
                pid: row.pid,
                start_ticks: row.start_ticks,
                name: row.name,
                instance: row.instance,
                cmdline: row.cmdline,
                version: row.version,
                is_replaced: row.is_replaced,
                ended: row.ended,
                age_us: row.at_us.saturating_sub(row.born_us),
                // The event is a message of its own.
                change: match row.is_parent {
                    true => DaemonChange::Parent,
                    false => DaemonChange::None,
                },
            },
        }
    }
}

pub(super) fn daemon_samples(rows: &[At<DaemonSample>]) -> v1::DaemonSamples {
    let columns = columns(rows.iter().map(|it| it.row.figures));
    v1::DaemonSamples {
        pid: rows.iter().map(|it| it.row.pid).collect(),
        start_ticks: rows.iter().map(|it| it.row.start_ticks).collect(),
        at_us: rows.iter().map(|it| it.at.0).collect(),
        figures: columns.into_iter().map(v1::FigureColumn::from).collect(),
    }
}

pub(super) fn host_sample(At { at, row }: &At<HostSample>) -> v1::HostSample {
    let others = row.others.as_ref();
    v1::HostSample {
        at_us: at.0,
        figures: row.figures.values().to_vec(),
        others: others.map(|others| busy_others(*at, row.at, others)),
    }
}

/// Dated relative to their sample.
fn busy_others(at: MeshMicros, sampled: MonoNanos, others: &BusyOthers) -> v1::BusyOthers {
    let dated = |instant: MonoNanos| {
        let before = sampled.since(instant).as_micros();
        let after = instant.since(sampled).as_micros();
        let micros = |span: u128| i64::try_from(span).unwrap_or(i64::MAX);
        at.0.saturating_sub(micros(before))
            .saturating_add(micros(after))
    };
    let (names, cpu_us) = others.processes.iter().cloned().unzip();
    v1::BusyOthers {
        from_us: dated(others.from),
        until_us: dated(others.until),
        names,
        cpu_us,
    }
}

pub(super) fn disk_sample(At { at, row }: &At<DiskSample>) -> v1::DiskSample {
    v1::DiskSample {
        at_us: at.0,
        disk: row.disk.to_string(),
        stacked: row.stacked,
        figures: row.figures.values().to_vec(),
    }
}

pub(super) fn net_sample(At { at, row }: &At<NetSample>) -> v1::NetSample {
    v1::NetSample {
        at_us: at.0,
        interface: row.interface.to_string(),
        figures: row.figures.values().to_vec(),
    }
}

pub(super) fn target_sample(row: &TargetSample) -> v1::TargetSample {
    v1::TargetSample {
        at_us: row.at.0,
        target: row.target.clone(),
        nonce: row.nonce.clone(),
        device: row.device.clone(),
        figures: row.figures.values().to_vec(),
    }
}

impl From<v1::TargetSample> for TargetSample {
    fn from(row: v1::TargetSample) -> Self {
        Self {
            at: MeshMicros(row.at_us),
            target: row.target,
            nonce: row.nonce,
            device: row.device,
            figures: TargetFigures::from_values(row.figures),
        }
    }
}
