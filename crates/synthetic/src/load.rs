//! Runs, steps, tasks and their results. In each second a client executes `BASE / block size * (90 + pattern)` percent
//! of its operations, where the pattern cycles through 0 to 22 over the seconds and the runs; one second in a hundred
//! of the soak has none.

#![expect(
    clippy::indexing_slicing,
    reason = "constant lists, indexed by what a remainder of their length gives"
)]

use crate::{Shape, T0_US};
use benchmesh_workloads::histogram::Histogram;
use rusqlite::{Connection, params};

const TARGETS: [&str; 3] = ["cephfs", "sr33", "disk"];
const SYSTEMS: [&str; 3] = ["cephfs", "glusterfs", "ext4"];
const MOUNT_TYPES: [&str; 3] = ["ceph", "fuse.glusterfs", "ext4"];
/// Rates of the targets in percent of the first one's.
const PERCENT: [u64; 3] = [100, 88, 240];
const MODES: [&str; 3] = ["write", "randread", "randwrite"];
const BLOCKS: [(&str, u64); 3] = [("4k", 4096), ("16k", 16_384), ("64k", 65_536)];
/// Number of different patterns of seconds.
const PATTERNS: u32 = 23;

const PHASE: &str = r#"
[[phase]]
name     = "records"
workload = "io"
direct   = true
size     = "1g"
modes    = ["write", "randread", "randwrite"]
matrix   = { bs = ["4k", "16k", "64k"] }
"#;

/// One kind of step.
#[derive(Clone, Copy)]
struct LoadSpec {
    block: usize,
    target: usize,
    mode: usize,
}

impl LoadSpec {
    fn of(place: u32, shape: &Shape) -> Self {
        let (place, targets) = (place as usize, shape.targets as usize);
        Self {
            block: place / (3 * targets) % 3,
            target: place / 3 % targets,
            mode: place % 3,
        }
    }

    fn number(self) -> u32 {
        u32::try_from(self.block * 9 + self.target * 3 + self.mode).unwrap_or(0)
    }

    fn op(self) -> &'static str {
        if self.mode == 1 { "read" } else { "write" }
    }

    /// Operations of one client in a second with this pattern.
    fn ops(self, pattern: u32) -> u64 {
        let base = [400, 1200, 300][self.mode] / (1 + self.block as u64);
        let of_target = base * PERCENT[self.target] / 100;
        of_target * u64::from(90 + pattern) / 100
    }

    /// Service times: around a millisecond, longer on the second target, with a tail.
    fn histogram(self, pattern: u32) -> Histogram {
        let mut histogram = Histogram::new();
        for at in 0..self.ops(pattern) {
            let spread = at * 7919 % 1000;
            let tail = if spread > 985 { 12 } else { 1 };
            let base = 600_000 + 90_000 * self.block as u64 + 70_000 * self.target as u64;
            histogram.record((base + spread * 400) * tail);
        }
        histogram
    }
}

pub(crate) fn runs(file: &Connection, shape: &Shape) -> rusqlite::Result<()> {
    file.execute_batch(
        "CREATE TEMP TABLE step_kinds (step_id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, seconds INTEGER NOT NULL)",
    )?;
    let mut step_id = 0_i64;
    for run in 1..=shape.runs {
        let begin = T0_US + i64::from((run - 1) * shape.run_seconds()) * 1_000_000;
        let steps = shape.steps() * shape.repeats;
        run_row(file, shape, run, "nightly", begin, shape.run_seconds())?;
        for place in 0..steps {
            step_id += 1;
            let start =
                begin + i64::from(place * (shape.step_seconds + shape.gap_seconds)) * 1_000_000;
            let step = Step {
                id: step_id,
                run,
                place,
                repeat: place / shape.steps() + 1,
                start,
                seconds: shape.step_seconds,
            };
            step_rows(file, shape, &step, "records")?;
        }
    }
    if shape.soak_seconds > 0 {
        let begin = T0_US + i64::from(shape.runs * shape.run_seconds()) * 1_000_000;
        run_row(
            file,
            shape,
            shape.soak_run(),
            "soak",
            begin,
            shape.soak_seconds,
        )?;
        let step = Step {
            id: step_id + 1,
            run: shape.soak_run(),
            place: 2,
            repeat: 1,
            start: begin,
            seconds: shape.soak_seconds,
        };
        step_rows(file, shape, &step, "soak")?;
    }
    Ok(())
}

