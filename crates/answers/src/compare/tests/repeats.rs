//! Sides with several repeats and runs, and events that affected them.

use super::*;
use benchmesh_workloads::histogram::Histogram;

/// Repeats of one run with these rates.
fn repeats(rates: &[f64], run: i64) -> Vec<MeasuredCell> {
    let cells = (1..).zip(rates).map(|(repeat, rate)| MeasuredCell {
        run,
        repeat,
        ..cell("4k", *rate, 1)
    });
    cells.collect()
}

/// The sides are two runs, not targets.
fn runs_compared(a: Vec<MeasuredCell>, b: Vec<MeasuredCell>) -> CompareAnswer {
    let side = |label: &str, cells: &[MeasuredCell]| -> Side {
        let mut ids: Vec<i64> = cells.iter().map(|cell| cell.run).collect();
        ids.dedup();
        Side {
            target: None,
            runs: ids.into_iter().map(run).collect(),
            ..side(label)
        }
    };
    let (side_a, side_b) = (side("run 1", &a), side("run 2", &b));
    judge::answer(vec![((side_a, a), (side_b, b))], &[])
}

fn first(answer: &CompareAnswer) -> String {
    told(answer).swap_remove(0)
}

#[test]
fn the_known_regression_is_found_and_fails() {
    let answer = runs_compared(
        repeats(&[729.0, 711.0, 700.0], 1),
        repeats(&[648.0, 631.0, 623.0], 2),
    );
    assert_eq!(verdicts(&answer), [(FigureName::Ops, Verdict::Slower)]);
    assert_eq!(holds("ops < -5%", &answer), (1, false));
    assert_eq!(
        first(&answer),
        "records randwrite write: run 2 is 11 % slower than run 1 (634 against 713 ops/s; 6.9 to 15 %): likely, one run each"
    );
}

/// Adding data must not hide a difference that fewer data show.
#[test]
fn a_twelve_fold_difference_comes_out_of_any_number_of_repeats() {
    for repeats_each in 1..=3 {
        let rates = |level: f64| -> Vec<f64> {
            [1.0, 1.3, 0.85]
                .iter()
                .take(repeats_each)
                .map(|noise| level * noise)
                .collect()
        };
        let answer = compared(repeats(&rates(100.0), 1), repeats(&rates(1200.0), 1));
        let line = first(&answer);
        let expected = "records randwrite write: cephfs is 12 times faster than gluster (";
        assert!(line.starts_with(expected), "{repeats_each}: {line}");
        let trust = match repeats_each {
            1 => ": likely, one repeat each",
            _ => ": proven",
        };
        assert!(line.ends_with(trust), "{repeats_each}: {line}");
    }
}

/// Whatever the scatter, a large difference is told with its size, its direction and its interval.
#[test]
fn a_large_difference_is_told_in_the_direction_of_the_faster_side() {
    let (slow, fast) = ([42.0, 7.0], [900.0, 450.0]);
    let answer = compared(repeats(&fast, 1), repeats(&slow, 1));
    assert_eq!(
        verdicts(&answer),
        [(FigureName::Ops, Verdict::TooFewRepeats)]
    );
    let line = first(&answer);
    let expected = "records randwrite write: gluster is 37 times faster than cephfs (636 against 17.1 ops/s; 0.6 to ";
    assert!(line.starts_with(expected), "{line}");
    assert!(line.ends_with(": likely, 2 repeats each"), "{line}");
    let answer = compared(repeats(&slow, 1), repeats(&fast, 1));
    let line = first(&answer);
    let expected = "records randwrite write: cephfs is 37 times faster than gluster (636 against 17.1 ops/s; 0.6 to ";
    assert!(line.starts_with(expected), "{line}");
    // A ratio of 1/4000 is not 0.00 times.
    let answer = compared(
        repeats(&[4000.0, 4004.0, 3996.0], 1),
        repeats(&[1.0, 1.001, 0.999], 1),
    );
    let line = first(&answer);
    let expected = "records randwrite write: gluster is 4000 times faster than cephfs (4,000 against 1.00 ops/s; ";
    assert!(line.starts_with(expected), "{line}");
    let row = &answer.comparisons[0].rows[0];
    assert_eq!(super::super::words::change(row.ratio), "1/4000 x");
}

