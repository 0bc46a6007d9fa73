//! `--set K=V`: replaces or adds values in the plan's text and keeps every other character.
//!
//! Because it edits the text, the plan that is shown, stored and checked is the same. A replaced value keeps its number
//! of lines, and an added line ends in `SET_MARK`, so messages refer to the lines of the user's file.

use super::{
    errors::{PlanError, PlanErrors},
    keys::{LoadKeys, PhaseKeys, TopKeys, names},
    parse, presets,
    source::{SET_MARK, listed},
    toml_text::{array, quoted},
};
use benchmesh_model::text::is_hidden;
use benchmesh_workloads::{
    params::{Keys, nearest},
    registry,
};
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The key whose value is a list of words, which need no brackets here.
const MODES: &str = "modes";

pub(super) fn set(text: &str, file: &str, overrides: &[String]) -> Result<String, PlanErrors> {
    let mut text = text.to_owned();
    let mut errors = Vec::new();
    for given in overrides {
        match set_one(&text, given) {
            Ok(changed) => text = changed,
            Err((reason, remedy)) => errors.push(PlanError {
                place: None,
                key: String::new(),
                reason: format!("--set {given}: {reason}"),
                remedy,
            }),
        }
    }
    if errors.is_empty() {
        return Ok(text);
    }
    Err(PlanErrors {
        file: file.to_owned(),
        errors,
    })
}

/// Reason and remedy.
type SetRefusal = (String, String);

fn refuse<T>(reason: impl Into<String>, remedy: impl Into<String>) -> Result<T, SetRefusal> {
    Err((reason.into(), remedy.into()))
}

/// One change of the text.
#[derive(Debug)]
struct Edit {
    span: Range<usize>,
    text: String,
}

/// A table of the document, and the bytes of its header, or of the whole table if it is inline.
struct SpannedTable<'d, 'i> {
    table: &'d DeTable<'i>,
    span: Range<usize>,
}

fn set_one(text: &str, given: &str) -> Result<String, SetRefusal> {
    let Some((key, value)) = given.split_once('=') else {
        return refuse("there is no `=`", "write --set KEY=VALUE");
    };
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() {
        return refuse("there is no key", "write --set KEY=VALUE");
    }
    let is_list = key == MODES || key.ends_with(".modes");
    let value = match value {
        words if is_list && !words.starts_with('[') => list_of_words(words),
        value => toml_value(value)?,
    };
    let Ok(document) = DeTable::parse(text) else {
        // The plan's own mistakes are reported, with their lines, when it is parsed.
        return Ok(text.to_owned());
    };
    let root = SpannedTable {
        table: document.get_ref(),
        span: 0..0,
    };
    let mut edits = edits(text, &root, key, &value)?;
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.span.start));
    let mut changed = text.to_owned();
    for edit in edits {
        changed.replace_range(edit.span, &edit.text);
    }
    Ok(changed)
}

/// `read,write`: a list without TOML's brackets and quotes.
fn list_of_words(given: &str) -> String {
    let words: Vec<&str> = given
        .split(',')
        .map(|word| word.trim().trim_matches('"'))
        .collect();
    array(&words)
}

/// A value that is not valid TOML is treated as a string: `size=1g`, `path=/mnt/x`.
fn toml_value(given: &str) -> Result<String, SetRefusal> {
    if given.chars().any(is_hidden) {
        return refuse("the value contains a control character", "");
    }
    if !given.is_empty() && DeValue::parse(given).is_ok() {
        return Ok(given.to_owned());
    }
    Ok(quoted(given))
}

