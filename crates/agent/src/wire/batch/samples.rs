//! The sampler's rows as messages: daemons one by one, their samples in columns, the rest as rows.

use crate::sampler::{
    BusyOthers, Change, DaemonSample, DaemonSeen, DiskSample, HostSample, NetSample,
};
use crate::telemetry::{At, MeshMicros};
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
        is_parent: row.change == Change::Parent,
    }
}

impl From<v1::DaemonSeen> for At<DaemonSeen> {
    fn from(row: v1::DaemonSeen) -> Self {
        Self {
            at: MeshMicros(row.at_us),
            row: DaemonSeen {
                // The agent's own instant does not travel; mesh time stands beside it.
                at: MonoNanos(0),
                pid: row.pid,
                start_ticks: row.start_ticks,
                name: row.name,
                instance: row.instance,
                cmdline: row.cmdline,
                ended: row.ended,
                age_us: row.at_us.saturating_sub(row.born_us),
                // Its event travels on its own.
                change: match row.is_parent {
                    true => Change::Parent,
                    false => Change::None,
                },
            },
        }
    }
}

pub(super) fn daemon_samples(rows: &[At<DaemonSample>]) -> v1::DaemonSamples {
    let column = |pick: fn(&DaemonSample) -> i64| rows.iter().map(|it| pick(&it.row)).collect();
    v1::DaemonSamples {
        pid: rows.iter().map(|it| it.row.pid).collect(),
        start_ticks: rows.iter().map(|it| it.row.start_ticks).collect(),
        at_us: rows.iter().map(|it| it.at.0).collect(),
        cpu_user_us: column(|row| row.cpu_user_us),
        cpu_system_us: column(|row| row.cpu_system_us),
        rss_bytes: column(|row| row.rss_bytes),
        vsz_bytes: column(|row| row.vsz_bytes),
        rss_peak_bytes: column(|row| row.rss_peak_bytes),
        threads: column(|row| row.threads),
        fds: column(|row| row.fds),
        read_bytes: column(|row| row.read_bytes),
        write_bytes: column(|row| row.write_bytes),
        vol_ctx: column(|row| row.vol_ctx),
        invol_ctx: column(|row| row.invol_ctx),
        minor_faults: column(|row| row.minor_faults),
        major_faults: column(|row| row.major_faults),
    }
}

pub(super) fn host_sample(At { at, row }: &At<HostSample>) -> v1::HostSample {
    v1::HostSample {
        at_us: at.0,
        user_us: row.user_us,
        nice_us: row.nice_us,
        system_us: row.system_us,
        idle_us: row.idle_us,
        iowait_us: row.iowait_us,
        irq_us: row.irq_us,
        softirq_us: row.softirq_us,
        steal_us: row.steal_us,
        memory_total_bytes: row.memory_total_bytes,
        memory_available_bytes: row.memory_available_bytes,
        memory_free_bytes: row.memory_free_bytes,
        cached_bytes: row.cached_bytes,
        dirty_bytes: row.dirty_bytes,
        writeback_bytes: row.writeback_bytes,
        swap_used_bytes: row.swap_used_bytes,
        load1: row.load1,
        cpu_some_us: row.cpu_some_us,
        io_some_us: row.io_some_us,
        io_full_us: row.io_full_us,
        memory_some_us: row.memory_some_us,
        memory_full_us: row.memory_full_us,
        skipped_ticks: row.skipped_ticks,
        sampler_cpu_us: row.sampler_cpu_us,
        others: row
            .others
            .as_ref()
            .map(|others| busy_others(*at, row.at, others)),
    }
}

/// Dated by the sample that they came with.
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
        reads: row.reads,
        read_bytes: row.read_bytes,
        read_us: row.read_us,
        writes: row.writes,
        write_bytes: row.write_bytes,
        write_us: row.write_us,
        in_flight: row.in_flight,
        busy_us: row.busy_us,
        queue_us: row.queue_us,
        discards: row.discards,
        flushes: row.flushes,
    }
}

pub(super) fn net_sample(At { at, row }: &At<NetSample>) -> v1::NetSample {
    v1::NetSample {
        at_us: at.0,
        interface: row.interface.to_string(),
        rx_bytes: row.rx_bytes,
        rx_packets: row.rx_packets,
        rx_errors: row.rx_errors,
        rx_dropped: row.rx_dropped,
        tx_bytes: row.tx_bytes,
        tx_packets: row.tx_packets,
        tx_errors: row.tx_errors,
        tx_dropped: row.tx_dropped,
    }
}
