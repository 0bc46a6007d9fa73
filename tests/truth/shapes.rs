//! Shapes of load against a file system of known capacity: it serves a fixed total number of reads per second, and logs
//! every call.

use crate::needs;
use crate::support::database::{Database, Row};
use crate::support::fuse_fs::{Call, Fault, FuseFs, Op, Rule};
use crate::support::loss::kill_after;
use crate::support::mesh::Mesh;
use crate::support::plan::{self, READS};
use benchmesh_testing::{measured, scheduled, timing};
use std::time::Duration;

fn limited(per_second: u32, latency: Duration) -> FuseFs {
    let fs = FuseFs::mount();
    fs.add_rule(Rule::every(
        Op::Read,
        Fault::Capacity {
            per_second,
            latency,
        },
    ));
    fs
}

/// Reads answered between two instants.
fn answered(log: &[Call], from: i64, until: i64) -> f64 {
    let reads = log.iter().filter(|call| call.op == Op::Read);
    let inside = reads.filter(|call| call.ended_us > from && call.ended_us <= until);
    inside.count() as f64
}

/// Each step with its window and its reported figures.
fn reported(db: &Database, run: i64) -> Vec<Row> {
    db.rows(&format!(
        "SELECT v.phase, v.clients, v.ops_per_s, v.headline, s.all_active_from_us, s.all_active_until_us,
                (SELECT count(*) FROM tasks t WHERE t.step_id = s.id) AS tasks,
                (SELECT sum(workers) FROM tasks t WHERE t.step_id = s.id) AS workers,
                (SELECT group_concat(a.name, ' ') FROM tasks t JOIN agents a ON a.id = t.agent_id WHERE t.step_id = s.id) AS agents
         FROM v_results v JOIN steps s ON s.id = v.step_id WHERE v.run_id = {run} ORDER BY v.ordinal"
    ))
}

/// The file system serves 300 reads per second in total, and each takes at least 10 ms: one, two and three workers
/// reach their own maximum, more workers add nothing. Tolerance: 3 % of the capacity where it is the limit; everywhere
/// 2 % of the file system's own count, plus the four operations that may be at the window's edges.
#[test]
fn a_sweep_over_a_target_of_known_capacity_is_flat_where_it_saturates() {
    needs!("fuse");
    measured(|| {
        let fs = limited(300, Duration::from_millis(10));
        let mesh = Mesh::of(&["a", "b", "c", "d"], fs.path());
        let load = format!("{READS}runtime = \"4s\"");
        let run = mesh.run(&plan::on(
            fs.path(),
            "",
            &format!(
                r#"
            {load}
            name = "clients"
            matrix = {{ clients = [1, 2, 4] }}
            {load}
            name = "workers"
            clients = 1
            matrix = {{ numjobs = [2, 6] }}
            {load}
            name = "stand-ins"
            clients = 2
            tasks-per-agent = 4
            "#
            ),
        ));
        let log = fs.log();
        let rows = reported(&mesh.db(), run);
        let shapes: Vec<_> = rows
            .iter()
            .map(|row| {
                let number = |column| row.integer(column);
                (
                    row.text("phase"),
                    number("clients"),
                    number("tasks"),
                    number("workers"),
                    row.text("agents"),
                )
            })
            .collect();
        let shape = |phase: &str, clients, tasks, workers, agents: &str| {
            (phase.to_owned(), clients, tasks, workers, agents.to_owned())
        };
        assert_eq!(
            shapes,
            [
                shape("clients", 1, 1, 1, "a"),
                shape("clients", 2, 2, 2, "a b"),
                shape("clients", 4, 4, 4, "a b c d"),
                shape("workers", 1, 1, 2, "a"),
                shape("workers", 1, 1, 6, "a"),
                shape("stand-ins", 2, 8, 8, "a a a a b b b b"),
            ]
        );
        for row in &rows {
            let (from, until) = (
                row.integer("all_active_from_us"),
                row.integer("all_active_until_us"),
            );
            let seconds = (until - from) as f64 / 1e6;
            let (reported, seen) = (
                row.number("ops_per_s"),
                answered(&log, from, until) / seconds,
            );
            let workers = row.integer("workers");
            assert_eq!(row.text("headline"), "window", "{row:?}");
            timing!(
                (reported - seen).abs() <= seen * 0.02 + 4.0 / seconds,
                "{workers} workers: {reported} reported, {seen} seen"
            );
            if workers >= 4 {
                timing!(
                    (reported - 300.0).abs() <= 9.0,
                    "{workers} workers: {reported}, and the file system serves 300"
                );
            } else {
                let most = workers as f64 * 100.0;
                timing!(
                    (most * 0.7..=most).contains(&reported),
                    "{workers} workers: {reported}, and each can have 100"
                );
            }
        }
        let report = mesh.command(&["report", "last"]);
        assert!(report.out.contains("numjobs"), "{}", report.out);
        Ok(())
    });
}

