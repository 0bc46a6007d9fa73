//! Valid and invalid lists, and their effect on a real directory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod verified;

use super::*;
use crate::engine::task::End;
use crate::measure::op::Op;
use crate::registry;
use crate::testing::{TestCell, Tmpfs, arm_soon};
use benchmesh_testing::{measured, timing};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// A list with operations of most kinds.
const LIST: &str = "
# A program that writes a log, and reads what was there.
0        mkdir logs
0.010    create logs/today
0.010    write logs/today 0 5000
-        write logs/today 5000 5000
0.020    fsync logs/today
0.020    close logs/today
0.030    open data/old
0.030    read data/old 4096 8192
0.031    truncate data/old 100
0.031    close data/old
0.040    stat data/old
0.040    rename data/old logs/kept
0.040    symlink logs/latest today
0.050    list logs
0.050    delete logs/latest
0.060    mkdir empty
0.060    rmdir empty
";

fn operations(text: &str) -> Value {
    json!({ "operations": text })
}

#[test]
fn a_list_is_done_as_it_says() {
    for more in [json!({}), json!({"timing": "none"}), json!({"numjobs": 3})] {
        let mut params = operations(LIST);
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        let cell = TestCell::new(NAME);
        let workers = params.get("numjobs").map_or(1, |n| n.as_u64().unwrap());
        let once = [
            (Op::Mkdir, 2, 0),
            (Op::Open, 2, 0),
            (Op::Write, 2, 10_000),
            (Op::Fsync, 1, 0),
            (Op::Close, 2, 0),
            (Op::Read, 1, 8192),
            (Op::Truncate, 1, 0),
            (Op::Stat, 1, 0),
            (Op::Rename, 1, 0),
            (Op::Symlink, 1, 0),
            (Op::List, 1, 0),
            (Op::Delete, 1, 0),
            (Op::Rmdir, 1, 0),
        ];
        let expected = once.map(|(op, ops, bytes)| (op, ops * workers, bytes * workers));
        let outcome = cell.run("replay", params.clone());
        outcome.expect(&expected);
        let ran = outcome.end.ended.since(outcome.end.planned_start);
        assert!(
            params.get("timing").is_some() || ran >= Duration::from_millis(60),
            "{ran:?}"
        );
        let size = |name: &str| fs::metadata(cell.task_dir().join(name)).unwrap().len();
        let last = workers - 1;
        assert_eq!(size(&format!("w{last}/logs/today")), 10_000);
        assert_eq!(size(&format!("w{last}/logs/kept")), 100);
        assert!(!cell.task_dir().join("w0/empty").exists());
        // A second run starts from the same state.
        cell.run("replay", params).expect(&expected);
    }
}

#[test]
fn the_way_to_a_new_name_is_no_part_of_a_rename() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let deep = "d/".repeat(300);
        let list: String = (0..40)
            .map(|number| format!("- rename f{number} {deep}g{number}\n"))
            .collect();
        let outcome = cell.run("replay", operations(&list));
        outcome.expect(&[(Op::Rename, 40, 0)]);
        outcome.expect_apart(outcome.end.ended.since(outcome.end.planned_start))?;
        let made = cell.task_dir().join("w0").join(&deep);
        assert_eq!(fs::read_dir(made).unwrap().count(), 40);
        Ok(())
    });
}

#[test]
fn a_list_in_a_file_is_read_where_the_agent_lets_it_be_read() {
    let cell = TestCell::new(NAME);
    let path = cell.top.path().join("list");
    fs::write(&path, "- mkdir a\n- rmdir a\n").unwrap();
    let outcome = cell.run("replay", json!({ "from": path }));
    outcome.expect(&[(Op::Mkdir, 1, 0), (Op::Rmdir, 1, 0)]);
    fs::write(&path, "- mkdir a\n- rmdir ../a\n").unwrap();
    let error = cell.refusal("replay", json!({ "from": path })).to_string();
    assert!(
        error.contains("list`: line 2: the path `../a` leads out"),
        "{error}"
    );
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    let error = cell.refusal("replay", json!({ "from": elsewhere.path() }));
    let error = crate::error_chain(&error);
    assert!(error.contains("not beneath a path"), "{error}");
}

