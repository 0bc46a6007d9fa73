#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::cell::{CellKey, MeasuredCell};
use super::conditions::{Condition, check};
use super::figure::FigureName;
use super::model::{CompareAnswer, RunRef, Side, Verdict};
use super::{judge, trend};
use crate::report::card;
use benchmesh_analysis::{Second, Series};
use benchmesh_model::mesh::RunId;
use benchmesh_workloads::histogram::Slot;
use benchmesh_workloads::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

mod repeats;
mod whole;

fn run(id: i64) -> RunRef {
    RunRef {
        id: RunId(id),
        name: "nightly".into(),
        state: "done".into(),
        created_us: id * 1_000_000,
        imported_from: None,
    }
}

fn side(label: &str) -> Side {
    Side {
        label: label.into(),
        target: Some(label.into()),
        runs: vec![run(1)],
    }
}

/// A run of independent seconds with a deviation of 3 %.
fn series(rate: f64, seconds: usize, seed: u64) -> Series {
    let mut random = Random::new(seed);
    let seconds: Vec<Second> = (0..seconds)
        .map(|_| {
            let noise = f64::from(u32::try_from(random.below(1000)).unwrap()) / 1000.0 - 0.5;
            let ops = rate * (1.0 + 0.1 * noise);
            Second {
                span_us: 1e6,
                ops,
                sum_ns: 1e9,
                latencies: Vec::new(),
            }
        })
        .collect();
    Series::new(&seconds)
}

fn cell(bs: &str, rate: f64, seed: u64) -> MeasuredCell {
    MeasuredCell {
        step: 1,
        run: 1,
        repeat: 1,
        key: CellKey {
            phase: "records".into(),
            group: String::new(),
            workload: "io".into(),
            mode: "randwrite".into(),
            op: "write".into(),
            params: json!({ "bs": bs }).as_object().unwrap().clone(),
            clients: 2,
            cache: "asis".into(),
            link: String::new(),
        },
        target: "t".into(),
        flags: Vec::new(),
        partial: false,
        rate_clients: 2,
        events: Vec::new(),
        ops: Some(1_000_000),
        errors: Some(0),
        ops_per_s: Some(rate),
        bytes_per_s: None,
        over_us: Some(120e6),
        mean_ms: Some(1000.0 / rate),
        p50_ms: None,
        p90_ms: None,
        p95_ms: None,
        p99_ms: None,
        p999_ms: None,
        uneven_percent: None,
        response_p99_ms: None,
        datagrams: 0,
        cpu_us_per_op: BTreeMap::new(),
        client_us_per_op: None,
        net_bytes_per_op: None,
        series: Some(Arc::new(series(rate, 120, seed))),
        response_series: None,
        imported: false,
    }
}

fn compared(a: Vec<MeasuredCell>, b: Vec<MeasuredCell>) -> CompareAnswer {
    judge::answer(vec![((side("gluster"), a), (side("cephfs"), b))], &[])
}

fn verdicts(answer: &CompareAnswer) -> Vec<(FigureName, Verdict)> {
    let rows = answer.comparisons.iter().flat_map(|one| &one.rows);
    let judged = rows.filter(|row| row.judged);
    judged.map(|row| (row.figure, row.verdict)).collect()
}

/// The lines of the answer card: each load with its answer.
fn told(answer: &CompareAnswer) -> Vec<String> {
    let card = card::of_comparison(answer);
    let lines = card.loads.iter();
    lines
        .map(|load| format!("{}: {}", load.load, load.answer()))
        .collect()
}

fn caveats(answer: &CompareAnswer) -> Vec<String> {
    let lines = card::of_comparison(answer).caveats.lines;
    lines.into_iter().map(|line| line.text).collect()
}

fn holds(condition: &str, answer: &CompareAnswer) -> (usize, bool) {
    let condition: Condition = condition.parse().unwrap();
    let outcome = check(&condition, answer);
    (outcome.holds.len(), outcome.is_untested)
}

#[test]
fn flags_of_both_sides_are_said_once() {
    let flagged = |ops, run, flags: &[&str]| {
        let mut cell = cell("4k", ops, run);
        cell.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        cell
    };
    let a = flagged(100.0, 1, &["tool-bound", "cpu-short"]);
    let b = flagged(91.0, 2, &["cpu-short"]);
    assert_eq!(
        caveats(&compared(vec![a], vec![b])),
        [
            "1 load: both are cpu-short",
            "1 load: gluster is tool-bound"
        ]
    );
}

