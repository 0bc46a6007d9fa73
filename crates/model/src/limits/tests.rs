#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

const GIB: u64 = 1 << 30;

fn share(percent: u8, most: Option<u64>) -> Setting {
    Setting::Share { percent, most }
}

#[test]
fn settings_parse_and_are_written_as_they_parse() {
    for (limit, text, setting) in [
        (Limit::Memory, "4GiB", Setting::Amount(4 * GIB)),
        (Limit::Memory, "25%", share(25, None)),
        (Limit::Threads, "64", Setting::Amount(64)),
        (Limit::Rate, "100MiB", Setting::Amount(100 << 20)),
        (Limit::FreeSpace, "0", Setting::Amount(0)),
        (Limit::FreeSpace, "5%, at most 1GiB", share(5, Some(GIB))),
        (Limit::FreeInodes, "5000", Setting::Amount(5000)),
        (
            Limit::FreeInodes,
            "1%, at most 10000",
            share(1, Some(10_000)),
        ),
    ] {
        assert_eq!(limit.parse(text).unwrap(), setting, "{text}");
        assert_eq!(limit.notation(setting), text);
    }
    assert_eq!(Limit::Memory.parse("4g").unwrap(), Setting::Amount(4 * GIB));
    assert_eq!(Limit::Rate.about(Setting::Amount(10 << 20)), "10.0 MiB/s");
}

#[test]
fn mistakes_say_what_to_write() {
    for (limit, text, parts) in [
        (Limit::Memory, "0", ["no load", "4g"]),
        (Limit::Memory, "much", ["`much`", "a share such as 5%"]),
        (Limit::Memory, "101%", ["1% to 100%", "share"]),
        (Limit::Threads, "0", ["no load", "a number"]),
        (Limit::Threads, "50%", ["no share", "a number"]),
        (Limit::Threads, "2.9", ["`2.9` is no number", "a number"]),
        (Limit::Threads, "64MiB", ["`64MiB`", "a number"]),
        (Limit::Memory, "4x", ["unknown unit `x`", "4g"]),
        (
            Limit::FreeSpace,
            "5%,at most 1g",
            ["5%, at most 1g", "a size"],
        ),
        (
            Limit::FreeSpace,
            "5%, at most 0",
            ["an upper limit of 0", "a size"],
        ),
        (Limit::Rate, "0", ["no load", "100MiB"]),
        (Limit::FreeSpace, "0%", ["1% to 100%", "share"]),
        (
            Limit::FreeInodes,
            "1%, at most some",
            ["`some`", "a number"],
        ),
        (
            Limit::FreeInodes,
            "5, at most 6",
            ["`5, at most 6`", "a number"],
        ),
    ] {
        let error = limit.parse(text).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn shares_are_of_a_total() {
    assert_eq!(share(10, None).of(2000), 200);
    assert_eq!(share(10, Some(50)).of(2000), 50);
    assert_eq!(share(100, None).of(u64::MAX), u64::MAX);
    assert_eq!(Setting::Amount(7).of(2000), 7);
}

#[test]
fn every_row_has_its_own_names_and_a_default_in_its_notation() {
    for limit in Limit::ALL {
        let row = limit.row();
        assert_eq!(Limit::from_option(row.option), Some(*limit));
        let option = row.option.replace('-', "_");
        let name = match (row.scope, row.unit) {
            (Scope::AllLoad, Unit::Bytes) => option + "_bytes",
            (Scope::AllLoad, Unit::BytesPerSecond) => option + "_bytes_per_s",
            (Scope::AllLoad, Unit::Count) | (Scope::EachTarget, _) => option,
        };
        assert_eq!(row.name, name);
        if let Fallback::Setting(text) = row.default {
            assert_eq!(limit.notation(limit.default_on(1).unwrap()), text);
        }
    }
    let threads = |cpus| Limit::Threads.default_on(cpus).unwrap();
    assert_eq!((threads(2).of(0), threads(8).of(0)), (64, 128));
    assert_eq!(Limit::Rate.default_on(8), None);
}

#[test]
fn json_has_every_limit_and_reads_back() {
    let limits = Limits::default()
        .with(Limit::Memory, Setting::Amount(GIB))
        .with(Limit::FreeSpace, share(5, Some(GIB)));
    let written = json!({
        "memory_bytes": GIB,
        "threads": 0,
        "rate_bytes_per_s": 0,
        "free_space": "5%, at most 1GiB",
        "free_inodes": "",
    });
    assert_eq!(serde_json::to_value(limits).unwrap(), written);
    assert_eq!(serde_json::from_value::<Limits>(written).unwrap(), limits);
    let other = json!({ "networks": [], "threads": 8 });
    let read: Limits = serde_json::from_value(other).unwrap();
    assert_eq!(read.amount(Limit::Threads), Some(8));
    for (wrong, part) in [
        (json!({ "threads": -1 }), "`threads` is -1"),
        (json!({ "free_space": "a lot" }), "`free_space`"),
    ] {
        let error = serde_json::from_value::<Limits>(wrong).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}
