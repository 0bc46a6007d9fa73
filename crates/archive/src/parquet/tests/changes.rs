//! What a second export does.

use super::*;

/// The files below `mesh` that differ between two looks at it, without the marks of runs.
fn differing(
    before: &BTreeMap<String, (u64, u64)>,
    after: &BTreeMap<String, (u64, u64)>,
) -> Vec<String> {
    let names = before.keys().chain(after.keys());
    let mut names: Vec<String> = names
        .filter(|name| before.get(*name) != after.get(*name) && !name.starts_with('_'))
        .map(|name| name.replace("/site=lab1/month=2025-06", ""))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn only_what_has_changed_is_written_again() {
    let scene = Scene::new(&Shape::small());
    scene.change(UNUSUAL);
    scene.export().unwrap();
    let others = |run: &str| {
        // Rows of agents and of what is on their hosts go along.
        ["agents", "daemons", "disks", "hosts", "interfaces"].map(|table| format!("{table}/{run}"))
    };
    let cases: [(&str, &str, &[&str]); 7] = [
        ("nothing", "SELECT 1", &[]),
        (
            "an agent that is seen again",
            "UPDATE agents SET last_seen_us = last_seen_us + 1; UPDATE daemons SET ended_us = last_seen_us",
            &[],
        ),
        (
            "a tag",
            "INSERT INTO run_tags VALUES (2, 'owner', 'anna')",
            &["run_tags/run-2.parquet"],
        ),
        (
            "no tags any more",
            "DELETE FROM run_tags WHERE run_id = 2",
            &["run_tags/run-2.parquet"],
        ),
        (
            "late intervals",
            "INSERT INTO op_intervals (task_id, at_us, span_us, op, ramp, ops, bytes, errors, in_flight,
                 service_count, service_sum_ns, service_sum_squares_ns2, service_saturated)
             SELECT min(t.id), 7, 1000000, 'write', 0, 1, 1, 0, 0, 1, 1.0, 1.0, 0
             FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 1;
             UPDATE step_results SET ops = ops + 1
             WHERE id = (SELECT min(r.id) FROM step_results AS r JOIN steps AS s ON s.id = r.step_id
                         WHERE s.run_id = 1)",
            &[
                "op_intervals/run-1.parquet",
                "step_intervals/run-1.parquet",
                "step_results/run-1.parquet",
            ],
        ),
        (
            "a late part of a second that is there",
            "UPDATE op_intervals SET ops = ops + 3
             WHERE id = (SELECT min(o.id) FROM op_intervals AS o JOIN tasks AS t ON t.id = o.task_id
                         JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 1)",
            &["op_intervals/run-1.parquet", "step_intervals/run-1.parquet"],
        ),
        (
            "late samples",
            "INSERT INTO host_samples
             SELECT host_id, at_us + 1, user_us, nice_us, system_us, idle_us, iowait_us, irq_us, softirq_us, steal_us,
                 memory_total_bytes, memory_available_bytes, memory_free_bytes, cached_bytes,
                 dirty_bytes, writeback_bytes, swap_used_bytes, load1, 1, 1, 1, 1, 1, 0, 0, NULL
             FROM host_samples WHERE at_us = (SELECT started_us + 150000000 FROM runs WHERE id = 1) AND host_id = 1",
            &["host_samples/run-1.parquet"],
        ),
    ];
    for (what, sql, expected) in cases {
        let before = files(&scene.mesh());
        scene.change(sql);
        let exported = scene.export().unwrap();
        let found = differing(&before, &files(&scene.mesh()));
        let mut expected: Vec<String> = expected.iter().map(|one| (*one).to_owned()).collect();
        if let Some(run) = expected
            .first()
            .map(|one| one.split('/').next_back().unwrap().to_owned())
        {
            expected.extend(others(&run));
        }
        expected.sort();
        assert_eq!(found, expected, "{what}");
        let written = usize::from(!expected.is_empty());
        assert_eq!(
            (exported.runs_written, exported.runs_unchanged),
            (written, 3 - written),
            "{what}"
        );
    }
    // The same content in another directory has the same bytes.
    let fresh = scene.db("fresh");
    export(
        &Request {
            directory: fresh.clone(),
            ..scene.request()
        },
        &mut |_| (),
    )
    .unwrap();
    for name in files(&fresh).keys() {
        // Of agents, what was there when something else of the run changed last.
        if !["agents", "daemons", "_runs"]
            .iter()
            .any(|one| name.starts_with(one))
        {
            let contents =
                [&scene.mesh(), &fresh].map(|one| std::fs::read(one.join(name)).unwrap());
            assert!(contents[0] == contents[1], "{name}");
        }
    }
    assert_eq!(files(&fresh).len(), files(&scene.mesh()).len());
}

