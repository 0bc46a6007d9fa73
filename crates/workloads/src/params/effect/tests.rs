//! What is refused as idle, for each workload, and what is not.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::workload::{find, registry};
use serde_json::json;

/// The keys that are refused, with the cell that is named, after every cell has been found to be one.
fn idle(workload: &str, modes: &[&str], cells: &[Value]) -> Vec<(String, usize)> {
    let workload = find(workload).unwrap();
    let cells: Vec<&Params> = cells.iter().map(|cell| cell.as_object().unwrap()).collect();
    for (params, mode) in cells
        .iter()
        .flat_map(|cell| modes.iter().map(move |mode| (cell, mode)))
    {
        let checked = crate::workload::check(workload, mode, params);
        checked.unwrap_or_else(|error| panic!("{mode} {params:?}: {error}"));
    }
    let idle = idle_keys(workload, modes, &cells);
    let key = |idle: Idle| (idle.error.key.unwrap(), idle.cell);
    idle.into_iter().map(key).collect()
}

/// The modes with a use for a key beside one without, and one without; the parameters begin with the key.
#[test]
fn a_key_needs_a_mode_that_has_a_use_for_it() {
    let check = |workload: &str, key: &str, modes: [&str; 2], without: &str, params: Value| {
        assert!(params.get(key).is_some());
        assert_eq!(
            idle(workload, &modes, std::slice::from_ref(&params)),
            [],
            "{modes:?} {params}"
        );
        let refused = idle(workload, &[without], std::slice::from_ref(&params));
        assert_eq!(refused, [(key.to_owned(), 0)], "{without} {params}");
    };
    let io = |key: &str, modes, without, mut params: Value| {
        params["size"] = json!("1m");
        check("io", key, modes, without, params);
    };
    io(
        "rwmixread",
        ["rw", "read"],
        "write",
        json!({"rwmixread": 30}),
    );
    io(
        "stride",
        ["strideread", "read"],
        "backread",
        json!({"stride": "8k"}),
    );
    let zipf = json!({"random_distribution": "zipf:1.1"});
    io(
        "random_distribution",
        ["randread", "read"],
        "backread",
        zipf,
    );
    io(
        "norandommap",
        ["randrw", "read"],
        "write",
        json!({"norandommap": true}),
    );
    io("fsync", ["randrw", "read"], "read", json!({"fsync": 4}));
    io(
        "sync",
        ["recrewrite", "read"],
        "strideread",
        json!({"sync": "dsync"}),
    );
    io(
        "end_fsync",
        ["rw", "read"],
        "reread",
        json!({"end_fsync": 1}),
    );
    for reads in ["read", "reread", "randread", "rw", "randrw", "backread"] {
        io("verify", [reads, "write"], "write", json!({"verify": true}));
    }
    io(
        "verify",
        ["rewrite", "read"],
        "randwrite",
        json!({"verify": 1}),
    );
    io(
        "verify",
        ["write", "strideread"],
        "rewrite",
        json!({"verify": 1}),
    );

    check(
        "files",
        "append",
        ["append", "stat"],
        "stat",
        json!({"append": "1k"}),
    );
    for mode in ["setxattr", "getxattr"] {
        check(
            "files",
            "xattr-size",
            [mode, "stat"],
            "read",
            json!({"xattr-size": 9}),
        );
    }
    for mode in ["create", "append"] {
        check(
            "files",
            "fsync",
            [mode, "read"],
            "read",
            json!({"fsync": true}),
        );
    }
    for without in ["create", "stat", "delete"] {
        check(
            "files",
            "verify",
            ["create", "read"],
            without,
            json!({"verify": true}),
        );
    }

    for mode in ["putc", "rewrite", "getc", "fwrite", "fread"] {
        check(
            "bytes",
            "buffer",
            [mode, "seek"],
            "seek",
            json!({"buffer": "8k"}),
        );
    }
    for mode in ["fwrite", "fread", "seek"] {
        check("bytes", "bs", [mode, "getc"], "putc", json!({"bs": "8k"}));
    }
    check(
        "bytes",
        "seeks",
        ["seek", "getc"],
        "getc",
        json!({"seeks": 8}),
    );
    check(
        "bytes",
        "rewrite-share",
        ["seek", "getc"],
        "fread",
        json!({"rewrite-share": 8}),
    );
    for mode in ["putc", "rewrite", "fwrite"] {
        check(
            "bytes",
            "fsync",
            [mode, "getc"],
            "seek",
            json!({"fsync": true}),
        );
    }
    for mode in ["rewrite", "getc", "fread", "seek"] {
        check(
            "bytes",
            "verify",
            ["putc", mode],
            "fwrite",
            json!({"verify": true}),
        );
    }

    check(
        "tree",
        "fsync",
        ["unpack", "walk"],
        "walk",
        json!({"fsync": true}),
    );
    check(
        "tree",
        "verify",
        ["unpack", "read"],
        "unpack",
        json!({"verify": true}),
    );

    check(
        "fill",
        "hold",
        ["fill", "hold"],
        "fill",
        json!({"hold": "1s"}),
    );
    check(
        "fill",
        "runtime",
        ["hold", "read"],
        "hold",
        json!({"runtime": "1s"}),
    );
    check(
        "fill",
        "verify",
        ["fill", "read"],
        "fill",
        json!({"verify": true, "data": "zero"}),
    );

    for key in ["request-size", "response-size"] {
        check("network", key, ["ping", "request"], "ping", json!({key: 1}));
    }
    check(
        "network",
        "wait",
        ["throughput", "ping"],
        "throughput",
        json!({"wait": "busy"}),
    );
    check(
        "network",
        "bs",
        ["throughput", "request"],
        "request",
        json!({"bs": 1}),
    );
}

