#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss
)]

use super::super::{CostReport, Measure, Pivot, SecondsReport, StepReport};
use super::*;
use crate::report::tests::{cost, op, report, step};

/// A step of `records` with its parameters, including `clients=`, and its rate in MiB/s with blocks of 64 KiB.
fn measured(ordinal: i64, mode: &str, params: &[(&str, &str)], mib_per_s: f64) -> StepReport {
    let mut one = step(ordinal, "records", mode);
    for (key, value) in params {
        match *key {
            "clients" => one.clients = value.parse().unwrap(),
            "target" => one.target = (*value).to_owned(),
            "repeat" => one.repeat = value.parse().unwrap(),
            "loop" => one.loop_number = value.parse().unwrap(),
            "workload" => one.workload = (*value).to_owned(),
            key => drop(one.params.insert(key.to_owned(), (*value).into())),
        }
    }
    let only = &mut one.ops[0];
    only.bytes = only.ops.map(|ops| ops * 65_536);
    only.bytes_per_s = Some(mib_per_s * 1_048_576.0);
    only.ops_per_s = Some(mib_per_s * 16.0);
    one
}

fn shaped(steps: Vec<StepReport>, axes: &Axes) -> Vec<Pivot> {
    let phases = phases(&report(steps), axes);
    assert_eq!(phases.len(), 1);
    phases.into_iter().next().unwrap().tables
}

/// A table as text: the fixed keys, the header, then a line per row with the means of the main figure.
fn text(table: &Pivot) -> Vec<String> {
    let fixed: Vec<String> = table
        .fixed
        .iter()
        .map(|field| format!("{}={}", field.key, field.value))
        .collect();
    let mut lines = vec![format!(
        "{} | {} \\ {}",
        fixed.join(" "),
        table.row_keys.join("+"),
        table.columns.join(" ")
    )];
    for (row, cells) in table.rows.iter().zip(&table.cells) {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| {
                let figure = cell.as_ref().and_then(|cell| cell.figures.get(&cell.lead));
                figure.map_or_else(|| "-".to_owned(), |figure| figure.value.to_string())
            })
            .collect();
        lines.push(format!("{row}: {}", cells.join(" ")));
    }
    lines
}

fn check(steps: Vec<StepReport>, axes: &Axes, expected: &[&[&str]]) {
    let got: Vec<Vec<String>> = shaped(steps, axes).iter().map(text).collect();
    assert_eq!(got, expected);
}

fn axes(rows: &[&str], columns: &[&str]) -> Axes {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Axes {
        rows: names(rows),
        columns: names(columns),
    }
}

#[test]
fn loops_are_averaged_unless_they_are_named() {
    let steps = || {
        vec![
            measured(1, "write", &[("loop", "1")], 10.0),
            measured(2, "write", &[("loop", "2")], 30.0),
        ]
    };
    let rows = |axes: &Axes| -> Vec<usize> {
        let tables = shaped(steps(), axes);
        tables.iter().map(|table| table.rows.len()).collect()
    };
    assert_eq!(rows(&Axes::default()), [1]);
    assert_eq!(rows(&axes(&["loop"], &[])), [2]);
}

/// Keys that change together label the rows together; otherwise only the diagonal of the grid would be filled.
#[test]
fn keys_that_differ_together_share_the_rows() {
    let together = [("4k", "32"), ("64k", "8"), ("1m", "1")];
    let steps = |sizes: &[&str]| {
        let cells = sizes
            .iter()
            .flat_map(|size| together.map(|(bs, depth)| (*size, bs, depth)));
        cells
            .zip(1..)
            .map(|((size, bs, depth), at)| {
                let params = [("size", size), ("bs", bs), ("iodepth", depth)];
                measured(at, "write", &params, 10.0 * at as f64)
            })
            .collect::<Vec<StepReport>>()
    };
    let alone: &[&[&str]] = &[&[" | bs+iodepth \\ ", "4k 32: 10", "64k 8: 20", "1m 1: 30"]];
    check(steps(&["1g"]), &Axes::default(), alone);
    let crossed: &[&[&str]] = &[&[
        " | size \\ 4k 32 64k 8 1m 1",
        "512m: 10 20 30",
        "1g: 40 50 60",
    ]];
    check(steps(&["512m", "1g"]), &Axes::default(), crossed);
}

/// Otherwise the steps of a matrix over caches would count as repeats of one.
#[test]
fn caches_are_told_apart() {
    let steps = ["cold", "warm"].iter().zip(1..).map(|(cache, at)| {
        let mut one = measured(at, "read", &[], 10.0 * at as f64);
        one.cache = (*cache).to_owned();
        one
    });
    let expected: &[&[&str]] = &[&[" | cache \\ ", "cold: 10", "warm: 20"]];
    check(steps.collect(), &Axes::default(), expected);
}

/// iozone's matrix: two sizes, three record sizes, two modes, in the order of the scheduler.
fn matrix() -> Vec<StepReport> {
    let mut steps = Vec::new();
    for size in ["512m", "1g"] {
        for bs in ["4k", "16k", "64k"] {
            for mode in ["write", "read"] {
                let at = i64::try_from(steps.len()).unwrap() + 1;
                let rate = 10.0 * at as f64;
                steps.push(measured(at, mode, &[("size", size), ("bs", bs)], rate));
            }
        }
    }
    steps
}

