//! The JSON Schema of a plan, for editors that complete and check TOML. It is generated from the declarations of the
//! keys and names only those keys that shape the schema itself.
//!
//! A phase is one of several forms, distinguished by the constant of its `workload`, or by its groups. A schema cannot
//! express rules over several keys (a key without an effect in a mode, a block larger than the file); `plan check`
//! reports those.

#![expect(clippy::indexing_slicing, reason = "a JSON object takes any key")]

use super::keys::{CACHE, GroupKeys, IN_MATRIX, LinkKeys, LoadKeys, PhaseKeys, TopKeys};
use benchmesh_workloads::{
    params::{Key, Keys, table_schema},
    registry,
    workload::all_keys,
    workload::{Needs, Workload},
};
use serde_json::{Map, Value, json};

/// The whole schema.
pub fn schema() -> Value {
    let mut schema = table_schema(TopKeys::all().iter().copied());
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("benchmesh plan");
    schema["description"] = json!("What benchmesh measures: docs/plan.md is the reference.");
    schema["required"] = json!(["phase"]);
    schema["properties"]["phase"]["items"] = phase();
    schema["definitions"] = definitions();
    schema
}

/// The schema of each workload's keys, so that it appears in the document once.
fn definitions() -> Value {
    let of_workload = |workload: &&'static dyn Workload| {
        let keys = all_keys(*workload)
            .map(|key| (key.name.to_owned(), key.schema()))
            .collect::<Map<String, Value>>();
        (workload.name().to_owned(), Value::Object(keys))
    };
    Value::Object(registry::all().iter().map(of_workload).collect())
}

fn reference(workload: &dyn Workload, key: &str) -> Value {
    json!({"$ref": format!("#/definitions/{}/{key}", workload.name())})
}

/// A `[[phase]]`.
fn phase() -> Value {
    let common = || PhaseKeys::all().iter().copied();
    let mut forms: Vec<Value> = registry::all()
        .iter()
        .map(|workload| {
            let mut form = load(
                *workload,
                common().filter(|key| !["group", "preset"].contains(&key.name)),
            );
            form["properties"]["matrix"] = matrix(*workload);
            form["properties"]["zip"]["items"]["items"] = json!({"enum": matrix_keys(*workload)});
            form
        })
        .collect();
    let mut grouped = table_schema(common().filter(|key| key.name != "preset"));
    grouped["properties"]["group"]["items"] = group();
    grouped["required"] = json!(["group"]);
    grouped["title"] = json!("a phase with groups");
    forms.push(grouped);
    let mut preset = table_schema(common().filter(|key| key.name != "group"));
    preset["required"] = json!(["preset"]);
    preset["additionalProperties"] = json!(true);
    preset["title"] = json!("a phase that is replaced by those of a preset");
    forms.push(preset);
    json!({"oneOf": forms})
}

/// A `[[phase.group]]`.
fn group() -> Value {
    let forms = registry::all().iter().map(|workload| {
        let mut form = load(*workload, GroupKeys::all().iter().copied());
        if let Some(required) = form["required"].as_array_mut() {
            required.push(json!("name"));
        }
        form
    });
    json!({"oneOf": forms.collect::<Vec<Value>>()})
}

/// A table with `own` keys that defines the load of a workload.
fn load(workload: &dyn Workload, own: impl Iterator<Item = &'static Key>) -> Value {
    let links = match workload.needs() {
        Needs::Peer => LinkKeys::all(),
        Needs::Nothing | Needs::Target => &[],
    };
    let keys = own
        .chain(LoadKeys::all().iter().copied())
        .chain(links.iter().copied());
    let mut form = table_schema(keys);
    let modes: Vec<&str> = workload.modes().iter().map(|mode| mode.name).collect();
    let properties = &mut form["properties"];
    properties["workload"] = json!({"const": workload.name(), "description": workload.summary()});
    properties["modes"]["items"] = json!({"enum": modes});
    for key in all_keys(workload) {
        properties[key.name] = reference(workload, key.name);
    }
    let mut required = vec![json!("workload")];
    if modes.len() > 1 {
        required.push(json!("modes"));
    }
    form["required"] = required.into();
    form["title"] = json!(format!("workload {}", workload.name()));
    form
}

/// The keys that the matrix of a phase of this workload may have.
fn matrix_keys(workload: &dyn Workload) -> Vec<&'static str> {
    let own = all_keys(workload).map(|key| key.name);
    own.chain(IN_MATRIX.iter().copied())
        .chain([CACHE])
        .collect()
}

/// Lists of values for each key of the workload.
fn matrix(workload: &dyn Workload) -> Value {
    // A value may appear in a list twice if `zip` pairs it with others.
    let list = |items: Value| json!({"type": "array", "minItems": 1, "items": items});
    let mut properties: Map<String, Value> = all_keys(workload)
        .map(|key| (key.name.to_owned(), list(reference(workload, key.name))))
        .collect();
    for key in LoadKeys::all().iter().chain(PhaseKeys::all()) {
        if IN_MATRIX.contains(&key.name) || key.name == CACHE {
            properties.insert(key.name.to_owned(), list(key.schema()));
        }
    }
    let description = PhaseKeys::all()
        .iter()
        .find(|key| key.name == "matrix")
        .map_or_else(String::new, |key| key.meaning());
    json!({"type": "object", "properties": properties, "additionalProperties": false, "description": description})
}