/// Per repeat: lost of a million datagrams, and the jitter in milliseconds.
fn link(lost: &[i64], jitter_ms: f64) -> Vec<MeasuredCell> {
    let of = |op: &str, repeat: i64, ops: i64| {
        let mut cell = cell("1448", 100_000.0, 1);
        cell.key.workload = "network".into();
        cell.key.mode = "udp-stream".into();
        cell.key.op = op.into();
        cell.ops_per_s = (ops > 0).then(|| cell.ops_per_s.unwrap() * ops as f64 / 1e6);
        MeasuredCell {
            repeat,
            ops: Some(ops),
            datagrams: 1_000_000,
            ..cell
        }
    };
    let of_repeat = |(repeat, lost): (i64, &i64)| {
        let jitter = MeasuredCell {
            mean_ms: Some(jitter_ms * (1.0 + 0.01 * repeat as f64)),
            response_p99_ms: Some(0.0),
            ..of("jitter", repeat, 100)
        };
        let sent = of("send", repeat, 1_000_000);
        [sent, of("lost", repeat, *lost), jitter]
    };
    (1..).zip(lost).flat_map(of_repeat).collect()
}

/// More datagrams lost a second are no higher rate.
#[test]
fn loss_and_jitter_of_a_link_are_better_if_there_is_less() {
    let judged = |answer: &CompareAnswer| -> Vec<(String, FigureName, Verdict)> {
        let rows = answer.comparisons.iter().flat_map(|one| &one.rows);
        let judged = rows.filter(|row| row.judged);
        judged
            .map(|row| (row.op.clone(), row.figure, row.verdict))
            .collect()
    };
    let little = || link(&[1000, 1010, 990], 0.1);
    let much = || link(&[10_000, 10_100, 9_900], 0.3);
    let worse = compared(little(), much());
    let of = |lost, jitter| {
        [
            (
                "send".to_owned(),
                FigureName::Ops,
                Verdict::NoDifferenceShown,
            ),
            ("lost".to_owned(), FigureName::Share, lost),
            ("jitter".to_owned(), FigureName::Jitter, jitter),
        ]
    };
    assert_eq!(judged(&worse), of(Verdict::Worse, Verdict::Worse));
    assert_eq!(
        judged(&compared(much(), little())),
        of(Verdict::Better, Verdict::Better)
    );
    let lines = told(&worse);
    let expected =
        "records udp-stream lost: gluster has 10 times fewer than cephfs (0.100 against 1.00 %; ";
    assert!(lines[1].starts_with(expected), "{lines:?}");
    assert!(lines[1].ends_with(" times): proven"), "{lines:?}");
    let shown: Vec<&str> = worse.comparisons[0]
        .rows
        .iter()
        .filter(|row| row.op != "send")
        .map(|row| row.figure.as_str())
        .collect();
    assert_eq!(shown, ["share", "jitter"], "no rate and no response time");
    assert_eq!(holds("slower", &worse), (0, false));
    assert_eq!(holds("worse", &worse), (2, false));
    assert_eq!(holds("share > 2x", &worse), (1, false));
    assert_eq!(holds("worse", &compared(much(), little())), (0, false));
    // No loss on both sides is not mentioned; a loss on one side is.
    let none = || link(&[0, 0, 0], 0.1);
    assert_eq!(judged(&compared(none(), none())).len(), 2);
    let begun = compared(none(), much());
    assert_eq!(judged(&begun)[1].2, Verdict::Worse);
    let line = &told(&begun)[1];
    assert!(line.contains(" (0 against 1.00 %; "), "{line}");
}

