//! A comparison in sentences: "cephfs: records randwrite: 9 % slower than gluster (95 % CI 6 to 12), p99 11 % higher".

use super::model::{Comparison, ComparisonRow, FigureName, Verdict};
use benchmesh_workloads::figures;

/// Maximum number of cells of a phase, mode and operation with a sentence each; more share one sentence.
const MAX_CELLS: usize = 3;

/// Maximum number of findings of one side that get a sentence.
const MAX_NEW: usize = 5;

/// One sentence per cell, or per operation if there are many cells.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut loads: Vec<Vec<Vec<&ComparisonRow>>> = Vec::new();
    // The row of the daemons' CPU has no operation and belongs to the cell before it.
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
        match cells.len() > MAX_CELLS {
            true => sentences.extend(of_many(comparison, cells)),
            false => sentences.extend(cells.iter().filter_map(|cell| of_cell(comparison, cell))),
        }
    }
    sentences
}

/// Sentences about the first findings of side B only.
pub(super) fn of_new(comparison: &Comparison) -> Vec<String> {
    let new = &comparison.new_findings;
    let shown = new.get(..MAX_NEW).unwrap_or(new);
    let mut sentences: Vec<String> = shown
        .iter()
        .map(|one| {
            format!(
                "new since {}: {}: {}",
                comparison.a.label, one.kind, one.sentence
            )
        })
        .collect();
    if let Some(more) = new.len().checked_sub(MAX_NEW).filter(|more| *more > 0) {
        sentences.push(format!(
            "{} more that {} did not have",
            figures::plural(more, "finding"),
            comparison.a.label
        ));
    }
    sentences
}

/// The position of a row's load and cell, which are created if they do not exist yet.
fn cell_of<'r>(
    loads: &mut Vec<Vec<Vec<&'r ComparisonRow>>>,
    row: &'r ComparisonRow,
) -> (usize, usize) {
    let first =
        |load: &Vec<Vec<&'r ComparisonRow>>| load.first().and_then(|cell| cell.first().copied());
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

fn is_same_load(a: &ComparisonRow, b: &ComparisonRow) -> bool {
    (&a.phase, &a.group, &a.mode, &a.op) == (&b.phase, &b.group, &b.mode, &b.op)
}

fn of_cell(comparison: &Comparison, cell: &[&ComparisonRow]) -> Option<String> {
    let first = cell.first()?;
    let find = |figure| cell.iter().find(|row| row.figure == figure).copied();
    let mut parts = Vec::new();
    let judged = cell.iter().find(|row| row.judged)?;
    parts.push(of_judged(comparison, judged));
    let latency = find(FigureName::P99).or_else(|| find(FigureName::Mean));
    if let Some(row) = latency.filter(|row| leaves_out_1(row)) {
        let name = match row.figure {
            FigureName::P99 => "p99",
            _ => "mean latency",
        };
        let changed = more(row.ratio, "higher", "lower");
        parts.push(format!("{name} {changed}{}", interval(row)));
    }
    let mut sentence = format!("{}: {}", comparison.b.label, subject(first));
    sentence.push_str(": ");
    sentence.push_str(&parts.join(", "));
    if let Some(cpu) = find(FigureName::Cpu) {
        sentence.push_str(&format!("; {}", of_cpu(cpu)));
    }
    let caveats = bracketed(comparison, first);
    if !caveats.is_empty() {
        sentence.push_str(&format!(" [{}]", caveats.join("; ")));
    }
    sentence.push('.');
    Some(sentence)
}

/// The caveats of a sentence.
fn bracketed(comparison: &Comparison, row: &ComparisonRow) -> Vec<String> {
    let mut caveats = row.caveats.clone();
    let (a, b) = (&comparison.a, &comparison.b);
    // Run-to-run noise affects all targets of one run alike.
    let is_one_run = a.target.is_none() && a.runs.len() == 1 && b.runs.len() == 1;
    if is_one_run && row.p.is_some() {
        caveats.push(String::from(
            "one run on each side: run-to-run noise is unknown",
        ));
    }
    caveats
}

fn leaves_out_1(row: &ComparisonRow) -> bool {
    row.low.is_some_and(|low| low > 1.0) || row.high.is_some_and(|high| high < 1.0)
}

fn of_judged(comparison: &Comparison, row: &ComparisonRow) -> String {
    let than = &comparison.a.label;
    let why = row.why.as_deref().unwrap_or("no interval");
    let relation = relation(comparison, row);
    match row.verdict {
        Verdict::NotComparable if why.contains("is partial") => {
            format!("not comparable with {than}: {why}")
        }
        Verdict::NotComparable => format!("{relation}, uncertainty unknown: {why}"),
        Verdict::TooFewRepeats => format!(
            "{relation}{}, too few repeats to tell: {why}",
            interval(row)
        ),
        Verdict::NoDifferenceShown => format!(
            "no difference to {than} shown: {}{}{}",
            name_of(row),
            change(row.ratio),
            interval(row)
        ),
        Verdict::Better | Verdict::Worse => {
            format!("{relation}{}: {}", interval(row), row.verdict.as_str())
        }
        _ => format!("{relation}{}", interval(row)),
    }
}

/// The figure of a judged row, before its change.
fn name_of(row: &ComparisonRow) -> &'static str {
    match row.figure {
        FigureName::Response => "response p99 ",
        _ if row.per_client => "per client ",
        _ => "",
    }
}

