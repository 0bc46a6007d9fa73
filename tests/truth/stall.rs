//! Hanging calls: the stall is an event with its location, its end is another event, and the run ends as its plan
//! requires.
//!
//! The file system's log shows where a call actually hung.

pub mod bed;
mod cases;
mod silent;

use crate::needs;
use crate::support::fuse_fs::{Call, Op};
use bed::{Bed, Scratch, end};
use benchmesh_testing::{measured, timing};
use cases::{Case, GROUPS, Place};
use std::path::Path;
use std::time::Duration;

#[test]
fn a_stall_is_an_event_with_its_place_and_its_end_another() {
    needs!("fuse");
    measured(|| {
        let bed = Bed::new(Scratch::Apart);
        bed.hang(Op::Write, "c000000000", 3);
        let phase = "workload = \"copy\"\nsize = \"8m\"\nbs = \"1m\"\nmodes = [\"in\"]";
        let mut run = bed.begin("continue", phase);
        bed.until_stalled(0, "a copy");
        assert_eq!(bed.events("stall-over"), 0);
        bed.fs.release();
        let ended = end(&mut run, "a copy");
        assert!(ended.success(), "{ended}: {}", run.log());

        assert_eq!((bed.events("stall"), bed.events("stall-over")), (1, 1));
        // The kernel may split a write; the log shows which writes completed before the one that hung.
        let log = bed.fs.log();
        let writes = log
            .iter()
            .filter(|call| call.op == Op::Write && call.path.contains("c000000000"));
        let before: u64 = writes.take(3).map(|call| call.amount).sum();
        let copied = before as i64 >> 20 << 20;
        let (stall, over) = (bed.newest("stall"), bed.newest("stall-over"));
        for (row, severity) in [(&stall, "warning"), (&over, "info")] {
            assert_eq!(row.text("severity"), severity);
            assert_eq!((&*row.text("agent"), &*row.text("mode")), ("a", "in"));
            assert_eq!(row.text("host"), row.text("on_host"));
            assert_eq!((&*row.text("op"), row.integer("worker")), ("copy", 0));
            assert_eq!(row.integer("offset"), copied);
            let path = row.text("path");
            assert!(
                path.starts_with(&*bed.fs.path().to_string_lossy()) && path.ends_with("c000000000"),
                "{row:?}"
            );
            assert!(row.text("message").contains(&path), "{row:?}");
        }
        let seen_after = Duration::from_micros(stall.integer("lasted_us") as u64);
        timing!((1..4).contains(&seen_after.as_secs()), "{stall:?}");
        assert!(over.integer("lasted_us") > stall.integer("lasted_us"));
        let states = bed.mesh.db().column::<String>("SELECT state FROM runs");
        assert_eq!(states, ["done"]);
        Ok(())
    });
}

/// One test per workload, so that they wait in parallel.
macro_rules! each_says_where_it_hangs {
    ($($test:ident: $workload:literal;)*) => {
        $(#[test]
        fn $test() {
            says_where_it_hangs($workload);
        })*

        #[test]
        fn every_case_belongs_to_a_workload_under_test() {
            let tested = [$($workload),*];
            for group in GROUPS {
                assert!(tested.iter().any(|workload| group.is_of(workload)), "{}", group.common);
            }
        }
    };
}

each_says_where_it_hangs! {
    files_say_where_they_hang: "files";
    io_says_where_it_hangs: "io";
    tree_says_where_it_hangs: "tree";
    fill_says_where_it_hangs: "fill";
    copy_says_where_it_hangs: "copy";
    replay_says_where_it_hangs: "replay";
}

