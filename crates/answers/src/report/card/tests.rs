#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::loads::loads;
use super::*;
use crate::compare::{Comparison, ComparisonRow, FigureName, RunRef, Side, SideValue, Verdict};
use crate::report::{pivot, tests};
use benchmesh_model::mesh::RunId;
use serde_json::Map;

fn side(label: &str) -> Side {
    Side {
        label: label.into(),
        target: Some(label.into()),
        runs: vec![RunRef {
            id: RunId(7),
            name: "nightly".into(),
            state: "done".into(),
            created_us: 0,
            imported_from: None,
        }],
    }
}

fn value(value: f64) -> SideValue {
    SideValue {
        value,
        repeats: 3,
        spread_percent: Some(1.0),
        least: value * 0.99,
        most: value * 1.01,
        steps: vec![1],
    }
}

fn row(phase: &str, figure: FigureName, a: f64, b: f64, verdict: Verdict) -> ComparisonRow {
    let ratio = b / a;
    ComparisonRow {
        phase: phase.into(),
        group: String::new(),
        workload: "io".into(),
        mode: "randwrite".into(),
        op: "write".into(),
        cell: Map::new(),
        figure,
        unit: figure.unit().into(),
        per_client: false,
        daemons: Vec::new(),
        a: value(a),
        b: value(b),
        ratio,
        judged: figure != FigureName::Cpu,
        low: Some(ratio * 0.98),
        high: Some(ratio * 1.02),
        p: Some(0.001),
        p_corrected: Some(0.002),
        noise: Some("pairs".into()),
        effect: None,
        verdict,
        why: None,
        caveats: Vec::new(),
    }
}