#[test]
fn amounts_belong_to_the_modes_that_they_end() {
    for (workload, key, with, without) in [
        ("files", "loops", "stat", "create"),
        ("files", "loops", "getxattr", "delete"),
        ("bytes", "loops", "rewrite", "putc"),
        ("bytes", "loops", "getc", "seek"),
        ("bytes", "seeks", "seek", "fread"),
        ("tree", "loops", "walk", "read"),
        ("network", "size", "throughput", "ping"),
        ("network", "ops", "ping", "throughput"),
        ("network", "ops", "request", "throughput"),
    ] {
        let mut params = json!({});
        params[key] = json!(3);
        let cells = [params];
        assert_eq!(
            idle(workload, &[with, without], &cells),
            [],
            "{workload} {with}"
        );
        assert_eq!(
            idle(workload, &[without], &cells),
            [(key.to_owned(), 0)],
            "{workload} {without}"
        );
    }
    // What an amount ends may be over before the ramp is, unless a runtime was asked for too.
    let ramp = |more: Value| {
        let mut params = json!({"ramp_time": "1s"});
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        [params]
    };
    let refused = [("ramp_time".to_owned(), 0)];
    assert_eq!(
        idle("network", &["ping"], &ramp(json!({"ops": 3}))),
        refused
    );
    assert_eq!(
        idle("network", &["ping"], &ramp(json!({"ops": 3, "runtime": 5}))),
        []
    );
    assert_eq!(
        idle("network", &["ping", "throughput"], &ramp(json!({"ops": 3}))),
        []
    );
    for workload in ["copy", "replay"] {
        let (mode, more) = match workload {
            "copy" => ("in", json!({})),
            _ => ("replay", json!({"from": "/lists/one"})),
        };
        assert_eq!(idle(workload, &[mode], &ramp(more.clone())), refused);
        let mut timed = ramp(more);
        timed[0]["runtime"] = json!("2s");
        assert_eq!(idle(workload, &[mode], &timed), []);
    }
}