/// Each task starts two thirds of a second after the previous one, at the instant in the database; the common window
/// begins with the last. Tolerance: 100 ms from a task's start to its first call, on a busy machine.
#[test]
fn staggered_tasks_start_one_after_the_other() {
    needs!("fuse");
    measured(|| {
        let fs = FuseFs::mount();
        let mesh = Mesh::of(&["a", "b"], fs.path());
        let run = mesh.run(&plan::on(
            fs.path(),
            "",
            &format!(
                r#"
            {READS}
            runtime = "8s"
            ramp_time = "500ms"
            rate_iops = 40
            tasks-per-agent = 2
            stagger = "700ms"
            "#
            ),
        ));
        let log = fs.log();
        let db = mesh.db();
        let step = &db.rows(&format!(
            "SELECT s.start_us, s.all_active_from_us, r.ops_per_s, r.ops
         FROM steps s JOIN step_results r ON r.step_id = s.id WHERE s.run_id = {run}"
        ))[0];
        let start = step.integer("start_us");
        let tasks = db
            .rows("SELECT task_index, start_us, skew_us, ended_us FROM tasks ORDER BY task_index");
        assert_eq!(tasks.len(), 4);
        let mut last_start = 0;
        for (task, index) in tasks.iter().zip(0_i64..) {
            let planned = task.integer("start_us");
            assert_eq!(planned, start + index * 700_000);
            let directory = format!("/t{index}/");
            let own = log.iter().filter(|call| {
                call.op == Op::Read && call.began_us >= start && call.path.contains(&directory)
            });
            let first = own.map(|call| call.began_us).min();
            let first = first.unwrap_or_else(|| panic!("task {index} in {:?}", log.last()));
            timing!(
                (0..100_000).contains(&(first - planned)),
                "task {index}: {}",
                first - planned
            );
            last_start = planned;
        }
        // After the ramp of the last task.
        let from = step.integer("all_active_from_us");
        assert_eq!(from, last_start + 500_000);
        // Four workers of 40 per second, each for 8 s; the last operation of a ramp counts if it ends after the ramp.
        scheduled(step.integer("ops") as u64, 1280..=1284)?;
        timing!((step.number("ops_per_s") - 160.0).abs() < 4.0, "{step:?}");
        Ok(())
    });
}

