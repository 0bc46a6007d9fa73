//! The live state in the text format of Prometheus.
//!
//! Names follow its conventions: base units, `_total` for counters, a help and a type line each. An unknown value has
//! no sample. The labels of a series are few and stable: host, name and instance of a daemon, never a process id.

use super::{App, error::HttpRefusal};
use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use benchmesh_model::figures::{DaemonFigures, HostFigures, Kind, ShownIn, shown_in};
use benchmesh_model::mesh::{RunState, StepState};
use benchmesh_scheduler::snapshot::{ArchiveNow, DaemonNow, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub async fn metrics(State(app): State<App>) -> Result<Response, HttpRefusal> {
    let published = app.overview.look().await.ok_or_else(|| {
        HttpRefusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the collector is too busy to compute its state, or is closing",
        )
    })?;
    let headers = [(header::CONTENT_TYPE, TEXT_FORMAT)];
    Ok((headers, exposition(&published.snapshot)).into_response())
}

type Labels<'l> = Vec<(&'static str, &'l str)>;

#[derive(Default)]
struct Text(String);

impl Text {
    /// A metric with its samples; no output if there are none.
    fn family<'l>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l>, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            self.0.push_str(name);
            for (at, (label, text)) in labels.iter().enumerate() {
                self.0.push(if at == 0 { '{' } else { ',' });
                let _ = write!(self.0, "{label}=\"{}\"", escaped(text));
            }
            if !labels.is_empty() {
                self.0.push('}');
            }
            let _ = writeln!(self.0, " {value}");
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help, [(Vec::new(), value)]);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the text format has floating point only"
)]
fn real(value: impl Into<i128>) -> f64 {
    value.into() as f64
}

fn count(value: usize) -> f64 {
    real(i128::try_from(value).unwrap_or(i128::MAX))
}

/// A snapshot in the text format of Prometheus.
pub fn exposition(snapshot: &Snapshot) -> String {
    let mut text = Text::default();
    health(&mut text, snapshot);
    load(&mut text, snapshot);
    alarms(&mut text, snapshot);
    daemons(&mut text, snapshot);
    hosts(&mut text, snapshot);
    text.0
}

/// Alarms of the run under way; an alarm that several daemons raise has one sample.
fn alarms(text: &mut Text, snapshot: &Snapshot) {
    let raised = snapshot.run.iter().flat_map(|run| &run.alarms);
    let conditions: BTreeSet<&str> = raised.map(|alarm| alarm.when.as_str()).collect();
    text.family(
        "benchmesh_alarm",
        "gauge",
        "1 while an alarm of the plan is raised.",
        conditions.iter().map(|when| (vec![("when", *when)], 1.0)),
    );
    let objectives: Vec<_> = snapshot
        .run
        .iter()
        .flat_map(|run| &run.objectives)
        .collect();
    text.family(
        "benchmesh_objective_bad_seconds",
        "gauge",
        "Bad seconds of the run so far, by objective of its plan.",
        objectives
            .iter()
            .map(|it| (vec![("holds", it.holds.as_str())], real(it.bad_seconds))),
    );
    text.family(
        "benchmesh_objective_budget_seconds",
        "gauge",
        "Bad seconds that the objective allows in the whole run.",
        objectives
            .iter()
            .map(|it| (vec![("holds", it.holds.as_str())], it.budget_s)),
    );
}

fn archived(text: &mut Text, now_us: i64, archive: &ArchiveNow) {
    text.gauge(
        "benchmesh_archive_waiting_runs",
        "Ended runs that wait to be copied into the archive.",
        real(archive.waiting_runs),
    );
    let oldest_us = archive
        .oldest_waiting_us
        .map_or(0, |since| now_us.saturating_sub(since));
    text.gauge(
        "benchmesh_archive_oldest_waiting_seconds",
        "How long the one has waited that has waited longest; 0 if none waits.",
        real(oldest_us.max(0)) / 1e6,
    );
    text.family(
        "benchmesh_archive_pushed_runs_total",
        "counter",
        "Runs copied into the archive since the collector began to serve; one that changed is copied again.",
        [(Vec::new(), real(archive.pushed_runs))],
    );
    text.gauge(
        "benchmesh_archive_failing",
        "1 while runs cannot be copied into the archive.",
        f64::from(u8::from(archive.failing_since_us.is_some())),
    );
}