#[test]
fn two_keys_of_a_matrix_are_a_grid_per_mode() {
    let expected: &[&[&str]] = &[
        &[
            "mode=write | size \\ 4k 16k 64k",
            "512m: 10 30 50",
            "1g: 70 90 110",
        ],
        &[
            "mode=read | size \\ 4k 16k 64k",
            "512m: 20 40 60",
            "1g: 80 100 120",
        ],
    ];
    check(matrix(), &Axes::default(), expected);
    // Numbers are sorted by size, whatever the order of the cells.
    let mut shuffled = matrix();
    shuffled.reverse();
    shuffled.swap(1, 7);
    let got = shaped(shuffled, &axes(&["size"], &["bs"]));
    let mut got: Vec<Vec<String>> = got.iter().map(text).collect();
    got.sort_by(|a, b| b.cmp(a));
    assert_eq!(got, expected);
}

#[test]
fn the_reader_can_choose_rows_and_columns() {
    check(
        matrix(),
        &axes(&["bs"], &["mode"]),
        &[
            &[
                "size=512m | bs \\ write read",
                "4k: 10 20",
                "16k: 30 40",
                "64k: 50 60",
            ],
            &[
                "size=1g | bs \\ write read",
                "4k: 70 80",
                "16k: 90 100",
                "64k: 110 120",
            ],
        ],
    );
    let report = report(matrix());
    assert_eq!(
        unknown_key(&report, &["size".to_owned(), "depth".to_owned()]),
        Some("depth")
    );
    assert_eq!(
        unknown_key(&report, &["target".to_owned(), "bs".to_owned()]),
        None
    );
}

#[test]
fn modes_are_rows_and_targets_stand_beside_each_other() {
    let steps = |targets: &[&str]| {
        let mut steps = Vec::new();
        for target in targets {
            for mode in ["create", "stat"] {
                let at = i64::try_from(steps.len()).unwrap() + 1;
                steps.push(measured(at, mode, &[("target", target)], at as f64));
            }
        }
        steps
    };
    check(
        steps(&["cephfs", "sr33"]),
        &Axes::default(),
        &[&[" | mode \\ cephfs sr33", "create: 1 3", "stat: 2 4"]],
    );
    let one = shaped(steps(&["cephfs"]), &Axes::default());
    assert!(one[0].columns_are_figures());
    assert_eq!(text(&one[0]), [" | mode \\ ", "create: 1", "stat: 2"]);
    assert!(
        one[0].beside.contains(&Measure::P99Ms),
        "{:?}",
        one[0].beside
    );
}

#[test]
fn bonnie_has_a_line_per_target() {
    let mut steps = Vec::new();
    for target in ["nfs", "cephfs"] {
        for mode in ["putc", "seek"] {
            let at = i64::try_from(steps.len()).unwrap() + 1;
            let mut one = measured(at, mode, &[("target", target), ("workload", "io")], 1.0);
            if mode == "seek" {
                one.ops[0].bytes = one.ops[0].ops.map(|ops| ops * 16_384);
            }
            steps.push(one);
        }
    }
    let tables = shaped(steps, &Axes::default());
    assert_eq!(
        text(&tables[0]),
        [" | target \\ putc seek", "nfs: 1 16", "cephfs: 1 16"]
    );
    assert_eq!(tables[0].lead, None, "each column has its own unit");
}

#[test]
fn copies_are_listed_by_time() {
    let mut one = measured(1, "in", &[("workload", "copy")], 1.0);
    one.cpu_user_s = Some(0.25);
    one.cpu_system_s = Some(1.5);
    one.ops[0].last_done_s = Some(3.5);
    let tables = shaped(vec![one], &Axes::default());
    let cell = tables[0].cells[0][0].as_ref().unwrap();
    assert_eq!(cell.lead, Measure::ElapsedS);
    let seconds = [Measure::ElapsedS, Measure::UserS, Measure::SystemS];
    assert_eq!(
        seconds.map(|measure| cell.figures[&measure].value),
        [3.5, 0.25, 1.5]
    );
    assert_eq!(tables[0].beside[..2], [Measure::UserS, Measure::SystemS]);
}

#[test]
fn clients_are_rows_with_their_speed_up() {
    let rates = [("1", 10.0), ("2", 20.0), ("8", 45.0), ("16", 46.0)];
    let steps = (1..)
        .zip(rates)
        .map(|(at, (clients, rate))| measured(at, "write", &[("clients", clients)], rate))
        .collect();
    let tables = shaped(steps, &Axes::default());
    assert_eq!(tables[0].rows, ["1", "2", "8", "16"]);
    let speed_up = |row: usize| {
        let cell = tables[0].cells[row][0].as_ref().unwrap();
        cell.figures
            .get(&Measure::PerDoubling)
            .map(|figure| figure.value)
    };
    assert_eq!((speed_up(0), speed_up(1)), (None, Some(2.0)));
    // Two doublings from 20 to 45: 1.5 each.
    assert!((speed_up(2).unwrap() - 1.5).abs() < 1e-12);
    assert!((speed_up(3).unwrap() - 46.0 / 45.0).abs() < 1e-12);
}

