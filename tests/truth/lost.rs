//! A client that is killed in the middle of a step, against a file system that logs every call: the figures for the
//! time after it are those of the survivors. Tolerance: two operations per client, which may be on either side of a
//! second's edge.

use crate::needs;
use crate::support::fuse_fs::{Call, FuseFs, Op};
use crate::support::loss::kill_after;
use crate::support::mesh::Mesh;
use crate::support::plan::{self, READS};
use benchmesh_testing::{measured, timing};
use std::time::Duration;

const SECOND: i64 = 1_000_000;
const RATE: i64 = 60;

#[test]
fn the_totals_after_a_loss_are_the_survivors() {
    needs!("fuse");
    measured(|| {
        let fs = FuseFs::mount();
        let mut mesh = Mesh::of(&["a", "b", "c"], fs.path());
        let mut run = mesh.begin(&plan::on(
            fs.path(),
            "loss-after = \"2s\"\nlease = \"3s\"",
            &format!("{READS}runtime = \"14s\"\nrate_iops = {RATE}"),
        ));
        let (start, killed) = kill_after(&mut mesh, &mut run, "b", Duration::from_secs(9));

        let log = fs.log();
        let read = |task: usize, from: i64| {
            let directory = format!("/t{task}/");
            let own = |call: &&Call| call.op == Op::Read && call.path.contains(&directory);
            let own = log.iter().filter(own);
            own.filter(|call| call.ended_us >= from && call.began_us >= start)
                .count() as i64
        };
        // The first whole second with only two clients.
        let after = start + ((killed - start) / SECOND + 1) * SECOND;
        let db = mesh.db();
        let stored = |task: usize, from: i64| {
            db.one::<i64>(&format!(
            "SELECT coalesce(sum(i.ops), 0) FROM op_intervals i JOIN tasks t ON t.id = i.task_id
             WHERE t.task_index = {task} AND i.at_us >= {from} - 1000"
        ))
        };
        for survivor in [0, 2] {
            let (reported, seen) = (stored(survivor, after), read(survivor, after));
            timing!(
                reported.abs_diff(seen) <= 2,
                "{survivor}: {reported}, and {seen} were"
            );
            // The load ends 14 s after its start; operations that fall due while a survivor has no CPU are done after
            // that.
            let due = (start + 14 * SECOND - after) / SECOND * RATE;
            assert!(
                seen > due * 9 / 10 && seen <= due + 2,
                "{survivor}: {seen} of {due}"
            );
        }
        assert_eq!((stored(1, after), read(1, after)), (0, 0), "it was dead");
        let timeline: i64 = db.one(&format!(
            "SELECT sum(ops) FROM v_timeline WHERE at_us >= {after} - 1000"
        ));
        assert_eq!(timeline, stored(0, after) + stored(2, after));
        let tasks: Vec<i64> = db.column(&format!(
            "SELECT tasks FROM v_timeline WHERE at_us >= {after} - 1000 ORDER BY at_us"
        ));
        assert!(tasks.iter().all(|tasks| *tasks == 2), "{tasks:?}");
        // The total includes everything stored: the lost client's part is what arrived, which is at most what it did.
        let total: i64 = db.one("SELECT ops FROM step_results");
        assert_eq!(total, (0..3).map(|task| stored(task, start)).sum::<i64>());
        assert!(stored(1, start) <= read(1, start));
        assert!(stored(1, start) > RATE, "what it had sent counts");
        // The window and its rate are those of the two remaining clients.
        let step = &db.rows(
            "SELECT s.all_active_from_us, s.all_active_until_us, s.flags, r.ops_per_s
         FROM steps s JOIN step_results r ON r.step_id = s.id",
        )[0];
        let until = start + 14 * SECOND;
        assert!(
            (step.integer("all_active_until_us") - until).abs() < SECOND,
            "{step:?}"
        );
        assert!(step.text("flags").contains("\"partial\""), "{step:?}");
        timing!((step.number("ops_per_s") - 120.0).abs() < 3.0, "{step:?}");
        Ok(())
    });
}
