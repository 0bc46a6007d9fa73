//! The results as tables: grids with bands, marks of flags, limits of scaling, and the width of a line.

use super::*;
use crate::report::pivot::{Axes, phases};

/// Two sizes and three block sizes; the rate is ten times the ordinal in MiB/s.
fn matrix() -> Vec<StepReport> {
    let mut steps = Vec::new();
    for size in ["512m", "1g"] {
        for bs in ["4k", "16k", "64k"] {
            let at = i64::try_from(steps.len()).unwrap() + 1;
            let mut one = step(at, "records", "write");
            one.params.insert("size".into(), size.into());
            one.params.insert("bs".into(), bs.into());
            one.ops[0].bytes_per_s = Some(f64::from(u8::try_from(at).unwrap()) * 10_485_760.0);
            steps.push(one);
        }
    }
    steps
}

fn shown(steps: Vec<StepReport>, width: Option<usize>) -> Vec<Table> {
    let mut run = report(steps);
    run.phases = phases(&run, &Axes::default());
    let tables = tables_within(&run, Detail::Summary, width);
    let of_phase = |table: &Table| table.title.starts_with("records");
    tables.into_iter().filter(of_phase).collect()
}

#[test]
fn a_matrix_is_a_grid_with_a_band_per_figure() {
    let mut steps = matrix();
    steps[1].flags = vec!["tool-bound".into()];
    let tables = shown(steps, None);
    assert_eq!(tables.len(), 1);
    let bands: Vec<Option<&str>> = tables[0]
        .columns
        .iter()
        .map(|column| column.band.as_deref())
        .collect();
    let (rate, p99) = (Some("MiB/s"), Some("p99 ms"));
    assert_eq!(bands, [None, rate, rate, rate, p99, p99, p99]);
    let mut lines = text(&tables[0]);
    lines.truncate(5);
    assert_eq!(
        lines,
        [
            "records (io, write, on cephfs, 3 clients)",
            "size \\ bs | 4k | 16k | 64k | 4k | 16k | 64k",
            "512m | 10.0 | 20.0 a | 30.0 | 1.25 | 1.25 | 1.25",
            "1g | 40.0 | 50.0 | 60.0 | 1.25 | 1.25 | 1.25",
            "# a: tool-bound: benchmesh itself took a large share of the time: the storage can do more.",
        ]
    );
}

#[test]
fn a_band_that_does_not_fit_goes_on_in_a_further_table() {
    let tables = shown(matrix(), Some(40));
    let heads: Vec<(String, usize)> = tables
        .iter()
        .map(|table| (table.title.clone(), table.columns.len()))
        .collect();
    let title = "records (io, write, on cephfs, 3 clients)";
    assert_eq!(
        heads,
        [(title.to_owned(), 4), (format!("{title}, p99 ms"), 4)]
    );
    assert!(
        tables.iter().all(|table| table.rows[0][0] == "512m"),
        "{tables:?}"
    );
}

#[test]
fn where_more_clients_bring_nothing_has_a_sentence() {
    let rates = [(1, 100.0), (2, 190.0), (4, 200.0), (8, 201.0)];
    let steps = |rates: &[(i64, f64)]| -> Vec<StepReport> {
        (1..)
            .zip(rates)
            .map(|(at, (clients, rate))| {
                let mut one = step(at, "records", "write");
                one.clients = *clients;
                one.ops[0].ops_per_s = Some(*rate);
                one
            })
            .collect()
    };
    let note = |rates: &[(i64, f64)]| shown(steps(rates), None)[0].notes[0].clone();
    assert_eq!(
        note(&rates),
        "it stops growing at 2 clients: the next doubling gives 1.05 times the rate."
    );
    assert_eq!(note(&rates[..2]), "it still grows at 2 clients.");
    let table = &shown(steps(&rates), None)[0];
    let at = table
        .columns
        .iter()
        .position(|column| column.title == "per doubling")
        .unwrap();
    let cells: Vec<&str> = table.rows.iter().map(|row| row[at].as_str()).collect();
    assert_eq!(cells, ["-", "1.90", "1.05", "1.00"]);
}

#[test]
fn repeats_have_their_spread_and_flags_of_every_cell_are_shown_once() {
    let mut steps = matrix();
    let mut again = matrix();
    for (at, one) in again.iter_mut().enumerate() {
        one.ordinal += 6;
        one.repeat = 2;
        one.ops[0].bytes_per_s = steps[at].ops[0].bytes_per_s.map(|rate| rate * 1.1);
    }
    steps.extend(again);
    for one in &mut steps {
        one.flags = vec!["window-short".into()];
    }
    let table = &shown(steps, None)[0];
    // Python: statistics.stdev([10, 11]) / statistics.geometric_mean([10, 11]) = 6.7 %
    assert_eq!(table.rows[0][1], "10.5 ±7%");
    assert!(
        table.notes[1].starts_with("window-short (every cell): "),
        "{:?}",
        table.notes
    );
}