#[test]
fn two_repeats_that_scatter_say_how_many_more_would_do() {
    let answer = compared(repeats(&[100.0, 125.0], 1), repeats(&[121.0, 99.0], 1));
    assert_eq!(
        verdicts(&answer),
        [(FigureName::Ops, Verdict::TooFewRepeats)]
    );
    let line = first(&answer);
    assert!(line.contains(": cannot tell, "), "{line}");
    assert!(
        line.ends_with(" more repeats would show a difference of 20 %"),
        "{line}"
    );
    let row = &answer.comparisons[0].rows[0];
    assert!(row.high.is_none_or(|high| high < 100.0), "{row:?}");
    assert_eq!(holds("ops < -5%", &answer), (0, true));
}

#[test]
fn a_paced_load_is_judged_by_its_response_time() {
    let paced = |p99_us: u64| -> Vec<MeasuredCell> {
        (1..=3)
            .map(|repeat| {
                let mut response = Histogram::new();
                response.record_many(
                    p99_us * 1000 * (98 + u64::try_from(repeat).unwrap()) / 100,
                    1000,
                );
                MeasuredCell {
                    repeat,
                    response_p99_ms: Some(response.quantile(0.99) as f64 / 1e6),
                    ..cell("4k", 1000.0, 1)
                }
            })
            .collect()
    };
    let answer = compared(paced(2000), paced(5000));
    assert_eq!(verdicts(&answer), [(FigureName::Response, Verdict::Slower)]);
    let line = first(&answer);
    let expected = "records randwrite write: gluster answers 2.5 times sooner than cephfs (";
    assert!(line.starts_with(expected), "{line}");
    let line = first(&compared(paced(2000), paced(2000)));
    assert!(
        line.starts_with("records randwrite write: the same within "),
        "{line}"
    );
}

/// One of two clients did three quarters of the work of both, so each client's rate was half as much again.
#[test]
fn a_run_that_lost_a_client_is_compared_per_client() {
    let whole = repeats(&[100.0, 101.0, 99.0], 1);
    let mut lost = repeats(&[75.0, 76.0, 74.0], 2);
    for cell in &mut lost {
        cell.partial = true;
        cell.flags = vec!["partial".into()];
        cell.rate_clients = 1;
    }
    let answer = runs_compared(whole.clone(), lost.clone());
    assert_eq!(verdicts(&answer), [(FigureName::Ops, Verdict::Faster)]);
    let row = &answer.comparisons[0].rows[0];
    // Python: statistics.geometric_mean([50, 50.5, 49.5]), and of [75, 76, 74]
    assert!((row.a.value - 49.998_333_277_774_7).abs() < 1e-9, "{row:?}");
    assert!(
        (row.b.value - 74.995_555_292_155_07).abs() < 1e-9,
        "{row:?}"
    );
    assert!(
        (row.ratio - row.b.value / row.a.value).abs() < 1e-9,
        "{row:?}"
    );
    assert_eq!(row.unit, "ops/s per client");
    let line = first(&answer);
    let expected = "records randwrite write: run 2 is 50 % faster than run 1 (75.0 against 50.0 ops/s per client; ";
    assert!(line.starts_with(expected), "{line}");
    assert_eq!(caveats(&answer), ["1 load: run 2 is partial"]);
    assert_eq!(holds("ops > +5%", &answer), (1, false));
    // If nothing ran at the same time, a client's share is unknown too.
    lost[1].flags.push("no-overlap".into());
    let answer = runs_compared(whole, lost);
    assert_eq!(
        verdicts(&answer),
        [(FigureName::Ops, Verdict::NotComparable)]
    );
}

