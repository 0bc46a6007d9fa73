//! Notes on a comparison as a whole.

use super::model::Side;
use super::pairs::Pair;
use super::rows::Judged;
use benchmesh_analysis::{Layout, Noise};
use std::collections::BTreeSet;

pub(super) fn notes(
    rows: &[Judged],
    pairs: &[Pair],
    a: &Side,
    b: &Side,
    layout: Layout,
) -> Vec<String> {
    let mut notes = Vec::new();
    let judged: Vec<&Judged> = rows
        .iter()
        .filter(|one| one.row.judged && one.row.p.is_some())
        .collect();
    let by = |noise: Noise| {
        judged
            .iter()
            .any(|one| one.contrast.is_some_and(|contrast| contrast.noise == noise))
    };
    if by(Noise::Seconds) {
        notes.push(String::from(
            "Where each side is one run, the interval comes from its own seconds and does not include differences \
             between repeats or runs.",
        ));
    }
    if layout == Layout::Apart && by(Noise::Repeats) {
        notes.push(String::from(
            "Each side is one run: the noise between runs is unknown, and repeats of one run do not show it.",
        ));
    }
    if by(Noise::Runs) && (a.runs.len() == 1 || b.runs.len() == 1) {
        notes.push(String::from(
            "One side is one run: the noise between the runs of the other side is assumed for it, and at least its own.",
        ));
    }
    if by(Noise::Pairs) {
        notes.push(String::from(
            "Repeats of both sides alternated and are compared pair by pair.",
        ));
    }
    if judged.len() > 1 {
        notes.push(format!(
            "One figure of each load is judged; verdicts and their intervals are corrected for {} loads (Holm). \
             Figures without a verdict are listed with plain 95 % intervals.",
            judged.len()
        ));
    }
    for side in [a, b] {
        for run in &side.runs {
            if let Some(tool) = &run.imported_from {
                notes.push(format!("Run {} was imported from {tool}.", run.id));
            }
            match run.state.as_str() {
                "failed" => notes.push(format!("Run {} failed.", run.id)),
                "stopped" => notes.push(format!("Run {} was stopped.", run.id)),
                _ => {}
            }
        }
    }
    let unknown: BTreeSet<&String> = pairs.iter().flat_map(|pair| &pair.one_sided).collect();
    if !unknown.is_empty() {
        let keys: Vec<&str> = unknown.into_iter().map(String::as_str).collect();
        notes.push(format!(
            "Only one side has a value of: {}.",
            keys.join(", ")
        ));
    }
    notes
}