/// The file system serves 100 reads per second: it keeps up with a load of 90, but not with one of 135.
#[test]
fn the_knee_of_a_load_curve_is_where_the_capacity_is() {
    needs!("fuse");
    measured(|| {
        let fs = limited(100, Duration::ZERO);
        let mesh = Mesh::of(&["a", "b"], fs.path());
        mesh.run(&plan::on(
            fs.path(),
            "",
            &format!(
                r#"
            {READS}
            name = "curve"
            numjobs = 2
            runtime = "4s"
            rate_iops = 200
            rate-per = "step"
            load-curve = {{ start = 0.2, factor = 1.5, steps = 5 }}
            "#
            ),
        ));
        let report = mesh.command(&["report", "last", "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&report.out).unwrap();
        let curve = &json["curves"][0];
        let rates: Vec<i64> = curve["loads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|load| load["rate"].as_i64().unwrap())
            .collect();
        assert_eq!(rates, [40, 60, 90, 135, 203], "{curve}");
        timing!(curve["knee"] == 2, "{curve}");
        let load = |at: usize| &curve["loads"][at];
        // Up to the knee the achieved rate equals the requested one; beyond it the capacity limits it.
        timing!(
            (load(2)["ops_per_s"].as_f64().unwrap() - 90.0).abs() < 2.0,
            "{curve}"
        );
        timing!(
            (load(4)["ops_per_s"].as_f64().unwrap() - 100.0).abs() < 3.0,
            "{curve}"
        );
        timing!(
            load(4)["response_p99_ms"].as_f64().unwrap() > 1000.0,
            "{curve}"
        );
        let report = mesh.command(&["report", "last"]).out;
        assert!(
            report.contains("rate_iops=90") && report.contains("rate_iops=135"),
            "{report}"
        );
        // All loads use the same data.
        let cells = mesh
            .db()
            .one::<i64>("SELECT count(DISTINCT cell) FROM steps");
        assert_eq!(cells, 1);
        Ok(())
    });
}

/// A rate of the whole step over four clients, of which one is killed. Its part is missing while it may still load; the
/// others take it over once its lease has expired. Tolerance: 2 % of the rate in the seconds before the loss and after
/// the new split, which must be in effect 3 s after the lease ends; no tenth of a second exceeds its part by more than
/// a fifth.
#[test]
fn a_rate_of_the_step_is_kept_when_a_client_is_lost() {
    needs!("fuse");
    measured(|| {
        const RATE: usize = 240;
        let fs = FuseFs::mount();
        let mut mesh = Mesh::of(&["a", "b", "c", "d"], fs.path());
        let mut run = mesh.begin(&plan::on(
            fs.path(),
            "loss-after = \"2s\"\nlease = \"4s\"",
            &format!(
                r#"
            {READS}
            numjobs = 2
            runtime = "20s"
            rate_iops = {RATE}
            rate-per = "step"
            "#
            ),
        ));
        let (start, killed) = kill_after(&mut mesh, &mut run, "b", Duration::from_secs(4));
        let log = fs.log();
        let reads: Vec<&Call> = log
            .iter()
            .filter(|call| call.op == Op::Read && call.began_us >= start)
            .collect();
        let between = |from: i64, until: i64| {
            let inside = reads
                .iter()
                .filter(|call| (from..until).contains(&call.began_us));
            inside.count()
        };
        let is_rate = |what: &str, from: i64, seconds: i64, rate: usize| {
            let (seen, wanted) = (
                between(from, from + seconds * 1_000_000),
                rate * seconds as usize,
            );
            timing!(
                seen.abs_diff(wanted) * 50 <= wanted,
                "{what}: {seen} reads, not {wanted}"
            );
            Ok(())
        };
        is_rate("before the loss", start + 500_000, 3, RATE)?;
        let reported: i64 = mesh.db().one(&format!(
            "SELECT sum(ops) FROM op_intervals WHERE at_us < {start} + 3000000 - 1000"
        ));
        timing!(
            reported.unsigned_abs().abs_diff(3 * RATE as u64) * 50 <= 3 * RATE as u64,
            "{reported} reads reported in three seconds"
        );
        is_rate(
            "while the lost one may still load",
            killed + 500_000,
            3,
            RATE * 3 / 4,
        )?;
        let back = killed + 4_000_000 + 3_000_000;
        is_rate("after its lease", back, 5, RATE)?;
        // Each survivor has a third of it.
        for task in [0, 2, 3] {
            let own = reads.iter().filter(|call| {
                call.path.contains(&format!("/t{task}/"))
                    && (back..back + 5_000_000).contains(&call.began_us)
            });
            let (seen, wanted) = (own.count(), RATE * 5 / 3);
            timing!(
                seen.abs_diff(wanted) * 50 <= wanted,
                "task {task}: {seen} of {wanted}"
            );
        }
        // The survivors do not make up for the lost client's missing operations.
        let most = (0..40).map(|slice| {
            let from = killed + 3_000_000 + slice * 100_000;
            between(from, from + 100_000)
        });
        let most = most.max().unwrap();
        timing!(
            most <= RATE / 10 * 6 / 5 + 1,
            "a burst of {most} reads in a tenth of a second"
        );
        let messages = mesh
            .db()
            .column::<String>("SELECT message FROM events WHERE kind = 'rate-shared-again'");
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(
            messages[0].contains("`b`") && messages[0].contains("3 remaining tasks"),
            "{messages:?}"
        );
        Ok(())
    });
}
