#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::query::QueryError;
use crate::report::card::Trust;
use crate::report::{Detail, SectionName, markdown, tables};
use benchmesh_model::mesh::RunId;
use benchmesh_model::mesh::StepId;
use benchmesh_store::Store;
use benchmesh_synthetic::{Shape, generate};
use std::path::PathBuf;

/// A database with two runs of one name; the second has a step with two attempts, a link, a failed task, a daemon that
/// is sampled at the ends of two steps, and events.
async fn database(directory: &Path) -> PathBuf {
    let path = directory.join("mesh.db");
    Store::open(&path).await.unwrap().close().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            r#"
            INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
                VALUES (1, 'b', 'p', 'lab', '6.18', 2, 1000);
            INSERT INTO agents (id, uid, name, host_id, labels, version, first_seen_us, last_seen_us)
                VALUES (1, 'a1', 'c1', 1, '{"role":"client"}', '0.1.0', 1, 2), (2, 'a2', 'c2', 1, '{}', '0.1.0', 1, 2),
                       (3, 'a3', 'idle', 1, '{}', '0.1.0', 1, 2);
            INSERT INTO runs (id, uid, name, plan, state, partial, reason, created_us, started_us, ended_us, version)
                VALUES (1, 'u1', 'nightly', '', 'done', 0, NULL, 10, 20, 30, '0.1.0'),
                       (2, 'u2', 'nightly', '', 'done', 1, 'an agent was lost', 40, 50, 60, '0.1.0');
            INSERT INTO steps (id, run_id, ordinal, repeat, attempt, phase, cell, target, system, workload, mode, params,
                               clients, cache, state, partial, flags, start_us, last_done_us, ended_us)
                VALUES (1, 2, 1, 1, 1, 'records', 'c', 'disk', 'ext4', 'io', 'write', '{"bs":"4k"}', 2, 'asis', 'failed', 0,
                        '[]', 1000000, 2000000, 2000000),
                       (2, 2, 1, 1, 2, 'records', 'c', 'disk', 'ext4', 'io', 'write', '{"bs":"4k"}', 2, 'asis', 'done', 0,
                        '["window-short"]', 10000000, 12000000, 12000000),
                       (3, 2, 2, 1, 1, 'links', 'c', NULL, NULL, 'network', 'throughput', '{}', 1, 'asis', 'done', 1, '[]',
                        20000000, 22000000, 22000000),
                       (4, 2, 3, 1, 1, 'later', 'c', NULL, NULL, 'null', 'run', '{}', 1, 'asis', 'planned', 0, '[]', NULL,
                        NULL, NULL);
            INSERT INTO tasks (id, step_id, task_index, agent_id, peer_agent_id, state, skew_us, skew_error_us, error)
                VALUES (1, 2, 0, 1, NULL, 'done', 40, 12, NULL), (2, 2, 1, 2, NULL, 'failed', 90, 15, 'no space left'),
                       (3, 3, 0, 1, 2, 'done', 5, 1, NULL);
            INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, ops_per_s, bytes_per_s, mean_ns,
                                      p50_ns, p99_ns, max_ns, saturated)
                VALUES (2, 'write', 2, 1000, 4096000, 3, 'window', 500.5, 2048000, 243000.5, 200000, 1250000, 7000000, 0),
                       (3, 'send', 1, 10, 10485760, 0, 'none', NULL, NULL, NULL, NULL, NULL, NULL, 0);
            INSERT INTO task_results (task_id, op, ops, bytes, errors, ops_per_s, bytes_per_s)
                VALUES (3, 'send', 10, 10485760, 0, 5, 5242880);
            INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us, version,
                                 is_replaced)
                VALUES (1, 1, 'ceph-osd', 'osd.3', 17, 1, 'ceph-osd -i 3', 1, 30000000, '18.2.4', 1);
            INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes, threads, fds,
                                        read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults, major_faults)
                VALUES (1, 10000000, 0, 0, 1048576, 1, 1, 1, 0, 0, 1, 1, 1, 1),
                       (1, 11000000, 400000, 100000, 4194304, 1, 1, 1, 0, 0, 1, 1, 1, 1),
                       (1, 12000000, 800000, 200000, 2097152, 1, 1, 1, 0, 1048576, 1, 1, 1, 1),
                       (1, 20000000, 800000, 200000, 2097152, 1, 1, 1, 0, 1048576, 1, 1, 1, 1),
                       (1, 22000000, 900000, 300000, 3145728, 1, 1, 1, 0, 1048576, 1, 1, 1, 1);
            INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, cpu_user_us, cpu_system_us,
                                      cpu_error_us, rss_first_bytes, rss_min_bytes, rss_max_bytes, rss_last_bytes,
                                      read_bytes, write_bytes, samples)
                VALUES (2, 1, 1, 10000000, 12000000, 800000, 200000, 0, 1048576, 1048576, 4194304, 2097152, 0, 1048576, 3),
                       (3, 1, 0, 20000000, 22000000, 100000, 100000, 0, 2097152, 2097152, 3145728, 3145728, 0, 0, 2);
            INSERT INTO run_agents (run_id, agent_id, host_id, name, host, version, labels, kernel, distribution, cpus,
                                    memory_bytes)
                VALUES (2, 1, 1, 'c1-then', 'lab-then', '0.0.9', '{"role":"then"}', '6.1', 'Debian 12', 4, 2000);
            INSERT INTO run_targets (run_id, agent_id, target, system, path, mount_type, mount_source, packages)
                VALUES (2, 1, 'disk', 'ext4', '/mnt', 'ext4', '/dev/sda', '{"e2fsprogs":"1.47.2-1"}'),
                       (2, 2, 'disk', 'ext4', '/mnt', 'ext4', '/dev/sda', '{"e2fsprogs":"1.47.2-1"}');
            INSERT INTO cache_drops (step_id, agent_id, at_us, what, dropped)
                VALUES (2, 1, 1, 'page-cache', 1), (2, 1, 1, 'fuse-client', 0), (2, 2, 1, 'fuse-client', 0);
            INSERT INTO events (at_us, run_id, step_id, agent_id, severity, kind, message, detail)
                VALUES (5, 2, 2, 2, 'warning', 'stall', 'it hangs', '{"since_us":4,"worker":0}'),
                       (7, 2, 2, 2, 'warning', 'stall', 'it hangs again', '{"since_us":6,"worker":0}'),
                       (6, 2, 2, 2, 'info', 'stall-over', 'it has ended after 2 us', '{"since_us":4,"worker":0}');
            INSERT INTO events (at_us, run_id, step_id, agent_id, severity, kind, message)
                VALUES (3, 2, 2, 2, 'warning', 'agent-lost', 'no contact'), (2, 2, NULL, NULL, 'info', 'begun', 'x'),
                       (1, 1, NULL, NULL, 'error', 'other', 'of another run');
            "#,
        )
        .unwrap();
    path
}

