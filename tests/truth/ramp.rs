//! A ramp that ends within a second, at a fixed rate: every row of the timeline has that rate, and its begin and end
//! are correct. Tolerance: two operations, which may be on either side of a row's edges.

use crate::support::mesh::{Agent, Mesh};
use benchmesh_testing::{measured, timing};

const RATE: f64 = 200.0;

#[test]
fn a_ramp_that_is_not_whole_seconds_has_the_true_rate_on_both_its_sides() {
    measured(|| {
        let mut mesh = Mesh::start();
        mesh.add(Agent::named("a"));
        mesh.add(Agent::named("b"));
        mesh.run(
            r#"
        [[phase]]
        workload = "null"
        ramp_time = "1700ms"
        runtime = "2300ms"
        rate_iops = 100
        "#,
        );
        let db = mesh.db();
        // Both agents together, and each alone. Rows shorter than a millisecond are left out: the rest
        // after the last second.
        for (sql, rate) in [
        (
            "SELECT (i.at_us - s.start_us) / 1000 AS at_ms, i.span_us / 1000 AS span_ms, i.ramp, i.ops
             FROM step_intervals i JOIN steps s ON s.id = i.step_id WHERE i.span_us >= 1000 ORDER BY i.at_us",
            RATE,
        ),
        (
            "SELECT (i.at_us - s.start_us) / 1000 AS at_ms, i.span_us / 1000 AS span_ms, i.ramp, i.ops
             FROM op_intervals i JOIN tasks t ON t.id = i.task_id JOIN steps s ON s.id = t.step_id
             WHERE t.task_index = 0 AND i.span_us >= 1000 ORDER BY i.at_us",
            RATE / 2.0,
        ),
    ] {
        let rows = db.rows(sql);
        let places: Vec<(i64, i64, i64)> = rows
            .iter()
            .map(|row| (row.integer("at_ms"), row.integer("span_ms"), row.integer("ramp")))
            .collect();
        assert_eq!(
            places,
            [
                (0, 1000, 1),
                (1000, 700, 1),
                (1700, 300, 0),
                (2000, 1000, 0),
                (3000, 1000, 0)
            ]
        );
        for row in &rows {
            let expected = rate * row.number("span_ms") / 1e3;
            let ops = row.number("ops");
            timing!((ops - expected).abs() <= 4.0, "{row:?}, expected {expected}");
        }
    }
        // The parts of the second in which the ramp ends are no seconds, so they have no rate.
        let reported: Vec<f64> =
            db.column("SELECT ops_per_s FROM v_timeline WHERE ops_per_s IS NOT NULL");
        assert_eq!(reported.len(), 3);
        for reported in reported {
            timing!((reported / RATE - 1.0).abs() < 0.1, "{reported} per second");
        }
        mesh.assert_no_complaints();
        Ok(())
    });
}
