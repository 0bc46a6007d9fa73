//! Kept data sets as values: how a phase names one, what identifies its data, and what is kept where.
//!
//! Pure values; [`kept`](super::kept) compares them.

use benchmesh_model::kept_data;
use benchmesh_workloads::params::{KeyValue, ValueType};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name of a kept data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataName(pub String);

impl KeyValue for DataName {
    fn value_type() -> ValueType {
        ValueType::Other {
            words: "a name: letters, digits, `-`, `_` and `.`, at most 64",
            schema: || json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
        }
    }

    fn read(value: &Value) -> Result<Self, String> {
        let name = value.as_str().filter(|name| kept_data::is_name(name));
        name.map(|name| Self(name.to_owned()))
            .ok_or_else(String::new)
    }
}

/// How a phase uses a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptUse {
    /// Lays the set out if it is missing, and keeps it.
    Keep,
    /// The set must exist.
    Use,
}

impl KeptUse {
    /// The key of the phase.
    pub fn key(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Use => "use",
        }
    }
}

/// A set that a phase uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptData {
    pub name: String,
    pub how: KeptUse,
}

/// The keys that determine a set's data, with their values; also its workload, and the version of its layout.
pub type Shape = BTreeMap<String, String>;

/// The set that a step uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedData {
    pub name: String,
    pub how: KeptUse,
    pub shape: Shape,
    /// Its mode rewrites the data, which are incomplete until it ends.
    pub remakes: bool,
    /// Parts of the set already exist at the target, and take space there.
    pub is_partly_there: bool,
}

/// The differences in words, such as "`size` is 1 there and 2 here" with the places "there" and "here"; `None` if the
/// shapes are equal.
pub fn difference(a: &Shape, b: &Shape, [in_a, in_b]: [&str; 2]) -> Option<String> {
    let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
    let differences: Vec<String> = keys
        .filter(|key| a.get(*key) != b.get(*key))
        .map(|key| {
            let value = |shape: &Shape| shape.get(key).map_or("not set", String::as_str).to_owned();
            format!("`{key}` is {} {in_a} and {} {in_b}", value(a), value(b))
        })
        .collect();
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// An existing kept set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFacts {
    pub name: String,
    /// Path of the target.
    pub path: String,
    pub shape: Shape,
    /// Number of tasks that have data in it.
    pub tasks: u32,
    pub is_whole: bool,
}
