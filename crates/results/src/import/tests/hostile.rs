//! Damaged logs: parsed into plausible figures or refused.

use super::*;
use benchmesh_testing::hostile::{damaged_text, withstands};
use proptest::prelude::*;

const LOGS: [&str; 5] = [
    include_str!("logs/bonnie.txt"),
    include_str!("logs/dd.txt"),
    include_str!("logs/fio.json"),
    include_str!("logs/iozone.txt"),
    include_str!("logs/iperf3.json"),
];

/// Checks one figure: a rate or a time.
fn check_real(what: &str, value: Option<f64>) -> Result<(), TestCaseError> {
    let is_good = value.is_none_or(|value| value.is_finite() && value >= 0.0);
    prop_assert!(is_good, "{what} is {value:?}");
    Ok(())
}

fn check_whole(what: &str, value: i64) -> Result<(), TestCaseError> {
    prop_assert!(value >= 0, "{what} is {value}");
    Ok(())
}

fn check(read: &ImportedLog) -> Result<(), TestCaseError> {
    prop_assert!(!read.steps.is_empty());
    for step in &read.steps {
        check_whole("at_us", step.at_us)?;
        check_whole("lasted_us", step.lasted_us)?;
        check_whole("tasks", step.tasks)?;
        for op in &step.ops {
            for (what, value) in [("ops", op.ops), ("bytes", op.bytes), ("errors", op.errors)] {
                check_whole(what, value.unwrap_or(0))?;
            }
            for (what, value) in [
                ("ops_per_s", op.ops_per_s),
                ("bytes_per_s", op.bytes_per_s),
                ("mean_ns", op.mean_ns),
                ("stddev_ns", op.stddev_ns),
            ] {
                check_real(what, value)?;
            }
            let latencies = [op.min_ns, op.p50_ns, op.p99_ns, op.max_ns];
            for value in latencies.into_iter().flatten() {
                check_whole("a latency", value)?;
            }
        }
        for second in &step.seconds {
            let counts = [second.ops, second.bytes].into_iter().flatten();
            for value in counts.chain([second.at_us, second.span_us]) {
                check_whole("a second", value)?;
            }
            check_real("a second's mean", second.mean_ns)?;
        }
    }
    // The command sends them to the collector as JSON.
    let sent = serde_json::to_string(read).unwrap();
    prop_assert!(serde_json::from_str::<ImportedLog>(&sent).is_ok());
    Ok(())
}

/// Regressions found with damaged logs.
#[test]
fn figures_that_cannot_be_are_refused() {
    let iozone = include_str!("logs/iozone.txt");
    let dd = include_str!("logs/dd.txt");
    for (log, from, to) in [
        (RADOS, "        10   39.9939", "       -10   39.9939"),
        (
            RADOS,
            "Total writes made:      50",
            "Total writes made:      -50",
        ),
        (
            RADOS,
            "    0       0         0 ",
            "    9007199254740993       0         0 ",
        ),
        (
            RADOS,
            "Object size:            4194304",
            "Object size:            1e18",
        ),
        (dd, "10+0 records out", "10+9223372036854775807 records out"),
        (iozone, "8081579.50", "inf"),
        (iozone, "8081579.50", "NaN"),
        (iozone, "8081579.50", "-8081579.50"),
    ] {
        let damaged = log.replacen(from, to, 1);
        assert_ne!(damaged, log, "{from}");
        let refused = parsed(&damaged);
        assert!(refused.is_err(), "{to}: {refused:?}");
    }
}

#[test]
fn damaged_logs_are_read_as_possible_figures_or_refused() {
    let logs = LOGS.into_iter().chain([RADOS, elbencho::ELBENCHO]);
    let logs: Vec<String> = logs.map(str::to_owned).collect();
    for log in &logs {
        check(&parsed(log).unwrap()).unwrap();
    }
    withstands(damaged_text(logs, 64 << 10), 16 << 20, |log| {
        let Some(tool) = Tool::of(&log) else {
            return Ok(());
        };
        match parse(tool, &log, &hints()) {
            Ok(read) => check(&read),
            Err(error) => {
                prop_assert!(error.to_string().len() < 100_000);
                Ok(())
            }
        }
    });
}