fn says_where_it_hangs(workload: &str) {
    needs!("fuse");
    let mut compared = 0;
    for scratch in [Scratch::Apart, Scratch::Beside] {
        let groups = || {
            GROUPS
                .iter()
                .filter(|group| group.scratch == scratch && group.is_of(workload))
        };
        if groups().next().is_none() {
            continue;
        }
        let bed = Bed::new(scratch);
        for group in groups() {
            for case in group.cases {
                hang_and_compare(&bed, group.common, case);
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no case of {workload}");
}

fn hang_and_compare(bed: &Bed, common: &str, case: &Case) {
    let what = format!("{common}{}: {:?} of {}", case.phase, case.op, case.path);
    let before = bed.fs.log().len();
    bed.hang(case.op, case.path, case.after);
    let mut run = bed.begin("continue", &format!("{common}{}", case.phase));
    let stall = bed.until_told(case.told, &what);
    bed.fs.release();
    let ended = end(&mut run, &what);
    assert!(ended.success(), "{what}: {ended}: {}", run.log());
    let log = bed.fs.log();
    let mut hung = log.iter().skip(before).filter(|call| call.hung);
    let (Some(hung), None) = (hung.next(), hung.next()) else {
        panic!("{what}: one call hangs")
    };
    assert_eq!(hung.op, case.op, "{what}");
    let (reported, path) = (stall.text("path"), bed.fs.path().join(&hung.path));
    match case.place {
        Place::Beneath => {
            let beneath = format!("{}/", path.display());
            assert!(
                reported.starts_with(&beneath),
                "{what}: {reported}, not {beneath}"
            );
        }
        Place::Source => {
            let reported = Path::new(&reported);
            assert!(reported.starts_with(&bed.target), "{what}: {reported:?}");
            assert_eq!(reported.file_name(), path.file_name(), "{what}");
        }
        _ => assert_eq!(reported, path.to_string_lossy(), "{what}"),
    }
    match case.place {
        Place::Name | Place::Beneath => assert!(stall.is_null("offset"), "{what}: {stall:?}"),
        Place::Offset | Place::Source => {
            let (reported, hung_at) = (stall.integer("offset"), hung.offset as i64);
            // The kernel reads ahead past the end of a file while the load is at its last page.
            let is_past_end = case.op == Op::Read && hung.amount == 0;
            assert!(
                reported == hung_at || (is_past_end && reported == hung_at - 4096),
                "{what}: {reported}, not {hung_at}"
            );
        }
        Place::Fourth => {
            let calls = log.iter().skip(before).filter(|call| {
                (call.op, &call.path) == (case.op, &hung.path) && call.began_us <= hung.began_us
            });
            let last = (4 * calls.count() as i64 - 1) * 8192;
            let reported = stall.integer("offset");
            // At depth, writes end in any order, and the one that was the last of four to end is synced.
            let is_one_before = || {
                log.iter().skip(before).any(|call| {
                    (call.op, &call.path) == (Op::Write, &hung.path)
                        && call.offset as i64 == reported
                        && call.began_us < hung.began_us
                })
            };
            let at_depth = case.phase.contains("iodepth");
            assert!(
                reported == last || (at_depth && is_one_before()),
                "{what}: {reported}, not {last}: {stall:?}"
            );
        }
        Place::InFlight => {
            let mut calls: Vec<&Call> = log
                .iter()
                .skip(before)
                .filter(|call| (call.op, &call.path) == (case.op, &hung.path))
                .collect();
            calls.sort_by_key(|call| call.began_us);
            let place = |offset: u64| calls.iter().position(|call| call.offset == offset);
            let reported = place(stall.integer("offset") as u64).unwrap();
            let apart = reported.abs_diff(place(hung.offset).unwrap());
            assert!(apart < 4, "{what}: {apart} apart: {stall:?} {hung:?}");
        }
    }
    assert_eq!(bed.events("stall-over"), bed.events("stall"), "{what}");
}

/// One thread inside io_uring, one in a tree, one preparing an operation, and one after its last operation: none of
/// them delays the run.
#[test]
fn a_plan_may_end_any_workload_at_a_stall() {
    needs!("fuse");
    for (common, phase, op, path, after) in cases::ENDED {
        let bed = Bed::new(Scratch::Apart);
        bed.hang(*op, path, *after);
        let mut run = bed.begin("abort", &format!("{common}{phase}"));
        bed.assert_ended_by_stall(&mut run, &format!("{common}{phase}: {op:?}"));
        assert_eq!((bed.events("stall"), bed.events("stall-over")), (1, 0));
    }
}
