//! `zip`: keys of a matrix that advance together.

use super::super::{
    matrix::{Axis, Dimension},
    read::{Section, kind},
    source::{Mistakes, ValuePosition, listed},
};
use benchmesh_workloads::params::nearest;
use std::collections::BTreeSet;
use toml::{
    Spanned,
    de::{DeArray, DeValue},
};

const EXAMPLE: &str =
    "write zip = [[\"bs\", \"iodepth\"]], two keys of the matrix or more in each list";

/// The axes of a phase's matrix. A zip takes the position of its first key.
pub(super) fn axes<'t, 'i>(
    section: &mut Section<'t, 'i>,
    matrix: impl FnOnce(&mut Section<'t, 'i>, &mut Mistakes<'_>) -> Vec<Dimension>,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Axis> {
    let before = mistakes.count();
    let dimensions = matrix(section, mistakes);
    // A key of the matrix that could not be read would be reported as missing here.
    let zips = match mistakes.count() == before {
        true => zips(section, &dimensions, mistakes),
        false => Vec::new(),
    };
    let mut axes: Vec<(Option<usize>, Axis)> = Vec::new();
    for (index, dimension) in dimensions.into_iter().enumerate() {
        let zip = zips.iter().position(|keys| keys.contains(&index));
        let known = axes
            .iter_mut()
            .find(|(own, _)| own.is_some() && *own == zip);
        match known {
            Some((_, axis)) => axis.keys.push(dimension),
            None => axes.push((zip, Axis::of(dimension))),
        }
    }
    let axes: Vec<Axis> = axes.into_iter().map(|(_, axis)| axis).collect();
    for axis in &axes {
        refuse_twins(axis, mistakes);
    }
    axes
}

/// The dimensions of each zip, by their index.
fn zips(
    section: &mut Section<'_, '_>,
    dimensions: &[Dimension],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<usize>> {
    let Some((value, position)) = section.take("zip") else {
        return Vec::new();
    };
    let Some(lists) = value.as_array().filter(|lists| !lists.is_empty()) else {
        let reason = match value {
            DeValue::Array(_) => String::from("the list is empty"),
            other => format!("expected lists of keys, found {}", kind(other)),
        };
        mistakes.at(&position, reason, EXAMPLE);
        return Vec::new();
    };
    let mut taken = BTreeSet::new();
    let mut zips = Vec::new();
    for list in lists.iter() {
        let at = place(&position, list);
        let Some(words) = list.get_ref().as_array() else {
            let reason = format!("expected a list of keys, found {}", kind(list.get_ref()));
            mistakes.at(&at, reason, EXAMPLE);
            continue;
        };
        if words.len() < 2 {
            let reason = "fewer than two keys, so nothing advances together";
            mistakes.at(&at, reason, EXAMPLE);
            continue;
        }
        zips.push(keys(words, &position, dimensions, &mut taken, mistakes));
    }
    zips
}

fn place(zip: &ValuePosition, value: &Spanned<DeValue<'_>>) -> ValuePosition {
    ValuePosition {
        span: value.span(),
        key: zip.key.clone(),
    }
}

/// The keys of one list; `taken` are those of earlier lists.
fn keys(
    words: &DeArray<'_>,
    position: &ValuePosition,
    dimensions: &[Dimension],
    taken: &mut BTreeSet<usize>,
    mistakes: &mut Mistakes<'_>,
) -> Vec<usize> {
    let mut keys: Vec<usize> = Vec::new();
    for word in words.iter() {
        let at = place(position, word);
        let Some(name) = word.get_ref().as_str() else {
            let reason = format!("expected text in quotes, found {}", kind(word.get_ref()));
            mistakes.at(&at, reason, EXAMPLE);
            continue;
        };
        let found = dimensions
            .iter()
            .enumerate()
            .find(|(_, it)| it.name() == name);
        let Some((index, dimension)) = found else {
            refuse_unknown(name, &at, dimensions, mistakes);
            continue;
        };
        if !taken.insert(index) {
            let reason = format!("`{name}` is listed twice in `zip`");
            mistakes.at(&at, reason, "a key can be in only one list");
            continue;
        }
        let first = keys.first().and_then(|index| dimensions.get(*index));
        if let Some(first) = first
            && first.values.len() != dimension.values.len()
        {
            let values = |count: usize| match count {
                1 => String::from("1 value"),
                _ => format!("{count} values"),
            };
            mistakes.at(
                &at,
                format!(
                    "`{name}` has {} in matrix, and `{}` has {}",
                    values(dimension.values.len()),
                    first.name(),
                    values(first.values.len())
                ),
                "give keys that advance together the same number of values",
            );
            continue;
        }
        keys.push(index);
    }
    keys
}

fn refuse_unknown(
    name: &str,
    at: &ValuePosition,
    dimensions: &[Dimension],
    mistakes: &mut Mistakes<'_>,
) {
    let known: Vec<String> = dimensions.iter().map(Dimension::name).collect();
    let known = || known.iter().map(String::as_str);
    let remedy = match nearest(name, known()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("its keys: {}", listed(known())),
    };
    let reason = format!("the phase's matrix has no key `{name}`");
    mistakes.at(at, reason, remedy);
}

/// Refuses duplicate cells.
fn refuse_twins(axis: &Axis, mistakes: &mut Mistakes<'_>) {
    let reason = match axis.keys.as_slice() {
        [_] => "the value is listed twice",
        _ => "the same combination of values is listed twice",
    };
    let values = |index: usize| axis.values(index).map(|(value, _)| value);
    for index in 0..axis.len() {
        let is_twin = (0..index).any(|earlier| values(earlier).eq(values(index)));
        if is_twin && let Some((_, at)) = axis.values(index).next() {
            mistakes.at(at, reason, "");
        }
    }
}
