//! Types of keys' values: how they are parsed, described for people, and described in a JSON Schema.

use super::literal;
use crate::params::units::{Bytes, RamMultiple, Span};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A type of values.
#[derive(Debug, Clone, Copy)]
pub enum ValueType {
    Integer,
    Size,
    /// A size, or a multiple of the memory of the clients' hosts.
    DataSize,
    Duration,
    /// `true`, `false`, and fio's 1 and 0.
    Flag,
    Text,
    /// A path on the agents' hosts that the workload reads; an agent has to allow it.
    Path,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Has parts with their own positions in a plan, so it is parsed separately.
    Nested {
        words: &'static str,
        schema: fn() -> Value,
    },
    Other {
        words: &'static str,
        schema: fn() -> Value,
    },
}

/// A value that a key can have.
pub trait KeyValue: Sized {
    fn value_type() -> ValueType;

    /// The error states the problem; an empty one becomes "expected TYPE, found VALUE".
    fn read(value: &Value) -> Result<Self, String>;

    /// The value of an absent key whose default is a description.
    fn absent() -> Option<Self> {
        None
    }

    /// The number that `min` and `max` bound.
    fn amount(&self) -> Option<u128> {
        None
    }
}

impl ValueType {
    /// For people: "size", "1 to 4096".
    pub fn words(&self, min: Option<&str>, max: Option<&str>) -> String {
        let [min, max] = [min, max].map(|bound| bound.map(|text| text.trim_matches('"')));
        let range = match (min, max) {
            (Some(min), Some(max)) => Some(format!("{min} to {max}")),
            (Some(min), None) => Some(format!("{min} or more")),
            (None, Some(max)) => Some(format!("at most {max}")),
            (None, None) => None,
        };
        let name = match self {
            Self::Integer => match range {
                Some(range) => return format!("a whole number, {range}"),
                None => return "a whole number".to_owned(),
            },
            Self::Size => "a size such as \"4k\"",
            Self::DataSize => "a size such as \"4k\", or of memory such as \"2 x ram\"",
            Self::Duration => "a duration such as \"30s\"",
            Self::Flag => "true or false",
            Self::Text => "a text",
            Self::Path => "a path",
            Self::Words(words) => return quoted(words),
            Self::Nested { words, .. } | Self::Other { words, .. } => words,
        };
        match range {
            Some(range) => format!("{name}, {range}"),
            None => name.to_owned(),
        }
    }

    /// The JSON Schema, without a description.
    #[expect(clippy::indexing_slicing, reason = "a JSON object takes any key")]
    pub fn schema(&self, min: Option<&str>, max: Option<&str>) -> Value {
        let mut schema = match self {
            Self::Integer => json!({"type": "integer", "minimum": 0}),
            Self::Size => {
                json!({"type": ["integer", "string"], "minimum": 0, "pattern": SIZE_PATTERN})
            }
            Self::DataSize => {
                let pattern = format!("{SIZE_PATTERN}|{RAM_PATTERN}");
                json!({"type": ["integer", "string"], "minimum": 0, "pattern": pattern})
            }
            Self::Duration => {
                json!({"type": ["integer", "string"], "minimum": 0, "pattern": DURATION_PATTERN})
            }
            Self::Flag => json!({"enum": [true, false, 1, 0]}),
            Self::Text => json!({"type": "string"}),
            Self::Path => json!({"type": "string", "pattern": "^/"}),
            Self::Words(words) => json!({"enum": words}),
            Self::Nested { schema, .. } | Self::Other { schema, .. } => schema(),
        };
        for (name, bound) in [("minimum", min), ("maximum", max)] {
            // A bound with a unit applies to texts too, which a schema cannot compare.
            if let Some(number) = bound.map(literal).filter(Value::is_number) {
                schema[name] = number;
            }
        }
        schema
    }
}

const SIZE_PATTERN: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgGtTpP]([iI]?[bB])?|[bB])?\s*$";
const RAM_PATTERN: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*[xX]\s*[rR][aA][mM]\s*$";
const DURATION_PATTERN: &str = r"^\s*[0-9]+(\.[0-9]+)?\s*([nN][sS]|[uUµ][sS]|[mM][sS]|[sS]([eE][cC])?|[mM]([iI][nN])?|[hH]|[dD])?\s*$";

