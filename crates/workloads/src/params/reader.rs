//! Reads the values of keys from a map of parameters and collects all errors.

use super::{
    Absent, Key, KeySet, KeyValue, ParamError, ValueType, describe, fio_hint, literal, nearest,
};
use benchmesh_model::text::did_you_mean;
use serde_json::{Map, Value};

/// Parameters as in a plan and on the wire.
pub type Params = Map<String, Value>;

/// Input of a condition, beside the typed values of its own declaration.
#[derive(Debug, Clone, Copy)]
pub struct ConditionInput<'a> {
    pub mode: &'a str,
    /// All given parameters, of every declaration.
    pub params: &'a Params,
}

impl ConditionInput<'_> {
    /// Whether one of these keys is given.
    pub fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.params.contains_key(*key))
    }
}

/// Reads keys one by one.
#[derive(Debug)]
pub struct Reader<'p> {
    params: &'p Params,
    errors: Vec<ParamError>,
}

impl<'p> Reader<'p> {
    pub fn new(params: &'p Params) -> Self {
        Self {
            params,
            errors: Vec::new(),
        }
    }

    /// The value of `key`. After an error, the value of an absent key, if there is one.
    pub fn value<T: KeyValue>(&mut self, key: &Key) -> Option<T> {
        let Some(given) = self.params.get(key.name) else {
            if key.absent == Absent::Required {
                self.errors
                    .push(ParamError::of(key.name, "is missing and has no default"));
            }
            return Self::absent(key);
        };
        match checked::<T>(key, given) {
            Ok(value) => Some(value),
            Err(message) => {
                self.errors.push(ParamError::of(key.name, message));
                Self::absent(key)
            }
        }
    }

    fn absent<T: KeyValue>(key: &Key) -> Option<T> {
        match key.absent {
            Absent::Default(text) => T::read(&literal(text)).ok(),
            Absent::Described(_) => T::absent(),
            Absent::Required => None,
        }
    }

    pub fn into_errors(self) -> Vec<ParamError> {
        self.errors
    }
}

/// Whether a value can be parsed and lies within the key's bounds.
pub fn check_value<T: KeyValue>(key: &Key, given: &Value) -> Result<(), String> {
    checked::<T>(key, given).map(drop)
}

/// The value, if it is within its bounds.
fn checked<T: KeyValue>(key: &Key, given: &Value) -> Result<T, String> {
    let expected = |problem: String| match problem {
        problem if !problem.is_empty() => problem,
        _ => {
            let mut message = format!("expected {}, found {}", key.type_words(), describe(given));
            if let (ValueType::Words(words), Some(text)) = ((key.value)(), given.as_str())
                && let Some(near) = nearest(text, words.iter().copied())
            {
                message += &format!("; {}", did_you_mean(&format!("\"{near}\"")));
            }
            message
        }
    };
    let value = T::read(given).map_err(expected)?;
    let bound = |text: Option<&str>| text.and_then(|text| T::read(&literal(text)).ok()?.amount());
    if let Some(amount) = value.amount()
        && (bound(key.min).is_some_and(|least| amount < least)
            || bound(key.max).is_some_and(|most| amount > most))
    {
        return Err(expected(String::new()));
    }
    Ok(value)
}

/// Refuses a key that is in none of `sets`; `owner` is for the message, as in "workload `io`".
pub fn check_names(owner: &str, sets: &[KeySet], params: &Params) -> Result<(), ParamError> {
    let known = || sets.iter().flat_map(|set| set.list).map(|key| key.name);
    let Some(unknown) = params
        .keys()
        .find(|key| !known().any(|known| known == *key))
    else {
        return Ok(());
    };
    let known: Vec<&str> = known().collect();
    let remedy = unknown_key_remedy(unknown, &known);
    Err(ParamError::of(
        unknown,
        format!("unknown key of {owner}; {remedy}"),
    ))
}

/// What to write instead of a key that is not in `known`.
pub fn unknown_key_remedy(key: &str, known: &[&str]) -> String {
    let near = nearest(key, known.iter().copied());
    let is_same = |known: &str| known.replace(['_', '-'], "") == key.replace(['_', '-'], "");
    match (near, fio_hint(key)) {
        (Some(near), hint) if hint.is_none() || is_same(near) => did_you_mean(&format!("`{near}`")),
        (_, Some(hint)) => hint.to_owned(),
        (_, None) => format!("known are {}", known.join(", ")),
    }
}
