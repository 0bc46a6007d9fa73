//! For each kind of sample: the INSERT statement and the order of its columns.

use super::batch::{
    AgentEvent, ClockOffset, DaemonSample, DiskSample, Fact, HostSample, Loss, NetSample,
    TargetSample,
};
use super::statements::{Table, Values};
use benchmesh_model::events::EventSource;
use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, HostFigures, NetFigures, TargetFigures,
};
use benchmesh_model::mesh::{AgentId, DaemonId, HostId, RunId, StepId};
use benchmesh_model::systems::facts::Value;

pub(crate) static DAEMON_SAMPLES: Table =
    Table::of_samples::<DaemonFigures>(&["daemon_id", "at_us"], "store samples of daemons");

pub(crate) fn daemon_sample(
    (daemon, sample): &(DaemonId, &DaemonSample),
    row: &mut Values<'_, '_>,
) {
    row.add(daemon.0);
    row.add(sample.at.0);
    row.add_figures(&sample.figures);
}

pub(crate) static HOST_SAMPLES: Table = Table::of_samples::<HostFigures>(
    &["host_id", "at_us", "busy_others"],
    "store samples of a host",
);

pub(crate) fn host_sample(host: HostId, sample: &HostSample, row: &mut Values<'_, '_>) {
    row.add(host.0);
    row.add(sample.at.0);
    row.add(sample.busy_others.as_deref());
    row.add_figures(&sample.figures);
}

pub(crate) static DISK_SAMPLES: Table =
    Table::of_samples::<DiskFigures>(&["disk_id", "at_us"], "store samples of disks");

pub(crate) fn disk_sample((disk, sample): &(i64, &DiskSample), row: &mut Values<'_, '_>) {
    row.add(*disk);
    row.add(sample.at.0);
    row.add_figures(&sample.figures);
}

pub(crate) static NET_SAMPLES: Table =
    Table::of_samples::<NetFigures>(&["interface_id", "at_us"], "store samples of interfaces");

pub(crate) fn net_sample((interface, sample): &(i64, &NetSample), row: &mut Values<'_, '_>) {
    row.add(*interface);
    row.add(sample.at.0);
    row.add_figures(&sample.figures);
}

pub(crate) static TARGET_SAMPLES: Table =
    Table::of_samples::<TargetFigures>(&["target_id", "at_us"], "store samples of targets");

pub(crate) fn target_sample((target, sample): &(i64, &TargetSample), row: &mut Values<'_, '_>) {
    row.add(*target);
    row.add(sample.at.0);
    row.add_figures(&sample.figures);
}

pub(crate) static CLOCK_OFFSETS: Table = Table::new(
    "clock_offsets",
    &[
        "agent_id",
        "at_us",
        "offset_us",
        "error_us",
        "round_trip_us",
    ],
    "ON CONFLICT (agent_id, at_us) DO NOTHING",
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
    "events",
    &[
        "at_us", "run_id", "step_id", "agent_id", "source", "severity", "kind", "message", "detail",
    ],
    "",
    "keep events",
);

pub(crate) fn event(agent: AgentId, event: &AgentEvent, row: &mut Values<'_, '_>) {
    row.add(event.at.0);
    row.add(event.run.map(|id| id.0));
    row.add(event.step.map(|id| id.0));
    row.add(agent.0);
    // The collector also records events about an agent's actions.
    row.add(match event.kind.source() {
        EventSource::Collector => "collector",
        _ => "agent",
    });
    row.add(event.kind.severity().as_str());
    row.add(event.kind.as_str());
    row.add(&event.message);
    row.add(&event.detail_json);
}

pub(crate) static FACTS: Table = Table::new(
    "facts",
    &[
        "run_id", "step_id", "agent_id", "system", "at_us", "name", "value", "unit",
    ],
    "",
    "keep facts of a cluster",
);

/// A fact, with the run and the step that were running then.
pub(crate) type PlacedFact<'b> = (Option<RunId>, Option<StepId>, &'b Fact);

pub(crate) fn fact(agent: AgentId, placed: &PlacedFact<'_>, row: &mut Values<'_, '_>) {
    let (run, step, fact) = placed;
    row.add(run.map(|id| id.0));
    row.add(step.map(|id| id.0));
    row.add(agent.0);
    row.add(&fact.system);
    row.add(fact.at.0);
    row.add(&fact.name);
    match &fact.value {
        Value::Text(text) => row.add(text),
        Value::Number(number) => match whole(*number) {
            Some(whole) => row.add(whole),
            None => row.add(*number),
        },
    }
    row.add(&fact.unit);
}

/// The number as an integer, if the conversion is exact.
#[expect(
    clippy::cast_possible_truncation,
    reason = "up to 2^53 every whole number is exact"
)]
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

pub(crate) static LOSSES: Table = Table::new(
    "losses",
    &["agent_id", "what", "rows", "from_us", "until_us"],
    "",
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
    "spools",
    &["agent_id", "spool_id", "last_sequence"],
    "ON CONFLICT (agent_id, spool_id) DO UPDATE SET last_sequence = excluded.last_sequence",
    "store the position of a spool",
);

pub(crate) fn position((agent, spool, last): &(AgentId, &str, u64), row: &mut Values<'_, '_>) {
    row.add(agent.0);
    row.add(spool);
    row.add(i64::try_from(*last).unwrap_or(i64::MAX));
}
