//! One declaration, read, refused, documented and described as a schema.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::units::{Bytes, Span};
use crate::{declare_keys, declare_words};
use benchmesh_testing::table;

declare_words! {
    enum TestOrder {
        Sequential = "sequential",
        Random = "random",
    }
}

declare_keys! {
    #[derive(Debug)]
    struct Sample {
        /// Bytes of each file,
        /// as fio spells it.
        "size" size: Bytes = required, min 1, max "1g";
        /// Workers.
        "numjobs" numjobs: u32 = 1, min 1, max 4096;
        /// Order of the files.
        "order" order: TestOrder = "sequential", in ["read"];
        /// Fsync at the end.
        "end_fsync" end_fsync: bool = false, in ["write", "append"], because "nothing is written";
        /// Opens with O_DIRECT.
        "direct" direct: bool = false, only "with more than one worker" if |keys, _| keys.numjobs > 1;
        include timing: Times;
    }
}

declare_keys! {
    #[derive(Debug)]
    struct Times {
        /// How long it runs.
        "runtime" runtime: Option<Span> = none("one pass"), min "1s";
        /// Time before the results count.
        "ramp_time" ramp: Option<Span> = none("none"),
            only "with `runtime` or `loops`" if |keys, scope| keys.runtime.is_some() || scope.has_any(&["loops"]);
    }
}

fn params(value: Value) -> Params {
    value.as_object().unwrap().clone()
}

#[test]
fn values_and_defaults_are_read() {
    let sample = Sample::read(&params(
        json!({"size": "4k", "order": "random", "direct": 1, "runtime": 3}),
    ))
    .unwrap();
    assert_eq!(sample.size, Bytes(4096));
    assert_eq!(
        (sample.numjobs, sample.order, sample.end_fsync),
        (1, TestOrder::Random, false)
    );
    assert!(sample.direct);
    assert_eq!(sample.timing.runtime, Some("3s".parse().unwrap()));
    assert_eq!(sample.timing.ramp, None);
}

#[test]
fn errors_name_the_key_and_what_is_expected() {
    for [given, key, message] in table(
        r#"
        {}                             | size    | is missing and has no default
        {"size": "4x"}                 | size    | `4x`: unknown unit `x`
        {"size": [1]}                  | size    | expected a size such as "4k", 1 to 1g, found a list
        {"size": 0}                    | size    | found `0`
        {"size": "2g"}                 | size    | found the text "2g"
        {"size": 1, "numjobs": 0}      | numjobs | expected a whole number, 1 to 4096, found `0`
        {"size": 1, "numjobs": -1}     | numjobs | found `-1`
        {"size": 1, "numjobs": "a"}    | numjobs | found the text "a"
        {"size": 1, "order": "randum"} | order
            | expected "sequential" or "random", found the text "randum"; did you mean "random"?
        {"size": 1, "direct": 2}       | direct  | expected true or false, found `2`
        {"size": 1, "runtime": "10ms"} | runtime | 1s or more
        "#,
    ) {
        let given = serde_json::from_str(&given).unwrap();
        let error = Sample::read(&params(given)).unwrap_err();
        assert_eq!(error.key.as_ref(), Some(&key), "{error}");
        assert!(error.message.contains(&message), "{error}");
    }
}

#[test]
fn all_errors_are_found() {
    let given = params(json!({"numjobs": 0, "order": 3}));
    let mut reader = Reader::new(&given);
    assert!(Sample::read_from(&mut reader).is_none());
    let keys: Vec<_> = reader
        .into_errors()
        .into_iter()
        .filter_map(|error| error.key)
        .collect();
    assert_eq!(keys, ["size", "numjobs", "order"]);
}

