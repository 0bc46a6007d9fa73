//! Reads one TOML table: declared keys into a struct of their values, nested values one by one. A key that no reader
//! has requested by the end is unknown.
//!
//! Every reader adds its mistakes to `Mistakes` and returns `None`, so that the rest is still read.

use super::keys::{CACHE, IN_MATRIX};
use super::source::{Mistakes, ValuePosition};
use benchmesh_workloads::params::{Keys, Reader, ValueType, unknown_key_remedy};
use serde_json::{Map, Number, Value};
use std::{collections::BTreeSet, ops::Range};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A table, its location, and the keys requested so far.
pub(crate) struct Section<'t, 'i> {
    pub table: &'t DeTable<'i>,
    pub position: ValuePosition,
    asked: BTreeSet<String>,
}

impl<'t, 'i> Section<'t, 'i> {
    pub fn new(table: &'t DeTable<'i>, position: ValuePosition) -> Self {
        Self {
            table,
            position,
            asked: BTreeSet::new(),
        }
    }

    /// The path of `key` in this table.
    pub fn path(&self, key: &str) -> String {
        join(&self.position.key, key)
    }

    /// The value of `key` and its position.
    pub fn take(&mut self, key: &str) -> Option<(&'t DeValue<'i>, ValuePosition)> {
        self.asked.insert(key.to_owned());
        let value = self.table.get(key)?;
        Some((value.get_ref(), self.position_of(key, value.span())))
    }

    /// The keys not requested, in the order of the file: key, its position, value, the value's position.
    pub fn rest(&self) -> Vec<(String, ValuePosition, &'t DeValue<'i>, ValuePosition)> {
        let mut rest: Vec<_> = self
            .table
            .iter()
            .filter(|(key, _)| !self.asked.contains(key.get_ref().as_ref()))
            .map(|(key, value)| {
                let name = key.get_ref().to_string();
                let at = self.position_of(&name, key.span());
                let value_at = self.position_of(&name, value.span());
                (name, at, value.get_ref(), value_at)
            })
            .collect();
        rest.sort_by_key(|(_, at, _, _)| at.span.start);
        rest
    }

    /// Refuses the keys not requested; `known` lists the keys that could have been meant.
    pub fn refuse_rest(&self, known: &[&str], mistakes: &mut Mistakes<'_>) {
        for (key, at, _, _) in self.rest() {
            unknown_key(&key, &at, known, mistakes);
        }
    }

    pub fn position_of(&self, key: &str, span: Range<usize>) -> ValuePosition {
        ValuePosition {
            span,
            key: self.path(key),
        }
    }

    /// The position of the value of `key`; the table's position if the key is missing.
    pub fn place_of(&self, key: &str) -> ValuePosition {
        match self.table.get(key) {
            Some(value) => self.position_of(key, value.span()),
            None => self.position.clone(),
        }
    }

    pub fn text(
        &mut self,
        key: &str,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(String, ValuePosition)> {
        let (value, position) = self.take(key)?;
        let text = as_text(value, &position, mistakes)?;
        Some((text, position))
    }

    /// The values of all keys that `K` declares. Nested values are only marked as known: their parts have their own
    /// positions.
    pub fn keys<K: Keys>(&mut self, mistakes: &mut Mistakes<'_>) -> Option<K> {
        let mut params = Map::new();
        for key in K::all() {
            let Some((value, position)) = self.take(key.name) else {
                continue;
            };
            let json = match (key.value)() {
                ValueType::Nested { .. } => Some(Value::Null),
                _ => to_json(value, &position, mistakes),
            };
            if let Some(json) = json {
                params.insert(key.name.to_owned(), json);
            }
        }
        let mut reader = Reader::new(&params);
        let keys = K::read_from(&mut reader);
        for error in reader.into_errors() {
            let name = error.key.unwrap_or_default();
            let Some((value, position)) = self.take(&name) else {
                let meaning = K::all().iter().find(|key| key.name == name);
                let meaning = meaning.map_or_else(String::new, |key| key.meaning());
                let reason = format!("there is no `{name}`");
                mistakes.at(
                    &self.position,
                    reason,
                    format!("write {name} = ...: {meaning}"),
                );
                continue;
            };
            // A value that cannot become JSON has already been reported.
            if params.contains_key(&name) {
                let remedy = match value {
                    DeValue::Array(_) if IN_MATRIX.contains(&name.as_str()) || name == CACHE => {
                        in_matrix(&name)
                    }
                    _ => String::new(),
                };
                mistakes.at(&position, error.message, remedy);
            }
        }
        keys
    }

    /// A list of words.
    pub fn words(
        &mut self,
        key: &str,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<(Vec<(String, ValuePosition)>, ValuePosition)> {
        let (value, position) = self.take(key)?;
        let Some(array) = value.as_array() else {
            mistakes.at(
                &position,
                format!("expected a list, found {}", kind(value)),
                format!("write {key} = [\"...\"]"),
            );
            return None;
        };
        let words = array
            .iter()
            .filter_map(|item| {
                let at = ValuePosition {
                    span: item.span(),
                    key: position.key.clone(),
                };
                as_text(item.get_ref(), &at, mistakes).map(|word| (word, at))
            })
            .collect();
        Some((words, position))
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

pub(crate) fn unknown_key(
    key: &str,
    at: &ValuePosition,
    known: &[&str],
    mistakes: &mut Mistakes<'_>,
) {
    mistakes.at(
        at,
        format!("unknown key `{key}`"),
        unknown_key_remedy(key, known),
    );
}

/// The type of a value, in words.
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

fn as_text(
    value: &DeValue<'_>,
    position: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) -> Option<String> {
    match value.as_str() {
        Some(text) => Some(text.to_owned()),
        None => {
            mistakes.at(
                position,
                format!("expected text in quotes, found {}", kind(value)),
                "",
            );
            None
        }
    }
}

/// The remedy for a list where a single value is expected.
pub(crate) fn in_matrix(key: &str) -> String {
    format!("write several values in matrix: matrix = {{ {key} = [...] }}")
}

/// A value in the form that a workload's parameter has on the wire.
pub(crate) fn to_json(
    value: &DeValue<'_>,
    position: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) -> Option<Value> {
    let json = match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Number(n.into()),
            Err(_) => {
                mistakes.at(position, "the number is too large", "");
                return None;
            }
        },
        DeValue::Float(n) => match n.as_str().parse::<f64>().ok().and_then(Number::from_f64) {
            Some(n) => Value::Number(n),
            None => {
                mistakes.at(position, "not a finite number", "");
                return None;
            }
        },
        DeValue::Datetime(_) => {
            mistakes.at(position, "a date is not allowed here", "");
            return None;
        }
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| item_to_json(item, position, mistakes))
                .collect::<Option<Vec<_>>>()?,
        ),
        DeValue::Table(table) => {
            let mut map = Map::new();
            for (key, item) in table {
                map.insert(
                    key.get_ref().to_string(),
                    item_to_json(item, position, mistakes)?,
                );
            }
            Value::Object(map)
        }
    };
    Some(json)
}

fn item_to_json(
    item: &Spanned<DeValue<'_>>,
    position: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) -> Option<Value> {
    let at = ValuePosition {
        span: item.span(),
        key: position.key.clone(),
    };
    to_json(item.get_ref(), &at, mistakes)
}
