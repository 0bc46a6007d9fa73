//! For each kind of sample: the INSERT statement and the order of its columns.

use super::batch::{
    AgentEvent, ClockOffset, DaemonSample, DiskSample, HostSample, Loss, NetSample,
};
use super::statements::{Table, Values};
use crate::model::{AgentId, DaemonId, HostId};
use benchmesh_model::events::may_be_agents;

pub(crate) static DAEMON_SAMPLES: Table = Table::new(
    "INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes, rss_peak_bytes, \
     threads, fds, read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults, major_faults)",
    "ON CONFLICT (daemon_id, at_us) DO NOTHING",
    15,
    "store samples of daemons",
);

pub(crate) fn daemon_sample(
    (daemon, sample): &(DaemonId, &DaemonSample),
    row: &mut Values<'_, '_>,
) {
    row.add(daemon.0);
    row.add(sample.at.0);
    row.add(sample.cpu_user_us);
    row.add(sample.cpu_system_us);
    row.add(sample.rss_bytes);
    row.add(sample.vsz_bytes);
    row.add(sample.rss_peak_bytes);
    row.add(sample.threads);
    row.add(sample.fds);
    row.add(sample.read_bytes);
    row.add(sample.write_bytes);
    row.add(sample.vol_ctx);
    row.add(sample.invol_ctx);
    row.add(sample.minor_faults);
    row.add(sample.major_faults);
}

pub(crate) static HOST_SAMPLES: Table = Table::new(
    "INSERT INTO host_samples (host_id, at_us, user_us, nice_us, system_us, idle_us, iowait_us, irq_us, softirq_us, \
     steal_us, memory_total_bytes, memory_available_bytes, memory_free_bytes, cached_bytes, dirty_bytes, \
     writeback_bytes, swap_used_bytes, load1, cpu_some_us, io_some_us, io_full_us, memory_some_us, memory_full_us, \
     skipped_ticks, sampler_cpu_us, busy_others)",
    "ON CONFLICT (host_id, at_us) DO NOTHING",
    26,
    "store samples of a host",
);

pub(crate) fn host_sample(host: HostId, sample: &HostSample, row: &mut Values<'_, '_>) {
    row.add(host.0);
    row.add(sample.at.0);
    for counter in [
        sample.user_us,
        sample.nice_us,
        sample.system_us,
        sample.idle_us,
        sample.iowait_us,
        sample.irq_us,
        sample.softirq_us,
        sample.steal_us,
        sample.memory_total_bytes,
        sample.memory_available_bytes,
        sample.memory_free_bytes,
        sample.cached_bytes,
        sample.dirty_bytes,
        sample.writeback_bytes,
        sample.swap_used_bytes,
    ] {
        row.add(counter);
    }
    row.add(sample.load1);
    for pressure in [
        sample.cpu_some_us,
        sample.io_some_us,
        sample.io_full_us,
        sample.memory_some_us,
        sample.memory_full_us,
    ] {
        row.add(pressure);
    }
    row.add(sample.skipped_ticks);
    row.add(sample.sampler_cpu_us);
    row.add(sample.busy_others.as_deref());
}

pub(crate) static DISK_SAMPLES: Table = Table::new(
    "INSERT INTO disk_samples (disk_id, at_us, reads, read_bytes, read_us, writes, write_bytes, write_us, in_flight, \
     busy_us, queue_us, discards, flushes)",
    "ON CONFLICT (disk_id, at_us) DO NOTHING",
    13,
    "store samples of disks",
);

pub(crate) fn disk_sample((disk, sample): &(i64, &DiskSample), row: &mut Values<'_, '_>) {
    row.add(*disk);
    row.add(sample.at.0);
    for counter in [
        sample.reads,
        sample.read_bytes,
        sample.read_us,
        sample.writes,
        sample.write_bytes,
        sample.write_us,
        sample.in_flight,
        sample.busy_us,
        sample.queue_us,
        sample.discards,
        sample.flushes,
    ] {
        row.add(counter);
    }
}

pub(crate) static NET_SAMPLES: Table = Table::new(
    "INSERT INTO net_samples (interface_id, at_us, rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets, \
     tx_errors, tx_dropped)",
    "ON CONFLICT (interface_id, at_us) DO NOTHING",
    10,
    "store samples of interfaces",
);

pub(crate) fn net_sample((interface, sample): &(i64, &NetSample), row: &mut Values<'_, '_>) {
    row.add(*interface);
    row.add(sample.at.0);
    for counter in [
        sample.rx_bytes,
        sample.rx_packets,
        sample.rx_errors,
        sample.rx_dropped,
        sample.tx_bytes,
        sample.tx_packets,
        sample.tx_errors,
        sample.tx_dropped,
    ] {
        row.add(counter);
    }
}

pub(crate) static CLOCK_OFFSETS: Table = Table::new(
    "INSERT INTO clock_offsets (agent_id, at_us, offset_us, error_us, round_trip_us)",
    "ON CONFLICT (agent_id, at_us) DO NOTHING",
    5,
    "store clock offsets",
);

pub(crate) fn clock_offset(agent: AgentId, offset: &ClockOffset, row: &mut Values<'_, '_>) {
    row.add(agent.0);
    row.add(offset.at.0);
    row.add(offset.offset_us);
    row.add(offset.error_us);
    row.add(offset.round_trip_us);
}

pub(crate) static EVENTS: Table = Table::new(
    "INSERT INTO events (at_us, run_id, step_id, agent_id, source, severity, kind, message, detail)",
    "",
    9,
    "keep events",
);

pub(crate) fn event(agent: AgentId, event: &AgentEvent, row: &mut Values<'_, '_>) {
    row.add(event.at.0);
    row.add(event.run.map(|id| id.0));
    row.add(event.step.map(|id| id.0));
    row.add(agent.0);
    // Of what an agent does the collector records events as well.
    row.add(match may_be_agents(&event.kind) {
        true => "agent",
        false => "collector",
    });
    row.add(event.severity.as_str());
    row.add(&event.kind);
    row.add(&event.message);
    row.add(&event.detail_json);
}

pub(crate) static LOSSES: Table = Table::new(
    "INSERT INTO losses (agent_id, what, rows, from_us, until_us)",
    "",
    5,
    "keep losses",
);

pub(crate) fn loss(agent: AgentId, loss: &Loss, row: &mut Values<'_, '_>) {
    row.add(agent.0);
    row.add(loss.what.as_str());
    row.add(loss.rows);
    row.add(loss.from.0);
    row.add(loss.until.0);
}

pub(crate) static SPOOLS: Table = Table::new(
    "INSERT INTO spools (agent_id, spool_id, last_sequence)",
    "ON CONFLICT (agent_id, spool_id) DO UPDATE SET last_sequence = excluded.last_sequence",
    3,
    "store the position of a spool",
);

pub(crate) fn position((agent, spool, last): &(AgentId, &str, u64), row: &mut Values<'_, '_>) {
    row.add(agent.0);
    row.add(spool);
    row.add(i64::try_from(*last).unwrap_or(i64::MAX));
}