#[tokio::test]
async fn a_report_is_what_the_database_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path()).await;
    let report = load_file(&path, "last").await.unwrap();
    assert_eq!((report.run.id, report.run.partial), (RunId(2), true));
    let names: Vec<&str> = report
        .agents
        .iter()
        .map(|agent| agent.name.as_str())
        .collect();
    // The agents as of the run: a later hello does not change an old report.
    assert_eq!(names, ["c1-then", "c2"]);
    let then = &report.agents[0];
    assert_eq!(
        (then.host.as_str(), then.cpus, then.distribution.as_deref()),
        ("lab-then", 4, Some("Debian 12"))
    );
    let targets = report.rows("targets");
    assert_eq!(targets.len(), 1, "{targets:?}");
    assert_eq!(targets[0]["agents"], 2);
    // It keeps running with a file that an upgrade has replaced.
    let versions = report.rows("daemon_versions");
    let [osd] = versions else {
        panic!("{versions:?}");
    };
    assert_eq!([&osd["name"], &osd["version"]], ["ceph-osd", "18.2.4"]);
    assert_eq!(
        [&osd["daemons"], &osd["hosts"], &osd["replaced"]],
        [1, 1, 1]
    );

    let [records, links] = report.steps.as_slice() else {
        panic!("{:?}", report.steps);
    };
    assert_eq!((records.id, records.attempt), (StepId(2), 2));
    assert_eq!(
        (records.skew_us, records.skew_error_us),
        (Some(90), Some(15))
    );
    assert_eq!(records.flags, ["window-short"]);
    assert_eq!(records.caches_kept, ["fuse-client"]);
    assert_eq!(records.params["bs"], "4k");
    assert_eq!(records.failures.len(), 1);
    assert_eq!(
        (
            records.failures[0].agent.as_str(),
            records.failures[0].error.as_str()
        ),
        ("c2", "no space left")
    );
    let op = &records.ops[0];
    assert_eq!(
        (op.ops, op.errors, op.ops_per_s),
        (Some(1000), Some(3), Some(500.5))
    );
    assert_eq!(
        (op.mean_ms, op.p50_ms, op.p99_ms, op.max_ms),
        (Some(0.243_000_5), Some(0.2), Some(1.25), Some(7.0))
    );
    assert_eq!((op.p90_ms, op.response_p99_ms), (None, None));
    assert_eq!(
        (links.from_agent.as_deref(), links.to_agent.as_deref()),
        (Some("c1-then"), Some("c2"))
    );
    assert_eq!(links.ops[0].ops_per_s, None);

    let [daemon] = report.daemons.as_slice() else {
        panic!("{:?}", report.daemons);
    };
    assert_eq!(
        (daemon.name.as_str(), daemon.instance.as_str()),
        ("ceph-osd", "osd.3")
    );
    assert_eq!(daemon.cpu_s, Some(1.2));
    assert!(
        (daemon.cpu_percent.unwrap() - 30.0).abs() < 1e-9,
        "{daemon:?}"
    );
    assert!(
        (daemon.cpu_percent_max.unwrap() - 50.0).abs() < 1e-9,
        "{daemon:?}"
    );
    assert_eq!(
        (
            daemon.rss_first_mib,
            daemon.rss_max_mib,
            daemon.rss_last_mib
        ),
        (Some(1.0), Some(4.0), Some(3.0))
    );
    assert_eq!(daemon.written_mib, Some(1.0));
    let cost = report
        .costs
        .iter()
        .find(|cost| cost.step_id == StepId(2))
        .unwrap();
    assert_eq!(
        (cost.name.as_str(), cost.cpu_us_per_op),
        ("ceph-osd", Some(1000.0))
    );
    assert_eq!(report.links.len(), 1);
    assert_eq!(report.links[0].mib_per_s, Some(5.0));
    let kinds: Vec<&str> = report
        .events
        .iter()
        .map(|event| event.kind.as_str())
        .collect();
    assert_eq!(kinds, ["agent-lost", "stall", "stall"]);
    let messages: Vec<&str> = report
        .events
        .iter()
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "no contact",
            "it hangs; it has ended after 2 us",
            "it hangs again"
        ]
    );
}

