//! Runs contestants in turns, and prints the table of results.

use std::io::{self, Write};

/// Default number of runs of each contestant of a row.
pub const ROUNDS: usize = 7;

/// Meaning of a contestant's figure.
#[derive(Clone, Copy, PartialEq)]
pub enum Unit {
    NanosPerOp,
    MibPerSecond,
    KiloOpsPerSecond,
    Percent,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::NanosPerOp => "ns/op",
            Unit::MibPerSecond => "MiB/s",
            Unit::KiloOpsPerSecond => "k op/s",
            Unit::Percent => "%",
        }
    }

    /// How many times as fast `ours` is as `theirs`.
    fn speed_up(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Unit::NanosPerOp => theirs / ours,
            Unit::MibPerSecond | Unit::KiloOpsPerSecond | Unit::Percent => ours / theirs,
        }
    }
}

/// One measurement; `None` if the contestant is not installed.
pub type Measure = Box<dyn FnMut() -> Option<f64>>;

/// A contestant that does the same work.
pub struct Baseline {
    pub name: &'static str,
    /// The target ratio against it.
    pub bar: &'static str,
    pub measure: Measure,
}

/// One comparison.
pub struct Row {
    pub name: &'static str,
    pub unit: Unit,
    pub ours: Measure,
    pub baselines: Vec<Baseline>,
}

/// Runs the rows whose names contain one of `wanted` (all if it is empty), each contestant `rounds` times in turns, and
/// prints the table.
pub fn run(rows: &[fn() -> Row], wanted: &[String], rounds: usize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "| what | ours, median (least .. most) | baseline | its median (least .. most) | ours is | bar |"
    )?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- |")?;
    for make in rows {
        let mut row = make();
        if wanted.is_empty() || wanted.iter().any(|part| row.name.contains(part.as_str())) {
            measure(&mut row, rounds, &mut out)?;
        }
    }
    Ok(())
}

fn measure(row: &mut Row, rounds: usize, out: &mut impl Write) -> io::Result<()> {
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); row.baselines.len()];
    for round in 0..rounds {
        // Alternates the order, so that no contestant always runs after the same one.
        let ours_first = round % 2 == 0;
        if ours_first {
            ours.extend((row.ours)());
        }
        for (baseline, figures) in row.baselines.iter_mut().zip(&mut theirs) {
            figures.extend((baseline.measure)());
        }
        if !ours_first {
            ours.extend((row.ours)());
        }
    }
    for (baseline, figures) in row.baselines.iter().zip(&theirs) {
        let ratios: Vec<f64> = ours
            .iter()
            .zip(figures)
            .map(|(ours, theirs)| row.unit.speed_up(*ours, *theirs))
            .collect();
        let ratio = match spread(&ratios) {
            Some((least, median, most)) => format!("{median:.2} ({least:.2} .. {most:.2})"),
            None => "-".to_owned(),
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {ratio} | {} |",
            row.name,
            shown(&ours, row.unit),
            baseline.name,
            shown(figures, row.unit),
            baseline.bar
        )?;
    }
    out.flush()
}

fn shown(figures: &[f64], unit: Unit) -> String {
    match spread(figures) {
        Some((least, median, most)) => {
            format!("{median:.1} ({least:.1} .. {most:.1}) {}", unit.name())
        }
        None => "not installed".to_owned(),
    }
}

/// Least, median, greatest.
fn spread(figures: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = *sorted.get(sorted.len() / 2)?;
    Some((*sorted.first()?, median, *sorted.last()?))
}
