//! Caveats of a side within the compared time: its flags, its losses, and the events of its steps.

use super::cell::{self, MeasuredCell};
use super::model::Side;
use super::pairs::{Pair, RepeatGroup};
use benchmesh_results::{Flag, FlagRow, VerdictEffect, repeats};
use std::collections::BTreeSet;

/// Maximum number of listed events of one side; the others are counted.
const MAX_EVENTS_LISTED: usize = 2;
/// Maximum number of shown characters of an event's message.
const MESSAGE: usize = 90;

/// The repeats to compare: the complete ones if there are any, otherwise all.
pub(super) fn without_lost(group: &RepeatGroup) -> Vec<MeasuredCell> {
    repeats::counted(&group.repeats, MeasuredCell::has_result, |cell| {
        !is_lost(cell)
    })
}

/// Whether a cell's rate does not cover all its clients.
fn is_lost(cell: &MeasuredCell) -> bool {
    !repeats::is_whole(cell.partial, &cell.flags)
}

/// Both sides' repeats with their rates per client. `None` if no side has lost clients, or if a flag makes the rates
/// incomparable altogether.
pub(super) fn per_client(
    a: &[MeasuredCell],
    b: &[MeasuredCell],
) -> Option<(Vec<MeasuredCell>, Vec<MeasuredCell>)> {
    let mut both = a.iter().chain(b);
    let is_partial = both.clone().any(is_lost);
    let is_hopeless = |flag: &String| {
        Flag::row_of(flag).is_some_and(|row| row.verdict == VerdictEffect::NotComparable)
    };
    if !is_partial || both.any(|cell| cell.flags.iter().any(is_hopeless)) {
        return None;
    }
    Some((cell::per_client(a)?, cell::per_client(b)?))
}

/// The reason why the total rates of these repeats cannot be compared with another side's.
pub(super) fn is_of_fewer(cells: &[MeasuredCell], side: &Side) -> Option<String> {
    let lost = cells.iter().any(is_lost);
    lost.then(|| {
        format!(
            "{} is partial: its rate does not cover all its clients",
            side.label
        )
    })
}

/// Excluded repeats, events, and flags that weaken a verdict; a caveat of both sides appears once.
pub(super) fn caveats(
    pair: &Pair,
    kept_a: usize,
    kept_b: usize,
    a: &Side,
    b: &Side,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let (flags_a, flags_b) = (weakening(&pair.a), weakening(&pair.b));
    let of_both: Vec<&str> = flags_a
        .iter()
        .copied()
        .filter(|flag| flags_b.contains(flag))
        .collect();
    if !of_both.is_empty() {
        reasons.push(format!("both are {}", of_both.join(", ")));
    }
    for (group, kept, side, flags) in [(&pair.a, kept_a, a, flags_a), (&pair.b, kept_b, b, flags_b)]
    {
        let all = group.repeats.len();
        if kept < all {
            let left_out = all - kept;
            reasons.push(format!(
                "{left_out} of {all} repeats of {} failed or are partial and are left out",
                side.label
            ));
        }
        let own: Vec<&str> = flags
            .into_iter()
            .filter(|flag| !of_both.contains(flag))
            .collect();
        if !own.is_empty() {
            reasons.push(format!("{} is {}", side.label, own.join(", ")));
        }
        reasons.extend(events(group, side));
    }
    reasons
}

/// A side's flags that weaken a verdict, in the order of their table.
fn weakening(group: &RepeatGroup) -> Vec<&'static str> {
    let flags: BTreeSet<&str> = group
        .repeats
        .iter()
        .flat_map(|cell| {
            let partial = cell.partial.then_some("partial");
            cell.flags.iter().map(String::as_str).chain(partial)
        })
        .collect();
    let weakens = |row: &&FlagRow| row.verdict != VerdictEffect::Nothing;
    let known = Flag::ROWS.iter().filter(weakens).map(|row| row.name);
    known.filter(|name| flags.contains(name)).collect()
}

/// `while cephfs ran: ceph-fuse on e2 has ended`.
fn events(group: &RepeatGroup, side: &Side) -> Option<String> {
    let mut distinct: Vec<&str> = Vec::new();
    let all = group.repeats.iter().flat_map(|cell| &cell.events);
    let mut count = 0;
    for event in all {
        count += 1;
        if !distinct.contains(&event.as_str()) {
            distinct.push(event);
        }
    }
    if distinct.is_empty() {
        return None;
    }
    let short = |event: &&str| -> String {
        match event.char_indices().nth(MESSAGE) {
            Some((end, _)) => format!("{}...", event.get(..end).unwrap_or(event)),
            None => (*event).to_owned(),
        }
    };
    let mut parts: Vec<String> = distinct.iter().take(MAX_EVENTS_LISTED).map(short).collect();
    let more = count - parts.len();
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    Some(format!("while {} ran: {}", side.label, parts.join("; ")))
}
