//! Keys of a plan, each declared once by [`declare_keys!`](crate::declare_keys).
//!
//! A declaration makes a struct of typed values and the list of its [`Key`]s. Reading a plan, the messages of
//! `plan check`, the tables in docs/plan.md and the JSON Schema of a plan all come from it; a default is written once,
//! as a plan would have it, and read by the same code as a value in a plan.
//!
//! `schemars` was considered. It derives names, types, defaults and descriptions from a serde struct, but not in which
//! modes a key has an effect, nor under which condition, so a second list of keys would have remained beside it.

mod cidr;
mod declare;
mod fio;
mod ports;
mod reader;
pub mod units;
mod unused;
mod value;

pub use cidr::{Cidr, NotANetwork};
use fio::fio_hint;
pub use ports::{NotAPortRange, PortRange};
pub use reader::{Params, Reader, Scope, check_names, check_value, unknown_key_remedy};
pub use unused::{UnusedKey, unused_keys};
pub use value::{DataSize, KeyValue, ValueType, describe, from_serde};

use serde_json::{Value, json};
use std::fmt;

/// One key.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// Lines of text.
    pub doc: &'static [&'static str],
    pub absent: Absent,
    pub value: fn() -> ValueType,
    /// Whether a value can be read, and lies within the bounds.
    pub check: fn(&Key, &Value) -> Result<(), String>,
    /// The least value, as a plan writes it.
    pub min: Option<&'static str>,
    pub max: Option<&'static str>,
    /// The modes in which it has an effect; `None`: all.
    pub modes: Option<&'static [&'static str]>,
    /// Completes "has an effect only ..."; [`KeySet::has_effect`] decides.
    pub only: Option<&'static str>,
    /// Why it has no effect elsewhere, where that is not obvious.
    pub because: Option<&'static str>,
}

/// What holds when a key is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// This value, as JSON: `"4k"`, `1`, `false`.
    Default(&'static str),
    /// Described in words; the value is read as `None`.
    Described(&'static str),
    Required,
}

/// A key that is missing or has a value that it cannot have.
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

/// A struct of typed values that [`declare_keys!`](crate::declare_keys) made.
pub trait Keys: Sized + 'static {
    /// In the order of the declaration, included groups last.
    fn all() -> &'static [&'static Key];

    /// `None` after an error that leaves no value; the errors are in the reader.
    fn read_from(reader: &mut Reader<'_>) -> Option<Self>;

    /// Whether a key's condition holds. Its modes are checked apart.
    fn condition_holds(&self, key: &str, scope: &Scope<'_>) -> bool;

    /// Reads all keys; the first error, where there are several. Unknown keys are ignored: see [`check_names`].
    fn read(params: &Params) -> Result<Self, ParamError> {
        let mut reader = Reader::new(params);
        let read = Self::read_from(&mut reader);
        match (read, reader.into_errors().into_iter().next()) {
            (Some(keys), None) => Ok(keys),
            (_, Some(error)) => Err(error),
            (None, None) => Err(ParamError {
                key: None,
                message: "a key is missing".to_owned(),
            }),
        }
    }
}

/// The keys of a type that implements [`Keys`], without the type.
#[derive(Clone, Copy)]
pub struct KeySet {
    pub list: &'static [&'static Key],
    has_effect: fn(&Key, &Scope<'_>) -> bool,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.list.iter().map(|key| key.name))
            .finish()
    }
}

impl KeySet {
    pub fn of<K: Keys>() -> KeySet {
        fn has_effect<K: Keys>(key: &Key, scope: &Scope<'_>) -> bool {
            let in_mode = key.modes.is_none_or(|modes| modes.contains(&scope.mode));
            in_mode
                && (key.only.is_none()
                    || K::read(scope.params)
                        .is_ok_and(|keys| keys.condition_holds(key.name, scope)))
        }
        KeySet {
            list: K::all(),
            has_effect: has_effect::<K>,
        }
    }

    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.list.iter().copied().find(|key| key.name == name)
    }

    /// Whether `key` has an effect in this mode and beside these parameters.
    pub fn has_effect(&self, key: &Key, scope: &Scope<'_>) -> bool {
        (self.has_effect)(key, scope)
    }
}

impl Key {
    /// One paragraph.
    pub fn meaning(&self) -> String {
        let lines: Vec<&str> = self.doc.iter().map(|line| line.trim()).collect();
        lines.join(" ")
    }

    /// The type, with its range.
    pub fn type_words(&self) -> String {
        (self.value)().words(self.min, self.max)
    }

    /// For tests of declarations.
    pub fn has_readable_default(&self) -> bool {
        match self.absent {
            Absent::Default(text) => (self.check)(self, &literal(text)).is_ok(),
            Absent::Described(_) | Absent::Required => true,
        }
    }

    /// What holds when the key is absent, for people.
    pub fn default_words(&self) -> &'static str {
        match self.absent {
            Absent::Default(text) => text.trim_matches('"'),
            Absent::Described(words) => words,
            Absent::Required => "required",
        }
    }

    /// Where the key has an effect, for people; `None`: everywhere.
    pub fn effect_words(&self) -> Option<String> {
        let modes = self
            .modes
            .map(|modes| format!("in {}", listed(modes.iter().copied(), "and")));
        let only = self.only.map(|only| format!("only {only}"));
        match (modes, only) {
            (None, None) => None,
            (Some(words), None) | (None, Some(words)) => Some(words),
            (Some(modes), Some(only)) => Some(format!("{modes}, {only}")),
        }
    }

    /// The JSON Schema of its value.
    #[expect(clippy::indexing_slicing, reason = "a JSON object takes any key")]
    pub fn schema(&self) -> Value {
        let mut schema = (self.value)().schema(self.min, self.max);
        let mut description = self.meaning();
        if let Absent::Described(words) = self.absent {
            description += &format!("\n\nDefault: {words}.");
        }
        if let Some(words) = self.effect_words() {
            description += &format!("\n\nHas an effect {words}.");
        }
        schema["description"] = json!(description);
        if let Absent::Default(text) = self.absent {
            schema["default"] = literal(text);
        }
        schema
    }
}

/// The JSON Schema of a table with these keys and no others.
pub fn table_schema<'k>(keys: impl IntoIterator<Item = &'k Key>) -> Value {
    let keys: Vec<&Key> = keys.into_iter().collect();
    let properties: Params = keys
        .iter()
        .map(|key| (key.name.to_owned(), key.schema()))
        .collect();
    let required: Vec<&str> = keys
        .iter()
        .filter(|key| key.absent == Absent::Required)
        .map(|key| key.name)
        .collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A default or a bound as JSON. `declare_keys!` takes literals only, so that there is always one.
pub(crate) fn literal(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// "`a`, `b` and `c`", or "none".
pub fn listed<'w>(words: impl IntoIterator<Item = &'w str>, conjunction: &str) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    match words.as_slice() {
        [] => String::from("none"),
        [only] => format!("`{only}`"),
        [rest @ .., last] => format!("`{}` {conjunction} `{last}`", rest.join("`, `")),
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
mod tests;
