//! The defaults that the reference documents, held against the code: a key that is written out with its documented default
//! is understood as one that is absent.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::KeyInfo;
use crate::common::Common;
use crate::workload::{Params, Workload, check, registry};
use serde_json::{Value, json};

/// The literal that a default begins with, as a plan has it; in `mode`, where it differs ("1m; ping: 64"). None where it is
/// said in words.
fn literal(key: &KeyInfo, mode: &str) -> Option<Value> {
    let mut parts = key.default.split("; ");
    let first = parts.next()?;
    let own = parts.find_map(|part| part.strip_prefix(mode)?.strip_prefix(": "));
    let text = own.unwrap_or(first);
    let text = text.split(", ").next()?;
    let is_a_word = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if text.is_empty() || !is_a_word(text) {
        return None;
    }
    // No duration, and no size, is called so.
    if text == "none" && !key.kind.contains("none") {
        return None;
    }
    Some(match text {
        "false" => json!(false),
        "true" => json!(true),
        number => number
            .parse::<u64>()
            .map_or(json!(text), |number| json!(number)),
    })
}

/// What is needed beside a key for it to be a plan at all.
fn beside(workload: &dyn Workload, key: &str) -> Params {
    let mut params = Params::new();
    let mut add = |name: &str, value: Value| params.insert(name.to_owned(), value);
    match workload.name() {
        "io" => drop(add("size", json!("16m"))),
        "replay" => {
            add("operations", json!("- mkdir a"));
            if key != "timing" {
                add("timing", json!("none"));
            }
        }
        _ => {}
    }
    if key.starts_with("rate") {
        params.insert("rate_iops".to_owned(), json!(50));
    }
    params
}

#[test]
fn a_documented_default_is_what_holds_without_the_key() {
    let mut held: Vec<(&str, &str)> = Vec::new();
    for workload in registry() {
        for key in workload.keys() {
            for mode in workload.modes() {
                let Some(default) = literal(key, mode.name) else {
                    continue;
                };
                let name = (workload.name(), mode.name, key.name);
                let absent = beside(*workload, key.name);
                assert!(!absent.contains_key(key.name), "{name:?}");
                let mut written = absent.clone();
                written.insert(key.name.to_owned(), default);
                let understood = |params: &Params| {
                    let told = (
                        check(*workload, mode.name, params),
                        workload.understood(mode.name, params),
                        Common::of(params),
                    );
                    assert!(told.0.is_ok(), "{name:?} {params:?}: {:?}", told.0);
                    told
                };
                // What `network` does about errors is not what the common default says.
                if name.0 == "network" && name.2 == "on-error" {
                    assert!(check(*workload, mode.name, &written).is_err());
                    continue;
                }
                assert_eq!(
                    understood(&written),
                    understood(&absent),
                    "{name:?}: {}",
                    key.default
                );
                held.push((name.0, name.2));
            }
        }
    }
    held.dedup();
    // Those whose default is a word or a number; the others say in words what happens.
    for workload in registry() {
        let known = |key: &&KeyInfo| held.contains(&(workload.name(), key.name));
        let count = workload.keys().iter().filter(known).count();
        assert!(count >= 3, "{}: {held:?}", workload.name());
    }
    for key in [
        ("files", "files"),
        ("files", "size"),
        ("files", "loops"),
        ("io", "bs"),
        ("io", "iodepth"),
        ("io", "sync"),
        ("bytes", "seeks"),
        ("bytes", "bs"),
        ("copy", "size"),
        ("copy", "way"),
        ("tree", "tree"),
        ("fill", "share"),
        ("fill", "hold"),
        ("replay", "timing"),
        ("network", "bs"),
        ("network", "runtime"),
        ("null", "ops"),
        ("null", "stall-after"),
        ("null", "rate_process"),
    ] {
        assert!(held.contains(&key), "{key:?} is not among {held:?}");
    }
}

/// The test above would find one.
#[test]
fn a_wrong_default_is_told_apart() {
    let io = crate::workload::find("io").unwrap();
    let with = |value: Value| {
        let mut params = beside(io, "iodepth");
        params.insert("iodepth".to_owned(), value);
        io.understood("read", &params).unwrap()
    };
    assert_eq!(
        with(json!(1)),
        io.understood("read", &beside(io, "iodepth")).unwrap()
    );
    assert_ne!(with(json!(2)), with(json!(1)));
    let key = |default: &'static str, kind: &'static str| KeyInfo {
        name: "k",
        kind,
        default,
        meaning: "",
    };
    for (default, kind, mode, expected) in [
        ("1m; ping: 64", "size", "ping", Some(json!(64))),
        ("1m; ping: 64", "size", "throughput", Some(json!("1m"))),
        ("8k, or the file", "size", "seek", Some(json!("8k"))),
        ("none", "none or psync", "read", Some(json!("none"))),
        ("none", "duration", "read", None),
        ("those of `tree`", "count", "walk", None),
        ("false", "true or false", "read", Some(json!(false))),
    ] {
        assert_eq!(literal(&key(default, kind), mode), expected, "{default}");
    }
}