/// An MDS on the same host serves no target of the run. A daemon that was not sampled in a step may serve one.
#[tokio::test]
async fn marks_name_the_agent_and_are_of_daemons_that_serve_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path()).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            r#"
            UPDATE runs SET ended_us = 60000000 WHERE id = 2;
            INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, first_seen_us, last_seen_us)
                VALUES (2, 1, 'ceph-mds', 'mds.a', 18, 2, 1, 30000000);
            INSERT INTO step_daemons (step_id, daemon_id, serves_target, from_us, until_us, samples)
                VALUES (2, 2, 0, 10000000, 12000000, 3), (3, 2, 0, 20000000, 22000000, 3);
            INSERT INTO events (at_us, agent_id, severity, kind, message, detail)
                VALUES (11000000, 1, 'info', 'daemon-ended', 'ceph-osd osd.3 (pid 17) has ended',
                        '{"name":"ceph-osd","pid":17,"start_ticks":1}'),
                       (11100000, 1, 'info', 'daemon-ended', 'ceph-mds mds.a (pid 18) has ended',
                        '{"name":"ceph-mds","pid":18,"start_ticks":2}'),
                       (11200000, 1, 'warning', 'daemon-restarted', 'ceph-osd osd.3 (pid 19) was started again',
                        '{"name":"ceph-osd","pid":19,"start_ticks":9}'),
                       (11300000, 2, 'warning', 'carrier-lost', 'interface eth0 has lost its carrier',
                        '{"interface":"eth0"}'),
                       (11400000, 2, 'warning', 'cluster-degraded', 'ceph is degraded: 2 of 3', '{"system":"ceph"}');
            "#,
        )
        .unwrap();
    let report = load_file(&path, "last").await.unwrap();
    let marks: Vec<&str> = report.marks.iter().map(|mark| mark.text.as_str()).collect();
    assert_eq!(
        marks,
        [
            "c1-then: ceph-osd osd.3 (pid 17) has ended",
            "c1-then: ceph-osd osd.3 (pid 19) was started again",
            "c2: interface eth0 has lost its carrier",
            "ceph is degraded: 2 of 3",
        ]
    );
}

