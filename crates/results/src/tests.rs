//! Exact figures of small steps.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

mod conserved;
mod flags;
mod long_operations;
mod returned;
mod systems;

use super::window::share;
use super::{
    Arrivals, Flag, Headline, IntervalFacts, PERIOD_US, Paced, PacedUnit, StepInterval,
    StepResults, StepSum, TaskFacts,
};
use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId, TaskState};
use benchmesh_workloads::histogram::Histogram;

const T0: i64 = 1_750_000_000_000_000;
const S: i64 = PERIOD_US;

fn task(id: i64, skew_us: i64, ended: i64) -> TaskFacts {
    TaskFacts {
        task: TaskId(id),
        client: u32::try_from(id).unwrap(),
        part: 1,
        group: String::new(),
        state: TaskState::Done,
        workers: 1,
        ramp_us: 0,
        start_us: Some(T0),
        skew_us: Some(skew_us),
        skew_error_us: Some(20),
        first_done_us: Some(T0 + ended),
        ended_us: Some(T0 + ended),
        wait_cpu_us: Some(0),
        harness_ns_per_op: Some(0),
        last_interval_us: None,
        agent: AgentId(1),
        link_bytes_per_s: None,
        rate_limit_bytes_per_s: None,
        mode: "write".to_owned(),
        paced: None,
        direct: false,
        round_trip_ns: None,
    }
}

fn interval(task: i64, second: i64, ops: i64) -> IntervalFacts {
    let mut service = Histogram::new();
    for _ in 0..ops {
        service.record(1_000_000);
    }
    IntervalFacts {
        task: TaskId(task),
        group: String::new(),
        at_us: T0 + second * S,
        span_us: S,
        op: "write".to_owned(),
        ramp: false,
        ops,
        bytes: ops * 4096,
        undated_bytes: 0,
        errors: 0,
        in_flight: 0,
        service,
        response: None,
    }
}

fn sum(tasks: Vec<TaskFacts>, intervals: &[IntervalFacts]) -> (Vec<StepInterval>, StepResults) {
    let mut sum = StepSum::new(T0, tasks);
    for interval in intervals {
        sum.add(interval);
    }
    sum.finish()
}

fn steady(task: i64, seconds: std::ops::Range<i64>, ops: i64) -> Vec<IntervalFacts> {
    seconds.map(|second| interval(task, second, ops)).collect()
}

/// A paced load none of whose operations ended has no response time, rather than one of 0.
#[test]
fn an_empty_histogram_of_response_times_is_none() {
    let mut rows = steady(1, 0..10, 100);
    for row in &mut rows {
        row.response = Some(row.service.clone());
    }
    let mut failed = interval(1, 0, 0);
    failed.op = "read".to_owned();
    failed.errors = 3;
    failed.response = Some(Histogram::new());
    rows.push(failed);
    let (_, results) = sum(vec![task(1, 0, 10 * S)], &rows);
    let of = |op: &str| results.ops.iter().find(|one| one.op == op).unwrap();
    assert!(of("read").response.is_none());
    assert_eq!(of("write").response.as_ref().unwrap().count(), 1000);
}

#[test]
fn one_task_from_its_last_worker_s_start_to_its_first_worker_s_end() {
    let mut one = task(1, 0, 10 * S);
    one.first_done_us = Some(T0 + 8 * S);
    let (grid, results) = sum(vec![one], &steady(1, 0..10, 100));
    assert_eq!(grid.len(), 10);
    let write = &results.ops[0];
    assert_eq!((write.ops, write.bytes, write.errors), (1000, 4_096_000, 0));
    assert_eq!(write.headline, Headline::Window);
    assert_eq!(write.window_us, Some(8 * S));
    assert_eq!(write.window_ops, Some(800.0));
    assert_eq!(write.window_ops_error, Some(0.0));
    assert_eq!(write.ops_per_s, Some(100.0));
    assert_eq!(write.bytes_per_s, Some(409_600.0));
    assert_eq!(write.last_done_us, Some(10 * S));
    assert_eq!(write.last_done_ops_per_s, Some(100.0));
    assert_eq!(results.last_done, Some(MeshMicros(T0 + 10 * S)));
    assert!(results.flags.is_empty(), "{:?}", results.flags);
}

