//! Readings of daemons, hosts, disks and interfaces.

use super::checks::{BatchError, counter, instant, name, readable};
use super::process;
use crate::ingest::batch::{DaemonSample, DiskSample, HostSample, NetSample};
use benchmesh_model::text::is_hidden;
use benchmesh_proto::v1 as proto;
use serde_json::json;

/// Names in one sample; agents send three.
const MAX_OTHERS: usize = 16;
/// Of such a name; the kernel gives its own threads more than the 15 that others have.
const MAX_NAME_CHARS: usize = 64;

pub(super) fn daemon_samples(wire: proto::DaemonSamples) -> Result<Vec<DaemonSample>, BatchError> {
    let expected = wire.pid.len();
    let columns = [
        ("daemon_samples.start_ticks", wire.start_ticks.len()),
        ("daemon_samples.at_us", wire.at_us.len()),
        ("daemon_samples.cpu_user_us", wire.cpu_user_us.len()),
        ("daemon_samples.cpu_system_us", wire.cpu_system_us.len()),
        ("daemon_samples.rss_bytes", wire.rss_bytes.len()),
        ("daemon_samples.vsz_bytes", wire.vsz_bytes.len()),
        ("daemon_samples.threads", wire.threads.len()),
        ("daemon_samples.fds", wire.fds.len()),
        ("daemon_samples.read_bytes", wire.read_bytes.len()),
        ("daemon_samples.write_bytes", wire.write_bytes.len()),
        ("daemon_samples.vol_ctx", wire.vol_ctx.len()),
        ("daemon_samples.invol_ctx", wire.invol_ctx.len()),
        ("daemon_samples.minor_faults", wire.minor_faults.len()),
        ("daemon_samples.major_faults", wire.major_faults.len()),
        (
            "daemon_samples.rss_peak_bytes",
            match wire.rss_peak_bytes.len() {
                // Of an agent from before the column.
                0 => expected,
                length => length,
            },
        ),
    ];
    if let Some(&(field, found)) = columns.iter().find(|(_, length)| *length != expected) {
        return Err(BatchError::Columns {
            field,
            found,
            expected,
        });
    }
    let mut start_ticks = wire.start_ticks.into_iter();
    let mut at_us = wire.at_us.into_iter();
    let mut cpu_user_us = wire.cpu_user_us.into_iter();
    let mut cpu_system_us = wire.cpu_system_us.into_iter();
    let mut rss_bytes = wire.rss_bytes.into_iter();
    let mut vsz_bytes = wire.vsz_bytes.into_iter();
    let mut rss_peak_bytes = wire.rss_peak_bytes.into_iter();
    let mut threads = wire.threads.into_iter();
    let mut fds = wire.fds.into_iter();
    let mut read_bytes = wire.read_bytes.into_iter();
    let mut write_bytes = wire.write_bytes.into_iter();
    let mut vol_ctx = wire.vol_ctx.into_iter();
    let mut invol_ctx = wire.invol_ctx.into_iter();
    let mut minor_faults = wire.minor_faults.into_iter();
    let mut major_faults = wire.major_faults.into_iter();
    let mut rows = Vec::with_capacity(expected);
    for pid in wire.pid {
        // All columns are of one length, so none of them runs out.
        let (at, cpu_user) = (at_us.next(), cpu_user_us.next());
        rows.push(DaemonSample {
            process: process(
                "daemon_samples.pid",
                pid,
                start_ticks.next().unwrap_or_default(),
            )?,
            at: instant("daemon_samples.at_us", at.unwrap_or_default())?,
            cpu_user_us: counter("daemon_samples.cpu_user_us", cpu_user.unwrap_or_default())?,
            cpu_system_us: next("daemon_samples.cpu_system_us", &mut cpu_system_us)?,
            rss_bytes: next("daemon_samples.rss_bytes", &mut rss_bytes)?,
            vsz_bytes: next("daemon_samples.vsz_bytes", &mut vsz_bytes)?,
            rss_peak_bytes: readable(
                "daemon_samples.rss_peak_bytes",
                rss_peak_bytes.next().unwrap_or(-1),
            )?,
            threads: readable("daemon_samples.threads", threads.next().unwrap_or(-1))?,
            fds: readable("daemon_samples.fds", fds.next().unwrap_or(-1))?,
            read_bytes: readable("daemon_samples.read_bytes", read_bytes.next().unwrap_or(-1))?,
            write_bytes: readable(
                "daemon_samples.write_bytes",
                write_bytes.next().unwrap_or(-1),
            )?,
            vol_ctx: readable("daemon_samples.vol_ctx", vol_ctx.next().unwrap_or(-1))?,
            invol_ctx: readable("daemon_samples.invol_ctx", invol_ctx.next().unwrap_or(-1))?,
            minor_faults: readable(
                "daemon_samples.minor_faults",
                minor_faults.next().unwrap_or(-1),
            )?,
            major_faults: readable(
                "daemon_samples.major_faults",
                major_faults.next().unwrap_or(-1),
            )?,
        });
    }
    Ok(rows)
}

fn next(field: &'static str, column: &mut impl Iterator<Item = i64>) -> Result<i64, BatchError> {
    counter(field, column.next().unwrap_or_default())
}

