//! A comparison in sentences: "cephfs: records randwrite: 9 % slower than gluster (95 % CI 6 to 12), p99 11 % higher".

use super::model::{Comparison, FigureName, Row, Verdict};
use crate::figures;

/// Cells of a phase, mode and operation that each have a sentence; of more there is one about all.
const MOST_CELLS: usize = 3;

/// One sentence per cell, or per operation where there are many cells.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut loads: Vec<Vec<Vec<&Row>>> = Vec::new();
    // The row of the daemons' CPU has no operation of its own and belongs to the cell before it.
    let mut last: Option<(usize, usize)> = None;
    for row in &comparison.rows {
        let place = match (row.figure, last) {
            (FigureName::Cpu, Some(last)) => last,
            _ => cell_of(&mut loads, row),
        };
        if let Some(cell) = loads
            .get_mut(place.0)
            .and_then(|load| load.get_mut(place.1))
        {
            cell.push(row);
        }
        last = Some(place);
    }
    for cells in &loads {
        match cells.len() > MOST_CELLS {
            true => sentences.extend(of_many(comparison, cells)),
            false => sentences.extend(cells.iter().filter_map(|cell| of_cell(comparison, cell))),
        }
    }
    sentences
}

/// The place of a row's load and cell, which are made where there are none yet.
fn cell_of<'r>(loads: &mut Vec<Vec<Vec<&'r Row>>>, row: &'r Row) -> (usize, usize) {
    let first = |load: &Vec<Vec<&'r Row>>| load.first().and_then(|cell| cell.first().copied());
    let load = loads
        .iter()
        .position(|load| first(load).is_some_and(|known| is_same_load(known, row)));
    let load = load.unwrap_or_else(|| {
        loads.push(Vec::new());
        loads.len() - 1
    });
    let Some(cells) = loads.get_mut(load) else {
        return (load, 0);
    };
    let cell = cells
        .iter()
        .position(|cell| cell.first().is_some_and(|known| known.cell == row.cell));
    let cell = cell.unwrap_or_else(|| {
        cells.push(Vec::new());
        cells.len() - 1
    });
    (load, cell)
}

fn is_same_load(a: &Row, b: &Row) -> bool {
    (&a.phase, &a.group, &a.mode, &a.op) == (&b.phase, &b.group, &b.mode, &b.op)
}

fn of_cell(comparison: &Comparison, cell: &[&Row]) -> Option<String> {
    let first = cell.first()?;
    let find = |figure| cell.iter().find(|row| row.figure == figure).copied();
    let mut parts = Vec::new();
    if let Some(rate) = find(FigureName::Ops) {
        parts.push(of_rate(comparison, rate));
    }
    let p99 = find(FigureName::P99).or_else(|| find(FigureName::Mean));
    if let Some(row) = p99.filter(|row| row.verdict.is_shown()) {
        parts.push(format!(
            "{} {}{}",
            match row.figure {
                FigureName::P99 => "p99",
                _ => "mean latency",
            },
            more(row.ratio, "higher", "lower"),
            interval(row)
        ));
    }
    let mut sentence = format!("{}: {}", comparison.b.label, subject(first));
    sentence.push_str(": ");
    sentence.push_str(&parts.join(", "));
    if let Some(cpu) = find(FigureName::Cpu) {
        sentence.push_str(&format!("; {}", of_cpu(cpu)));
    }
    if !first.caveats.is_empty() {
        sentence.push_str(&format!(" [{}]", first.caveats.join(", ")));
    }
    sentence.push('.');
    Some(sentence)
}

fn of_rate(comparison: &Comparison, row: &Row) -> String {
    let than = &comparison.a.label;
    match row.verdict {
        Verdict::NotComparable => format!(
            "{} of {than}'s rate; not comparable: {}",
            times(row.ratio),
            row.why.as_deref().unwrap_or("no interval")
        ),
        Verdict::NoDifferenceShown => {
            format!("no difference to {than} shown{}", interval(row))
        }
        _ if is_percent(row.ratio) => format!(
            "{} than {than}{}",
            more(row.ratio, "faster", "slower"),
            interval(row)
        ),
        _ => format!("{} as fast as {than}{}", times(row.ratio), interval(row)),
    }
}

fn of_cpu(row: &Row) -> String {
    let who = match row.daemons.as_slice() {
        [one] => one.clone(),
        _ => String::from("daemons'"),
    };
    let changed = match is_percent(row.ratio) {
        true => more(row.ratio, "more", "less"),
        false => times(row.ratio),
    };
    let sure = match row.verdict {
        Verdict::NotComparable => String::from(" (one run: no interval)"),
        Verdict::NoDifferenceShown => format!(
            " (no difference shown{})",
            interval(row).replace(" (", ", ").replace(')', "")
        ),
        _ => interval(row),
    };
    format!("{who} CPU per operation {changed}{sure}")
}