#[test]
fn a_slower_target_is_called_slower() {
    let mut b = cell("4k", 91.0, 2);
    b.flags = vec!["tool-bound".into(), "no-such-flag".into()];
    let answer = compared(vec![cell("4k", 100.0, 1)], vec![b]);
    assert_eq!(verdicts(&answer), [(FigureName::Ops, Verdict::Slower)]);
    let one = &answer.comparisons[0];
    let row = &one.rows[0];
    assert!((row.ratio - 0.91).abs() < 1e-9);
    assert!(row.low.unwrap() < 0.91 && 0.91 < row.high.unwrap() && row.high.unwrap() < 0.93);
    assert!(row.p_corrected.unwrap() >= row.p.unwrap());
    assert_eq!(
        told(&answer),
        [
            "records randwrite write: gluster is 9.9 % faster than cephfs (100 against 91.0 ops/s; 9.1 to 11 %): likely, one repeat each"
        ]
    );
    assert_eq!(caveats(&answer), ["1 load: cephfs is tool-bound"]);
    assert_eq!(holds("ops < -5%", &answer), (1, false));
    assert_eq!(holds("ops < -10%", &answer), (0, false));
    assert_eq!(holds("slower", &answer), (1, false));
    assert_eq!(
        holds("mean > +5%", &answer),
        (1, false),
        "listed, and asked for"
    );
    assert_eq!(holds("p99 > +10%", &answer), (0, true), "there is no p99");
}

#[test]
fn noise_is_no_difference() {
    let answer = compared(vec![cell("4k", 100.0, 1)], vec![cell("4k", 100.2, 2)]);
    assert_eq!(
        verdicts(&answer)[0],
        (FigureName::Ops, Verdict::NoDifferenceShown)
    );
    assert_eq!(
        told(&answer),
        [
            "records randwrite write: the same within 0.93 % (cephfs 100 and gluster 100 ops/s): not shown"
        ]
    );
    assert_eq!(holds("ops > +0.1%", &answer), (0, false));
}

#[test]
fn a_large_ratio_is_written_in_times_and_cpu_behind_it() {
    let with = |rate: f64, cpu: f64, seed| {
        let mut cells = Vec::new();
        for repeat in 0..3 {
            let mut one = cell("4k", rate * (1.0 + 0.001 * f64::from(repeat)), seed);
            one.repeat = repeat.into();
            one.cpu_us_per_op = BTreeMap::from([("osd".to_owned(), cpu + f64::from(repeat))]);
            cells.push(one);
        }
        cells
    };
    let answer = compared(with(100.0, 300.0, 1), with(660.0, 63.0, 2));
    assert_eq!(
        told(&answer),
        [
            "records randwrite write: cephfs is 6.6 times faster than gluster (661 against 100 ops/s; 6.6 to 6.6 times); osd 64.0 against 301 us of CPU per operation: proven"
        ]
    );
    assert_eq!(verdicts(&answer), [(FigureName::Ops, Verdict::Faster)]);
    assert_eq!(holds("cpu < 0.5x", &answer), (1, false));
}

#[test]
fn different_keys_are_named_and_short_runs_have_no_verdict() {
    let answer = compared(
        vec![cell("4k", 100.0, 1), cell("16k", 50.0, 1)],
        vec![cell("4k", 100.0, 2), cell("64k", 20.0, 2)],
    );
    let one = &answer.comparisons[0];
    assert_eq!(one.incomparable.len(), 1);
    assert_eq!(one.incomparable[0].why, "bs is 16k in A and 64k in B");
    assert_eq!(holds("not comparable", &answer), (1, false));
    let mut short = cell("4k", 100.0, 1);
    short.series = Some(Arc::new(series(100.0, 2, 1)));
    let answer = compared(vec![short], vec![cell("4k", 50.0, 2)]);
    assert_eq!(
        verdicts(&answer)[0],
        (FigureName::Ops, Verdict::NotComparable)
    );
    let why = answer.comparisons[0].rows[0].why.clone().unwrap();
    assert!(why.contains("one run of 2 s"), "{why}");
    let nothing = compared(Vec::new(), vec![cell("4k", 1.0, 1)]);
    assert_eq!(
        nothing.comparisons[0].incomparable[0].why,
        "it has no results"
    );
}

#[test]
fn an_imported_side_agrees_in_the_keys_that_both_know() {
    let mut imported = cell("4096", 100.0, 1);
    imported.imported = true;
    imported.key.phase = "fio".into();
    imported.key.clients = 1;
    imported
        .key
        .params
        .insert("ioengine".into(), Value::from("psync"));
    let answer = compared(vec![imported.clone()], vec![cell("4k", 100.0, 2)]);
    assert_eq!(answer.comparisons[0].rows.len(), 2);
    let notes = answer.comparisons[0].notes.join(" ");
    assert!(
        notes.contains("Only one side has a value of: ioengine."),
        "{notes}"
    );
    let answer = compared(vec![imported], vec![cell("64k", 100.0, 2)]);
    assert_eq!(answer.comparisons[0].rows.len(), 0);
}