/// `"a", "b" or "c"`.
fn quoted(words: &[&str]) -> String {
    match words {
        [] => String::from("nothing"),
        [only] => format!("\"{only}\""),
        [rest @ .., last] => format!("\"{}\" or \"{last}\"", rest.join("\", \"")),
    }
}

/// Describes a value for messages.
pub fn describe(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(_) => String::from("a list"),
        Value::Object(_) => String::from("a table"),
        other => format!("`{other}`"),
    }
}

/// Reads any type that serde deserializes, and rewrites serde's message in a plan's terms.
pub fn from_serde<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let message = in_plain_words(&error.into_inner().to_string());
        match path.as_str() {
            "." | "?" => message,
            path => format!("`{path}`: {message}"),
        }
    })
}

fn in_plain_words(message: &str) -> String {
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
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        other => other,
    };
    format!("expected {expected}, found {found}")
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl KeyValue for $type {
            fn value_type() -> ValueType {
                ValueType::Integer
            }

            fn read(value: &Value) -> Result<Self, String> {
                let number = value.as_u64().and_then(|number| <$type>::try_from(number).ok());
                number.ok_or_else(String::new)
            }

            fn amount(&self) -> Option<u128> {
                Some((*self).into())
            }
        }
    )*};
}

integers!(u8, u32, u64);

impl KeyValue for bool {
    fn value_type() -> ValueType {
        ValueType::Flag
    }

    fn read(value: &Value) -> Result<Self, String> {
        match (value.as_bool(), value.as_u64()) {
            (Some(flag), _) => Ok(flag),
            (None, Some(0)) => Ok(false),
            (None, Some(1)) => Ok(true),
            _ => Err(String::new()),
        }
    }
}

impl KeyValue for Bytes {
    fn value_type() -> ValueType {
        ValueType::Size
    }

    fn read(value: &Value) -> Result<Self, String> {
        match (value.as_str(), value.as_u64()) {
            (Some(text), _) => text.parse().map_err(|error| format!("{error}")),
            (None, Some(number)) => Ok(Bytes(number)),
            (None, None) => Err(String::new()),
        }
    }

    fn amount(&self) -> Option<u128> {
        Some(self.0.into())
    }
}

/// A size of data, which a plan may give as a multiple of memory. That is replaced by the size before a workload reads
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSize(pub Bytes);

impl KeyValue for DataSize {
    fn value_type() -> ValueType {
        ValueType::DataSize
    }

    fn read(value: &Value) -> Result<Self, String> {
        match value.as_str().and_then(RamMultiple::parse) {
            Some(Ok(multiple)) => Err(format!(
                "`{multiple}` cannot be resolved here: the memory is not known"
            )),
            Some(Err(message)) => Err(message),
            None => Bytes::read(value).map(Self),
        }
    }

    fn amount(&self) -> Option<u128> {
        self.0.amount()
    }
}

impl KeyValue for Span {
    fn value_type() -> ValueType {
        ValueType::Duration
    }

    fn read(value: &Value) -> Result<Self, String> {
        match (value.as_str(), value.as_u64()) {
            (Some(text), _) => text.parse().map_err(|error| format!("{error}")),
            (None, Some(seconds)) => Span::from_secs(seconds).map_err(|error| format!("{error}")),
            (None, None) => Err(String::new()),
        }
    }

    fn amount(&self) -> Option<u128> {
        Some(self.0.as_nanos())
    }
}

impl KeyValue for String {
    fn value_type() -> ValueType {
        ValueType::Text
    }

    fn read(value: &Value) -> Result<Self, String> {
        value.as_str().map(str::to_owned).ok_or_else(String::new)
    }
}

impl KeyValue for PathBuf {
    fn value_type() -> ValueType {
        ValueType::Path
    }

    fn read(value: &Value) -> Result<Self, String> {
        let path = PathBuf::from(value.as_str().ok_or_else(String::new)?);
        match path.is_absolute() {
            true => Ok(path),
            false => Err("must be an absolute path on the agents".to_owned()),
        }
    }
}

impl<T: KeyValue> KeyValue for Option<T> {
    fn value_type() -> ValueType {
        T::value_type()
    }

    fn read(value: &Value) -> Result<Self, String> {
        T::read(value).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn amount(&self) -> Option<u128> {
        self.as_ref()?.amount()
    }
}