#[test]
fn a_slow_starter_and_a_fast_finisher_narrow_the_window() {
    // All-active from 0.5 s to 6.25 s of 10 s: 5.75 s.
    let tasks = vec![task(1, 500_000, 10 * S), task(2, 0, 6 * S + 250_000)];
    let mut intervals = steady(1, 0..10, 100);
    intervals.extend(steady(2, 0..6, 100));
    let mut last = interval(2, 6, 25);
    last.span_us = 250_000;
    intervals.push(last);
    let (_, results) = sum(tasks, &intervals);
    let write = &results.ops[0];
    assert_eq!(write.window_us, Some(5_750_000));
    // Both: half of the first second, five whole ones; then a quarter of task 1's and all of task 2's last part.
    assert_eq!(write.window_ops, Some(50.0 + 50.0 + 1000.0 + 25.0 + 25.0));
    assert_eq!(write.ops_per_s, Some(1150.0 / 5.75));
    assert_eq!(write.last_done_ops_per_s, Some((1000.0 + 625.0) / 10.0));
    let error = write.window_ops_error.unwrap();
    assert!(error > 0.0 && error <= 50.0 + 50.0 + 75.0, "{error}");
}

#[test]
fn the_error_of_an_edge_is_what_the_workers_could_have_done() {
    // 100 operations of 1 ms by one worker; the window leaves out the first millisecond: at most 2 can be in it.
    let one = interval(1, 0, 100);
    let window = (T0 + 1000, T0 + 5 * S);
    let part = share(&one, 1, None, window);
    assert!((part.ops - 99.9).abs() < 1e-9);
    assert!((part.ops_error - 1.9).abs() < 1e-9, "{}", part.ops_error);
    assert!((part.bytes - 99.9 * 4096.0).abs() < 1e-3);
    assert!((part.bytes_error - 1.9 * 4096.0).abs() < 1e-3);
    let outside = share(&one, 1, None, (T0 + S, T0 + 5 * S));
    assert_eq!((outside.ops, outside.ops_error), (0.0, 0.0));
    let inside = share(&one, 1, None, (T0, T0 + S));
    assert_eq!((inside.ops, inside.ops_error), (100.0, 0.0));
}

#[test]
fn tasks_that_never_met_are_never_summed() {
    let mut late = task(2, 0, 20 * S);
    late.skew_us = Some(12 * S);
    let tasks = vec![task(1, 0, 10 * S), late];
    let mut intervals = steady(1, 0..10, 100);
    intervals.extend(steady(2, 12..20, 100));
    let (_, results) = sum(tasks, &intervals);
    let write = &results.ops[0];
    assert_eq!(write.ops, 1800, "what was done is a fact all the same");
    assert_eq!(write.headline, Headline::None);
    assert_eq!(write.ops_per_s, None);
    assert_eq!(write.last_done_ops_per_s, None);
    assert_eq!(write.window_us, None);
    assert_eq!(results.flags, [Flag::NoOverlap]);
    // Each group has its own rate.
    assert_eq!(results.tasks[0].ops_per_s, Some(100.0));
}

#[test]
fn the_ramp_is_on_the_grid_and_in_no_figure() {
    let mut intervals = steady(1, 0..10, 100);
    for ramp in &mut intervals[..2] {
        ramp.ramp = true;
        ramp.service.record(3_000_000_000);
    }
    let mut one = task(1, 0, 10 * S);
    one.ramp_us = 2 * S;
    let (grid, results) = sum(vec![one], &intervals);
    assert_eq!(grid.iter().filter(|one| one.ramp).count(), 2);
    let write = &results.ops[0];
    assert_eq!(write.ops, 800);
    assert_eq!(write.service.max_ns(), 1_000_000);
    assert_eq!(write.window_us, Some(8 * S));
    assert_eq!(write.ops_per_s, Some(100.0));
    assert_eq!(write.last_done_us, Some(8 * S));
    assert_eq!(results.measured_from, Some(MeshMicros(T0 + 2 * S)));
}