#[tokio::test]
async fn a_listed_section_is_in_every_medium() {
    let directory = tempfile::tempdir().unwrap();
    let report = load_file(&database(directory.path()).await, "last")
        .await
        .unwrap();
    let targets = SectionName::parse("targets").unwrap();
    for detail in [Detail::Section(targets), Detail::All] {
        let tables = tables(&report, detail);
        let table = tables.iter().find(|table| table.title == "Targets");
        let table = table.unwrap();
        let titles = table.columns.iter().map(|column| column.title.as_str());
        // Its size and its options are unknown.
        assert_eq!(
            titles.collect::<Vec<_>>(),
            [
                "target", "system", "agents", "path", "type", "source", "packages"
            ]
        );
        let row = [
            "disk",
            "ext4",
            "2",
            "/mnt",
            "ext4",
            "/dev/sda",
            "e2fsprogs 1.47.2-1",
        ];
        assert_eq!(table.rows, [row]);
        let text = markdown(&report, detail);
        assert!(text.contains(&format!("| {} |", row.join(" | "))), "{text}");
    }
    let document = serde_json::to_value(&report).unwrap();
    let expected = serde_json::json!([{
        "target": "disk", "system": "ext4", "path": "/mnt", "agents": 2, "mount_type": "ext4", "mount_source": "/dev/sda",
        "mount_options": null, "size_bytes": null, "packages": {"e2fsprogs": "1.47.2-1"},
    }]);
    assert_eq!(document["targets"], expected);
    assert_eq!(serde_json::from_value::<Report>(document).unwrap(), report);
}

#[tokio::test]
async fn a_listed_section_shows_columns_of_its_statement_under_a_key_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path()).await;
    let mut report = load_file(&path, "last").await.unwrap();
    report.queried.clear();
    let fields = serde_json::to_value(&report).unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    for section in queried::SECTIONS {
        assert!(fields.get(section.key).is_none(), "{}", section.key);
        let statement = file.prepare(section.statement.sql).unwrap();
        let names = statement.column_names();
        for column in section.columns {
            assert!(names.contains(&column.field), "{}", column.field);
        }
        let titles: Vec<&str> = section.columns.iter().map(|column| column.title).collect();
        for title in section.spare {
            assert!(titles.contains(title), "{}: {title}", section.key);
        }
    }
}

#[tokio::test]
async fn a_run_is_found_by_id_uid_or_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path()).await;
    for (wanted, id) in [
        ("1", 1),
        ("u1", 1),
        ("2", 2),
        ("nightly", 2),
        ("last", 2),
        ("", 2),
    ] {
        assert_eq!(
            load_file(&path, wanted).await.unwrap().run.id,
            RunId(id),
            "{wanted}"
        );
    }
    for wanted in ["3", "Nightly", "' OR 1=1 --"] {
        let error = load_file(&path, wanted).await.unwrap_err();
        assert!(
            matches!(error, ReportError::NoRun { .. }),
            "{wanted}: {error:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_database_of_ours_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("CREATE TABLE things (id INTEGER)")
        .unwrap();
    let error = load_file(&path, "last").await.unwrap_err();
    assert!(
        matches!(error, ReportError::Read { what: "runs", .. }),
        "{error:?}"
    );
    let empty = directory.path().join("empty.db");
    Store::open(&empty).await.unwrap().close().await;
    let error = load_file(&empty, "last").await.unwrap_err();
    assert!(matches!(error, ReportError::NoRuns), "{error:?}");
    let error = load_file(&directory.path().join("missing.db"), "last")
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReportError::Open(QueryError::NoFile { .. })),
        "{error:?}"
    );
}

