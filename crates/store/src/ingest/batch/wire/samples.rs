//! Readings of daemons, hosts, disks, interfaces and targets.

use super::checks::{BatchError, LARGEST, counter, filled, instant, name, range};
use super::process;
use crate::ingest::batch::{DaemonSample, DiskSample, HostSample, NetSample, TargetSample};
use benchmesh_model::figures::{DaemonFigures, Figures, UNKNOWN};
use benchmesh_model::text::is_hidden;
use benchmesh_proto::v1 as proto;
use serde_json::json;

/// Maximum number of process names in one sample; agents send three.
const MAX_OTHERS: usize = 16;
/// Maximum length of a process name; names of kernel threads may exceed the 15 characters of others.
const MAX_NAME_CHARS: usize = 64;

pub(super) fn daemon_samples(wire: proto::DaemonSamples) -> Result<Vec<DaemonSample>, BatchError> {
    let expected = wire.pid.len();
    let lengths = DaemonFigures::ALL.iter().zip(&wire.figures);
    let lengths = lengths
        .map(|(figure, column)| (figure.path, column.values.len()))
        .chain([
            ("daemon_samples.start_ticks", wire.start_ticks.len()),
            ("daemon_samples.at_us", wire.at_us.len()),
        ]);
    for (field, found) in lengths {
        if found != expected {
            return Err(BatchError::Columns {
                field,
                found,
                expected,
            });
        }
    }
    let columns = wire.figures.into_iter();
    let mut columns: Vec<_> = columns.map(|column| column.values.into_iter()).collect();
    let keys = wire.pid.into_iter().zip(wire.start_ticks).zip(wire.at_us);
    keys.map(|((pid, start_ticks), at_us)| {
        // All columns have the same length, so none of them runs out.
        let values = columns
            .iter_mut()
            .map(|column| column.next().unwrap_or(UNKNOWN));
        Ok(DaemonSample {
            process: process("daemon_samples.pid", pid, start_ticks)?,
            at: instant("daemon_samples.at_us", at_us)?,
            figures: figures(values)?,
        })
    })
    .collect()
}

/// Converts wire values to figures, and checks the range of each.
fn figures<F: Figures>(values: impl IntoIterator<Item = i64>) -> Result<F, BatchError> {
    let figures = F::from_values(values);
    for (figure, value) in F::ALL.iter().zip(figures.values()) {
        let least = if figure.is_optional { UNKNOWN } else { 0 };
        range(figure.path, value, least, LARGEST)?;
    }
    Ok(figures)
}

pub(super) fn host_sample(wire: proto::HostSample) -> Result<HostSample, BatchError> {
    Ok(HostSample {
        at: instant("host_samples.at_us", wire.at_us)?,
        figures: figures(wire.figures)?,
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

/// Any user of the host can choose the name of a process, so no name may cause the refusal of a batch.
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
        figures: figures(wire.figures)?,
    })
}

pub(super) fn net_sample(wire: proto::NetSample) -> Result<NetSample, BatchError> {
    Ok(NetSample {
        at: instant("net_samples.at_us", wire.at_us)?,
        interface: name("net_samples.interface", wire.interface)?,
        figures: figures(wire.figures)?,
    })
}

pub(super) fn target_sample(wire: proto::TargetSample) -> Result<TargetSample, BatchError> {
    let device = match wire.device.is_empty() {
        true => None,
        false => Some(name("target_samples.device", wire.device)?),
    };
    Ok(TargetSample {
        at: instant("target_samples.at_us", wire.at_us)?,
        target: filled(wire.target).ok_or(BatchError::Missing {
            field: "target_samples.target",
        })?,
        nonce: name("target_samples.nonce", wire.nonce)?,
        device,
        figures: figures(wire.figures)?,
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