/// Names and systems.
fn targets(shape: &Shape) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = TARGETS.into_iter().zip(SYSTEMS);
    all.take(shape.targets as usize)
}

fn plan(shape: &Shape, name: &str) -> String {
    let targets: String = targets(shape)
        .map(|(target, system)| {
            format!("\n[targets.{target}]\nsystem = \"{system}\"\npath   = \"/mnt/{target}\"\n")
        })
        .collect();
    format!("name = \"{name}\"\n{targets}{PHASE}")
}

fn run_row(
    file: &Connection,
    shape: &Shape,
    run: u32,
    name: &str,
    begin: i64,
    seconds: u32,
) -> rusqlite::Result<()> {
    let end = begin + i64::from(seconds) * 1_000_000;
    file.prepare_cached(
        "INSERT INTO runs (id, uid, name, plan, state, created_us, started_us, ended_us, version)
         VALUES (?1, 'run-' || ?1, ?2, ?3, 'done', ?4, ?4, ?5, '0.1.0')",
    )?
    .execute(params![run, name, plan(shape, name), begin, end])?;
    file.prepare_cached(
        "INSERT INTO run_agents (run_id, agent_id, host_id, name, host, version, labels, kernel, distribution, cpu_model,
             cpus, memory_bytes, interfaces, disks, packages)
         SELECT ?1, a.id, h.id, a.name, h.name, a.version, a.labels, h.kernel, 'Debian GNU/Linux 12', 'Xeon', h.cpus,
                h.memory_bytes, '[{\"name\":\"eth0\",\"mbits\":10000,\"mtu\":1500,\"hardware\":true}]',
                '[{\"name\":\"sda\",\"model\":\"virtio\",\"size_bytes\":107374182400,\"rotational\":false}]',
                '{\"ceph-common\":\"18.2.4\"}'
         FROM agents AS a JOIN hosts AS h ON h.id = a.host_id",
    )?
    .execute([run])?;
    for ((target, system), mount_type) in targets(shape).zip(MOUNT_TYPES) {
        file.prepare_cached(
            "INSERT INTO run_targets (run_id, agent_id, target, system, path, mount_source, mount_type, mount_options,
                 size_bytes, free_bytes)
             SELECT ?1, a.id, ?2, ?3, '/mnt/' || ?2, 'storage:/' || ?2, ?5, 'rw,noatime',
                    1099511627776, 549755813888 FROM agents AS a WHERE a.id <= ?4",
        )?
        .execute(params![run, target, system, shape.clients, mount_type])?;
    }
    file.prepare_cached(
        "INSERT INTO events (at_us, run_id, severity, kind, message) VALUES (?, ?, 'info', 'run-done', 'done')",
    )?
    .execute(params![end, run])?;
    Ok(())
}

struct Step {
    id: i64,
    run: u32,
    place: u32,
    repeat: u32,
    start: i64,
    seconds: u32,
}

fn step_rows(file: &Connection, shape: &Shape, step: &Step, phase: &str) -> rusqlite::Result<()> {
    let kind = LoadSpec::of(step.place % shape.steps(), shape);
    let end = step.start + i64::from(step.seconds) * 1_000_000;
    file.prepare_cached(
        "INSERT INTO steps (id, run_id, ordinal, repeat, phase, cell, target, system, workload, mode, params, clients, cache,
             state, start_us, measured_from_us, all_active_from_us, all_active_until_us, last_done_us, ended_us)
         VALUES (?1, ?2, ?3, ?4, ?5, 'c' || ?3, ?6, ?7, 'io', ?8, json_object('bs', ?9, 'size', '1g', 'direct', json('true')),
                 ?10, iif(?8 = 'randread', 'cold', 'asis'), 'done', ?11, ?11, ?11 + 40, ?12, ?12, ?12 + 500000)",
    )?
    .execute(params![
        step.id,
        step.run,
        step.place + 1,
        step.repeat,
        phase,
        TARGETS[kind.target],
        SYSTEMS[kind.target],
        MODES[kind.mode],
        BLOCKS[kind.block].0,
        shape.clients,
        step.start,
        end
    ])?;
    file.prepare_cached(
        "INSERT INTO tasks (step_id, task_index, agent_id, state, workers, start_us, skew_us, skew_error_us, first_done_us,
             ended_us, cpu_user_us, cpu_system_us, wait_cpu_us, harness_ns_per_op)
         SELECT ?1, a.id - 1, a.id, 'done', 4, ?2, 20 + a.id, 10, ?3, ?3, ?4 * 200000, ?4 * 300000, 0, 100
         FROM agents AS a WHERE a.id <= ?5",
    )?
    .execute(params![step.id, step.start, end, step.seconds, shape.clients])?;
    if kind.mode == 1 {
        file.prepare_cached(
            "INSERT INTO cache_drops (step_id, agent_id, at_us, what, dropped) SELECT ?1, a.id, ?2 - 900000, 'page-cache', 1
             FROM agents AS a",
        )?
        .execute(params![step.id, step.start])?;
    }
    file.prepare_cached("INSERT INTO step_kinds VALUES (?, ?, ?)")?
        .execute(params![step.id, kind.number(), step.seconds])?;
    Ok(())
}