pub(super) fn host_sample(wire: proto::HostSample) -> Result<HostSample, BatchError> {
    if !wire.load1.is_finite() || wire.load1 < 0.0 {
        return Err(BatchError::Invalid {
            field: "host_samples.load1",
            why: format!("{} is no load", wire.load1),
        });
    }
    Ok(HostSample {
        at: instant("host_samples.at_us", wire.at_us)?,
        user_us: counter("host_samples.user_us", wire.user_us)?,
        nice_us: counter("host_samples.nice_us", wire.nice_us)?,
        system_us: counter("host_samples.system_us", wire.system_us)?,
        idle_us: counter("host_samples.idle_us", wire.idle_us)?,
        iowait_us: counter("host_samples.iowait_us", wire.iowait_us)?,
        irq_us: counter("host_samples.irq_us", wire.irq_us)?,
        softirq_us: counter("host_samples.softirq_us", wire.softirq_us)?,
        steal_us: counter("host_samples.steal_us", wire.steal_us)?,
        memory_total_bytes: counter("host_samples.memory_total_bytes", wire.memory_total_bytes)?,
        memory_available_bytes: counter(
            "host_samples.memory_available_bytes",
            wire.memory_available_bytes,
        )?,
        memory_free_bytes: counter("host_samples.memory_free_bytes", wire.memory_free_bytes)?,
        cached_bytes: counter("host_samples.cached_bytes", wire.cached_bytes)?,
        dirty_bytes: counter("host_samples.dirty_bytes", wire.dirty_bytes)?,
        writeback_bytes: counter("host_samples.writeback_bytes", wire.writeback_bytes)?,
        swap_used_bytes: counter("host_samples.swap_used_bytes", wire.swap_used_bytes)?,
        load1: wire.load1,
        cpu_some_us: readable("host_samples.cpu_some_us", wire.cpu_some_us)?,
        io_some_us: readable("host_samples.io_some_us", wire.io_some_us)?,
        io_full_us: readable("host_samples.io_full_us", wire.io_full_us)?,
        memory_some_us: readable("host_samples.memory_some_us", wire.memory_some_us)?,
        memory_full_us: readable("host_samples.memory_full_us", wire.memory_full_us)?,
        skipped_ticks: counter("host_samples.skipped_ticks", wire.skipped_ticks)?,
        sampler_cpu_us: counter("host_samples.sampler_cpu_us", wire.sampler_cpu_us)?,
        busy_others: wire.others.map(busy_others).transpose()?,
    })
}

fn busy_others(wire: proto::BusyOthers) -> Result<String, BatchError> {
    let expected = wire.names.len();
    if wire.cpu_us.len() != expected {
        return Err(BatchError::Columns {
            field: "host_samples.others.cpu_us",
            found: wire.cpu_us.len(),
            expected,
        });
    }
    if expected > MAX_OTHERS {
        return Err(BatchError::Invalid {
            field: "host_samples.others.names",
            why: format!("{expected} names are more than {MAX_OTHERS}"),
        });
    }
    let mut processes = Vec::with_capacity(expected);
    for (process, cpu_us) in wire.names.into_iter().zip(wire.cpu_us) {
        processes.push(json!({
            "name": shown(&process),
            "cpu_us": counter("host_samples.others.cpu_us", cpu_us)?,
        }));
    }
    let found = json!({
        "from_us": instant("host_samples.others.from_us", wire.from_us)?.0,
        "until_us": instant("host_samples.others.until_us", wire.until_us)?.0,
        "processes": processes,
    });
    Ok(found.to_string())
}

/// Any user of the host chooses the name of a process: none of them may cost a batch.
fn shown(process: &str) -> String {
    let visible = process.chars().map(|c| if is_hidden(c) { '?' } else { c });
    let name: String = visible.take(MAX_NAME_CHARS).collect();
    match name.is_empty() {
        true => "?".to_owned(),
        false => name,
    }
}

pub(super) fn disk_sample(wire: proto::DiskSample) -> Result<DiskSample, BatchError> {
    Ok(DiskSample {
        at: instant("disk_samples.at_us", wire.at_us)?,
        disk: name("disk_samples.disk", wire.disk)?,
        stacked: wire.stacked,
        reads: counter("disk_samples.reads", wire.reads)?,
        read_bytes: counter("disk_samples.read_bytes", wire.read_bytes)?,
        read_us: counter("disk_samples.read_us", wire.read_us)?,
        writes: counter("disk_samples.writes", wire.writes)?,
        write_bytes: counter("disk_samples.write_bytes", wire.write_bytes)?,
        write_us: counter("disk_samples.write_us", wire.write_us)?,
        in_flight: counter("disk_samples.in_flight", wire.in_flight)?,
        busy_us: counter("disk_samples.busy_us", wire.busy_us)?,
        queue_us: counter("disk_samples.queue_us", wire.queue_us)?,
        discards: counter("disk_samples.discards", wire.discards)?,
        flushes: counter("disk_samples.flushes", wire.flushes)?,
    })
}

pub(super) fn net_sample(wire: proto::NetSample) -> Result<NetSample, BatchError> {
    Ok(NetSample {
        at: instant("net_samples.at_us", wire.at_us)?,
        interface: name("net_samples.interface", wire.interface)?,
        rx_bytes: counter("net_samples.rx_bytes", wire.rx_bytes)?,
        rx_packets: counter("net_samples.rx_packets", wire.rx_packets)?,
        rx_errors: counter("net_samples.rx_errors", wire.rx_errors)?,
        rx_dropped: counter("net_samples.rx_dropped", wire.rx_dropped)?,
        tx_bytes: counter("net_samples.tx_bytes", wire.tx_bytes)?,
        tx_packets: counter("net_samples.tx_packets", wire.tx_packets)?,
        tx_errors: counter("net_samples.tx_errors", wire.tx_errors)?,
        tx_dropped: counter("net_samples.tx_dropped", wire.tx_dropped)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_process_costs_a_batch() {
        for (given, stored) in [
            ("cc1", "cc1"),
            ("a\u{1b}b\n", "a?b?"),
            ("\u{202e}", "?"),
            ("", "?"),
        ] {
            assert_eq!(shown(given), stored);
        }
    }
}
