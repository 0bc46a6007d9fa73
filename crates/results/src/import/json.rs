//! The JSON documents of a log.

use super::{ImportError, ImportedLog, ImportedStep, at};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Appended to a key that an object contains a second time; iperf3 3.7 to 3.10 repeat keys for the other direction.
pub(super) const AGAIN: &str = "#2";

/// The documents, each with the line on which it begins. Other text, such as warnings, may be between them if all went
/// into one file. `hint` states how to make the tool write JSON.
pub(super) fn documents(log: &str, hint: &str) -> Result<Vec<(Value, usize)>, ImportError> {
    let mut found = Vec::new();
    let mut rest = log;
    let (mut line, mut counted) = (1, 0);
    while let Some(text) = next_document(rest) {
        let begin = log.len().saturating_sub(text.len());
        let between = log.as_bytes().get(counted..begin).unwrap_or_default();
        line += between.iter().filter(|byte| **byte == b'\n').count();
        counted = begin;
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Repeated>();
        match documents.next() {
            Some(Ok(Repeated(whole))) => found.push((whole, line)),
            Some(Err(error)) if error.is_eof() => {
                return Err(at(
                    line - 1 + error.line(),
                    "the JSON ends here, in the middle: the log is cut off",
                ));
            }
            Some(Err(error)) => {
                return Err(at(
                    line - 1 + error.line(),
                    format!("this is no JSON: {error}"),
                ));
            }
            None => break,
        }
        rest = text.get(documents.byte_offset()..).unwrap_or_default();
    }
    match found.is_empty() {
        true => Err(at(1, format!("there is no JSON; {hint}"))),
        false => Ok(found),
    }
}

/// The text from the next document on: it begins a line, or follows another one.
fn next_document(text: &str) -> Option<&str> {
    if text.trim_start().starts_with('{') {
        return Some(text.trim_start());
    }
    let begin = text.find("\n{")?;
    text.get(begin + 1..)
}

/// A JSON value that keeps the second value of a repeated key, with [`AGAIN`] appended to the key.
struct Repeated(Value);

impl<'de> Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RepeatedVisitor).map(Self)
    }
}

struct RepeatedVisitor;

impl<'de> Visitor<'de> for RepeatedVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Repeated(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((key, Repeated(value))) = map.next_entry::<String, Repeated>()? {
            let key = match values.contains_key(&key) {
                true => key + AGAIN,
                false => key,
            };
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

/// Several calls in one file become one log; each step keeps its own instant.
pub(super) fn in_one_log(calls: Vec<ImportedLog>) -> ImportedLog {
    let started_us = calls.iter().map(|call| call.started_us).min().unwrap_or(0);
    let tool = calls.first().map(|call| call.tool.clone());
    let steps = calls.into_iter().flat_map(|call| {
        let after_us = call.started_us.saturating_sub(started_us);
        call.steps.into_iter().map(move |step| ImportedStep {
            at_us: step.at_us.saturating_add(after_us),
            ..step
        })
    });
    ImportedLog {
        tool: tool.unwrap_or_default(),
        started_us,
        steps: steps.collect(),
    }
}
