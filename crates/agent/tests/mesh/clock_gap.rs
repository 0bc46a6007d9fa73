//! A machine that was paused while a task ran: its clocks stopped, so for the agent mesh time has jumped ahead.

use crate::agent::{Agent, Home};
use crate::collector::Collector;
use crate::commands::{arm, end, null_task, ready};
use benchmesh_proto::v1;
use benchmesh_proto::v1::command::Body;
use std::collections::BTreeMap;

const SECOND_US: i64 = 1_000_000;
const PAUSE_S: i64 = 30;
/// Seconds until the pause is detected, on a busy machine.
const UNKNOWN_S: i64 = 5;

/// If the clock were only slewed, the rows would be wrong by 30 s for the next 16 hours.
#[test]
fn the_rows_of_a_task_are_dated_anew_after_a_pause() {
    let (home, collector) = (Home::new(), Collector::start());
    let agent = Agent::start(home.config(&collector));
    ready(&collector);
    collector.done(Body::Prepare(v1::Prepare {
        run_id: 3,
        step_id: 4,
        lease_us: 600 * SECOND_US,
        ..null_task(7, r#"{"runtime": "9s", "rate_iops": 100}"#)
    }));
    let start_us = arm(&collector, 7);
    let paused = collector.wait("some seconds of the task", |state| {
        let rows = state.batches.iter().flat_map(|batch| &batch.op_intervals);
        let last = rows.map(|row| (row.at_us - start_us) / SECOND_US).max()?;
        (last >= 2).then_some(last)
    });
    collector.with(|state| state.faults.clock_ahead_ns = PAUSE_S * SECOND_US * 1000);
    let event = collector.event("clock-gap");
    assert_eq!((event.run_id, event.step_id), (3, 4), "{event:?}");
    assert!(event.detail_json.contains("stood-still"), "{event:?}");
    let ended = end(&collector, 7);
    assert_eq!(ended.state, "done", "{ended:?}");
    let ended = collector.wait("the task's last row", |state| {
        let mut ends = state.batches.iter().flat_map(|batch| &batch.task_ends);
        ends.find(|row| row.task_id == 7).cloned()
    });
    let mut seconds: BTreeMap<i64, u64> = BTreeMap::new();
    collector.with(|state| {
        for row in state.batches.iter().flat_map(|batch| &batch.op_intervals) {
            assert_eq!((row.at_us - start_us) % SECOND_US, 0, "{row:?}");
            *seconds
                .entry((row.at_us - start_us) / SECOND_US)
                .or_default() += row.ops;
        }
    });
    // Each second of mesh time has its row, those of the pause are empty, and later operations come after it.
    let all: Vec<i64> = seconds.keys().copied().collect();
    assert_eq!(all, (0..).take(all.len()).collect::<Vec<i64>>());
    let last = *all.last().unwrap();
    assert!((PAUSE_S + 8..=PAUSE_S + 10).contains(&last), "{seconds:?}");
    let pause = paused + UNKNOWN_S..PAUSE_S;
    assert!(
        seconds.range(pause).all(|(_, ops)| *ops == 0),
        "{seconds:?}"
    );
    assert!(
        seconds.range(PAUSE_S..).any(|(_, ops)| *ops > 0),
        "{seconds:?}"
    );
    assert_eq!(seconds.values().sum::<u64>(), 900, "{seconds:?}");
    let took_s = (ended.ended_us - start_us) / SECOND_US;
    assert!((PAUSE_S + 8..=PAUSE_S + 12).contains(&took_s), "{ended:?}");
    agent.stop();
    collector.assert_no_violation();
}