fn health(text: &mut Text, snapshot: &Snapshot) {
    let health = &snapshot.health;
    let info = vec![
        ("version", health.version),
        ("mesh", health.mesh_uid.as_str()),
    ];
    text.family(
        "benchmesh_collector_info",
        "gauge",
        "The collector's version and mesh.",
        [(info, 1.0)],
    );
    text.family(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the collector.",
        [(Vec::new(), health.cpu_s)],
    );
    text.gauge(
        "process_resident_memory_bytes",
        "Resident memory of the collector.",
        real(health.resident_bytes),
    );
    text.gauge(
        "benchmesh_uptime_seconds",
        "Time since the collector began to serve.",
        real(health.uptime_s),
    );
    text.gauge(
        "benchmesh_database_bytes",
        "Size of the database file.",
        real(health.database_bytes),
    );
    text.gauge(
        "benchmesh_database_wal_bytes",
        "Size of the write-ahead file.",
        real(health.wal_bytes),
    );
    text.gauge(
        "benchmesh_database_blocked",
        "1 while the database cannot be written.",
        f64::from(u8::from(health.blocked.is_some())),
    );
    let states = [
        ("attached", health.agents_attached),
        (
            "away",
            health.agents_known.saturating_sub(health.agents_attached),
        ),
    ];
    text.family(
        "benchmesh_agents",
        "gauge",
        "Agents by state.",
        states.map(|(state, agents)| (vec![("state", state)], count(agents))),
    );
    text.gauge(
        "benchmesh_queued_runs",
        "Queued runs.",
        real(health.queued_runs),
    );
    if let Some(archive) = &health.archive {
        archived(text, health.now_us, archive);
    }
    text.gauge(
        "benchmesh_viewers",
        "Open streams of the live page.",
        count(health.viewers),
    );
    let agents = snapshot.agents.iter();
    text.family(
        "benchmesh_agent_attached",
        "gauge",
        "1 while the agent is attached.",
        agents.clone().map(|agent| {
            (
                vec![
                    ("agent", agent.name.as_str()),
                    ("host", agent.host.as_str()),
                ],
                f64::from(u8::from(agent.attached)),
            )
        }),
    );
    text.family(
        "benchmesh_agent_clock_error_seconds",
        "gauge",
        "Uncertainty of the agent's clock.",
        agents.filter_map(|agent| {
            let error = real(agent.clock_error_us?) / 1e6;
            Some((vec![("agent", agent.name.as_str())], error))
        }),
    );
}

fn load(text: &mut Text, snapshot: &Snapshot) {
    let run = snapshot.run.as_ref();
    text.gauge(
        "benchmesh_run_active",
        "1 while a run is under way.",
        f64::from(u8::from(
            run.is_some_and(|run| run.state == RunState::Running),
        )),
    );
    let Some(run) = run.filter(|run| run.state == RunState::Running) else {
        return;
    };
    let id = run.run_id.to_string();
    let of_run = || vec![("run", run.run.as_str()), ("run_id", id.as_str())];
    text.family(
        "benchmesh_run_steps",
        "gauge",
        "Steps of the run under way.",
        [(of_run(), count(run.steps_total))],
    );
    text.family(
        "benchmesh_run_steps_done",
        "gauge",
        "Steps of the run under way that are done.",
        [(of_run(), count(run.steps_done))],
    );
    let Some(step) = &run.step else { return };
    let of_step = || {
        let mut labels = of_run();
        labels.extend([
            ("phase", step.phase.as_str()),
            ("target", step.target.as_str()),
            ("mode", step.mode.as_str()),
        ]);
        labels
    };
    text.family(
        "benchmesh_step_running",
        "gauge",
        "1 while the step's load runs, 0 while it is prepared or cleaned up.",
        [(
            of_step(),
            f64::from(u8::from(step.state == StepState::Running)),
        )],
    );
    for (name, help, value) in [
        (
            "benchmesh_step_operations_per_second",
            "Rate of the running step over the last seconds.",
            Some(step.load.ops_per_s),
        ),
        (
            "benchmesh_step_bytes_per_second",
            "Throughput of the running step over the last seconds.",
            Some(step.load.bytes_per_s),
        ),
        (
            "benchmesh_step_clients",
            "Agents in the running step.",
            Some(f64::from(step.clients)),
        ),
        (
            "benchmesh_step_elapsed_seconds",
            "Time since the step's start.",
            Some(real(step.elapsed_us) / 1e6),
        ),
        (
            "benchmesh_step_done_ratio",
            "How much of the step is done, 0 to 1.",
            step.share_done,
        ),
    ] {
        text.family(name, "gauge", help, value.map(|value| (of_step(), value)));
    }
    let quantiles = [
        ("0.5", step.load.p50_ms),
        ("0.99", step.load.p99_ms),
        ("1", step.load.max_ms),
    ];
    text.family(
        "benchmesh_step_latency_seconds",
        "gauge",
        "Quantiles of the service time over the last seconds.",
        quantiles.into_iter().filter_map(|(quantile, ms)| {
            let mut labels = of_step();
            labels.push(("quantile", quantile));
            Some((labels, ms? / 1e3))
        }),
    );
    text.family(
        "benchmesh_client_operations_per_second",
        "gauge",
        "Rate of one agent in the running step.",
        run.clients
            .iter()
            .map(|client| (vec![("agent", client.agent.as_str())], client.ops_per_s)),
    );
}

