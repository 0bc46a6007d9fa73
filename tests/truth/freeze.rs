//! A file system that freezes: every second of the task has its row, and the seconds without a completed operation show
//! the freeze.
//!
//! Compared with the begin and end of the frozen call in the file system's own log. Tolerance: a tenth of a second at
//! each end of the freeze, for mesh time against the wall clock and for the call's path through the kernel.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::mesh::Mesh;
use crate::support::plan;
use benchmesh_testing::{TimingError, measured, timing};
use std::thread;
use std::time::{Duration, SystemTime};

const RATE: u64 = 100;
const SECOND_US: i64 = 1_000_000;
const TOLERANCE_US: i64 = SECOND_US / 10;

#[test]
fn every_second_of_a_freeze_has_a_row() {
    needs!("fuse");
    measured(|| {
        // In parallel, because the longest of them takes its time.
        thread::scope(|scope| {
            let freezes = [500, 1300, 2200, 3700, 8000, 18_000].map(|millis| {
                scope.spawn(move || freeze_and_compare(Duration::from_millis(millis)))
            });
            freezes
                .map(|freeze| freeze.join().unwrap())
                .into_iter()
                .collect::<Result<(), TimingError>>()
        })
    });
}

fn freeze_and_compare(freeze: Duration) -> Result<(), TimingError> {
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a"], fs.path());
    // Anywhere in a second, at a different place in each run of this test.
    let phase = u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_millis()) / 10;
    fs.add_rule(Rule {
        path: "benchmesh-".to_owned(),
        after: RATE + phase,
        times: 1,
        ..Rule::every(Op::Write, Fault::Delay(freeze))
    });
    mesh.run(&plan::phase(
        fs.path(),
        &format!(
            "workload = \"io\"\nsize = \"64k\"\nbs = \"4k\"\nmodes = [\"rewrite\"]\nrate_iops = {RATE}\nruntime = \"{}s\"",
            freeze.as_secs() + 4
        ),
    ));
    let frozen = fs.log().into_iter().find(|call| {
        call.op == Op::Write && call.ended_us - call.began_us >= freeze.as_micros() as i64
    });
    let frozen = frozen.unwrap_or_else(|| panic!("{freeze:?}: no call was frozen"));
    let (began, ended) = (frozen.began_us, frozen.ended_us);

    let db = mesh.db();
    let rows = db.rows("SELECT at_us, span_us, ops FROM op_intervals ORDER BY at_us");
    let start: i64 = db.one("SELECT start_us FROM tasks");
    let task_end: i64 = db.one("SELECT ended_us FROM tasks");
    let mut next = start;
    let mut silent = 0;
    for row in &rows {
        let (at, span, ops) = (
            row.integer("at_us"),
            row.integer("span_us"),
            row.integer("ops"),
        );
        timing!(
            (at - next).abs() < TOLERANCE_US,
            "{freeze:?}: a row at {at}, after one that ended at {next}: {rows:?}"
        );
        next = at + span;
        let within = at > began + TOLERANCE_US && next < ended - TOLERANCE_US;
        let apart = next < began - TOLERANCE_US || at > ended + TOLERANCE_US;
        // The last row covers the rest of a second.
        match (within, apart && next <= task_end) {
            (true, _) => timing!(
                ops == 0,
                "{freeze:?}: {at} is frozen from {began} to {ended}"
            ),
            (_, true) => timing!(
                ops > 0,
                "{freeze:?}: {at} is not frozen from {began} to {ended}"
            ),
            _ => {}
        }
        silent += i64::from(within);
    }
    assert!(
        next + SECOND_US > task_end,
        "{freeze:?}: rows end at {next}, the task at {task_end}"
    );
    let whole = (ended - began) / SECOND_US;
    timing!(
        silent >= whole - 2,
        "{freeze:?}: {silent} seconds without an operation from {began} to {ended}: {rows:?}"
    );
    Ok(())
}