/// Two targets, one mode after the other; steps of 80 s.
async fn generated(directory: &Path) -> PathBuf {
    let path = directory.join("generated.db");
    let shape = Shape {
        runs: 1,
        repeats: 2,
        step_seconds: 80,
        soak_seconds: 0,
        ..Shape::small()
    };
    let made = path.clone();
    tokio::task::spawn_blocking(move || generate(&made, &shape).unwrap())
        .await
        .unwrap();
    path
}

#[tokio::test]
async fn a_run_of_two_targets_is_compared_when_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let path = generated(directory.path()).await;
    let report = load_file(&path, "last").await.unwrap();
    assert_eq!(report.comparisons.len(), 1);
    assert_eq!(report.card.loads[0].trust, Some(Trust::Proven));
    let all = tables(&report, Detail::All);
    let title = "sr33, run 1 (B) against cephfs, run 1 (A)";
    let compared = all.iter().find(|table| table.title == title).unwrap();
    assert!(compared.rows.len() > 4);
    // The verdicts of a running run may change every second.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE runs SET state = 'running'", [])
        .unwrap();
    let going = load_file(&path, "last").await.unwrap();
    assert!(going.comparisons.is_empty());
}

#[tokio::test]
async fn a_mark_has_the_load_before_during_and_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = generated(directory.path()).await;
    let file = rusqlite::Connection::open(&path).unwrap();
    let one = |sql: &str| -> f64 { file.query_row(sql, [], |row| row.get(0)).unwrap() };
    let start: i64 = file
        .query_row("SELECT start_us FROM steps WHERE ordinal = 2", [], |row| {
            row.get(0)
        })
        .unwrap();
    let at = start + 35_400_000;
    for (at, text) in [(at, "osd.7 out"), (start - 1_500_000, "between two steps")] {
        file.execute(
            "INSERT INTO marks (run_id, at_us, text) VALUES (1, ?, ?)",
            rusqlite::params![at, text],
        )
        .unwrap();
    }
    let report = load_file(&path, "last").await.unwrap();
    let [between, out] = report.marks.as_slice() else {
        panic!("{:?}", report.marks);
    };
    assert_eq!((between.ordinal, between.ops.len()), (None, 0));
    assert_eq!((out.ordinal, out.ops.len()), (Some(2), 1));
    let op = &out.ops[0];
    // The 35th second contains the mark.
    for (span, from, until) in [
        (&op.before, 5, 35),
        (&op.during, 35, 45),
        (&op.after, 45, 75),
    ] {
        let of = format!(
            "FROM step_intervals AS i JOIN steps AS s ON s.id = i.step_id
             WHERE s.ordinal = 2 AND (i.at_us - s.start_us) / 1e6 >= {from} AND (i.at_us - s.start_us) / 1e6 < {until}"
        );
        let rate = one(&format!("SELECT sum(i.ops) * 1e6 / sum(i.span_us) {of}"));
        assert!((span.seconds - one(&format!("SELECT sum(i.span_us) / 1e6 {of}"))).abs() < 1e-6);
        assert!((span.ops_per_s.unwrap() - rate).abs() < 1e-6 * rate);
        let (least, most) = (
            one(&format!("SELECT min(i.p99_ns) / 1e6 {of}")),
            one(&format!("SELECT max(i.p99_ns) / 1e6 {of}")),
        );
        let p99 = span.p99_ms.unwrap();
        assert!(least <= p99 && p99 <= most, "{least} {p99} {most}");
    }
    let all = tables(
        &report,
        Detail::Section(SectionName::parse("marks").unwrap()),
    );
    let table = all.iter().find(|table| table.title == "Marks").unwrap();
    assert_eq!(table.rows[1][1], "osd.7 out");
    assert_eq!(table.rows[0][4..], vec!["-"; table.columns.len() - 4]);
}