#[test]
fn what_else_is_asked_for_makes_a_key_idle() {
    let check = |workload: &str, modes: &[&str], params: Value, key: Option<&str>| {
        let refused = idle(workload, modes, std::slice::from_ref(&params));
        let expected: Vec<_> = key.map(|key| (key.to_owned(), 0)).into_iter().collect();
        assert_eq!(refused, expected, "{workload} {modes:?} {params}");
    };
    let io = |modes: &[&str], mut params: Value, key| {
        params["size"] = json!("1m");
        check("io", modes, params, key);
    };
    let random = ["randread"];
    let with = |key: &str, value: Value| {
        let mut params = json!({"norandommap": true});
        params[key] = value;
        params
    };
    io(&random, with("random_distribution", json!("random")), None);
    io(
        &random,
        with("random_distribution", json!("zipf:1.1")),
        Some("norandommap"),
    );
    io(&random, with("bssplit", json!("4k")), None);
    io(
        &random,
        with("bssplit", json!("4k/50:8k/50")),
        Some("norandommap"),
    );
    let fallback = |mut params: Value| {
        params["ioengine-fallback"] = json!("psync");
        params
    };
    io(&["read"], fallback(json!({})), Some("ioengine-fallback"));
    io(
        &["read"],
        fallback(json!({"iodepth": 1})),
        Some("ioengine-fallback"),
    );
    io(&["read"], fallback(json!({"iodepth": 2})), None);
    io(&["read"], fallback(json!({"ioengine": "io_uring"})), None);
    for key in ["fsync", "end_fsync", "sync"] {
        let mut params = json!({"rwmixread": 100});
        params[key] = json!(1);
        io(&["rw", "randrw"], params.clone(), Some(key));
        io(&["rw", "write"], params.clone(), None);
        params["rwmixread"] = json!(99);
        io(&["randrw"], params, None);
    }
    io(
        &["rw"],
        json!({"rwmixread": 0, "verify": true}),
        Some("verify"),
    );
    io(&["rw"], json!({"rwmixread": 1, "verify": true}), None);

    for (workload, mode) in [
        ("files", "stat"),
        ("bytes", "getc"),
        ("tree", "walk"),
        ("null", "run"),
        ("fill", "read"),
    ] {
        check(
            workload,
            &[mode],
            json!({"ramp_time": "1s"}),
            Some("ramp_time"),
        );
        check(
            workload,
            &[mode],
            json!({"ramp_time": "1s", "runtime": "2s"}),
            None,
        );
    }
    io(&["read"], json!({"ramp_time": 1}), Some("ramp_time"));
    check("fill", &["fill", "hold"], json!({"ramp_time": "1s"}), None);
    check("network", &["ping"], json!({"ramp_time": "1s"}), None);

    let way = |way: &str| json!({"way": way, "bs": "64k", "verify": true});
    check("copy", &["in", "out"], way("copy-file-range"), Some("bs"));
    check("copy", &["in"], way("auto"), None);

    let list = |last: &str| json!({"verify": true, "operations": format!("- create a\n{last}\n- close a")});
    check(
        "replay",
        &["replay"],
        list("- write a 0 4096"),
        Some("verify"),
    );
    check(
        "replay",
        &["replay"],
        list("- write a 0 4096\n- read a 0 4096"),
        None,
    );
    check(
        "replay",
        &["replay"],
        json!({"from": "/lists/one", "verify": true}),
        None,
    );
}

#[test]
fn a_matrix_may_make_a_key_matter_in_some_of_its_cells() {
    let cell = |depth: u32| json!({"size": "1m", "iodepth": depth, "ioengine-fallback": "psync"});
    assert_eq!(idle("io", &["read"], &[cell(1), cell(32)]), []);
    let expected = [("ioengine-fallback".to_owned(), 0)];
    assert_eq!(idle("io", &["read"], &[cell(1), cell(1)]), expected);
    // A switch that is off in a cell asks for nothing; the one that asks is named.
    let cell = |fsync: bool| json!({"fsync": fsync});
    assert_eq!(
        idle("files", &["stat"], &[cell(false), cell(true)]),
        [("fsync".to_owned(), 1)]
    );
    assert_eq!(idle("files", &["stat"], &[cell(false)]), []);
}

#[test]
fn switches_that_are_off_are_no_keys() {
    let off = json!({"size": "1m", "norandommap": false, "fsync": 0, "sync": "none", "end_fsync": 0, "verify": false});
    assert_eq!(idle("io", &["write", "read"], &[off]), []);
    let off = json!({"size": "1m", "rwmixread": 0});
    assert_eq!(idle("io", &["read"], &[off]), [("rwmixread".to_owned(), 0)]);
}

#[test]
fn a_refusal_says_where_and_what_to_do() {
    let told = |workload: &str, modes: &[&str], params: Value| {
        let params = params.as_object().unwrap();
        let idle = idle_keys(find(workload).unwrap(), modes, &[params]);
        idle.into_iter().next().unwrap().error.message
    };
    assert_eq!(
        told("files", &["read", "stat"], json!({"fsync": true})),
        "has an effect only in the modes `create` and `append`, and the phase has `read` and `stat`; add one of these modes, \
         or remove the key"
    );
    assert_eq!(
        told("tree", &["unpack"], json!({"verify": true})),
        "has an effect only in the mode `read`, and the phase has `unpack`: nothing reads what it checks before the cell's \
         data are removed; add that mode, or remove the key"
    );
    let fallback = told(
        "io",
        &["read"],
        json!({"size": "1m", "ioengine-fallback": "psync"}),
    );
    assert!(
        fallback.contains("`iodepth` above 1") && fallback.ends_with("or remove the key"),
        "{fallback}"
    );
}

/// No workload has a mode in which `verify` is taken without a word and nothing is checked.
#[test]
fn every_workload_with_verify_says_where_it_checks() {
    for workload in registry() {
        let verifies = workload.keys().iter().any(|key| key.name == "verify");
        let says = workload
            .effects()
            .iter()
            .any(|effect| effect.key == "verify");
        // Each copy is read when it is made, in both modes.
        assert_eq!(
            verifies && workload.name() != "copy",
            says,
            "{}",
            workload.name()
        );
    }
}