#[test]
fn groups_are_counted_apart_over_the_time_in_which_both_were_at_work() {
    let grouped = |mut task: TaskFacts, group: &str| {
        task.group = group.to_owned();
        task
    };
    // Readers 0 to 10 s at 100 per second; the writer starts a second late, does 10 per second and ends at 8 s.
    let mut writer = grouped(task(3, S, 8 * S), "w");
    writer.workers = 2;
    let tasks = vec![
        grouped(task(1, 0, 10 * S), "r"),
        grouped(task(2, 0, 10 * S), "r"),
        writer,
    ];
    let mut intervals = steady(1, 0..10, 100);
    intervals.extend(steady(2, 0..10, 100));
    intervals.extend(steady(3, 1..8, 10));
    for interval in &mut intervals {
        interval.group = if interval.task == TaskId(3) { "w" } else { "r" }.to_owned();
    }
    intervals.sort_by_key(|interval| interval.at_us);
    let (grid, results) = sum(tasks, &intervals);
    let [read, write] = results.ops.as_slice() else {
        panic!("{:?}", results.ops)
    };
    assert_eq!((read.group.as_str(), read.tasks, read.ops), ("r", 2, 2000));
    assert_eq!((write.group.as_str(), write.tasks, write.ops), ("w", 1, 70));
    assert_eq!(
        (read.window_us, write.window_us),
        (Some(7 * S), Some(7 * S))
    );
    assert_eq!((read.ops_per_s, write.ops_per_s), (Some(200.0), Some(10.0)));
    // Up to the end of its own last worker.
    assert_eq!(read.last_done_ops_per_s, Some(200.0));
    assert_eq!(write.last_done_ops_per_s, Some(70.0 / 8.0));
    let in_second = |second: i64| {
        let there = grid.iter().filter(|one| one.at_us == T0 + second * S);
        there
            .map(|one| (one.group.as_str(), one.tasks, one.ops))
            .collect::<Vec<_>>()
    };
    assert_eq!(in_second(0), [("r", 2, 200)]);
    assert_eq!(in_second(5), [("r", 2, 200), ("w", 1, 10)]);
}

#[test]
fn one_after_the_other_the_window_begins_with_the_last_and_a_ramp_is_each_one_s_own() {
    // Starts at 0, 2 and 4 s; a ramp of 1.5 s each; all end at 12 s.
    let staggered = |id: i64| {
        let mut one = task(id, 0, 12 * S);
        one.start_us = Some(T0 + (id - 1) * 2 * S);
        one.ramp_us = S * 3 / 2;
        one
    };
    let mut intervals = Vec::new();
    for id in 1..=3 {
        let start = (id - 1) * 2;
        for second in start..12 {
            let mut one = interval(id, second, 100);
            one.ramp = second <= start + 1;
            if second == start + 1 {
                // The ramp ends within this second: each part gets its own half.
                one.ops = 50;
                intervals.push(IntervalFacts {
                    ramp: false,
                    ..one.clone()
                });
            }
            intervals.push(one);
        }
    }
    intervals.sort_by_key(|one| one.at_us);
    let (_, results) = sum((1..=3).map(staggered).collect(), &intervals);
    let write = &results.ops[0];
    assert_eq!(results.measured_from, Some(MeshMicros(T0 + S * 3 / 2)));
    assert_eq!(
        results.all_active,
        Some((MeshMicros(T0 + S * 11 / 2), MeshMicros(T0 + 12 * S)))
    );
    assert_eq!(write.window_ops, Some(3.0 * 650.0));
    assert_eq!(write.ops_per_s, Some(300.0));
    // 10.5, 8.5 and 6.5 s of 100 per second, within 10.5 s.
    assert_eq!(write.ops, 2550);
    assert_eq!(write.last_done_ops_per_s, Some(2550.0 / 10.5));
    assert_eq!(results.tasks[2].busy_us, Some(S * 13 / 2));
}