#[test]
fn a_run_that_lost_every_client_has_no_rate_of_any() {
    let mut lost = repeats(&[200.0, 201.0, 199.0], 2);
    for cell in &mut lost {
        cell.partial = true;
        cell.rate_clients = 0;
    }
    let answer = runs_compared(repeats(&[100.0, 101.0, 99.0], 1), lost.clone());
    assert_eq!(
        verdicts(&answer),
        [(FigureName::Ops, Verdict::NotComparable)]
    );
    assert_eq!(
        first(&answer),
        "records randwrite write: run 2 200, run 1 100 ops/s: cannot tell, run 2 is partial: its rate does not cover all its clients"
    );
    assert_eq!(holds("ops > +5%", &answer), (0, true));
    // One complete repeat is enough: the others are excluded, which is mentioned.
    lost[0].partial = false;
    let answer = runs_compared(repeats(&[100.0, 101.0, 99.0], 1), lost);
    assert_eq!(
        caveats(&answer)[0],
        "1 load: 2 of 3 repeats of run 2 failed or are partial and are left out"
    );
}

#[test]
fn a_caveat_names_what_happened_while_a_side_ran() {
    let mut disturbed = repeats(&[1400.0, 1410.0, 1390.0], 1);
    disturbed[1].events = vec!["ceph-fuse on e2 has ended".into()];
    let answer = compared(repeats(&[100.0, 101.0, 99.0], 1), disturbed);
    assert_eq!(
        caveats(&answer),
        ["1 load: while cephfs ran: ceph-fuse on e2 has ended"]
    );
}

/// All operations of side B together have the p99 of its one bad repeat, 60 times that of A: that is no difference
/// between the sides, however small the scatter of the others.
#[test]
fn one_bad_repeat_does_not_decide_a_verdict_on_percentiles() {
    let paced = |p99s_us: &[u64]| -> Vec<MeasuredCell> {
        let cells = (1..).zip(p99s_us).map(|(repeat, us)| MeasuredCell {
            repeat,
            response_p99_ms: Some(*us as f64 / 1e3),
            ..cell("4k", 1000.0, 1)
        });
        cells.collect()
    };
    let a = paced(&[500, 505, 495, 500, 502]);
    let b = paced(&[501, 30_000, 499, 503, 500]);
    let answer = compared(a, b);
    assert_eq!(
        verdicts(&answer),
        [(FigureName::Response, Verdict::TooFewRepeats)]
    );
    let mut rows = answer.comparisons[0].rows.iter();
    let row = rows.rfind(|row| row.judged).unwrap();
    assert!((row.ratio - row.b.value / row.a.value).abs() < 1e-9);
    assert!((2.0..2.5).contains(&row.ratio), "{row:?}");
    assert!(row.low.unwrap() < 1.0, "{row:?}");
}

#[test]
fn several_runs_are_not_pooled_as_repeats() {
    // Three repeats each: the four runs drift by 10 %, the repeats within a run hardly at all.
    let of = |levels: &[f64], first: i64| -> Vec<MeasuredCell> {
        (first..)
            .zip(levels)
            .flat_map(|(run, level)| repeats(&[*level, level * 1.001, level * 0.999], run))
            .collect()
    };
    let answer = runs_compared(of(&[100.0, 112.0], 1), of(&[115.0, 104.0], 3));
    assert_eq!(
        verdicts(&answer),
        [(FigureName::Ops, Verdict::TooFewRepeats)]
    );
    assert_eq!(answer.comparisons[0].rows[0].noise.as_deref(), Some("runs"));
}

#[test]
fn a_trend_of_a_few_runs_finds_a_plain_change_or_says_that_they_are_too_few() {
    let history = |rates: &[f64]| -> Vec<(RunRef, Vec<MeasuredCell>)> {
        (1..)
            .zip(rates)
            .map(|(id, rate)| (run(id), vec![cell("4k", *rate, 1)]))
            .collect()
    };
    let rates = [
        100.0, 102.0, 99.0, 101.0, 98.0, 100.5, 99.5, 50.0, 50.5, 49.0,
    ];
    let found = trend::trend("nightly", &history(&rates), &[]);
    let changes = &found.rows[0].changes;
    assert_eq!((changes.len(), changes[0].run.id), (1, RunId(8)));
    let few = trend::trend("nightly", &history(&rates[5..]), &[]);
    assert!(!few.rows[0].is_told && few.rows[0].changes.is_empty());
}
