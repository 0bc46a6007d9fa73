//! Parses the plan's text into a `Plan`, or reports all of its mistakes at once.

mod caches;
mod group;
mod load;
mod params;
mod phase;
mod preset;
mod search;
mod steady;
mod targets;
mod zip;

pub(super) use params::known_keys;
pub(super) use preset::keys_of_preset;

use super::{
    Loops, OnLoss, Order, Plan,
    alarms::{alarms, objectives},
    keys::{OnLossKeys, OrderWord, TopKeys, names},
    read::Section,
    source::{Mistakes, PlanSource, ValuePosition},
};
use benchmesh_workloads::params::Keys;
use std::{ops::Range, path::Path};
use toml::de::{DeTable, DeValue};

/// Maximum size of a plan: it is written by hand.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum number of invalid TOML lines that are listed.
const MAX_ERRORS: usize = 50;

pub(super) fn parse(source: &PlanSource, mistakes: &mut Mistakes<'_>) -> Option<Plan> {
    if source.text.len() > MAX_TEXT_BYTES {
        mistakes.whole(
            format!(
                "the plan has {} bytes; at most {MAX_TEXT_BYTES} are allowed",
                source.text.len()
            ),
            "",
        );
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    if errors.is_empty() {
        return plan(source, document.get_ref(), mistakes);
    }
    let mut damaged: Vec<Range<usize>> = Vec::new();
    let more = errors.len().saturating_sub(MAX_ERRORS);
    for error in errors.into_iter().take(MAX_ERRORS) {
        let span = error.span().unwrap_or(0..0);
        if !damaged.iter().any(|section| section.contains(&span.start)) {
            damaged.push(section_of(&source.text, span.start));
        }
        let position = ValuePosition {
            span,
            key: String::new(),
        };
        mistakes.at(&position, format!("not TOML: {}", error.message()), "");
    }
    if more > 0 {
        // The unread rest of the text is not checked either.
        mistakes.whole(format!("{more} more lines are not TOML"), "");
        return None;
    }
    // The rest is still checked, but mistakes that may only follow from unreadable parts are dropped.
    let mut others = mistakes.fork();
    plan(source, document.get_ref(), &mut others);
    let targets_are_whole = !damaged
        .iter()
        .any(|section| source.text.get(section.clone()).is_some_and(is_of_targets));
    let names: Vec<String> = damaged
        .iter()
        .map(|section| name_of(&source.text, section))
        .collect();
    others.retain(|at, key| {
        // The parser substitutes unreadable values with ones that are not in the text.
        let is_in = |name: &String| {
            let rest = key.strip_prefix(name.as_str());
            !name.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let is_whole =
            !names.iter().any(is_in) && !damaged.iter().any(|section| section.contains(&at));
        is_whole && (targets_are_whole || !key.ends_with("target") && !key.ends_with("targets"))
    });
    mistakes.extend(others);
    None
}

/// The bytes of the table that holds the byte `at`: from its header to the next one.
fn section_of(text: &str, at: usize) -> Range<usize> {
    let is_header = |line: &&str| line.trim_start().starts_with('[');
    let mut begin = 0;
    let mut place = 0;
    for line in text.split_inclusive('\n') {
        if is_header(&line) {
            if place > at {
                return begin..place;
            }
            begin = place;
        }
        place += line.len();
    }
    begin..text.len().saturating_add(1)
}

/// The name that messages use for the table at these bytes: `phase.2`, `targets.cephfs`; empty for the top level.
fn name_of(text: &str, section: &Range<usize>) -> String {
    let header = |line: &str| {
        let name = line.trim_start().strip_prefix('[')?;
        let name = name.trim_start_matches('[').split(']').next()?;
        Some(name.trim().to_owned())
    };
    let end = section.end.min(text.len());
    let first = text
        .get(section.start..end)
        .and_then(|text| text.lines().next());
    let name = first.and_then(header).unwrap_or_default();
    if name != "phase" {
        return name;
    }
    let before = text.get(..section.start).unwrap_or_default().lines();
    let phases = before.filter_map(header).filter(|name| name == "phase");
    format!("phase.{}", phases.count() + 1)
}

fn is_of_targets(section: &str) -> bool {
    let header = section.trim_start().trim_start_matches('[').trim_start();
    header.starts_with("targets")
}

fn plan(source: &PlanSource, document: &DeTable<'_>, mistakes: &mut Mistakes<'_>) -> Option<Plan> {
    let mut top = Section::new(document, ValuePosition::default());
    let keys = top.keys::<TopKeys>(mistakes)?;
    let order = order(&mut top, &keys, mistakes);
    let loops = loops(&mut top, &keys, mistakes);
    let (on_loss, on_loss_at) = on_loss(&mut top, mistakes);
    let targets = targets::targets(&mut top, mistakes);
    let clients = targets::clients(&mut top, mistakes);
    let phases = phase::phases(&mut top, &targets, keys.scale, mistakes);
    let alarms = alarms(&mut top, mistakes);
    let objectives = objectives(&mut top, mistakes);
    top.refuse_rest(&names(&[TopKeys::all()]), mistakes);
    let name = keys.name.unwrap_or_else(|| file_stem(&source.file));
    if name.trim().is_empty() {
        let position = top
            .take("name")
            .map_or_else(ValuePosition::default, |(_, position)| position);
        mistakes.at(
            &position,
            "the name is empty",
            "leave it out, or name the run",
        );
    }
    Some(Plan {
        name,
        repeat: keys.repeat,
        loops,
        order,
        on_loss,
        on_loss_at,
        on_stall: keys.on_stall,
        loss_after: keys.loss_after.0,
        lease: keys.lease.0,
        targets,
        clients,
        phases,
        alarms,
        objectives,
        source: source.clone(),
    })
}

fn file_stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(
        || String::from("plan"),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

fn order(top: &mut Section<'_, '_>, keys: &TopKeys, mistakes: &mut Mistakes<'_>) -> Order {
    match (keys.order, keys.seed) {
        (OrderWord::Random, seed) => Order::Random { seed },
        (OrderWord::Alternate, None) => Order::Alternate,
        (OrderWord::Plan, None) => Order::Plan,
        (OrderWord::Plan | OrderWord::Alternate, Some(_)) => {
            if let Some((_, position)) = top.take("seed") {
                mistakes.at(
                    &position,
                    "a seed has no effect without a random order",
                    "write order = \"random\" too, or remove the key",
                );
            }
            Order::Plan
        }
    }
}

fn loops(top: &mut Section<'_, '_>, keys: &TopKeys, mistakes: &mut Mistakes<'_>) -> Loops {
    match (keys.loops, keys.loop_for) {
        (times, None) => Loops::Times(times.unwrap_or(1)),
        (None, Some(time)) => Loops::For(time.0),
        (Some(_), Some(time)) => {
            mistakes.at(
                &top.place_of("loop-for"),
                "a plan has either `loops` or `loop-for`",
                "remove one of them",
            );
            Loops::For(time.0)
        }
    }
}

fn on_loss(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> (OnLoss, ValuePosition) {
    const REMEDY: &str = "write \"continue\", \"abort\" or { at-least = 2 }";
    let Some((value, position)) = top.take("on-loss") else {
        return (OnLoss::Continue, ValuePosition::default());
    };
    match value {
        DeValue::String(word) if word == "continue" => return (OnLoss::Continue, position),
        DeValue::String(word) if word == "abort" => return (OnLoss::Abort, position),
        DeValue::Table(table) => {
            let mut section = Section::new(table, position.clone());
            let keys = section.keys::<OnLossKeys>(mistakes);
            section.refuse_rest(&names(&[OnLossKeys::all()]), mistakes);
            if let Some(keys) = keys {
                return (OnLoss::AtLeast(keys.at_least), position);
            }
        }
        _ => mistakes.at(&position, "no such policy", REMEDY),
    }
    (OnLoss::Continue, position)
}
