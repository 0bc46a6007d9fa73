//! The conditions that raise each flag.

use super::*;

#[test]
fn short_windows_do_not_lead() {
    for (skew, ended, other_ended, headline) in [
        // 2.4 s are less than two and a half intervals.
        (0, 2_400_000, 2_400_000, Headline::LastDone),
        (0, 3 * S, 3 * S, Headline::Window),
        // 4.9 s of 10 s are less than half.
        (100_000, 5 * S, 10 * S, Headline::LastDone),
        (0, 5 * S, 10 * S, Headline::Window),
    ] {
        let tasks = vec![task(1, skew, ended), task(2, 0, other_ended)];
        let mut intervals = steady(1, 0..ended / S, 100);
        intervals.extend(steady(2, 0..other_ended / S, 100));
        let (_, results) = sum(tasks, &intervals);
        let write = &results.ops[0];
        let case = (skew, ended, other_ended);
        assert_eq!(write.headline, headline, "{case:?}");
        let short = headline == Headline::LastDone;
        assert_eq!(
            results.flags.contains(&Flag::WindowShort),
            short,
            "{case:?}"
        );
        if short {
            assert_eq!(write.ops_per_s, write.last_done_ops_per_s, "{case:?}");
        }
    }
}

#[test]
fn the_tool_is_flagged_when_it_is_the_bottleneck() {
    for (harness_ns, wait_us, raised) in [
        // 1000 operations in 10 s of one worker: 20 % are 2 ms each; 10 % are 1 s.
        (2_000_000, 0, [false, false]),
        (2_000_001, 0, [true, false]),
        (0, S, [false, false]),
        (0, S + 1, [false, true]),
    ] {
        let mut one = task(1, 0, 10 * S);
        one.harness_ns_per_op = Some(harness_ns);
        one.wait_cpu_us = Some(wait_us);
        let (_, results) = sum(vec![one], &steady(1, 0..10, 100));
        let flagged = [Flag::ToolBound, Flag::CpuShort].map(|flag| results.flags.contains(&flag));
        assert_eq!(flagged, raised, "{harness_ns} {wait_us}");
    }
}

#[test]
fn a_start_that_is_known_badly_is_flagged_where_clients_started_together() {
    for (agents, error_us, unsure) in [
        ([1, 2], S / 5, false),
        ([1, 2], S / 5 + 1, true),
        // A single agent has no other to start together with.
        ([1, 1], S, false),
    ] {
        let tasks = [1, 2].map(|id| {
            let mut one = task(id, 0, 4 * S);
            one.agent = AgentId(agents[usize::try_from(id).unwrap() - 1]);
            // The worst error counts, whatever the skew.
            one.skew_us = Some(if id == 1 { 0 } else { 90 });
            one.skew_error_us = Some(if id == 1 { error_us } else { 1 });
            one
        });
        let intervals = [steady(1, 0..4, 100), steady(2, 0..4, 100)].concat();
        let (_, results) = sum(tasks.to_vec(), &intervals);
        let flagged = results.flags.contains(&Flag::StartUnsure);
        assert_eq!(flagged, unsure, "{agents:?} {error_us}");
        assert_eq!(results.skew_error_us, Some(error_us));
    }
}

#[test]
fn an_agent_that_moved_what_its_policy_allows_is_flagged() {
    // 100 operations per second.
    let bytes_per_s: i64 = {
        let (_, results) = sum(vec![task(1, 0, 4 * S)], &steady(1, 0..4, 100));
        results.tasks[0].bytes / 4
    };
    assert!(bytes_per_s > 0);
    for (limit, bound) in [
        (None, false),
        (Some(bytes_per_s), true),
        (Some(bytes_per_s * 2), false),
    ] {
        let mut one = task(1, 0, 4 * S);
        one.rate_limit_bytes_per_s = limit;
        let (_, results) = sum(vec![one], &steady(1, 0..4, 100));
        let flagged = results.flags.contains(&Flag::PolicyBound);
        assert_eq!(flagged, bound, "{limit:?}");
    }
}

#[test]
fn a_step_of_which_most_failed_has_failed() {
    for (ops, errors, failed) in [
        (100, 0, false),
        (100, 400, false),
        (100, 401, true),
        (0, 1, true),
    ] {
        let mut intervals = steady(1, 0..4, ops);
        intervals[1].errors = errors;
        let (_, results) = sum(vec![task(1, 0, 4 * S)], &intervals);
        let flagged = results.flags.contains(&Flag::MostlyFailed);
        assert_eq!(flagged, failed, "{ops} {errors}");
    }
}

#[test]
fn errors_and_saturation_are_flagged() {
    let mut intervals = steady(1, 0..4, 100);
    intervals[1].errors = 3;
    intervals[2].service.record(2 * 3_600_000_000_000);
    let (_, results) = sum(vec![task(1, 0, 4 * S)], &intervals);
    assert_eq!(results.flags, [Flag::Errors, Flag::Saturated]);
    assert_eq!(results.ops[0].errors, 3);
}

#[test]
fn nothing_at_all_is_no_data() {
    let (grid, results) = sum(vec![], &[]);
    assert!(grid.is_empty());
    assert_eq!(results.flags, [Flag::NoData]);
    assert_eq!(results.all_active, None);
}