#[test]
fn what_fails_is_counted_and_the_rest_goes_on() {
    let cell = TestCell::new(NAME);
    let list = "
- create a
- create a/b
- write a/b 0 10
- close a/b
- write a 0 100
- read a 50 100
- close a
";
    let outcome = cell.run("replay", operations(list));
    assert_eq!(outcome.end.state, End::Done, "{:?}", outcome.end);
    assert_eq!(outcome.of(Op::Open), (1, 0, 1));
    assert_eq!(outcome.of(Op::Write), (1, 100, 1));
    assert_eq!(outcome.of(Op::Close), (1, 0, 1));
    assert_eq!(outcome.of(Op::Read), (0, 0, 1));
    let first: Vec<&str> = outcome
        .end
        .errors
        .iter()
        .map(|error| &*error.first)
        .collect();
    assert!(
        first.iter().any(|text| text.contains("w0/a at offset 100")),
        "{first:?}"
    );
}

#[test]
fn response_time_runs_from_the_time_of_the_line() {
    measured(|| {
        let cell = TestCell::new(NAME);
        // Long writes simulate a storage that stalls.
        let list = "0 create a\n0 write a 0 100000000\n0 write a 0 100000000\n0 fsync a\n0 stat a\n- stat a\n2 close a\n";
        let outcome = cell.run("replay", operations(list));
        assert_eq!(outcome.end.state, End::Done, "{:?}", outcome.end);
        let slowest = |op| {
            let (service, response) = outcome.slowest(op);
            (service, response.unwrap())
        };
        let writes = slowest(Op::Write);
        let (stat, late) = slowest(Op::Stat);
        // The stat was due together with the writes, and ran after them.
        timing!(
            late >= writes.0 && stat < late / 2,
            "{stat:?} {late:?} {writes:?}"
        );
        assert!(writes.1 >= writes.0);
        // Waiting for the due time is not a delay.
        let (close, waited) = slowest(Op::Close);
        timing!(
            waited < Duration::from_millis(200) && close <= waited,
            "{close:?} {waited:?}"
        );
        let mut untimed = operations(list);
        untimed["timing"] = json!("none");
        assert_eq!(cell.run("replay", untimed).slowest(Op::Stat).1, None);
        Ok(())
    });
}

#[test]
fn a_list_ends_with_its_last_line_or_with_its_time_whichever_comes_first() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let list = "0 mkdir a\n0.2 mkdir b\n0.4 rmdir a\n1 rmdir b\n3600 mkdir c\n";
        let with = |more: Value| {
            let mut params = operations(list);
            for (key, value) in more.as_object().unwrap() {
                params[key] = value.clone();
            }
            params
        };
        let outcome = cell.run("replay", with(json!({"runtime": "700ms"})));
        outcome.expect(&[(Op::Mkdir, 2, 0), (Op::Rmdir, 1, 0)]);
        let ran = outcome.end.ended.since(outcome.end.planned_start);
        timing!((700..5000).contains(&ran.as_millis()), "{ran:?}");
        // The times of the list count from the start, with or without a ramp.
        let ramped = with(json!({"runtime": "1400ms", "ramp_time": "300ms"}));
        let footprint = REPLAY.check("replay", ramped.as_object().unwrap()).unwrap();
        assert_eq!(footprint.runtime, Some(Duration::from_millis(1700)));
        let outcome = cell.run("replay", ramped);
        outcome.expect(&[(Op::Mkdir, 2, 0), (Op::Rmdir, 2, 0)]);
        let ramp = |ramp: bool| {
            let intervals = outcome.intervals.iter().filter(|it| it.ramp == ramp);
            intervals.map(|it| it.ops).sum::<u64>()
        };
        // Each operation counts in the ramp or after it, depending on when it ended.
        timing!((ramp(true), ramp(false)) == (2, 2));
        // As fast as possible, it ends long before.
        let fast = with(json!({"runtime": "1h", "timing": "none"}));
        cell.run("replay", fast)
            .expect(&[(Op::Mkdir, 3, 0), (Op::Rmdir, 2, 0)]);
        Ok(())
    });
}

#[test]
fn a_full_target_ends_it_with_the_reason() {
    let Some(tmpfs) = Tmpfs::mount(256) else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    let outcome = cell.run(
        "replay",
        operations("- create a\n- write a 0 1000000\n- close a\n"),
    );
    assert_eq!(outcome.end.state, End::Failed);
    assert!(outcome.end.error.unwrap().contains("no space left"));
}