fn edits(
    text: &str,
    root: &SpannedTable<'_, '_>,
    key: &str,
    value: &str,
) -> Result<Vec<Edit>, SetRefusal> {
    let (first, rest) = match key.split_once('.') {
        None => return bare(text, root, key, value),
        Some(parts) => parts,
    };
    match first {
        "targets" => {
            let Some((name, key)) = rest.rsplit_once('.') else {
                return refuse(
                    "the key of the target is missing",
                    "write --set targets.NAME.path=/...",
                );
            };
            let targets = child(root, "targets");
            let Some(target) = targets.as_ref().and_then(|targets| child(targets, name)) else {
                let known: Vec<&str> = targets
                    .iter()
                    .flat_map(|targets| targets.table.keys().map(|key| key.get_ref().as_ref()))
                    .collect();
                return refuse(
                    format!("the plan has no target `{name}`"),
                    format!("its targets: {}", listed(known)),
                );
            };
            Ok(vec![edit(text, &target, key, value)?])
        }
        "clients" => match child(root, "clients") {
            Some(clients) => Ok(vec![edit(text, &clients, rest, value)?]),
            None => {
                let gap = if text.is_empty() || text.ends_with('\n') {
                    ""
                } else {
                    "\n"
                };
                Ok(vec![Edit {
                    span: text.len()..text.len(),
                    text: format!(
                        "{gap}[clients] {SET_MARK}\n{} = {value} {SET_MARK}\n",
                        spelled(rest)
                    ),
                }])
            }
        },
        "phase" => in_phase(text, root, rest, value),
        _ => {
            let remedy = "write KEY, targets.NAME.KEY, clients.KEY or phase.INDEX.KEY";
            refuse(format!("unknown key `{first}`"), remedy)
        }
    }
}

/// `phase.INDEX.KEY`, `phase.NAME.KEY`, `phase.INDEX.matrix.KEY`.
fn in_phase(
    text: &str,
    root: &SpannedTable<'_, '_>,
    path: &str,
    value: &str,
) -> Result<Vec<Edit>, SetRefusal> {
    let all = phases(root);
    let Some((which, key)) = path.split_once('.') else {
        return refuse(
            "the key of the phase is missing",
            "write --set phase.1.size=1g",
        );
    };
    let found = match which.parse::<usize>() {
        Ok(number) => number.checked_sub(1).and_then(|index| all.get(index)),
        Err(_) => all
            .iter()
            .find(|phase| name_of(phase).as_deref() == Some(which)),
    };
    let Some(phase) = found else {
        let known: Vec<String> = all
            .iter()
            .enumerate()
            .map(|(index, phase)| format!("{} ({})", index + 1, name_of(phase).unwrap_or_default()))
            .collect();
        return refuse(
            format!("the plan has no phase `{which}`"),
            format!(
                "its phases, counted from 1: {}",
                listed(known.iter().map(String::as_str))
            ),
        );
    };
    if let Some(key) = key.strip_prefix("matrix.") {
        return match child(phase, "matrix") {
            Some(matrix) => Ok(vec![edit(text, &matrix, key, value)?]),
            None => Ok(vec![edit(
                text,
                phase,
                "matrix",
                &format!("{{ {} = {value} }}", spelled(key)),
            )?]),
        };
    }
    Ok(vec![in_one_phase(text, phase, key, value)?])
}

/// A key without a path: the plan's own, or that of every phase that has or accepts it.
fn bare(
    text: &str,
    root: &SpannedTable<'_, '_>,
    key: &str,
    value: &str,
) -> Result<Vec<Edit>, SetRefusal> {
    let tables = ["targets", "clients", "phase"];
    let own: Vec<&str> = names(&[TopKeys::all()])
        .into_iter()
        .filter(|name| !tables.contains(name))
        .collect();
    if own.contains(&key) {
        return Ok(vec![edit(text, root, key, value)?]);
    }
    let mut edits = Vec::new();
    let mut known = own;
    known.extend(names(&[PhaseKeys::all(), LoadKeys::all()]));
    for phase in phases(root) {
        let workload = text_of(&phase, "workload").and_then(|name| registry::find(&name));
        let preset = text_of(&phase, "preset").and_then(|name| presets::find(&name));
        let taken = match (workload, preset) {
            (Some(workload), _) => parse::known_keys(workload),
            (None, Some(preset)) => parse::keys_of_preset(preset),
            (None, None) => Vec::new(),
        };
        if taken.contains(&key) || phase.table.contains_key(key) {
            edits.push(in_one_phase(text, &phase, key, value)?);
        }
        known.extend(taken);
    }
    if edits.is_empty() {
        let remedy = nearest(key, known.into_iter()).map_or_else(String::new, |candidate| {
            format!("did you mean `{candidate}`?")
        });
        return refuse(format!("no phase has or takes the key `{key}`"), remedy);
    }
    Ok(edits)
}