#[test]
fn rows_that_the_database_has_merged_or_deleted_stay() {
    let scene = Scene::new(&Shape::small());
    scene.export().unwrap();
    let before = files(&scene.mesh());
    scene.change(
        "DELETE FROM daemon_samples WHERE at_us % 10000000 <> 0;
         DELETE FROM op_intervals WHERE task_id IN (SELECT id FROM tasks WHERE step_id = 1);
         UPDATE steps SET resolution_s = 10 WHERE run_id = 1",
    );
    let exported = scene.export().unwrap();
    // `steps` says how the files keep their intervals, not how the database does.
    assert_eq!((exported.runs_written, exported.runs_kept_finer), (0, 3));
    assert_eq!(files(&scene.mesh()), before);
    // What else has changed is written, and no interval.
    scene.change(
        "UPDATE steps SET flags = '[\"window-short\"]' WHERE id = 1;
         INSERT INTO run_notes (run_id, at_us, text) VALUES (1, 9, 'seen later')",
    );
    let exported = scene.export().unwrap();
    assert_eq!((exported.runs_written, exported.runs_kept_finer), (1, 3));
    let after = files(&scene.mesh());
    let found = differing(&before, &after);
    assert!(found.contains(&String::from("steps/run-1.parquet")));
    assert!(
        !found
            .iter()
            .any(|name| name.contains("samples") || name.contains("intervals"))
    );
    assert_eq!(integers(&scene, "steps", "resolution_s"), [1; 36]);
    // And again.
    let exported = scene.export().unwrap();
    assert_eq!((exported.runs_written, exported.runs_kept_finer), (0, 3));
    assert_eq!(files(&scene.mesh()), after);
}

/// The values of a column of the first run.
fn integers(scene: &Scene, table: &str, column: &str) -> Vec<i64> {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;
    let path = format!("{table}/site=lab1/month=2025-06/run-1.parquet");
    let file = std::fs::File::open(scene.mesh().join(path)).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let row = row.unwrap();
        let mut columns = row.get_column_iter();
        match columns.find(|(name, _)| *name == column).unwrap().1 {
            Field::Long(value) => *value,
            other => panic!("{other:?}"),
        }
    })
    .collect()
}

#[test]
fn a_run_that_was_resumed_after_its_rows_were_merged_is_written_anew() {
    let scene = Scene::new(&Shape::small());
    scene.export().unwrap();
    let before = integers(&scene, "op_intervals", "id").len();
    scene.change(
        "DELETE FROM op_intervals WHERE id % 2 = 0 AND task_id IN
             (SELECT t.id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = 1);
         UPDATE steps SET resolution_s = 10 WHERE run_id = 1;
         CREATE TEMP TABLE one AS SELECT * FROM steps WHERE run_id = 1 ORDER BY id LIMIT 1;
         UPDATE one SET id = 9001, attempt = attempt + 1, resolution_s = 1;
         INSERT INTO steps SELECT * FROM one;
         CREATE TEMP TABLE task AS SELECT * FROM tasks WHERE step_id = 1 ORDER BY id LIMIT 1;
         UPDATE task SET id = 9001, step_id = 9001;
         INSERT INTO tasks SELECT * FROM task;
         INSERT INTO op_intervals (task_id, at_us, span_us, op, ramp, ops, bytes, errors, in_flight,
             service_count, service_sum_ns, service_sum_squares_ns2, service_saturated)
         VALUES (9001, 7, 1000000, 'write', 0, 1, 1, 0, 0, 1, 1.0, 1.0, 0);",
    );
    let exported = scene.export().unwrap();
    assert_eq!((exported.runs_written, exported.runs_kept_finer), (1, 0));
    let tasks = integers(&scene, "op_intervals", "task_id");
    assert!(tasks.len() < before, "{} {before}", tasks.len());
    assert_eq!(tasks.iter().filter(|task| **task == 9001).count(), 1);
    let mut resolutions = integers(&scene, "steps", "resolution_s");
    resolutions.sort_unstable();
    assert_eq!(resolutions[0], 1);
    assert_eq!(resolutions[1..], [10; 36]);
    assert_eq!(scene.export().unwrap().runs_written, 0);
}

#[test]
fn single_runs_and_tables_complete_one_directory() {
    let scene = Scene::new(&Shape::small());
    let of = |run: Option<&str>, tables: &[&str]| {
        let request = Request {
            run: run.map(str::to_owned),
            tables: tables.iter().map(|one| (*one).to_owned()).collect(),
            ..scene.request()
        };
        export(&request, &mut |_| ()).unwrap()
    };
    let exported = of(Some("run-2"), &["steps", "runs", "steps"]);
    assert_eq!((exported.runs_written, exported.rows), (1, 1 + 36));
    let found = files(&scene.mesh());
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "_benchmesh.json",
            "_runs/lab1/run-2.json",
            "runs/site=lab1/month=2025-06/run-2.parquet",
            "steps/site=lab1/month=2025-06/run-2.parquet",
        ]
    );
    of(None, &[]);
    let after = files(&scene.mesh());
    let steps = "steps/site=lab1/month=2025-06/run-2.parquet";
    assert_eq!(found[steps], after[steps]);
    assert_eq!(of(Some("2"), &[]).runs_unchanged, 1);
}

#[test]
fn runs_that_go_on_are_left_out() {
    let scene = Scene::new(&Shape::small());
    scene.change("UPDATE runs SET state = 'running', ended_us = NULL WHERE id = 3");
    let exported = scene.export().unwrap();
    assert_eq!(exported.runs_written, 2);
    let left_out: Vec<(i64, &str)> = exported
        .unended
        .iter()
        .map(|run| (run.id, run.state.as_str()))
        .collect();
    assert_eq!(left_out, [(3, "running")]);
    scene.change("UPDATE runs SET state = 'done', ended_us = created_us + 60000000 WHERE id = 3");
    let exported = scene.export().unwrap();
    assert_eq!((exported.runs_written, exported.runs_unchanged), (1, 2));
}
