//! Latencies: a series with known percentiles, in histograms as agents send them, through wire, results and database.
//! Tolerance: 1 % of the exact p50, p99 and max, for the step and for each of its seconds.

use crate::support::fake_agent::{FakeAgent, converse, hello};
use crate::support::mesh::Mesh;
use benchmesh_proto::v1::{Distribution, OpInterval};
use benchmesh_workloads::histogram::Histogram;
use std::time::Duration;

const TOLERANCE: f64 = 0.01;
const SECONDS: usize = 6;
const PER_SECOND: usize = 5000;

/// Latencies from 30 us to 0.3 s with a long tail, equal in each run of the test.
fn series() -> Vec<Vec<u64>> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        // xorshift64*: good enough to spread values, without a dependency.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40
    };
    let mut value = |second: usize| {
        let body = 30_000 + next() % 400_000;
        if next() % 50 == 0 {
            body * (20 + next() % (100 * (second as u64 + 1)))
        } else {
            body
        }
    };
    (0..SECONDS)
        .map(|second| (0..PER_SECOND).map(|_| value(second)).collect())
        .collect()
}

/// The value that a share `q` of all values do not exceed.
fn exact(values: &[u64], q: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "thousands of values")]
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds below 2^52")]
fn assert_near(what: &str, reported_ns: f64, exact_ns: u64) {
    let off = reported_ns / exact_ns as f64 - 1.0;
    assert!(
        off.abs() <= TOLERANCE,
        "{what}: {reported_ns} ns reported, {exact_ns} ns exactly: off by {:.2} %",
        off * 100.0
    );
}

fn interval(task_id: i64, at_us: i64, values: &[u64]) -> OpInterval {
    let mut recorded = Histogram::new();
    for value in values {
        recorded.record(*value);
    }
    OpInterval {
        task_id,
        at_us,
        span_us: 1_000_000,
        op: "null".to_owned(),
        ops: values.len() as u64,
        service: Some(Distribution {
            histogram: recorded.to_v2_deflate(),
            count: recorded.count(),
            sum_ns: recorded.sum_ns(),
            sum_squares_ns2: recorded.sum_squares_ns2(),
            min_ns: recorded.min_ns(),
            max_ns: recorded.max_ns(),
            saturated: recorded.saturated(),
        }),
        ..OpInterval::default()
    }
}

#[test]
fn percentiles_of_a_known_series_survive_the_whole_way() {
    let mesh = Mesh::start();
    let series = series();
    let run = converse(Duration::from_secs(90), async {
        let mut agent = FakeAgent::attach(mesh.address(), hello("fake"))
            .await
            .unwrap();
        let run = mesh.begin(
            r#"
            [[phase]]
            workload = "null"
            ops = 30000
            "#,
        );
        agent
            .carry_through(1, |task_id, start_us| {
                let seconds = series.iter().enumerate();
                seconds
                    .map(|(second, values)| {
                        interval(task_id, start_us + second as i64 * 1_000_000, values)
                    })
                    .collect()
            })
            .await;
        agent.agree_until_it_ends(run).await
    });
    assert!(run.log().contains("null"), "{}", run.log());
    let db = mesh.db();
    let all: Vec<u64> = series.concat();
    let step = &db.rows("SELECT * FROM step_results")[0];
    assert_eq!(step.integer("ops") as usize, SECONDS * PER_SECOND);
    let view = &db.rows("SELECT * FROM v_results")[0];
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let exact = exact(&all, q);
        assert_near(name, step.number(&format!("{name}_ns")), exact);
        assert_near(name, view.number(&format!("{name}_ms")) * 1e6, exact);
    }
    let timeline = db.rows("SELECT * FROM v_timeline");
    assert_eq!(timeline.len(), SECONDS);
    for (row, values) in timeline.iter().zip(&series) {
        for (name, q) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            assert_near(
                name,
                row.number(&format!("{name}_ms")) * 1e6,
                exact(values, q),
            );
        }
    }
}
