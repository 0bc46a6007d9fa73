//! A client that was lost and rejoined its step: its parts are one client, with a gap outside of the window.

use super::*;

/// Client 2 works until 4 s, is away until 12 s, and continues to the end at 20 s.
fn tasks() -> Vec<TaskFacts> {
    let lost = TaskFacts {
        state: TaskState::Lost,
        ended_us: None,
        first_done_us: None,
        last_interval_us: Some(T0 + 4 * S),
        ..task(2, 0, 0)
    };
    let back = TaskFacts {
        task: TaskId(3),
        part: 2,
        start_us: Some(T0 + 12 * S),
        ..task(2, 0, 20 * S)
    };
    vec![task(1, 0, 20 * S), lost, back]
}

fn intervals() -> Vec<IntervalFacts> {
    let seconds = |task: i64, from: i64, until: i64| {
        (from..until).map(move |second| interval(task, second, 100))
    };
    let mut all: Vec<IntervalFacts> = seconds(1, 0, 20)
        .chain(seconds(2, 0, 4))
        .chain(seconds(3, 12, 20))
        .collect();
    all.sort_by_key(|interval| interval.at_us);
    all
}

#[test]
fn the_window_is_the_longest_time_without_a_gap() {
    let (_, results) = sum(tasks(), &intervals());
    let window = results.all_active.map(|(from, until)| (from.0, until.0));
    assert_eq!(window, Some((T0 + 12 * S, T0 + 20 * S)));
    let write = &results.ops[0];
    assert_eq!(write.headline, Headline::Window);
    assert_eq!(write.ops, 3200);
    assert_eq!(
        (write.window_ops, write.ops_per_s),
        (Some(1600.0), Some(200.0))
    );
    let seconds = write.seconds.unwrap();
    assert_eq!((seconds.count, seconds.zero), (8, 0));
    assert_eq!((seconds.ops.min, seconds.ops.max), (200.0, 200.0));
    assert_eq!(write.tasks, 2, "its parts are one client");
    assert!(results.flags.contains(&Flag::Partial));
    assert!(!results.flags.contains(&Flag::NoOverlap));
    assert!(!results.flags.contains(&Flag::WindowShort));
}

#[test]
fn clients_that_are_away_at_different_times_leave_what_is_between() {
    let mut tasks = tasks();
    // Client 1 is away from 14 s to 15 s: the longest time is that from 15 s on.
    tasks[0] = TaskFacts {
        state: TaskState::Lost,
        ended_us: None,
        first_done_us: None,
        last_interval_us: Some(T0 + 14 * S),
        ..task(1, 0, 0)
    };
    tasks.push(TaskFacts {
        task: TaskId(4),
        client: 1,
        part: 2,
        start_us: Some(T0 + 15 * S),
        ..task(4, 0, 20 * S)
    });
    let mut all = intervals();
    all.retain(|one| one.task != TaskId(1) || one.at_us != T0 + 14 * S);
    for one in all.iter_mut().filter(|one| one.task == TaskId(1)) {
        if one.at_us >= T0 + 15 * S {
            one.task = TaskId(4);
        }
    }
    let (_, results) = sum(tasks, &all);
    let window = results
        .all_active
        .map(|(from, until)| (from.0 - T0, until.0 - T0));
    assert_eq!(window, Some((15 * S, 20 * S)));
    assert_eq!(results.ops[0].ops_per_s, Some(200.0));
}

#[test]
fn a_client_that_did_not_come_back_is_not_in_the_window() {
    let mut tasks = tasks();
    // The second part began and was lost as well.
    tasks[2].state = TaskState::Lost;
    tasks[2].ended_us = None;
    tasks[2].last_interval_us = Some(T0 + 15 * S);
    let (_, results) = sum(tasks, &intervals());
    let rate = results.ops[0].ops_per_s.unwrap();
    assert!((rate - 100.0).abs() < 1e-6, "{rate}");
    assert_eq!(results.ops[0].ops, 3200, "all that was done stays");
}

/// Consecutive parts do not move twice as much per second.
#[test]
fn rates_of_parts_are_not_added() {
    let tasks = tasks().into_iter().map(|task| TaskFacts {
        rate_limit_bytes_per_s: Some(120 * 4096),
        ..task
    });
    let (_, results) = sum(tasks.collect(), &intervals());
    let per_client = results.tasks.iter().filter_map(|task| task.bytes_per_s);
    assert!(per_client.sum::<f64>() > 0.0);
    let together = results.flags.contains(&Flag::PolicyBound);
    // Both clients belong to the one agent of these tests.
    assert!(together);
    let other_agents = self::tasks().into_iter().map(|task| TaskFacts {
        rate_limit_bytes_per_s: Some(120 * 4096),
        agent: AgentId(i64::from(task.client)),
        ..task
    });
    let (_, results) = sum(other_agents.collect(), &intervals());
    assert!(!results.flags.contains(&Flag::PolicyBound));
}
