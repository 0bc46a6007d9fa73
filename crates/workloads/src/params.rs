//! From a map of parameters to a workload's own struct, with errors that a person can act on.
//!
//! A workload lists its keys once ([`KeyInfo`]); the list serves the documentation, the check for unknown keys and the
//! suggestion of the nearest known one.

pub mod effect;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;

/// A key of a workload, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyInfo {
    pub name: &'static str,
    /// `size`, `duration`, `count`, `true or false`, ...
    pub kind: &'static str,
    /// What holds when the key is absent.
    pub default: &'static str,
    pub meaning: &'static str,
}

/// Several lists of keys as one: `&params::join::<{ OWN.len() + common::KEYS.len() }>(&[OWN, common::KEYS])`.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated when it is compiled, where a wrong index is an error"
)]
pub const fn join<const N: usize>(lists: &[&[KeyInfo]]) -> [KeyInfo; N] {
    let mut joined = [lists[0][0]; N];
    let (mut list, mut count) = (0, 0);
    while list < lists.len() {
        let mut key = 0;
        while key < lists[list].len() {
            joined[count] = lists[list][key];
            count += 1;
            key += 1;
        }
        list += 1;
    }
    assert!(count == N);
    joined
}

/// A parameter that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamError {
    /// The key at fault, where one is.
    pub key: Option<String>,
    /// What is wrong and what to write instead; does not repeat the key.
    pub message: String,
}

impl ParamError {
    /// An error of one key.
    pub fn of(key: &str, message: impl Into<String>) -> ParamError {
        ParamError {
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "`{key}`: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ParamError {}

/// Reads the parameters of `workload`. An unknown key is an error that names the nearest of `keys`.
pub fn parse<T: DeserializeOwned>(
    workload: &str,
    keys: &[KeyInfo],
    map: &Map<String, Value>,
) -> Result<T, ParamError> {
    for key in map.keys() {
        if !keys.iter().any(|known| known.name == key) {
            return Err(ParamError::of(key, unknown(workload, keys, key)));
        }
    }
    serde_path_to_error::deserialize(Value::Object(map.clone())).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        if let Some(key) = missing(&message) {
            return ParamError::of(key, format!("workload `{workload}` needs it"));
        }
        ParamError {
            key: (path != ".").then_some(path),
            message,
        }
    })
}

/// Reads a few of a workload's keys; those that are none of them are somebody else's.
pub(crate) fn part<T: DeserializeOwned>(map: &Map<String, Value>) -> Result<T, ParamError> {
    serde_path_to_error::deserialize(Value::Object(map.clone())).map_err(|error| {
        let path = error.path().to_string();
        ParamError {
            key: (path != ".").then_some(path),
            message: error.into_inner().to_string(),
        }
    })
}

/// The key that serde says is missing.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

fn unknown(workload: &str, keys: &[KeyInfo], key: &str) -> String {
    match nearest(key, keys.iter().map(|known| known.name)) {
        Some(known) => format!("unknown key of workload `{workload}`; did you mean `{known}`?"),
        None => {
            let known: Vec<&str> = keys.iter().map(|known| known.name).collect();
            format!(
                "unknown key of workload `{workload}`; known are {}",
                known.join(", ")
            )
        }
    }
}

/// Workers per task that make sense: a typing error must not start a million threads.
pub const MAX_WORKERS: u32 = 4096;

/// Refuses a `numjobs` that no task can have.
pub fn check_numjobs(numjobs: u32) -> Result<(), ParamError> {
    match numjobs {
        0 => Err(ParamError::of("numjobs", "must be at least 1")),
        1..=MAX_WORKERS => Ok(()),
        _ => Err(ParamError::of(
            "numjobs",
            format!("{numjobs} is more than the {MAX_WORKERS} workers that a task can have"),
        )),
    }
}

/// The candidate that `name` was probably meant to be.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_ascii_lowercase().replace('_', "-");
    candidates
        .map(|candidate| {
            let likeness = strsim::jaro_winkler(&folded, &candidate.replace('_', "-"));
            (candidate, likeness)
        })
        .filter(|(_, likeness)| *likeness >= 0.75)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(candidate, _)| candidate)
}

#[cfg(test)]
mod defaults;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::units::Bytes;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Sample {
        size: Bytes,
        #[serde(default)]
        numjobs: u32,
    }

    const KEYS: &[KeyInfo] = &[key("size"), key("numjobs"), key("end_fsync")];

    const fn key(name: &'static str) -> KeyInfo {
        KeyInfo {
            name,
            kind: "",
            default: "",
            meaning: "",
        }
    }

    fn parse_text(text: &str) -> Result<Sample, ParamError> {
        parse("sample", KEYS, &serde_json::from_str(text).unwrap())
    }

    #[test]
    fn known_keys_are_read() {
        let sample = parse_text(r#"{"size": "4k", "numjobs": 3}"#).unwrap();
        assert_eq!((sample.size, sample.numjobs), (Bytes(4096), 3));
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        let check = |text: &str, key: Option<&str>, part: &str| {
            let error = parse_text(text).unwrap_err();
            assert_eq!(error.key.as_deref(), key, "{error}");
            assert!(error.message.contains(part), "{error}");
        };
        check(r#"{"size": 1, "numjob": 3}"#, Some("numjob"), "`numjobs`");
        check(
            r#"{"size": 1, "end-fsync": 3}"#,
            Some("end-fsync"),
            "`end_fsync`",
        );
        check(
            r#"{"size": 1, "zzz": 3}"#,
            Some("zzz"),
            "known are size, numjobs",
        );
        check(r#"{"size": "4x"}"#, Some("size"), "unknown unit `x`");
        check(
            r#"{"size": 1, "numjobs": "a"}"#,
            Some("numjobs"),
            "expected u32",
        );
        check(r#"{"numjobs": 1}"#, Some("size"), "needs it");
    }
}