#[test]
fn unknown_keys_name_the_nearest_known_or_what_fio_calls_otherwise() {
    for (key, part) in [
        ("numjob", "did you mean `numjobs`?"),
        ("end-fsync", "did you mean `end_fsync`?"),
        ("rw", "`modes`"),
        (
            "zzz",
            "known are size, numjobs, order, end_fsync, direct, runtime, ramp_time",
        ),
    ] {
        let error = check_names(
            "workload `sample`",
            &[KeySet::of::<Sample>()],
            &params(json!({"size": 1, key: 1})),
        );
        let error = error.unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key));
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn keys_without_an_effect_are_found_over_all_modes_and_cells() {
    let check = |modes: &[&str], cells: &[Value], expected: &[(&str, usize)]| {
        let cells: Vec<Params> = cells.iter().cloned().map(params).collect();
        let cells: Vec<&Params> = cells.iter().collect();
        let unused = unused_keys(&[KeySet::of::<Sample>()], modes, &cells);
        let found: Vec<_> = unused
            .iter()
            .map(|unused| (unused.error.key.as_deref().unwrap(), unused.cell))
            .collect();
        assert_eq!(found, expected, "{modes:?} {cells:?}");
    };
    let order = json!({"size": 1, "order": "random"});
    check(&["read"], std::slice::from_ref(&order), &[]);
    check(&["write", "read"], std::slice::from_ref(&order), &[]);
    check(&["write"], &[order], &[("order", 0)]);
    // A switch that is off does not count; the error names the first cell that sets it.
    check(&["read"], &[json!({"size": 1, "end_fsync": false})], &[]);
    check(
        &["read"],
        &[json!({"size": 1}), json!({"size": 1, "end_fsync": 1})],
        &[("end_fsync", 1)],
    );
    let direct = |workers: u32| json!({"size": 1, "direct": true, "numjobs": workers});
    check(&["read"], &[direct(1), direct(2)], &[]);
    check(&["read"], &[direct(1)], &[("direct", 0)]);
    // A group's condition may depend on keys of other groups.
    check(
        &["read"],
        &[json!({"size": 1, "ramp_time": 1})],
        &[("ramp_time", 0)],
    );
    check(
        &["read"],
        &[json!({"size": 1, "ramp_time": 1, "loops": 2})],
        &[],
    );
    check(
        &["read"],
        &[json!({"size": 1, "ramp_time": 1, "runtime": 2})],
        &[],
    );
}

#[test]
fn a_refusal_says_where_the_key_has_an_effect() {
    let message = |modes: &[&str], given: Value| {
        let unused = unused_keys(&[KeySet::of::<Sample>()], modes, &[&params(given)]);
        unused.into_iter().next().unwrap().error.message
    };
    assert_eq!(
        message(&["read", "stat"], json!({"size": 1, "end_fsync": true})),
        "has an effect only in the modes `write` and `append`, and the phase has `read` and `stat`: nothing is written; add \
         one of these modes, or remove the key"
    );
    assert_eq!(
        message(&["stat"], json!({"size": 1, "order": "random"})),
        "has an effect only in the mode `read`, and the phase has `stat`; add that mode, or remove the key"
    );
    assert_eq!(
        message(&["read"], json!({"size": 1, "direct": true})),
        "has an effect only with more than one worker; change that, or remove the key"
    );
}

#[test]
fn the_reference_and_the_schema_come_from_the_declaration() {
    let set = KeySet::of::<Sample>();
    let size = set.find("size").unwrap();
    assert_eq!(size.meaning(), "Bytes of each file, as fio spells it.");
    assert_eq!(
        (size.type_words().as_str(), size.default_words()),
        ("a size such as \"4k\", 1 to 1g", "required")
    );
    let numjobs = set.find("numjobs").unwrap().schema();
    assert_eq!(
        numjobs,
        json!({"type": "integer", "minimum": 1, "maximum": 4096, "default": 1, "description": "Workers."})
    );
    let order = set.find("order").unwrap();
    assert_eq!(order.schema()["enum"], json!(["sequential", "random"]));
    assert_eq!(order.schema()["default"], json!("sequential"));
    assert_eq!(order.effect_words().unwrap(), "in `read`");
    assert_eq!(
        set.find("ramp_time").unwrap().effect_words().unwrap(),
        "only with `runtime` or `loops`"
    );
}