#[test]
fn a_read_faster_than_the_wire_is_suspect() {
    // Each task reads 100 times 4 KiB in a second, for four seconds.
    let read = |task: i64, second: i64| IntervalFacts {
        op: "read".to_owned(),
        ..interval(task, second, 100)
    };
    let suspect = |link: Option<i64>, tasks: &[i64], op: &str| {
        let facts = tasks.iter().map(|id| TaskFacts {
            link_bytes_per_s: link,
            ..task(*id, 0, 4 * S)
        });
        let intervals: Vec<IntervalFacts> = (0..4)
            .flat_map(|second| tasks.iter().map(move |id| (*id, second)))
            .map(|(id, second)| IntervalFacts {
                op: op.to_owned(),
                ..read(id, second)
            })
            .collect();
        let (_, results) = sum(facts.collect(), &intervals);
        results.flags.contains(&Flag::CacheSuspect)
    };
    let rate = 100 * 4096;
    assert!(!suspect(Some(rate), &[1], "read"));
    assert!(suspect(Some(rate - 1), &[1], "read"));
    // Two tasks of one agent share its network link; without a link there is no suspicion.
    assert!(suspect(Some(rate), &[1, 2], "read"));
    assert!(!suspect(Some(rate), &[1], "write"));
    assert!(suspect(Some(rate - 1), &[1], "write"));
    assert!(suspect(Some(rate - 1), &[1], "seek"));
    assert!(!suspect(Some(rate - 1), &[1], "stat"));
    assert!(!suspect(None, &[1], "read"));
}

#[test]
fn copies_cross_the_wire_in_the_direction_of_their_mode() {
    for (mode, expected) in [
        ("out", true),
        ("in", true),
        ("overwrite", true),
        ("list", false),
    ] {
        let one = TaskFacts {
            link_bytes_per_s: Some(100 * 4096 - 1),
            mode: mode.to_owned(),
            ..task(1, 0, 4 * S)
        };
        let intervals: Vec<IntervalFacts> = (0..4)
            .map(|second| IntervalFacts {
                op: "copy".to_owned(),
                ..interval(1, second, 100)
            })
            .collect();
        let (_, results) = sum(vec![one], &intervals);
        let flagged = results.flags.contains(&Flag::CacheSuspect);
        assert_eq!(flagged, expected, "{mode}");
    }
}

#[test]
fn a_paced_load_is_held_against_its_schedule_and_not_against_the_tool() {
    for (per_second, arrivals, behind) in [
        (100.0, Arrivals::Even, false),
        // 1000 of 1020 due operations were done.
        (102.0, Arrivals::Even, true),
        (102.0, Arrivals::Poisson, false),
        (130.0, Arrivals::Poisson, true),
    ] {
        let mut one = task(1, 0, 10 * S);
        one.harness_ns_per_op = Some(9_000_000);
        one.paced = Some(Paced {
            per_second,
            unit: PacedUnit::Operations,
            arrivals,
        });
        let (_, results) = sum(vec![one], &steady(1, 0..10, 100));
        let case = (per_second, arrivals);
        let flagged = results.flags.contains(&Flag::BehindSchedule);
        assert_eq!(flagged, behind, "{case:?}");
        assert!(!results.flags.contains(&Flag::ToolBound), "{case:?}");
    }
}

#[test]
fn a_paced_load_without_a_cpu_is_flagged() {
    for (wait_us, flagged) in [
        // 1000 operations of 1 ms in 10 s: every wake-up takes a little.
        (0, false),
        (150_000, false),
        (2 * S, true),
        (9 * S, true),
    ] {
        let mut one = task(1, 0, 10 * S);
        one.wait_cpu_us = Some(wait_us);
        one.paced = Some(Paced {
            per_second: 100.0,
            unit: PacedUnit::Operations,
            arrivals: Arrivals::Even,
        });
        let (_, results) = sum(vec![one], &steady(1, 0..10, 100));
        let found = results.flags.contains(&Flag::CpuShort);
        assert_eq!(found, flagged, "{wait_us}");
        assert!(!results.flags.contains(&Flag::BehindSchedule), "{wait_us}");
    }
}

#[test]
fn bytes_that_are_due_count_and_so_does_being_late() {
    let paced = |bytes_per_second: f64| Paced {
        per_second: bytes_per_second,
        unit: PacedUnit::Bytes,
        arrivals: Arrivals::Even,
    };
    for (rate, late_ns, behind) in [
        (409_600.0, 0, false),
        (450_000.0, 0, true),
        (409_600.0, 200_000_000, true),
        (409_600.0, 50_000_000, false),
    ] {
        let mut one = task(1, 0, 10 * S);
        one.paced = Some(paced(rate));
        let mut intervals = steady(1, 0..10, 100);
        for interval in &mut intervals {
            let mut response = Histogram::new();
            for _ in 0..100 {
                response.record(1_000_000 + late_ns);
            }
            interval.response = Some(response);
        }
        let (_, results) = sum(vec![one], &intervals);
        let flagged = results.flags.contains(&Flag::BehindSchedule);
        assert_eq!(flagged, behind, "{rate} {late_ns}");
    }
}

#[test]
fn direct_writes_faster_than_the_round_trip_are_suspect() {
    // Each takes 1 ms.
    for (direct, round_trip_ns, op, expected) in [
        (true, Some(2_000_000), "write", true),
        (true, Some(500_000), "write", false),
        (false, Some(2_000_000), "write", false),
        (true, None, "write", false),
        (true, Some(2_000_000), "read", false),
    ] {
        let one = TaskFacts {
            direct,
            round_trip_ns,
            ..task(1, 0, 4 * S)
        };
        let intervals: Vec<IntervalFacts> = (0..4)
            .map(|second| IntervalFacts {
                op: op.to_owned(),
                ..interval(1, second, 100)
            })
            .collect();
        let (_, results) = sum(vec![one], &intervals);
        let flagged = results.flags.contains(&Flag::AckSuspect);
        assert_eq!(flagged, expected, "{direct} {round_trip_ns:?} {op}");
    }
}
