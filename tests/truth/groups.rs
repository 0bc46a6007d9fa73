//! Groups that run at the same time, against a file system that logs every call. Tolerance: none; the counts are equal.

use crate::needs;
use crate::support::fuse_fs::{Call, FuseFs, Op};
use crate::support::mesh::Mesh;
use crate::support::plan;

/// Maximum difference between mesh time and the wall clock that dates the calls. No other calls occur within that time.
const APART_US: i64 = 200_000;

/// The calls of one group, whose directory name ends in its number.
fn of_group(log: &[Call], number: u32, op: Op, (from, until): (i64, i64)) -> (i64, i64) {
    let part = format!("-g{number}/");
    let own = log.iter().filter(|call| {
        call.op == op
            && call.path.contains(&part)
            && call.began_us >= from - APART_US
            && call.ended_us <= until + APART_US
    });
    own.fold((0, 0), |(count, bytes), call| {
        (count + 1, bytes + call.amount as i64)
    })
}

#[test]
fn groups_at_work_at_once_are_counted_apart() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a", "b", "c", "d"], fs.path());
    // Two groups do the same operation, and a rate of the step is divided within its own group. Each does the work of
    // four seconds at its rate.
    let run = mesh.run(&plan::on(
        fs.path(),
        "",
        r#"
        [[phase]]
        name = "mixed"
        [[phase.group]]
        name = "small"
        workload = "io"
        modes = ["randread"]
        clients = 2
        size = "1m"
        bs = "4k"
        io_size = "1200k"
        rate_iops = 150
        rate-per = "step"
        [[phase.group]]
        name = "large"
        workload = "io"
        modes = ["read"]
        clients = 1
        size = "1m"
        bs = "64k"
        io_size = "10m"
        rate_iops = 40
        [[phase.group]]
        name = "writer"
        workload = "io"
        modes = ["write"]
        size = "512k"
        bs = "8k"
        io_size = "1920k"
        rate_iops = 60
        "#,
    ));
    let log = fs.log();
    let db = mesh.db();
    let rows = db.rows(&format!(
        "SELECT v.step_id, v.group_name, v.mode, v.op, v.clients, v.ops, v.bytes, v.errors, v.ops_per_s, s.start_us,
                max(t.ended_us) AS ended_us, json_extract(v.params, '$.bs') AS bs
         FROM v_results v JOIN steps s ON s.id = v.step_id
              JOIN tasks t ON t.step_id = s.id AND t.group_name = v.group_name
         WHERE v.run_id = {run} GROUP BY v.group_name, v.op ORDER BY v.group_name"
    ));
    let reported: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |column| row.text(column);
            (
                text("group_name"),
                text("mode"),
                text("op"),
                text("bs"),
                row.integer("clients"),
            )
        })
        .collect();
    let group = |name: &str, mode: &str, op: &str, bs: &str, clients| {
        let [name, mode, op, bs] = [name, mode, op, bs].map(str::to_owned);
        (name, mode, op, bs, clients)
    };
    assert_eq!(
        reported,
        [
            group("large", "read", "read", "64k", 1),
            group("small", "randread", "read", "4k", 2),
            group("writer", "write", "write", "8k", 1),
        ]
    );
    for (row, number, call, rate) in [
        (&rows[0], 2, Op::Read, 40),
        (&rows[1], 1, Op::Read, 150),
        (&rows[2], 3, Op::Write, 60),
    ] {
        let span = (row.integer("start_us"), row.integer("ended_us"));
        let seen = of_group(&log, number, call, span);
        let name = row.text("group_name");
        assert_eq!((row.integer("ops"), row.integer("bytes")), seen, "{name}");
        assert_eq!(seen.0, rate * 4, "{name}");
        // However late the host is, a schedule is never ahead: the last operation is due this long after the first.
        let least_us = (seen.0 - 1) * 1_000_000 / rate;
        assert!(span.1 - span.0 >= least_us, "{name}: {span:?}");
        assert_eq!(row.integer("errors"), 0, "{name}");
        let intervals = db.one::<i64>(&format!(
            "SELECT sum(ops) FROM v_timeline WHERE run_id = {run} AND group_name = '{name}'"
        ));
        assert_eq!(intervals, seen.0, "{name}");
    }
    // One step, one start; no agent in two groups.
    assert_eq!(db.one::<i64>("SELECT count(*) FROM steps"), 1);
    assert_eq!(
        db.one::<i64>("SELECT count(DISTINCT start_us) FROM tasks"),
        1
    );
    assert_eq!(
        db.one::<i64>("SELECT count(DISTINCT agent_id) FROM tasks"),
        4
    );
    assert_eq!(
        fs.names(),
        Vec::<std::path::PathBuf>::new(),
        "left on the target"
    );
    let report = mesh.command(&["report", "last"]);
    for group in ["small", "large", "writer"] {
        assert!(report.out.contains(group), "{}", report.out);
    }
    mesh.assert_no_complaints();
}