/// A key in the phase's matrix is set there, to this single value.
fn in_one_phase(
    text: &str,
    phase: &SpannedTable<'_, '_>,
    key: &str,
    value: &str,
) -> Result<Edit, SetRefusal> {
    if let Some(matrix) = child(phase, "matrix")
        && matrix.table.contains_key(key)
    {
        let list = if value.starts_with('[') {
            value.to_owned()
        } else {
            format!("[{value}]")
        };
        return edit(text, &matrix, key, &list);
    }
    edit(text, phase, key, value)
}

fn edit(
    text: &str,
    place: &SpannedTable<'_, '_>,
    key: &str,
    value: &str,
) -> Result<Edit, SetRefusal> {
    if let Some(old) = place.table.get(key) {
        let span = old.span();
        let written = text.get(span.clone()).unwrap_or_default();
        if old.get_ref().is_table() && !written.starts_with('{') {
            return refuse(
                format!("`{key}` is a table"),
                format!("set one of its keys: {key}.KEY=VALUE"),
            );
        }
        let lines = "\n".repeat(written.matches('\n').count());
        return Ok(Edit {
            span,
            text: format!("{value}{lines}"),
        });
    }
    let key = spelled(key);
    if place.span.is_empty() {
        return Ok(Edit {
            span: 0..0,
            text: format!("{key} = {value} {SET_MARK}\n"),
        });
    }
    let start = text.get(place.span.clone()).unwrap_or_default();
    if start.starts_with('[') {
        let end = text
            .get(place.span.end..)
            .and_then(|rest| rest.find('\n'))
            .map_or(text.len(), |offset| place.span.end + offset);
        return Ok(Edit {
            span: end..end,
            text: format!("\n{key} = {value} {SET_MARK}"),
        });
    }
    if start.starts_with('{') {
        let comma = if place.table.is_empty() { "" } else { "," };
        let at = place.span.start + 1;
        return Ok(Edit {
            span: at..at,
            text: format!(" {key} = {value}{comma}"),
        });
    }
    refuse(
        format!("`{key}` cannot be set here"),
        "write it in the plan",
    )
}

fn spelled(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

fn child<'d, 'i>(place: &SpannedTable<'d, 'i>, key: &str) -> Option<SpannedTable<'d, 'i>> {
    let value: &'d Spanned<DeValue<'i>> = place.table.get(key)?;
    Some(SpannedTable {
        table: value.get_ref().as_table()?,
        span: value.span(),
    })
}

fn phases<'d, 'i>(root: &SpannedTable<'d, 'i>) -> Vec<SpannedTable<'d, 'i>> {
    let list = root
        .table
        .get("phase")
        .and_then(|value| value.get_ref().as_array());
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter_map(|item| {
            Some(SpannedTable {
                table: item.get_ref().as_table()?,
                span: item.span(),
            })
        })
        .collect()
}

fn text_of(place: &SpannedTable<'_, '_>, key: &str) -> Option<String> {
    Some(place.table.get(key)?.get_ref().as_str()?.to_owned())
}

/// The phase's name: its own, or that of its preset or workload.
fn name_of(phase: &SpannedTable<'_, '_>) -> Option<String> {
    ["name", "preset", "workload"]
        .into_iter()
        .find_map(|key| text_of(phase, key))
}
