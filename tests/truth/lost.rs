//! A client that is killed in mid-step, against a file system that writes down every call: what is reported of the time
//! after is what the survivors did. Tolerance: two operations per client, which may be on either side of a second's edge.

use crate::needs;
use crate::support::fuse_fs::{Call, FuseFs, Op};
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::wall_us;
use crate::support::wait::until_true;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SECOND: i64 = 1_000_000;

#[test]
fn the_totals_after_a_loss_are_the_survivors() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    for name in ["a", "b", "c"] {
        mesh.add(Agent::named(name).allow(fs.path()));
    }
    let mut run = mesh.begin(&format!(
        r#"
        loss-after = "2s"
        lease = "3s"
        [targets.log]
        system = "fuse"
        path = "{}"
        [[phase]]
        workload = "io"
        modes = ["read"]
        size = "256k"
        bs = "4k"
        runtime = "14s"
        rate_iops = 60
        "#,
        fs.path().display()
    ));
    mesh.until_step_is("read", "running", LIMIT);
    let start: i64 = mesh.db().one("SELECT start_us FROM steps");
    until_true("the load has run for 9 s", LIMIT, || {
        wall_us() > start + 9 * SECOND
    });
    mesh.kill_agent("b");
    let killed = wall_us();
    let ended = run.exit_within(LIMIT).unwrap();
    assert_eq!(ended.code(), Some(3), "done but partial: {}", run.log());

    let log = fs.log();
    let read = |task: usize, from: i64| {
        let directory = format!("/t{task}/");
        let own = |call: &&Call| call.op == Op::Read && call.path.contains(&directory);
        let own = log.iter().filter(own);
        own.filter(|call| call.ended_us >= from && call.began_us >= start)
            .count() as i64
    };
    // The first whole second in which only two were there.
    let after = start + ((killed - start) / SECOND + 1) * SECOND;
    let db = mesh.db();
    let stored = |task: usize, from: i64| {
        db.one::<i64>(&format!(
            "SELECT coalesce(sum(i.ops), 0) FROM op_intervals i JOIN tasks t ON t.id = i.task_id
             WHERE t.task_index = {task} AND i.at_us >= {from} - 1000"
        ))
    };
    for survivor in [0, 2] {
        let (told, seen) = (stored(survivor, after), read(survivor, after));
        assert!(
            told.abs_diff(seen) <= 2,
            "{survivor}: {told}, and {seen} were"
        );
        assert!(seen > 200, "{survivor}: {seen}");
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
    // All there is, is in the total: of the lost one what had come, and that was no more than it did.
    let total: i64 = db.one("SELECT ops FROM step_results");
    assert_eq!(total, (0..3).map(|task| stored(task, start)).sum::<i64>());
    assert!(stored(1, start) <= read(1, start));
    assert!(stored(1, start) > 60, "what it had sent counts");
    // The window of all ends with the lost one, and has its share.
    let step = &db.rows(
        "SELECT s.all_active_from_us, s.all_active_until_us, s.flags, r.ops_per_s
         FROM steps s JOIN step_results r ON r.step_id = s.id",
    )[0];
    assert!(step.integer("all_active_until_us") <= killed, "{step:?}");
    assert!(step.text("flags").contains("\"partial\""), "{step:?}");
    assert!((step.number("ops_per_s") - 180.0).abs() < 4.0, "{step:?}");
}