#[test]
fn repeats_are_merged_and_have_their_spread() {
    let mut steps: Vec<StepReport> = [("1", 10.0), ("2", 14.0), ("3", 12.0)]
        .into_iter()
        .zip(1..)
        .map(|((repeat, rate), at)| measured(at, "write", &[("repeat", repeat)], rate))
        .collect();
    steps[1].flags = vec!["tool-bound".to_owned()];
    let mut failed = measured(4, "write", &[("repeat", "4")], 0.0);
    failed.ops.clear();
    steps.push(failed);
    let tables = shaped(steps, &Axes::default());
    let cell = tables[0].cells[0][0].as_ref().unwrap();
    let figure = cell.figures[&Measure::MibPerS];
    // Python: statistics.geometric_mean([10, 14, 12]), statistics.stdev([10, 14, 12])
    assert_eq!((figure.n, figure.stddev), (3, Some(2.0)));
    assert!(
        (figure.value - 11.887_843_905_526_262).abs() < 1e-9,
        "{figure:?}"
    );
    assert_eq!((figure.min, figure.max), (10.0, 14.0));
    // One without any result stands among the steps that did not end well.
    assert_eq!(cell.left_out, [0; 0]);
    assert_eq!(cell.flags, ["tool-bound"]);
}

/// A slow repeat lasts longer and has a longer p99: neither its time nor its operations give it more weight.
#[test]
fn every_repeat_has_the_same_weight_unless_it_lost_a_client() {
    let repeat = |repeat: i64, seconds: f64, rate: f64, p99_ms: f64| {
        let mut step = measured(repeat, "stat", &[], 10.0);
        step.repeat = repeat;
        let op = &mut step.ops[0];
        op.over_s = Some(seconds);
        op.ops_per_s = Some(rate);
        op.p99_ms = Some(p99_ms);
        op.max_ms = Some(2.0 * p99_ms);
        step
    };
    let mut steps = vec![
        repeat(1, 1.0, 1000.0, 0.5),
        repeat(2, 4.0, 250.0, 0.5),
        repeat(3, 16.0, 62.5, 32.0),
    ];
    let mut lost = repeat(4, 1.0, 5.0, 900.0);
    lost.partial = true;
    steps.push(lost.clone());
    let figures = |steps: Vec<StepReport>| {
        let tables = shaped(steps, &Axes::default());
        let cell = tables[0].cells[0][0].clone().unwrap();
        let value = |measure| cell.figures[&measure].value;
        [Measure::OpsPerS, Measure::P99Ms, Measure::MaxMs].map(value)
    };
    let found = figures(steps);
    for (found, expected) in found.iter().zip([250.0, 2.0, 64.0]) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
    }
    assert_eq!(figures(vec![lost])[0].round(), 5.0, "the only repeat");
}

#[test]
fn a_cost_and_the_evenness_stand_beside_the_rate() {
    let mut one = measured(1, "write", &[], 10.0);
    one.ops[0].seconds = Some(SecondsReport {
        seconds: 10,
        zero: 2,
        ops_per_s_stddev: Some(40.0),
        ops_per_s_min: Some(0.0),
        ops_per_s_max: Some(200.0),
        bytes_per_s_stddev: Some(0.0),
        bytes_per_s_min: Some(0.0),
        bytes_per_s_max: Some(0.0),
    });
    let mut run = report(vec![one]);
    run.costs = ["ceph-osd", "ceph-mon"]
        .map(|name| CostReport {
            name: name.into(),
            ..cost()
        })
        .into();
    let phases = phases(&run, &Axes::default());
    let table = &phases[0].tables[0];
    let cell = table.cells[0][0].as_ref().unwrap();
    let wanted = [
        Measure::DaemonUsPerOp,
        Measure::UnevenPercent,
        Measure::ZeroSeconds,
    ];
    assert_eq!(
        wanted.map(|measure| cell.figures[&measure].value),
        [100.0, 25.0, 2.0]
    );
    assert!(wanted.iter().all(|measure| table.beside.contains(measure)));
    let text = serde_json::to_string(&phases).unwrap();
    assert_eq!(
        serde_json::from_str::<Vec<PhaseReport>>(&text).unwrap(),
        phases
    );
}

#[test]
fn operations_of_a_mix_are_never_one_figure() {
    let mut mix = measured(1, "randrw", &[], 10.0);
    mix.ops = vec![op("read"), op("write")];
    mix.ops[1].ops_per_s = Some(3.0);
    mix.cpu_user_s = Some(1.0);
    let tables = shaped(vec![mix], &Axes::default());
    assert_eq!(tables[0].row_keys, ["op"]);
    assert_eq!(tables[0].rows, ["read", "write"]);
    let cell = tables[0].cells[0][0].as_ref().unwrap();
    assert!(
        !cell.figures.contains_key(&Measure::UserS),
        "CPU time is the step's"
    );
}