#[test]
fn a_lost_task_ends_where_it_was_last_heard_of() {
    let mut lost = task(2, 0, 0);
    lost.state = TaskState::Lost;
    lost.first_done_us = None;
    lost.ended_us = None;
    lost.last_interval_us = Some(T0 + 6 * S);
    let mut intervals = steady(1, 0..10, 100);
    intervals.extend(steady(2, 0..6, 100));
    let (grid, results) = sum(vec![task(1, 0, 10 * S), lost.clone()], &intervals);
    assert_eq!((grid[0].ops, grid[9].ops), (200, 100));
    let write = &results.ops[0];
    // The window, its rate and its seconds are those of the remaining client; the other's work counts in the totals.
    assert_eq!((write.ops, write.window_us), (1600, Some(10 * S)));
    assert_eq!(write.ops_per_s, Some(100.0));
    let seconds = write.seconds.unwrap();
    assert_eq!((seconds.count, seconds.zero), (10, 0));
    assert_eq!((seconds.ops.min, seconds.ops.max), (100.0, 100.0));
    assert_eq!(results.tasks[1].busy_us, Some(6 * S));
    assert_eq!(results.flags, [Flag::Partial]);
    // If no client stayed, the window covers the known part.
    let mut failed = task(1, 0, 8 * S);
    failed.state = TaskState::Failed;
    let (_, results) = sum(vec![failed, lost], &intervals);
    assert_eq!(results.ops[0].window_us, Some(6 * S));
}

#[test]
fn a_client_that_fails_at_once_does_not_take_the_headline_of_the_others() {
    // It ended 30 us after its start, before another's last worker started.
    let mut failed = task(2, 0, 30);
    failed.state = TaskState::Failed;
    let tasks = vec![task(1, 90, 10 * S), failed, task(3, 40, 10 * S)];
    let mut intervals = steady(1, 0..10, 100);
    intervals.extend(steady(3, 0..10, 100));
    intervals.sort_by_key(|one| one.at_us);
    let (_, results) = sum(tasks, &intervals);
    let write = &results.ops[0];
    assert_eq!(write.headline, Headline::Window);
    assert!((write.ops_per_s.unwrap() - 200.0).abs() < 0.01, "{write:?}");
    assert_eq!(results.flags, [Flag::Partial]);
}

#[test]
fn the_error_of_bytes_at_an_edge_is_that_of_the_time_beyond_it() {
    // 114 MB in a second of one long operation, of which the last worker's start leaves out 115 us.
    let mut one = interval(1, 0, 0);
    one.bytes = 114_000_000;
    one.in_flight = 1;
    let part = share(&one, 1, None, (T0 + 115, T0 + 5 * S));
    assert!((part.bytes - 114e6).abs() < 20_000.0, "{part:?}");
    assert!(
        (part.bytes_error - 114e6 * 115e-6 * 10.0).abs() < 1.0,
        "{part:?}"
    );
    // With half of the second outside, any of it may be.
    let part = share(&one, 1, None, (T0 + S / 2, T0 + 5 * S));
    assert!((part.bytes_error - 57e6).abs() < 1.0, "{part:?}");
}

#[test]
fn a_task_that_never_started_is_partial_and_narrows_nothing() {
    let mut never = task(2, 0, 0);
    never.start_us = None;
    never.ended_us = None;
    never.state = TaskState::Failed;
    let (_, results) = sum(vec![task(1, 0, 4 * S), never], &steady(1, 0..4, 100));
    assert_eq!(results.ops[0].ops_per_s, Some(100.0));
    assert_eq!(results.flags, [Flag::Partial]);
}