pub(crate) fn intervals(file: &Connection, shape: &Shape) -> rusqlite::Result<()> {
    file.execute_batch(
        "CREATE TEMP TABLE patterns (kind INTEGER, pattern INTEGER, op TEXT, bs INTEGER, count INTEGER, sum REAL,
             squares REAL, least INTEGER, most INTEGER, p50 INTEGER, p99 INTEGER, one BLOB, clients BLOB,
             PRIMARY KEY (kind, pattern)) WITHOUT ROWID;
         CREATE TEMP TABLE kinds (kind INTEGER PRIMARY KEY, stddev REAL, p50 INTEGER, p90 INTEGER, p95 INTEGER, p99 INTEGER,
             p999 INTEGER, histogram BLOB)",
    )?;
    for place in 0..shape.steps() {
        let kind = LoadSpec::of(place, shape);
        let mut whole = Histogram::new();
        for pattern in 0..PATTERNS {
            let one = kind.histogram(pattern);
            let mut clients = Histogram::new();
            for _ in 0..shape.clients {
                clients.add(&one);
            }
            whole.add(&clients);
            file.execute(
                "INSERT INTO patterns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                params![
                    kind.number(),
                    pattern,
                    kind.op(),
                    whole_number(BLOCKS[kind.block].1),
                    whole_number(one.count()),
                    one.sum_ns(),
                    one.sum_squares_ns2(),
                    whole_number(one.min_ns()),
                    whole_number(one.max_ns()),
                    whole_number(one.quantile(0.5)),
                    whole_number(one.quantile(0.99)),
                    one.to_v2_deflate(),
                    clients.to_v2_deflate()
                ],
            )?;
        }
        let quantile = |q: f64| whole_number(whole.quantile(q));
        file.execute(
            "INSERT INTO kinds VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                kind.number(),
                whole.stddev_ns(),
                quantile(0.5),
                quantile(0.9),
                quantile(0.95),
                quantile(0.99),
                quantile(0.999),
                whole.to_v2_deflate()
            ],
        )?;
    }
    file.execute_batch(&format!("{INTERVALS}; {RESULTS}"))?;
    roots(file)
}

/// Standard deviations from the variances: this SQLite has no square root.
fn roots(file: &Connection) -> rusqlite::Result<()> {
    let mut variances =
        file.prepare("SELECT id, ops_per_s_stddev, bytes_per_s_stddev FROM step_results")?;
    let mut root = file.prepare(
        "UPDATE step_results SET ops_per_s_stddev = ?, bytes_per_s_stddev = ? WHERE id = ?",
    )?;
    let rows = variances.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<(i64, f64, f64)> = rows.collect::<Result<_, _>>()?;
    for (id, ops, bytes) in rows {
        root.execute(params![ops.sqrt(), bytes.sqrt(), id])?;
    }
    Ok(())
}

