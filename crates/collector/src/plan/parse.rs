//! From the plan's text to a `Plan`, or to all of its mistakes at once.

mod caches;
mod group;
mod params;
mod phase;
mod targets;

pub(super) use params::known_keys;

use super::{
    OnLoss, OnStall, Order, Plan, keys,
    read::Section,
    source::{Mistakes, Source, Spot},
};
use std::{path::Path, time::Duration};
use toml::de::{DeTable, DeValue};

/// A plan is for people; what is longer is not one.
const MAX_TEXT_BYTES: usize = 1 << 20;
const DEFAULT_LOSS_AFTER: Duration = Duration::from_secs(30);
/// Below this a busy collector would call healthy agents lost.
const MIN_LOSS_AFTER: Duration = Duration::from_secs(1);

pub(super) fn parse(source: &Source, mistakes: &mut Mistakes<'_>) -> Option<Plan> {
    if source.text.len() > MAX_TEXT_BYTES {
        mistakes.whole(
            format!(
                "the plan has {} bytes; at most {MAX_TEXT_BYTES} are read",
                source.text.len()
            ),
            "",
        );
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    if !errors.is_empty() {
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let spot = Spot {
                span,
                key: String::new(),
            };
            mistakes.at(&spot, format!("not TOML: {}", error.message()), "");
        }
        return None;
    }
    let mut top = Section::new(document.get_ref(), Spot::default());
    let name = top.text("name", mistakes);
    let repeat = top
        .count("repeat", 1..=1000, mistakes)
        .map_or(1, |(n, _)| n);
    let order = order(&mut top, mistakes);
    let (on_loss, on_loss_at) = on_loss(&mut top, mistakes);
    let on_stall = on_stall(&mut top, mistakes);
    let loss_after = match top.duration("loss-after", mistakes) {
        Some((given, spot)) if given < MIN_LOSS_AFTER => {
            mistakes.at(
                &spot,
                "shorter than 1s",
                "a healthy agent may be silent for so long; write 1s or more",
            );
            given
        }
        Some((given, _)) => given,
        None => DEFAULT_LOSS_AFTER,
    };
    let lease = top
        .duration("lease", mistakes)
        .map_or(DEFAULT_LOSS_AFTER, |(given, _)| given);
    let targets = targets::targets(&mut top, mistakes);
    let clients = targets::clients(&mut top, mistakes);
    let phases = phase::phases(&mut top, &targets, mistakes);
    top.refuse_rest(&keys::names(&[keys::TOP]), mistakes);
    let name = match name {
        Some((name, spot)) if name.trim().is_empty() => {
            mistakes.at(
                &spot,
                "the name is empty",
                "leave it out, or say what the run is called",
            );
            name
        }
        Some((name, _)) => name,
        None => file_stem(&source.file),
    };
    Some(Plan {
        name,
        repeat,
        order,
        on_loss,
        on_loss_at,
        on_stall,
        loss_after,
        lease,
        targets,
        clients,
        phases,
        source: source.clone(),
    })
}

fn file_stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(
        || String::from("plan"),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

fn order(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Order {
    let seed = top.count("seed", 0..=u32::MAX, mistakes);
    let order = match top.text("order", mistakes) {
        Some((word, _)) if word == "random" => {
            return Order::Random {
                seed: seed.map(|(seed, _)| seed),
            };
        }
        Some((word, _)) if word == "plan" => Order::Plan,
        Some((word, spot)) => {
            mistakes.at(
                &spot,
                format!("no order `{word}`"),
                "write \"plan\" or \"random\"",
            );
            return Order::Plan;
        }
        None => Order::Plan,
    };
    if let Some((_, spot)) = seed {
        mistakes.at(
            &spot,
            "a seed, and nothing that is drawn",
            "write order = \"random\" too, or remove the key",
        );
    }
    order
}

fn on_stall(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> OnStall {
    let Some((word, spot)) = top.text("on-stall", mistakes) else {
        return OnStall::Continue;
    };
    match word.as_str() {
        "continue" => OnStall::Continue,
        "abort" => OnStall::Abort,
        _ => {
            mistakes.at(&spot, "no such policy", "write \"continue\" or \"abort\"");
            OnStall::Continue
        }
    }
}

fn on_loss(top: &mut Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> (OnLoss, Spot) {
    const REMEDY: &str = "write \"continue\", \"abort\" or { at-least = 2 }";
    let Some((value, spot)) = top.take("on-loss") else {
        return (OnLoss::Continue, Spot::default());
    };
    match value {
        DeValue::String(word) if word == "continue" => return (OnLoss::Continue, spot),
        DeValue::String(word) if word == "abort" => return (OnLoss::Abort, spot),
        DeValue::Table(table) => {
            let mut section = Section::new(table, spot.clone());
            let least = section.count("at-least", 1..=100_000, mistakes);
            section.refuse_rest(&["at-least"], mistakes);
            if let Some((least, _)) = least {
                return (OnLoss::AtLeast(least), spot);
            }
            if table.is_empty() {
                mistakes.at(&spot, "an empty policy", REMEDY);
            }
        }
        _ => mistakes.at(&spot, "no such policy", REMEDY),
    }
    (OnLoss::Continue, spot)
}
