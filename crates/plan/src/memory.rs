//! Sizes that are multiples of the memory of the clients' hosts (`2 x ram`): kept beside an assumed size while only the
//! text is known, resolved when the step's agents are.
//!
//! Pure. All clients of a step work on the same size, that of the largest memory among them.

use benchmesh_workloads::{
    params::{
        Key, ValueType,
        units::{Bytes, RamMultiple},
    },
    workload::{Workload, all_keys},
};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap};

/// What a host is assumed to have while none is known: so much that a size which fits any host is accepted.
const ASSUMED_BYTES: u64 = 1 << 40;

/// The multiple that a value of this key is; `None`: it is something else, or nonsense, which its workload refuses.
pub(super) fn multiple(key: &Key, value: &Value) -> Option<RamMultiple> {
    match (key.value)() {
        ValueType::DataSize => RamMultiple::parse(value.as_str()?)?.ok(),
        _ => None,
    }
}

/// The value as its workload can judge it.
pub(super) fn assumed<'v>(key: &Key, value: &'v Value) -> Cow<'v, Value> {
    match multiple(key, value) {
        Some(multiple) => Cow::Owned(size(multiple, ASSUMED_BYTES)),
        None => Cow::Borrowed(value),
    }
}

/// Puts assumed sizes in the place of multiples, which it returns by their keys.
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

/// The size itself, as a plan may write it.
pub(super) fn size(multiple: RamMultiple, memory_bytes: u64) -> Value {
    Value::String(Bytes(multiple.of(memory_bytes)).to_string())
}