/// Modes alternate within each cell; the CPU of the daemons belongs to the load before it.
#[test]
fn each_load_has_one_line() {
    let cells = |factor: f64, seed| -> Vec<MeasuredCell> {
        let of = |bs: &str| {
            let write = cell(bs, 100.0 * factor, seed);
            let mut read = write.clone();
            read.key.mode = "randread".into();
            read.key.op = "read".into();
            read.cpu_us_per_op = BTreeMap::from([("osd".to_owned(), 10.0)]);
            [write, read]
        };
        ["4k", "16k"].into_iter().flat_map(of).collect()
    };
    let answer = compared(cells(1.0, 1), cells(0.5, 2));
    let loads: Vec<String> = card::of_comparison(&answer)
        .loads
        .into_iter()
        .map(|load| load.load)
        .collect();
    assert_eq!(
        loads,
        [
            "records randwrite write bs=4k",
            "records randread read bs=4k",
            "records randwrite write bs=16k",
            "records randread read bs=16k"
        ]
    );
    let row = &answer.comparisons[0].rows[0];
    assert_eq!(row.cell, json!({ "bs": "4k" }).as_object().unwrap().clone());
}

#[test]
fn a_percentile_of_one_run_has_an_interval_if_operations_are_above_it() {
    let of = |ops: i64| {
        let slot = |ms: u64, count| Slot {
            lowest_ns: ms * 1_000_000,
            highest_ns: ms * 1_000_000 + 7_999,
            count,
        };
        let seconds: Vec<Second> = (0..60)
            .map(|second| Second {
                span_us: 1e6,
                ops: 100.0,
                sum_ns: 1e9,
                latencies: vec![slot(1 + second % 3, 99), slot(20 + second % 7, 1)],
            })
            .collect();
        MeasuredCell {
            ops: Some(ops),
            p99_ms: Some(20.0),
            p999_ms: Some(25.0),
            series: Some(Arc::new(Series::new(&seconds))),
            ..cell("4k", 100.0, 1)
        }
    };
    for (figure, ops, has_interval) in [
        (FigureName::P999, 3000, true),
        (FigureName::P999, 2999, false),
        (FigureName::P99, 300, true),
        (FigureName::P99, 299, false),
    ] {
        let sides = [side("gluster"), side("cephfs")].map(|side| (side, vec![of(ops)]));
        let answer = judge::answer(vec![sides.into()], &[FigureName::P999]);
        let mut rows = answer.comparisons[0].rows.iter();
        let row = rows.find(|row| row.figure == figure).unwrap();
        let intervals = (row.p.is_some(), row.low.is_some());
        assert_eq!(intervals, (has_interval, has_interval), "{row:?}");
        let why = row.why.as_deref().unwrap_or_default();
        // A figure on request is not judged, so it needs no reason.
        let is_told = row.judged && !has_interval;
        assert_eq!(why.contains("too few for its p99"), is_told, "{why}");
    }
}

#[test]
fn conditions_are_read_and_written() {
    for (text, expected) in [
        ("p99 > +10%", "p99 > +10 %"),
        ("ops<-5%", "ops < -5.0 %"),
        (" cpu > 2x ", "cpu > 2.0 x"),
        ("not comparable", "not comparable"),
    ] {
        assert_eq!(text.parse::<Condition>().unwrap().to_string(), expected);
    }
    for wrong in [
        "",
        "p99",
        "p98 > 1%",
        "p99 > ten",
        "ops > -100%",
        "ops > 10",
        "faster",
    ] {
        assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
    }
}

#[test]
fn a_trend_names_the_run_from_which_a_level_moved() {
    let runs: Vec<(RunRef, Vec<MeasuredCell>)> = (0..20)
        .map(|number| {
            let level = if number < 11 { 100.0 } else { 90.0 };
            let rate = level + f64::from(number % 3);
            (run(i64::from(number) + 1), vec![cell("4k", rate, 1)])
        })
        .collect();
    let trend = trend::trend("nightly", &runs, &[]);
    assert_eq!(trend.rows.len(), 1);
    let changes = &trend.rows[0].changes;
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].run.id, RunId(12));
    assert_eq!(changes[0].verdict, Verdict::Slower);
    assert_eq!(trend.rows[0].what, "t records randwrite write");
}
