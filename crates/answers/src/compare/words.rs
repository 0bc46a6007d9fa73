//! The words that sentences and tables of comparisons share: the name of a load, and a change in one form.

use super::figure::percent;
use super::model::ComparisonRow;
use benchmesh_workloads::figures;

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

fn op_word(row: &ComparisonRow) -> &str {
    match row.op == row.mode {
        true => "",
        false => &row.op,
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

/// `12`, `2.1`, `0.80`; below one half `1/2.1`, so that no ratio is rounded to 0.
fn plain_times(ratio: f64) -> String {
    match ratio {
        _ if ratio > 0.0 && ratio < 0.5 => format!("1/{}", plain_times(1.0 / ratio)),
        _ if ratio >= 9.95 => format!("{ratio:.0}"),
        _ if ratio >= 1.995 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

fn is_percent(ratio: f64) -> bool {
    (0.5..2.0).contains(&ratio)
}

fn signed(value: f64) -> String {
    match value > 0.0 {
        true => format!("+{}", percent(value)),
        false => percent(value),
    }
}