/// `9.0 % slower than gluster`, `12 times as fast as gluster`, `gluster is 12 times as fast`: a multiple is that of the
/// side with more.
fn relation(comparison: &Comparison, row: &ComparisonRow) -> String {
    let (than, of) = (&comparison.a.label, name_of(row));
    let is_less = is_of_side_a(row);
    let many = plain_times(row.ratio.max(1.0 / row.ratio));
    match row.figure {
        FigureName::Share | FigureName::Jitter => {
            let [a, b] = [row.a.value, row.b.value].map(|value| match row.figure {
                FigureName::Share => format!("{} %", figures::rate(value)),
                _ => format!("{} ms", figures::millis(value)),
            });
            format!("{b}, {than} {a}")
        }
        FigureName::Response => match is_percent(row.ratio) {
            true => format!("{of}{} than {than}", more(row.ratio, "higher", "lower")),
            false if is_less => format!("{of}of {than} is {many} times as high"),
            false => format!("{of}{many} times that of {than}"),
        },
        _ => match is_percent(row.ratio) {
            true => format!("{of}{} than {than}", more(row.ratio, "faster", "slower")),
            false if is_less => format!("{of}{than} is {many} times as fast"),
            false => format!("{of}{many} times as fast as {than}"),
        },
    }
}

fn of_cpu(row: &ComparisonRow) -> String {
    let who = match row.daemons.as_slice() {
        [one] => one.clone(),
        _ => String::from("daemons'"),
    };
    let changed = match is_percent(row.ratio) {
        true => more(row.ratio, "more", "less"),
        false => times(row.ratio),
    };
    let sure = match row.p {
        Some(_) => interval(row),
        None => String::from(" (one run: no interval)"),
    };
    format!("{who} CPU per operation {changed}{sure}")
}