#[test]
fn percentiles_come_from_the_merged_histogram_and_not_from_percentiles() {
    // 990 fast operations of one task and 10 slow ones of the other: p50 fast, p999 slow, mean exact.
    let mut fast = interval(1, 0, 0);
    let mut slow = interval(2, 0, 0);
    for _ in 0..990 {
        fast.service.record(1_000);
    }
    for _ in 0..10 {
        slow.service.record(1_000_000);
    }
    fast.ops = 990;
    slow.ops = 10;
    let (grid, results) = sum(vec![task(1, 0, 4 * S), task(2, 0, 4 * S)], &[fast, slow]);
    let service = &results.ops[0].service;
    assert_eq!(service.count(), 1000);
    assert!(service.quantile(0.5) <= 1_008);
    assert!(service.quantile(0.999) >= 1_000_000);
    assert_eq!(service.mean_ns(), 10_990.0);
    assert_eq!(grid.len(), 1);
    assert_eq!((grid[0].tasks, grid[0].ops), (2, 1000));
}

#[test]
fn instants_off_the_grid_by_a_little_belong_to_the_nearest_line() {
    let mut early = interval(1, 3, 10);
    early.at_us -= 40;
    let mut late = interval(2, 3, 20);
    late.at_us += 70;
    let next = interval(1, 4, 5);
    let (grid, _) = sum(
        vec![task(1, 0, 5 * S), task(2, 0, 5 * S)],
        &[early, late, next],
    );
    let found: Vec<(i64, i64)> = grid.iter().map(|one| (one.at_us, one.ops)).collect();
    assert_eq!(found, [(T0 + 3 * S, 30), (T0 + 4 * S, 5)]);
}

#[test]
fn a_second_that_a_ramp_ends_in_has_both_its_parts_at_the_true_rate() {
    let mut all = steady(1, 0..4, 100);
    let mut rest = all[1].clone();
    (all[1].span_us, all[1].ops) = (700_000, 70);
    (rest.at_us, rest.span_us, rest.ops) = (T0 + S + 700_000, 300_000, 30);
    all.insert(2, rest);
    (all[0].ramp, all[1].ramp) = (true, true);
    let (grid, _) = sum(vec![task(1, 0, 4 * S)], &all);
    let found: Vec<(i64, i64, i64, bool)> = grid
        .iter()
        .map(|one| (one.at_us - T0, one.span_us, one.ops, one.ramp))
        .collect();
    assert_eq!(
        found,
        [
            (0, S, 100, true),
            (S, 700_000, 70, true),
            (1_700_000, 300_000, 30, false),
            (2 * S, S, 100, false),
            (3 * S, S, 100, false),
        ]
    );
}

#[test]
fn a_task_that_starts_between_two_seconds_does_not_join_them() {
    // The second task starts half a second later, and ends in its third second with the first one.
    let mut staggered = task(2, 0, 3 * S);
    staggered.start_us = Some(T0 + S / 2);
    let mut all = steady(1, 0..3, 100);
    for second in 0..3 {
        let mut one = interval(2, second, 40);
        one.at_us += S / 2;
        all.push(one);
    }
    all[5].ops = 20;
    all.sort_by_key(|one| one.at_us);
    let (grid, results) = sum(vec![task(1, 0, 3 * S), staggered], &all);
    let found: Vec<(i64, i64, u32, i64)> = grid
        .iter()
        .map(|one| ((one.at_us - T0) / S, one.span_us, one.tasks, one.ops))
        .collect();
    assert_eq!(found, [(0, S, 2, 140), (1, S, 2, 140), (2, S, 2, 120)]);
    let seconds = results.ops[0].seconds.unwrap();
    assert_eq!(
        (seconds.count, seconds.ops.min, seconds.ops.max),
        (2, 120.0, 140.0)
    );
}

#[test]
fn a_wide_interval_widens_what_it_overlaps() {
    let mut wide = interval(1, 1, 30);
    wide.span_us = 3 * S;
    let mut all = steady(2, 0..6, 10);
    all.insert(1, wide);
    let (grid, results) = sum(vec![task(1, 0, 6 * S), task(2, 0, 6 * S)], &all);
    let found: Vec<(i64, i64, i64)> = grid
        .iter()
        .map(|one| ((one.at_us - T0) / S, one.span_us / S, one.ops))
        .collect();
    assert_eq!(found, [(0, 1, 10), (1, 3, 60), (4, 1, 10), (5, 1, 10)]);
    assert_eq!(results.ops[0].ops, 90);
}