fn comparison(a: &str, b: &str, rows: Vec<ComparisonRow>) -> Comparison {
    Comparison {
        a: side(a),
        b: side(b),
        beside: Vec::new(),
        new_findings: Vec::new(),
        rows,
        incomparable: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn the_better_side_is_named_whichever_comes_first() {
    use FigureName::{Ops, Response};
    for (a, b, figure, expected) in [
        (
            100.0,
            2700.0,
            Ops,
            "b is 27 times faster than a (2,700 against 100 ops/s; 26 to 28 times)",
        ),
        (
            2700.0,
            100.0,
            Ops,
            "a is 27 times faster than b (2,700 against 100 ops/s; 26 to 28 times)",
        ),
        (
            1544.0,
            58.0,
            Response,
            "b answers 27 times sooner than a (58.0 against 1,544 ms; 26 to 27 times)",
        ),
        (
            58.0,
            1544.0,
            Response,
            "a answers 27 times sooner than b (58.0 against 1,544 ms; 26 to 27 times)",
        ),
        (
            100.0,
            110.0,
            Ops,
            "b is 10 % faster than a (110 against 100 ops/s; 7.8 to 12 %)",
        ),
        (
            110.0,
            100.0,
            Response,
            "b answers 9.1 % sooner than a (100 against 110 ms; 7.3 to 11 %)",
        ),
    ] {
        let one = comparison(
            "a",
            "b",
            vec![row("p", figure, a, b, figure_verdict(figure, b / a))],
        );
        let load = loads(&[one]).pop().unwrap();
        assert_eq!(
            (load.text.as_str(), load.trust),
            (expected, Some(Trust::Proven))
        );
    }
}

fn figure_verdict(figure: FigureName, ratio: f64) -> Verdict {
    match figure.is_better(ratio, 1.0) {
        true => Verdict::Faster,
        false => Verdict::Slower,
    }
}

#[test]
fn sides_that_cannot_be_told_apart_share_a_rank() {
    let pair = |a: (&str, f64), b: (&str, f64), verdict| {
        comparison(a.0, b.0, vec![row("p", FigureName::Ops, a.1, b.1, verdict)])
    };
    let (disk, ceph, gluster) = (("disk", 50.0), ("ceph", 100.0), ("gluster", 101.0));
    let all = [
        pair(disk, ceph, Verdict::Faster),
        pair(disk, gluster, Verdict::Faster),
        pair(ceph, gluster, Verdict::NoDifferenceShown),
    ];
    let load = loads(&all).pop().unwrap();
    let ranks: Vec<(&str, usize)> = load
        .sides
        .iter()
        .map(|side| (side.label.as_str(), side.rank))
        .collect();
    assert_eq!(ranks, [("gluster", 1), ("ceph", 1), ("disk", 3)]);
    assert_eq!(
        load.text,
        "the same within 3.0 % (gluster 101 and ceph 100 ops/s), disk 50.0"
    );
    assert_eq!(load.trust, Some(Trust::NotShown));
}

/// Of more than six sides only the first is compared with each other one.
#[test]
fn sides_that_were_not_compared_with_each_other_have_no_verdict() {
    let pair = |b: &str, value: f64| {
        let row = row("p", FigureName::Ops, 100.0, value, Verdict::Faster);
        comparison("a", b, vec![row])
    };
    let load = loads(&[pair("b", 1000.0), pair("c", 990.0)]).pop().unwrap();
    assert_eq!(load.text, "b 1,000, c 990 ops/s, a 100");
    assert_eq!(
        load.answer(),
        "b 1,000, c 990 ops/s, a 100: cannot tell, these two are not compared with each other"
    );
    let ranks: Vec<usize> = load.sides.iter().map(|side| side.rank).collect();
    assert_eq!(ranks, [1, 1, 3]);
}

/// With five repeats in turns, sides of one run that are no targets can be proven; one run against five too.
#[test]
fn trust_depends_on_the_noise_that_is_known() {
    let trust = |a: &[i64], b: &[i64], noise: &str| {
        let mut row = row("p", FigureName::Ops, 100.0, 200.0, Verdict::Faster);
        row.noise = Some(noise.into());
        let mut one = comparison("a", "b", vec![row]);
        for (side, ids) in [(&mut one.a, a), (&mut one.b, b)] {
            let run = side.runs[0].clone();
            side.target = None;
            side.runs = ids
                .iter()
                .map(|id| RunRef {
                    id: RunId(*id),
                    ..run.clone()
                })
                .collect();
        }
        loads(&[one]).pop().unwrap().trust
    };
    for (a, b, noise, expected) in [
        ([7].as_slice(), [7].as_slice(), "pairs", Trust::Proven),
        (&[7], &[7], "seconds", Trust::Likely),
        (&[7], &[8], "repeats", Trust::Likely),
        (&[1, 2, 3, 4, 5], &[8], "runs", Trust::Proven),
    ] {
        assert_eq!(trust(a, b, noise), Some(expected), "{a:?} {b:?} {noise}");
    }
}

#[test]
fn the_daemons_cost_is_beside_the_load_where_it_differs() {
    let cost = |a: f64, b: f64| {
        let mut cpu = row("p", FigureName::Cpu, a, b, Verdict::NotJudged);
        cpu.op = String::new();
        cpu.daemons = vec!["ceph-osd".into()];
        let rate = row("p", FigureName::Ops, 100.0, 200.0, Verdict::Faster);
        loads(&[comparison("a", "b", vec![rate, cpu])])
            .pop()
            .unwrap()
            .text
    };
    let expected = "b is 2.0 times faster than a (200 against 100 ops/s; 2.0 to 2.0 times); ceph-osd 340 against 120 us of CPU per operation";
    assert_eq!(cost(120.0, 340.0), expected);
    assert!(!cost(120.0, 125.0).contains("CPU"));
}

/// Pairs of hosts are measured one after the other; they are no repeats of one load.
#[test]
fn each_link_has_its_line() {
    let mut steps = Vec::new();
    for mode in ["throughput", "ping", "request"] {
        for link in ["a -> b", "b -> a"] {
            let ordinal = i64::try_from(steps.len() + 1).unwrap();
            let mut one = tests::step(ordinal, "net", mode);
            one.workload = "network".into();
            one.target.clear();
            one.links = link.into();
            steps.push(one);
        }
    }
    let mut run = tests::report(steps);
    run.phases = pivot::phases(&run, &pivot::Axes::default());
    let card = of_run(&run, Ok(None));
    let names: Vec<&str> = card.loads.iter().map(|load| load.load.as_str()).collect();
    assert_eq!(
        names,
        [
            "net request a -> b",
            "net request b -> a",
            "net throughput a -> b",
            "net throughput b -> a",
            "net ping a -> b",
            "net ping b -> a",
        ]
    );
}

#[test]
fn a_card_of_twenty_steps_on_three_targets_fits_a_screen() {
    let rows = |factor: f64| -> Vec<ComparisonRow> {
        (0..7)
            .map(|at| {
                row(
                    &format!("random records {at}"),
                    FigureName::Ops,
                    12_345.0,
                    12_345.0 * factor,
                    Verdict::Faster,
                )
            })
            .collect()
    };
    let all = [
        comparison("gluster", "ceph", rows(1.2)),
        comparison("gluster", "disk", rows(2.5)),
        comparison("ceph", "disk", rows(2.5 / 1.2)),
    ];
    let all_loads = loads(&all);
    let many = |text: &str| {
        let lines = (0..9).map(|at| line(CardState::Warning, format!("{text} {at}")));
        CardList::of(lines.collect(), "benchmesh report 7 validity".into())
    };
    let card = Card {
        title: "run 7 \"nightly\": done in 4 min, started 2026-11-29 12:00:00, 3 agents on 3 hosts, on ceph, disk, gluster".into(),
        objectives: vec![line(CardState::Bad, "broken: p99 < 10ms for 99% of seconds: 9 of 240 seconds were bad, 2.4 may be")],
        loads: all_loads.into_iter().take(MAX_LOADS).collect(),
        loads_left_out: 0,
        validity: many("starts"),
        findings: many("drift"),
        next: "benchmesh report 7 all".into(),
        ..Card::default()
    };
    let shown = lines(&card, 100);
    let text: Vec<&str> = shown.iter().map(|line| line.text.as_str()).collect();
    assert!(
        text.iter().all(|line| line.chars().count() <= 100),
        "{text:#?}"
    );
    assert!(text.len() <= 40, "{}: {text:#?}", text.len());
    assert_eq!(shown[2].state, CardState::Bad);
    assert!(
        text.contains(&"          6 more: benchmesh report 7 validity"),
        "{text:#?}"
    );
}