fn of_many(comparison: &Comparison, cells: &[Vec<&ComparisonRow>]) -> Option<String> {
    let first = cells.first()?.first()?;
    let rates: Vec<&ComparisonRow> = cells
        .iter()
        .flatten()
        .filter(|row| row.judged)
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
        (Verdict::Worse, "worse"),
        (Verdict::Better, "better"),
        (Verdict::NoDifferenceShown, "no difference shown"),
        (Verdict::TooFewRepeats, "too few repeats to tell"),
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
        .filter(|row| row.judged && !row.caveats.is_empty())
        .count();
    let mut caveats: Vec<String> = Vec::new();
    if flagged > 0 {
        caveats.push(format!("{flagged} flagged"));
    }
    let mut events: Vec<&String> = rates
        .iter()
        .flat_map(|row| &row.caveats)
        .filter(|one| one.starts_with("while "))
        .collect();
    events.dedup();
    caveats.extend(events.into_iter().take(2).cloned());
    caveats.extend(bracketed(
        comparison,
        &ComparisonRow {
            caveats: Vec::new(),
            ..(*first).clone()
        },
    ));
    let flagged = match caveats.is_empty() {
        true => String::new(),
        false => format!(" [{}]", caveats.join("; ")),
    };
    let whose = match rates.first().map_or(first.figure, |row| row.figure) {
        FigureName::Response => "response p99",
        FigureName::Share => "share",
        FigureName::Jitter => "jitter",
        _ if rates.iter().any(|row| row.per_client) => "rate per client",
        _ => "rate",
    };
    let words = [
        first.phase.as_str(),
        &first.group,
        &first.mode,
        op_word(first),
    ];
    let words = words.into_iter().filter(|word| !word.is_empty());
    let (than, b) = (&comparison.a.label, &comparison.b.label);
    // A multiple is that of the side with more.
    let (lead, mean, least, most) = match mean < 0.5 {
        true => (
            format!("{than}'s {whose} is "),
            1.0 / mean,
            1.0 / most,
            1.0 / least,
        ),
        false => (String::new(), mean, least, most),
    };
    let of = match lead.is_empty() {
        true => format!("of {than}'s {whose}"),
        false => format!("that of {b}"),
    };
    Some(format!(
        "{b}: {}: {}; {lead}{} {of} in the geometric mean ({} to {}){flagged}.",
        words.collect::<Vec<_>>().join(" "),
        parts.join(", "),
        times(mean),
        plain_times(least),
        plain_times(most),
    ))
}

fn op_word(row: &ComparisonRow) -> &str {
    match row.op == row.mode {
        true => "",
        false => &row.op,
    }
}

/// Phase, group, mode, operation and the cell's values.
pub fn subject(row: &ComparisonRow) -> String {
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

/// `12`, `2.1`, `0.80`; below one half `1/2.1`, so that no ratio is rounded to 0.
fn plain_times(ratio: f64) -> String {
    match ratio {
        _ if ratio > 0.0 && ratio < 0.5 => format!("1/{}", plain_times(1.0 / ratio)),
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

/// ` (95 % CI -12 to -6.1 %)`: in the same form and unit as the change that it belongs to.
fn interval(row: &ComparisonRow) -> String {
    let (Some(low), Some(high)) = (row.low, row.high) else {
        return String::new();
    };
    match is_percent(row.ratio) && !row.figure.is_observed() {
        true => format!(
            " (95 % CI {} to {} %)",
            signed((low - 1.0) * 100.0),
            signed((high - 1.0) * 100.0)
        ),
        false => {
            let (low, high) = match is_of_side_a(row) {
                true => (1.0 / high, 1.0 / low),
                false => (low, high),
            };
            format!(
                " (95 % CI {} to {} times)",
                plain_times(low),
                plain_times(high)
            )
        }
    }
}

/// Whether [`relation`] says how many times the figure of side A is that of side B.
fn is_of_side_a(row: &ComparisonRow) -> bool {
    row.judged && !row.figure.is_observed() && row.ratio < 0.5
}

fn signed(value: f64) -> String {
    match value > 0.0 {
        true => format!("+{}", percent(value)),
        false => percent(value),
    }
}

/// A change as shown in tables: `-9.3 %`, `2.1 x`.
pub fn change(ratio: f64) -> String {
    change_like(ratio, ratio)
}

/// The same in the unit of another change, so that an interval's ends have the same form as the ratio.
pub fn change_like(ratio: f64, other: f64) -> String {
    match is_percent(other) {
        true => format!("{} %", signed((ratio - 1.0) * 100.0)),
        false => format!("{} x", plain_times(ratio)),
    }
}
