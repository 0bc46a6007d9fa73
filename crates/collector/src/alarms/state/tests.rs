#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::plan;
use crate::snapshot::Newest;

const STEP: StepId = StepId(4);

fn alarms(conditions: &[&str]) -> Alarms {
    let mut text = String::from(
        "name = \"x\"\n[[phase]]\nworkload = \"null\"\nmodes = [\"run\"]\nruntime = \"1s\"\n",
    );
    for condition in conditions {
        text += &format!("[[alarm]]\nwhen = \"{condition}\"\n");
    }
    let plan = plan::parse(&text, "x.toml").unwrap_or_else(|error| panic!("{error}"));
    Alarms::new(plan.alarms)
}

fn load(ops: u64, p99_ms: f64) -> Option<(StepId, LoadNow)> {
    let load = LoadNow {
        ops,
        p99_ms: Some(p99_ms),
        ..LoadNow::default()
    };
    Some((STEP, load))
}

fn seen(second: i64, step: Option<(StepId, LoadNow)>, daemons: &[DaemonNow]) -> Seen<'_> {
    Seen {
        at: MeshMicros(second * 1_000_000),
        step,
        daemons,
        deaths: &[],
    }
}

fn osd(instance: &str, rss_bytes: i64) -> DaemonNow {
    DaemonNow {
        daemon_id: 1,
        host: String::from("node1"),
        name: String::from("ceph-osd"),
        instance: String::from(instance),
        pid: 7,
        cpu_us: 0,
        cpu_percent: Some(20.0),
        newest: Newest {
            at_us: 0,
            figures: DaemonFigures {
                rss_bytes,
                ..DaemonFigures::UNREAD
            },
            earlier: None,
        },
    }
}

/// What changes for the one alarm: raised, or over.
fn change(alarms: &mut Alarms, second: i64, step: Option<(StepId, LoadNow)>) -> Option<bool> {
    let changes = alarms.observe(seen(second, step, &[]));
    assert!(changes.len() <= 1, "{changes:?}");
    changes.first().map(|change| change.is_raised)
}

#[test]
fn a_limit_is_raised_after_its_time_and_over_when_it_no_longer_holds() {
    let mut alarms = alarms(&["p99 > 500ms for 10s"]);
    for second in 0..10 {
        assert_eq!(
            change(&mut alarms, second, load(1, 600.0)),
            None,
            "{second}"
        );
    }
    let raised = alarms.observe(seen(10, load(1, 612.0), &[]));
    assert_eq!(raised.len(), 1);
    assert_eq!(raised[0].because, "p99 is 612 ms");
    assert_eq!(change(&mut alarms, 11, load(1, 700.0)), None);
    // A moment below the limit does not end it.
    assert_eq!(change(&mut alarms, 12, load(1, 100.0)), None);
    assert_eq!(change(&mut alarms, 13, load(1, 700.0)), None);
    for second in 14..19 {
        assert_eq!(
            change(&mut alarms, second, load(1, 100.0)),
            None,
            "{second}"
        );
    }
    assert_eq!(change(&mut alarms, 19, load(1, 100.0)), Some(false));
    // It rests before it is raised again.
    for second in 20..70 {
        assert_eq!(
            change(&mut alarms, second, load(1, 900.0)),
            None,
            "{second}"
        );
    }
    assert_eq!(change(&mut alarms, 70, load(1, 900.0)), Some(true));
    // The step ends.
    for second in 71..76 {
        assert_eq!(change(&mut alarms, second, None), None, "{second}");
    }
    assert_eq!(change(&mut alarms, 76, None), Some(false));
}

#[test]
fn no_progress_counts_from_the_last_operation_of_the_step() {
    let mut alarms = alarms(&["no progress for 5s"]);
    assert_eq!(change(&mut alarms, 0, None), None);
    assert_eq!(change(&mut alarms, 90, None), None);
    for (second, ops) in [(91, 0), (95, 0), (95, 3), (99, 3)] {
        assert_eq!(
            change(&mut alarms, second, load(ops, 1.0)),
            None,
            "{second}"
        );
    }
    assert_eq!(change(&mut alarms, 100, load(3, 1.0)), Some(true));
    assert_eq!(change(&mut alarms, 101, load(4, 1.0)), None);
    assert_eq!(change(&mut alarms, 106, load(9, 1.0)), Some(false));
}

#[test]
fn each_daemon_has_a_state_of_its_own() {
    let mut alarms = alarms(&["rss of ceph-osd > 1m for 1s", "cpu of osd.2 > 10%"]);
    let daemons = [osd("osd.1", 5 << 20), osd("osd.2", 1)];
    let first = alarms.observe(seen(0, None, &daemons));
    let said: Vec<&str> = first.iter().map(|change| &*change.because).collect();
    assert_eq!(said, ["cpu of ceph-osd osd.2 on node1 is 20 %"]);
    let second = alarms.observe(seen(1, None, &daemons));
    let said: Vec<&str> = second.iter().map(|change| &*change.because).collect();
    assert_eq!(said, ["rss of ceph-osd osd.1 on node1 is 5.00 MiB"]);
    // Daemons that are no longer sampled.
    assert_eq!(alarms.observe(seen(2, None, &[])).len(), 0);
    assert_eq!(alarms.raised().count(), 2);
    let over = alarms.observe(seen(7, None, &[]));
    assert_eq!(over.len(), 2);
    assert!(over.iter().all(|change| !change.is_raised));
}

#[test]
fn a_leak_is_raised_and_a_steady_daemon_is_not() {
    let raised_after = |percent_per_hour: i64| {
        let mut alarms = alarms(&["rss of ceph-osd grows 10% per hour"]);
        (0..7200).find(|second| {
            // A noise of 0.2 % around the trend.
            let noise = (second * 7919) % 400_000 - 200_000;
            let grown = 100_000_000 * percent_per_hour / 100 * second / 3600;
            let daemons = [osd("osd.1", 100_000_000 + grown + noise)];
            !alarms.observe(seen(*second, None, &daemons)).is_empty()
        })
    };
    let after = raised_after(20).expect("a leak of 20 % per hour");
    assert!((1440..3600).contains(&after), "{after}");
    assert_eq!(raised_after(0), None);
    assert_eq!(raised_after(5), None);
}

#[test]
fn a_death_is_an_event_each_time() {
    let mut alarms = alarms(&["ceph-osd dies", "glusterfsd dies"]);
    let deaths = [Death {
        name: String::from("ceph-osd"),
        instance: String::from("osd.3"),
        message: String::from("ceph-osd osd.3 (pid 9) has ended"),
    }];
    for second in 0..2 {
        let changes = alarms.observe(Seen {
            deaths: &deaths,
            ..seen(second, None, &[])
        });
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].alarm, 0);
        assert_eq!(changes[0].because, deaths[0].message);
    }
}
