#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::store::Store;
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
                       (3, 2, 2, 1, 1, 'links', 'c', '', '', 'network', 'throughput', '{}', 1, 'asis', 'done', 1, '[]',
                        20000000, 22000000, 22000000),
                       (4, 2, 3, 1, 1, 'later', 'c', '', '', 'null', 'run', '{}', 1, 'asis', 'planned', 0, '[]', NULL,
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
            INSERT INTO daemons (id, host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us)
                VALUES (1, 1, 'ceph-osd', 'osd.3', 17, 1, 'ceph-osd -i 3', 1, 30000000);
            INSERT INTO daemon_samples (daemon_id, at_us, cpu_user_us, cpu_system_us, rss_bytes, vsz_bytes, threads, fds,
                                        read_bytes, write_bytes, vol_ctx, invol_ctx, minor_faults, major_faults)
                VALUES (1, 10000000, 0, 0, 1048576, 1, 1, 1, 0, 0, 1, 1, 1, 1),
                       (1, 11000000, 400000, 100000, 4194304, 1, 1, 1, 0, 0, 1, 1, 1, 1),
                       (1, 12000000, 800000, 200000, 2097152, 1, 1, 1, 0, 1048576, 1, 1, 1, 1),
                       (1, 20000000, 800000, 200000, 2097152, 1, 1, 1, 0, 1048576, 1, 1, 1, 1),
                       (1, 22000000, 900000, 300000, 3145728, 1, 1, 1, 0, 1048576, 1, 1, 1, 1);
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
    assert_eq!(names, ["c1", "c2"]);

    let [records, links] = report.steps.as_slice() else {
        panic!("{:?}", report.steps);
    };
    assert_eq!((records.id, records.attempt), (StepId(2), 2));
    assert_eq!(
        (records.skew_us, records.skew_error_us),
        (Some(90), Some(15))
    );
    assert_eq!(records.flags, ["window-short"]);
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
    assert_eq!((op.ops, op.errors, op.ops_per_s), (1000, 3, Some(500.5)));
    assert_eq!(
        (op.mean_ms, op.p50_ms, op.p99_ms, op.max_ms),
        (Some(0.243_000_5), Some(0.2), Some(1.25), Some(7.0))
    );
    assert_eq!((op.p90_ms, op.response_p99_ms), (None, None));
    assert_eq!(
        (links.from_agent.as_deref(), links.to_agent.as_deref()),
        (Some("c1"), Some("c2"))
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
    assert_eq!(kinds, ["agent-lost"]);
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
