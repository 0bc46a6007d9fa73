//! Reads one TOML table key by key: what was not asked for in the end is an unknown key.
//!
//! Every reader puts its mistake into `Mistakes` and returns `None`, so that the rest is still read.

use super::source::{Mistakes, Spot, listed};
use benchmesh_workloads::{params::nearest, units};
use serde_json::{Map, Number, Value};
use std::{collections::BTreeSet, ops::Range, time::Duration};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A table, where it is, and the keys that have been asked for.
pub(crate) struct Section<'t, 'i> {
    pub table: &'t DeTable<'i>,
    pub spot: Spot,
    asked: BTreeSet<String>,
}

impl<'t, 'i> Section<'t, 'i> {
    pub fn new(table: &'t DeTable<'i>, spot: Spot) -> Self {
        Self {
            table,
            spot,
            asked: BTreeSet::new(),
        }
    }

    /// The path of `key` in this table.
    pub fn path(&self, key: &str) -> String {
        join(&self.spot.key, key)
    }

    /// The value of `key` and its spot.
    pub fn take(&mut self, key: &str) -> Option<(&'t DeValue<'i>, Spot)> {
        self.asked.insert(key.to_owned());
        let value = self.table.get(key)?;
        Some((value.get_ref(), self.spot_of(key, value.span())))
    }

    /// What is left, in the order of the file: key, its spot, value, the value's spot.
    pub fn rest(&self) -> Vec<(String, Spot, &'t DeValue<'i>, Spot)> {
        let mut rest: Vec<_> = self
            .table
            .iter()
            .filter(|(key, _)| !self.asked.contains(key.get_ref().as_ref()))
            .map(|(key, value)| {
                let name = key.get_ref().to_string();
                let at = self.spot_of(&name, key.span());
                let value_at = self.spot_of(&name, value.span());
                (name, at, value.get_ref(), value_at)
            })
            .collect();
        rest.sort_by_key(|(_, at, _, _)| at.span.start);
        rest
    }

    /// Refuses what is left; `known` are the keys that could have been meant.
    pub fn refuse_rest(&self, known: &[&str], mistakes: &mut Mistakes<'_>) {
        for (key, at, _, _) in self.rest() {
            unknown_key(&key, &at, known, mistakes);
        }
    }

    pub fn spot_of(&self, key: &str, span: Range<usize>) -> Spot {
        Spot {
            span,
            key: self.path(key),
        }
    }