#[test]
fn a_long_wait_is_ended_by_a_stop() {
    let cell = TestCell::new(NAME);
    let spec = cell.spec("replay", operations("0 mkdir a\n3600 rmdir a\n"));
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    arm_soon(&mut task);
    let stopper = task.stopper();
    let began = std::time::Instant::now();
    let stopping = std::thread::spawn(move || stopper.stop());
    let end = task.run_to_end(&mut |_| {});
    stopping.join().unwrap();
    assert_eq!(end.state, End::Stopped);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn mistakes_have_their_line() {
    let check = |text: &str, line: usize, part: &str| {
        let error = List::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}: {error}");
        assert!(error.to_string().contains(part), "{text:?}: {error}");
    };
    check("", 1, "no operation");
    check("# nothing\n\n", 1, "no operation");
    check("- mkdir a\n\n# x\n- fly a\n", 4, "no operation `fly`");
    check("mkdir a", 1, "`mkdir` is no time");
    check("-1 mkdir a", 1, "no time");
    check("1.0000000001 mkdir a", 1, "no time");
    check("99999999999 mkdir a", 1, "no time");
    check(
        "2 mkdir a\n1.5 mkdir b",
        2,
        "before that of an operation above",
    );
    check("-", 1, "the operation is missing");
    check("- stat", 1, "the path is missing");
    check("- stat a b", 1, "`b` is too much");
    for bad in ["/etc/passwd", "a/../b", "a//b", "./a", "a/"] {
        check(&format!("- stat {bad}"), 1, "the path");
        check(&format!("- rename a {bad}"), 1, "the path");
    }
    check(
        &format!("- stat {}", "n".repeat(256)),
        1,
        "longer than a name",
    );
    check("- read a 0 1", 1, "not open");
    check("- open a\n- open a", 2, "open already");
    check("- create a\n- close a\n- write a 0 1", 3, "not open");
    check("- open a\n- read a 0", 2, "the length is missing");
    check("- open a\n- read a x 1", 2, "`x` is none");
    check("- open a\n- read a 0 2000000000", 2, "at most");
}

#[test]
fn what_has_to_be_there_is_known() {
    let list = List::parse(
        "- open a/b/c\n- read a/b/c 10 20\n- write a/b/c 0 100\n- read a/b/c 50 50\n- close a/b/c\n\
         - mkdir d\n- create d/e\n- close d/e\n- open d/e\n- read d/e 0 5\n- list f\n- delete g\n",
    )
    .unwrap();
    let expected: Vec<(&str, Option<u64>)> = list
        .expected
        .iter()
        .map(|(path, bytes)| (std::str::from_utf8(path).unwrap(), *bytes))
        .collect();
    assert_eq!(
        expected,
        [
            ("a", None),
            ("a/b", None),
            ("a/b/c", Some(30)),
            ("f", None),
            ("g", Some(0))
        ]
    );
    assert_eq!((list.files, list.largest, list.moved), (3, 100, 175));
}

proptest! {
    #[test]
    fn no_text_is_too_strange_to_be_refused(text in "[ -~\n]{0,200}") {
        let _ = List::parse(&text);
    }

    #[test]
    fn words_in_any_sequence_are_refused_or_understood(
        words in proptest::collection::vec(
            prop_oneof![
                Just("-"), Just("0.5"), Just("open"), Just("create"), Just("read"), Just("write"), Just("close"),
                Just("rename"), Just("delete"), Just("a"), Just("a/b"), Just("12"), Just("\n"),
            ],
            0..60,
        )
    ) {
        if let Ok(list) = List::parse(&words.join(" ")) {
            for line in &list.lines {
                prop_assert!(line.action.bytes() <= u64::try_from(list.largest).unwrap());
            }
        }
    }
}

#[test]
fn parameters_are_checked() {
    let check = |params: Value| REPLAY.check("replay", params.as_object().unwrap());
    let footprint = check(operations(LIST)).unwrap();
    assert_eq!((footprint.workers, footprint.moved_bytes), (1, 18_192));
    assert!(footprint.bytes >= 10_000 + 12_288);
    for (bad, key) in [
        (json!({}), "operations"),
        (json!({"operations": "- fly a"}), "operations"),
        (json!({"operations": "- mkdir a", "from": "/list"}), "from"),
        (json!({"from": "list"}), "from"),
        (
            json!({"operations": "- mkdir a", "timing": "fast"}),
            "timing",
        ),
        (
            json!({"operations": "- mkdir a", "rate_iops": 5}),
            "rate_iops",
        ),
        (json!({"operations": "- mkdir a", "numjobs": 0}), "numjobs"),
        (json!({"operations": "- mkdir a", "bs": 1}), "bs"),
    ] {
        let error = check(bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{bad}: {error}");
    }
}