/// Processes are summed by name and instance, because one host may have several of each.
fn daemons(text: &mut Text, snapshot: &Snapshot) {
    let mut all: BTreeMap<(&str, &str, &str), Vec<&DaemonNow>> = BTreeMap::new();
    for daemon in &snapshot.daemons {
        let key = (
            daemon.host.as_str(),
            daemon.name.as_str(),
            daemon.instance.as_str(),
        );
        all.entry(key).or_default().push(daemon);
    }
    let sum = |processes: &[&DaemonNow], value: &dyn Fn(&DaemonNow) -> Option<i64>| {
        let known = processes.iter().filter_map(|daemon| value(daemon));
        known.reduce(i64::saturating_add).map(real)
    };
    let mut family =
        |name: &str, kind: Kind, help: &str, value: &dyn Fn(&[&DaemonNow]) -> Option<f64>| {
            let samples = all.iter().filter_map(|((host, daemon, instance), all)| {
                let labels = vec![("host", *host), ("name", *daemon), ("instance", *instance)];
                Some((labels, value(all)?))
            });
            text.family(name, word(kind), help, samples);
        };
    family(
        "benchmesh_daemon_cpu_seconds_total",
        Kind::Counter,
        "CPU time of the daemon's live processes.",
        &|all| sum(all, &|daemon| Some(daemon.cpu_us)).map(|us| us / 1e6),
    );
    family(
        "benchmesh_daemon_processes",
        Kind::Gauge,
        "Processes of the daemon that are sampled.",
        &|all| Some(count(all.len())),
    );
    for (place, figure) in shown_in::<DaemonFigures>(ShownIn::Live) {
        family(
            &format!("benchmesh_daemon_{}", figure.metric_name()),
            figure.kind,
            &format!("Newest {} of the daemon's processes.", figure.path),
            &|all| {
                let sum = sum(all, &|daemon| daemon.newest.known(place));
                sum.map(|sum| figure.scaled(sum))
            },
        );
    }
}

fn hosts(text: &mut Text, snapshot: &Snapshot) {
    // Two kernels or namespaces may have the same name; a series must be unique.
    let mut hosts = BTreeMap::new();
    for host in &snapshot.hosts {
        hosts.insert(host.host.as_str(), host);
    }
    text.family(
        "benchmesh_host_cpu_busy_ratio",
        "gauge",
        "Share of the host's CPUs that was busy over the last seconds, 0 to 1.",
        hosts
            .iter()
            .filter_map(|(name, host)| Some((vec![("host", *name)], host.busy_percent? / 100.0))),
    );
    for (place, figure) in shown_in::<HostFigures>(ShownIn::Live) {
        let samples = hosts.iter().filter_map(|(name, host)| {
            let value = figure.scaled(real(host.newest.known(place)?));
            Some((vec![("host", *name)], value))
        });
        text.family(
            &format!("benchmesh_host_{}", figure.metric_name()),
            word(figure.kind),
            &format!("Newest {} of the host.", figure.path),
            samples,
        );
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    }
}