fn whole_number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// One row per task and second, and their sum. `zero` seconds have no operation.
const INTERVALS: &str = "
    CREATE TEMP VIEW step_seconds AS
    SELECT k.step_id, k.kind, s.start_us + n.n * 1000000 AS at_us, (n.n + s.run_id * 5 + s.ordinal) % 23 AS pattern,
           s.phase = 'soak' AND n.n % 100 = 50 AS zero
    FROM step_kinds AS k CROSS JOIN steps AS s ON s.id = k.step_id CROSS JOIN seconds AS n ON n.n < k.seconds;
    INSERT INTO op_intervals (task_id, at_us, span_us, op, ramp, ops, bytes, errors, in_flight, service_count,
        service_sum_ns, service_sum_squares_ns2, service_min_ns, service_p50_ns, service_p99_ns, service_max_ns,
        service_saturated, service_histogram)
    SELECT t.id, x.at_us, 1000000, p.op, 0, iif(x.zero, 0, p.count), iif(x.zero, 0, p.count * p.bs), 0, 4,
           iif(x.zero, 0, p.count), iif(x.zero, 0.0, p.sum), iif(x.zero, 0.0, p.squares), iif(x.zero, NULL, p.least),
           iif(x.zero, NULL, p.p50), iif(x.zero, NULL, p.p99), iif(x.zero, NULL, p.most), 0, iif(x.zero, NULL, p.one)
    FROM tasks AS t CROSS JOIN step_seconds AS x ON x.step_id = t.step_id
         CROSS JOIN patterns AS p ON p.kind = x.kind AND p.pattern = x.pattern;
    INSERT INTO step_intervals (step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, mean_ns, p50_ns, p99_ns, max_ns,
        histogram)
    SELECT x.step_id, x.at_us, 1000000, p.op, 0, s.clients, iif(x.zero, 0, p.count) * s.clients,
           iif(x.zero, 0, p.count * p.bs) * s.clients, 0, iif(x.zero, NULL, p.sum / p.count), iif(x.zero, NULL, p.p50),
           iif(x.zero, NULL, p.p99), iif(x.zero, NULL, p.most), iif(x.zero, NULL, p.clients)
    FROM step_seconds AS x CROSS JOIN steps AS s ON s.id = x.step_id
         CROSS JOIN patterns AS p ON p.kind = x.kind AND p.pattern = x.pattern";

const RESULTS: &str = "
    INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, window_us, window_ops, window_ops_error, window_bytes,
        window_bytes_error, headline, ops_per_s, bytes_per_s, last_done_us, last_done_ops_per_s, last_done_bytes_per_s,
        seconds, zero_seconds, ops_per_s_stddev, ops_per_s_min, ops_per_s_max, bytes_per_s_stddev, bytes_per_s_min,
        bytes_per_s_max, mean_ns, stddev_ns, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns, max_ns, saturated, histogram)
    SELECT i.step_id, i.op, s.clients, sum(i.ops), sum(i.bytes), 0, k.seconds * 1000000, sum(i.ops), 0, sum(i.bytes), 0,
           'window', avg(i.ops), avg(i.bytes), k.seconds * 1000000, avg(i.ops), avg(i.bytes), count(*),
           count(*) FILTER (WHERE i.ops = 0),
           max(0.0, sum(1.0 * i.ops * i.ops) - sum(1.0 * i.ops) * avg(i.ops)) / max(1, count(*) - 1), min(i.ops),
           max(i.ops),
           max(0.0, sum(1.0 * i.bytes * i.bytes) - sum(1.0 * i.bytes) * avg(i.bytes)) / max(1, count(*) - 1),
           min(i.bytes), max(i.bytes), avg(i.mean_ns), q.stddev, min(i.p50_ns), q.p50, q.p90, q.p95, q.p99, q.p999,
           max(i.max_ns), 0, q.histogram
    FROM step_kinds AS k CROSS JOIN steps AS s ON s.id = k.step_id CROSS JOIN kinds AS q ON q.kind = k.kind
         CROSS JOIN step_intervals AS i ON i.step_id = k.step_id
    GROUP BY i.step_id;
    INSERT INTO task_results (task_id, op, ops, bytes, errors, busy_us, ops_per_s, bytes_per_s, mean_ns, min_ns, p50_ns,
        p99_ns, max_ns)
    SELECT i.task_id, i.op, sum(i.ops), sum(i.bytes), 0, count(*) * 1000000, avg(i.ops), avg(i.bytes),
           sum(i.service_sum_ns) / sum(i.service_count), min(i.service_min_ns), q.p50, q.p99, max(i.service_max_ns)
    FROM tasks AS t CROSS JOIN step_kinds AS k ON k.step_id = t.step_id CROSS JOIN kinds AS q ON q.kind = k.kind
         CROSS JOIN op_intervals AS i ON i.task_id = t.id
    GROUP BY i.task_id";