    pub fn text(&mut self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<(String, Spot)> {
        let (value, spot) = self.take(key)?;
        let text = as_text(value, &spot, mistakes)?;
        Some((text, spot))
    }

    pub fn count(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<u32>,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(u32, Spot)> {
        let (value, spot) = self.take(key)?;
        let number = as_count(value, &range, &spot, mistakes)?;
        Some((number, spot))
    }

    pub fn duration(&mut self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<(Duration, Spot)> {
        let (value, spot) = self.take(key)?;
        let json = to_json(value, &spot, mistakes)?;
        match serde_json::from_value::<units::Span>(json) {
            Ok(units::Span(duration)) => Some((duration, spot)),
            Err(error) => {
                mistakes.at(
                    &spot,
                    in_words(&error.to_string()),
                    "write a number with its unit: 500ms, 30s, 10m, 72h",
                );
                None
            }
        }
    }

    /// A list of words.
    pub fn words(
        &mut self,
        key: &str,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(Vec<(String, Spot)>, Spot)> {
        let (value, spot) = self.take(key)?;
        let Some(array) = value.as_array() else {
            mistakes.at(
                &spot,
                format!("expected a list, found {}", kind(value)),
                format!("write {key} = [\"...\"]"),
            );
            return None;
        };
        let words = array
            .iter()
            .filter_map(|item| {
                let at = Spot {
                    span: item.span(),
                    key: spot.key.clone(),
                };
                as_text(item.get_ref(), &at, mistakes).map(|word| (word, at))
            })
            .collect();
        Some((words, spot))
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

pub(crate) fn unknown_key(key: &str, at: &Spot, known: &[&str], mistakes: &mut Mistakes<'_>) {
    let remedy = match nearest(key, known.iter().copied()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("known here: {}", listed(known.iter().copied())),
    };
    mistakes.at(at, format!("unknown key `{key}`"), remedy);
}

/// What a value is, in words.
pub(crate) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn as_text(value: &DeValue<'_>, spot: &Spot, mistakes: &mut Mistakes<'_>) -> Option<String> {
    match value.as_str() {
        Some(text) => Some(text.to_owned()),
        None => {
            mistakes.at(
                spot,
                format!("expected text in quotes, found {}", kind(value)),
                "",
            );
            None
        }
    }
}

pub(crate) fn as_count(
    value: &DeValue<'_>,
    range: &std::ops::RangeInclusive<u32>,
    spot: &Spot,
    mistakes: &mut Mistakes<'_>,
) -> Option<u32> {
    let number = value
        .as_integer()
        .and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok())
        .filter(|n| range.contains(n));
    if number.is_none() {
        let key = spot.key.rsplit('.').next().unwrap_or_default();
        let remedy = match (value, key) {
            (DeValue::Array(_), "clients" | "tasks-per-agent") => in_matrix(key),
            _ => String::new(),
        };
        mistakes.at(
            spot,
            format!(
                "expected a whole number from {} to {}",
                range.start(),
                range.end()
            ),
            remedy,
        );
    }
    number
}

/// What to do with a list where one value stands.
pub(crate) fn in_matrix(key: &str) -> String {
    format!("several values stand in matrix: matrix = {{ {key} = [...] }}")
}

/// What a library says of a value of the wrong kind, in the words of a plan.
pub(crate) fn in_words(message: &str) -> String {
    if let Some((found, known)) = message
        .strip_prefix("unknown variant ")
        .and_then(|rest| rest.split_once(", expected "))
    {
        let known = known.strip_prefix("one of ").unwrap_or(known);
        let known = known.replace("` or `", "` and `");
        return format!("there is no {found}; there are {known}");
    }
    let Some((found, expected)) = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.split_once(", expected "))
    else {
        return message.to_owned();
    };
    let found = match found.split_once(' ') {
        Some(("integer" | "boolean", value)) => value.to_owned(),
        Some(("floating", value)) => value.replacen("point ", "", 1),
        Some(("string", value)) => format!("the text {value}"),
        _ => match found {
            "sequence" => String::from("a list"),
            "map" => String::from("a table"),
            other => other.to_owned(),
        },
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        other => other,
    };
    format!("expected {expected}, found {found}")
}

/// A value as a workload's parameter crosses the wire.
pub(crate) fn to_json(
    value: &DeValue<'_>,
    spot: &Spot,
    mistakes: &mut Mistakes<'_>,
) -> Option<Value> {
    let json = match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Number(n.into()),
            Err(_) => {
                mistakes.at(spot, "the number is too large", "");
                return None;
            }
        },
        DeValue::Float(n) => match n.as_str().parse::<f64>().ok().and_then(Number::from_f64) {
            Some(n) => Value::Number(n),
            None => {
                mistakes.at(spot, "not a finite number", "");
                return None;
            }
        },
        DeValue::Datetime(_) => {
            mistakes.at(spot, "a date means nothing here", "");
            return None;
        }
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| item_to_json(item, spot, mistakes))
                .collect::<Option<Vec<_>>>()?,
        ),
        DeValue::Table(table) => {
            let mut map = Map::new();
            for (key, item) in table {
                map.insert(
                    key.get_ref().to_string(),
                    item_to_json(item, spot, mistakes)?,
                );
            }
            Value::Object(map)
        }
    };
    Some(json)
}

fn item_to_json(
    item: &Spanned<DeValue<'_>>,
    spot: &Spot,
    mistakes: &mut Mistakes<'_>,
) -> Option<Value> {
    let at = Spot {
        span: item.span(),
        key: spot.key.clone(),
    };
    to_json(item.get_ref(), &at, mistakes)
}