fn of_many(comparison: &Comparison, cells: &[Vec<&Row>]) -> Option<String> {
    let first = cells.first()?.first()?;
    let rates: Vec<&Row> = cells
        .iter()
        .flatten()
        .filter(|row| row.figure == FigureName::Ops)
        .copied()
        .collect();
    if rates.is_empty() {
        return None;
    }
    let count = |verdict| rates.iter().filter(|row| row.verdict == verdict).count();
    let mut parts = Vec::new();
    for (verdict, word) in [
        (Verdict::Slower, "slower"),
        (Verdict::Faster, "faster"),
        (Verdict::NoDifferenceShown, "no difference shown"),
        (Verdict::NotComparable, "not comparable"),
    ] {
        match count(verdict) {
            0 => {}
            all if all == rates.len() => parts.push(format!("{word} in all {all} cells")),
            some => parts.push(format!("{word} in {some} of {} cells", rates.len())),
        }
    }
    let logs: f64 = rates.iter().map(|row| row.ratio.ln()).sum();
    let mean = (logs / benchmesh_analysis::real(rates.len())).exp();
    let ratios = rates.iter().map(|row| row.ratio);
    let least = ratios.clone().fold(f64::INFINITY, f64::min);
    let most = ratios.fold(0.0, f64::max);
    let flagged = cells
        .iter()
        .flatten()
        .filter(|row| row.figure == FigureName::Ops && !row.caveats.is_empty())
        .count();
    let flagged = match flagged {
        0 => String::new(),
        some => format!(" [{some} flagged]"),
    };
    let words = [
        first.phase.as_str(),
        &first.group,
        &first.mode,
        op_word(first),
    ];
    Some(format!(
        "{}: {}: {}; {} of {}'s rate in the geometric mean ({} to {}){flagged}.",
        comparison.b.label,
        words
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
        parts.join(", "),
        times(mean),
        comparison.a.label,
        plain_times(least),
        plain_times(most),
    ))
}

fn op_word(row: &Row) -> &str {
    match row.op == row.mode {
        true => "",
        false => &row.op,
    }
}

/// Phase, group, mode, operation and the cell's values.
pub fn subject(row: &Row) -> String {
    let mut words: Vec<String> = [row.phase.as_str(), &row.group, &row.mode, op_word(row)]
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.dedup();
    words.extend(
        row.cell
            .iter()
            .map(|(key, value)| format!("{key}={}", figures::parameter(value))),
    );
    words.join(" ")
}

fn is_percent(ratio: f64) -> bool {
    (0.5..2.0).contains(&ratio)
}

/// `9.3 % higher`, or `2.1 times`.
fn more(ratio: f64, up: &str, down: &str) -> String {
    match is_percent(ratio) {
        true => {
            let word = if ratio > 1.0 { up } else { down };
            format!("{} % {word}", percent((ratio - 1.0).abs() * 100.0))
        }
        false => times(ratio),
    }
}

fn times(ratio: f64) -> String {
    format!("{} times", plain_times(ratio))
}

fn plain_times(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 9.95 => format!("{ratio:.0}"),
        _ if ratio >= 1.995 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

fn percent(value: f64) -> String {
    match value.abs() {
        size if size >= 9.95 => format!("{value:.0}"),
        size if size >= 0.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// ` (95 % CI 6.1 to 12)`: in percent of the change where that is given in percent, and in the direction of the sentence.
fn interval(row: &Row) -> String {
    let (Some(low), Some(high)) = (row.low, row.high) else {
        return String::new();
    };
    let change = |ratio: f64| (ratio - 1.0) * 100.0;
    if !is_percent(row.ratio) {
        return format!(" (95 % CI {} to {})", plain_times(low), plain_times(high));
    }
    match (row.verdict.is_shown(), row.ratio > 1.0) {
        (true, true) => format!(
            " (95 % CI {} to {})",
            percent(change(low)),
            percent(change(high))
        ),
        (true, false) => format!(
            " (95 % CI {} to {})",
            percent(-change(high)),
            percent(-change(low))
        ),
        (false, _) => format!(
            " (95 % CI {} to {} %)",
            signed(change(low)),
            signed(change(high))
        ),
    }
}

fn signed(value: f64) -> String {
    match value > 0.0 {
        true => format!("+{}", percent(value)),
        false => percent(value),
    }
}

/// A change as tables show it: `-9.3 %`, `2.1 x`.
pub fn change(ratio: f64) -> String {
    change_like(ratio, ratio)
}

/// The same in the unit of another change, so that the ends of an interval are written like the ratio between them.
pub fn change_like(ratio: f64, other: f64) -> String {
    match is_percent(other) {
        true => format!("{} %", signed((ratio - 1.0) * 100.0)),
        false => format!("{} x", plain_times(ratio)),
    }
}
