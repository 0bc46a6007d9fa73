//! Sums are conserved whatever the intervals look like.

use super::*;
use proptest::prelude::*;

prop_compose! {
    fn some_interval()(
        task in 1..4_i64,
        at in 0..30 * S,
        on_grid in prop::bool::weighted(0.7),
        periods in prop_oneof![8 => Just(1_i64), 1 => 2..6_i64],
        part in prop_oneof![8 => Just(0_i64), 1 => 1..S],
        read in any::<bool>(),
        ramp in prop::bool::weighted(0.1),
        ops in 0..50_i64,
        errors in 0..3_i64,
    ) -> IntervalFacts {
        let mut one = interval(task, 0, ops);
        one.at_us = T0 + if on_grid { at / S * S } else { at };
        one.span_us = periods * S - part;
        one.op = if read { "read" } else { "write" }.to_owned();
        one.ramp = ramp;
        one.errors = errors;
        one
    }
}

proptest! {
    #[test]
    fn sums_are_conserved(
        mut intervals in prop::collection::vec(some_interval(), 0..60),
        ends in prop::collection::vec(1..40 * S, 3),
        cut in prop::collection::vec(0..40 * S, 0..4),
    ) {
        intervals.sort_by_key(|one| one.at_us);
        let tasks = (1..).zip(&ends).map(|(id, end)| task(id, 0, *end)).collect();
        let mut sum = StepSum::new(T0, tasks);
        let mut grid = Vec::new();
        let mut cuts = cut;
        cuts.sort_unstable();
        let mut cuts = cuts.into_iter().map(|at| sum.grid().before_a_line(T0 + at)).collect::<Vec<_>>().into_iter().peekable();
        for one in &intervals {
            while let Some(at) = cuts.next_if(|at| *at <= one.at_us) {
                grid.extend(sum.take_before(at));
            }
            sum.add(one);
        }
        let (last, results) = sum.finish();
        grid.extend(last);
        let total = |pick: fn(&IntervalFacts) -> i64, ramp: bool| -> i64 {
            intervals.iter().filter(|one| one.ramp == ramp).map(pick).sum()
        };
        for ramp in [false, true] {
            let on_grid: i64 = grid.iter().filter(|one| one.ramp == ramp).map(|one| one.ops).sum();
            prop_assert_eq!(on_grid, total(|one| one.ops, ramp));
            let counted: u64 = grid.iter().filter(|one| one.ramp == ramp).map(|one| one.service.count()).sum();
            prop_assert_eq!(counted as i64, total(|one| one.ops, ramp));
        }
        let ops: i64 = results.ops.iter().map(|op| op.ops).sum();
        prop_assert_eq!(ops, total(|one| one.ops, false));
        let of_tasks: i64 = results.tasks.iter().map(|one| one.ops).sum();
        prop_assert_eq!(of_tasks, ops);
        let bytes: i64 = results.ops.iter().map(|op| op.bytes).sum();
        prop_assert_eq!(bytes, total(|one| one.bytes, false));
        let errors: i64 = results.ops.iter().map(|op| op.errors).sum();
        prop_assert_eq!(errors, total(|one| one.errors, false));
        for op in &results.ops {
            if let (Some(inside), Some(error)) = (op.window_ops, op.window_ops_error) {
                prop_assert!(inside >= 0.0 && inside <= op.ops as f64 + 1e-6);
                prop_assert!(error >= 0.0 && error <= op.ops as f64 + 1e-6);
            }
        }
        // No two intervals of one operation overlap on the grid.
        for op in ["read", "write"] {
            for ramp in [false, true] {
                let mut of_one: Vec<_> = grid.iter().filter(|one| one.op == op && one.ramp == ramp).collect();
                of_one.sort_by_key(|one| one.at_us);
                for pair in of_one.windows(2) {
                    prop_assert!(pair[0].at_us + pair[0].span_us <= pair[1].at_us);
                }
            }
        }
    }
}
