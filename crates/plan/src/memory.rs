//! Sizes that are multiples of the memory of the clients' hosts (`2 x ram`). They are kept beside an assumed size while
//! only the text is known, and resolved once the step's agents are known.
//!
//! Pure. All clients of a step use the same size, computed from the largest memory among them.

use benchmesh_workloads::{
    params::{
        Key, ValueType,
        units::{Bytes, RamMultiple},
    },
    workload::{Workload, all_keys},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap};

/// Assumed memory of an unknown host: large enough that a size which fits any host is accepted.
const ASSUMED_BYTES: u64 = 1 << 40;

/// Parses the value of this key as a multiple; `None` for any other value, and for invalid text, which its workload
/// refuses.
pub(super) fn multiple(key: &Key, value: &Value) -> Option<RamMultiple> {
    match (key.value)() {
        ValueType::DataSize => RamMultiple::parse(value.as_str()?)?.ok(),
        _ => None,
    }
}

/// The value in a form that its workload can check.
pub(super) fn assumed<'v>(key: &Key, value: &'v Value) -> Cow<'v, Value> {
    match multiple(key, value) {
        Some(multiple) => Cow::Owned(size(multiple, ASSUMED_BYTES)),
        None => Cow::Borrowed(value),
    }
}

/// Replaces multiples with assumed sizes, and returns the multiples by key.
pub(super) fn take_multiples(
    workload: &dyn Workload,
    params: &mut Map<String, Value>,
) -> BTreeMap<String, RamMultiple> {
    let mut multiples = BTreeMap::new();
    for key in all_keys(workload) {
        if let Some(value) = params.get_mut(key.name)
            && let Some(multiple) = multiple(key, value)
        {
            *value = size(multiple, ASSUMED_BYTES);
            multiples.insert(key.name.to_owned(), multiple);
        }
    }
    multiples
}

/// The resolved size, in plan syntax.
pub(super) fn size(multiple: RamMultiple, memory_bytes: u64) -> Value {
    Value::String(Bytes(multiple.of(memory_bytes)).to_string())
}
