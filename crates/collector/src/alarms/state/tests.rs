#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use benchmesh_plan as plan;
use benchmesh_scheduler::snapshot::Newest;

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

fn load(ops: u64, p99_ms: f64) -> StepSeen {
    let load = LoadNow {
        ops,
        p99_ms: Some(p99_ms),
        ..LoadNow::default()
    };
    StepSeen::Known(STEP, load)
}

fn seen(second: i64, step: StepSeen, daemons: &[DaemonNow]) -> Observation<'_> {
    Observation {
        at: MeshMicros(second * 1_000_000),
        step,
        daemons,
        ended: &[],
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

/// The change of the one alarm: raised or over, if any.
fn change(alarms: &mut Alarms, second: i64, step: StepSeen) -> Option<bool> {
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
    assert_eq!(raised[0].alarm.because, "p99 is 612 ms");
    assert_eq!(change(&mut alarms, 11, load(1, 700.0)), None);
    // A short time below the limit does not end it.
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
    // It is not raised again before the minimum time.
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
        assert_eq!(
            change(&mut alarms, second, StepSeen::None),
            None,
            "{second}"
        );
    }
    assert_eq!(change(&mut alarms, 76, StepSeen::None), Some(false));
}

#[test]
fn no_progress_counts_from_the_last_operation_of_the_step() {
    let mut alarms = alarms(&["no progress for 5s"]);
    assert_eq!(change(&mut alarms, 0, StepSeen::None), None);
    assert_eq!(change(&mut alarms, 90, StepSeen::None), None);
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
fn a_stall_goes_on_while_there_are_no_figures() {
    let mut alarms = alarms(&["no progress for 5s"]);
    assert_eq!(change(&mut alarms, 0, load(3, 1.0)), None);
    assert_eq!(change(&mut alarms, 5, load(3, 1.0)), Some(true));
    for second in 6..10 {
        assert_eq!(
            change(&mut alarms, second, StepSeen::Unknown),
            None,
            "{second}"
        );
    }
    for second in 10..30 {
        assert_eq!(change(&mut alarms, second, load(3, 1.0)), None, "{second}");
    }
    assert_eq!(change(&mut alarms, 30, load(4, 1.0)), None);
    assert_eq!(change(&mut alarms, 35, load(5, 1.0)), Some(false));
}

#[test]
fn each_daemon_has_a_state_of_its_own() {
    let mut alarms = alarms(&["rss of ceph-osd > 1m for 1s", "cpu of osd.2 > 10%"]);
    let daemons = [osd("osd.1", 5 << 20), osd("osd.2", 1)];
    let first = alarms.observe(seen(0, StepSeen::None, &daemons));
    let said: Vec<&str> = first.iter().map(|change| &*change.alarm.because).collect();
    assert_eq!(said, ["cpu of ceph-osd osd.2 on node1 is 20 %"]);
    let second = alarms.observe(seen(1, StepSeen::None, &daemons));
    let said: Vec<&str> = second.iter().map(|change| &*change.alarm.because).collect();
    assert_eq!(said, ["rss of ceph-osd osd.1 on node1 is 5.00 MiB"]);
}

#[test]
fn an_alarm_of_a_daemon_that_is_not_sampled_is_over_only_if_the_daemon_ended() {
    let mut alarms = alarms(&["rss of ceph-osd > 1m", "rss of ceph-osd grows 10% per hour"]);
    let daemon = osd("osd.1", 5 << 20);
    assert_eq!(
        alarms
            .observe(seen(0, StepSeen::None, std::slice::from_ref(&daemon)))
            .len(),
        1
    );
    // Its host has lost its network.
    for second in 1..600 {
        assert_eq!(
            alarms.observe(seen(second, StepSeen::None, &[])),
            [],
            "{second}"
        );
    }
    assert_eq!(alarms.raised().count(), 1);
    assert_eq!(alarms.unsampled(std::slice::from_ref(&daemon)), [0; 0]);
    assert_eq!(alarms.unsampled(&[]), [1]);
    // An unread figure is unknown too.
    let unread = osd("osd.1", UNKNOWN);
    for second in 600..700 {
        let daemons = [unread.clone()];
        assert_eq!(
            alarms.observe(seen(second, StepSeen::None, &daemons)),
            [],
            "{second}"
        );
    }
    let ended = |second| Observation {
        ended: &[1],
        ..seen(second, StepSeen::None, &[])
    };
    assert_eq!(alarms.observe(ended(700)), []);
    let over = alarms.observe(ended(705));
    assert_eq!(over.len(), 1);
    assert!(!over[0].is_raised);
    assert_eq!(over[0].alarm.subject.name, "ceph-osd osd.1 on node1");
}

#[test]
fn a_restored_alarm_is_raised_again_or_over() {
    let conditions = ["p99 > 500ms for 2s", "rss of ceph-osd > 1m"];
    let mut before = alarms(&conditions);
    for second in 0..3 {
        before.observe(seen(second, load(1, 900.0), &[osd("osd.1", 5 << 20)]));
    }
    let raised: Vec<RaisedAlarm> = before.raised().collect();
    assert_eq!(raised.len(), 2);

    let restored = || {
        let mut alarms = alarms(&conditions);
        alarms.restore(raised.clone());
        assert_eq!(alarms.raised().collect::<Vec<_>>(), raised);
        alarms
    };
    let daemons = [osd("osd.1", 5 << 20)];
    let mut goes_on = restored();
    let changes: Vec<(usize, bool)> = (10..20)
        .flat_map(|second| goes_on.observe(seen(second, load(1, 900.0), &daemons)))
        .map(|change| (change.alarm.alarm, change.is_raised))
        .collect();
    assert_eq!(changes, [(1, true), (0, true)]);
    let daemons = [osd("osd.1", 5)];
    let mut is_over = restored();
    let changes: Vec<(usize, bool)> = (10..20)
        .flat_map(|second| is_over.observe(seen(second, load(1, 1.0), &daemons)))
        .map(|change| (change.alarm.alarm, change.is_raised))
        .collect();
    assert_eq!(changes, [(0, false), (1, false)]);
    // A resumed run may have other alarms.
    let mut other = alarms(&["p99 > 501ms for 2s"]);
    other.restore(raised);
    assert_eq!(other.raised().count(), 0);
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
            !alarms
                .observe(seen(*second, StepSeen::None, &daemons))
                .is_empty()
        })
    };
    let after = raised_after(20).expect("a leak of 20 % per hour");
    assert!((1440..3600).contains(&after), "{after}");
    assert_eq!(raised_after(0), None);
    assert_eq!(raised_after(5), None);
}

#[test]
fn a_restored_leak_stays_until_it_can_be_judged_again() {
    let changes_of = |daemon_id: i64| {
        let mut alarms = alarms(&["rss of ceph-osd grows 10% per hour"]);
        alarms.restore(vec![RaisedAlarm {
            alarm: 0,
            when: String::from("rss of ceph-osd grows 10% per hour"),
            subject: Subject {
                name: String::from("ceph-osd osd.1 on node1"),
                daemon_id: Some(1),
            },
            because: String::from("it grows"),
        }]);
        let mut daemon = osd("osd.1", 100_000_000);
        daemon.daemon_id = daemon_id;
        (0..3600)
            .filter(|second| {
                let changes =
                    alarms.observe(seen(*second, StepSeen::None, std::slice::from_ref(&daemon)));
                assert!(changes.iter().all(|change| !change.is_raised));
                !changes.is_empty()
            })
            .collect::<Vec<i64>>()
    };
    let judged_from = i64::try_from(MIN_POINTS).unwrap() * 60;
    assert_eq!(changes_of(1), [judged_from + 5]);
    // Another process of that name does not grow.
    assert_eq!(changes_of(2), [5]);
}

#[test]
fn without_figures_an_alarm_stays_as_it_is() {
    let mut alarms = alarms(&["p99 > 500ms for 2s", "no progress for 5s"]);
    let raised = |alarms: &mut Alarms, second, step| {
        let changes = alarms.observe(seen(second, step, &[]));
        changes
            .iter()
            .map(|one| (one.alarm.alarm, one.is_raised))
            .collect::<Vec<_>>()
    };
    for second in 0..2 {
        assert_eq!(raised(&mut alarms, second, load(1, 900.0)), []);
    }
    assert_eq!(raised(&mut alarms, 2, load(2, 900.0)), [(0, true)]);
    // Its agents are away: the alarm does not end, and no stall is raised.
    for second in 3..60 {
        assert_eq!(raised(&mut alarms, second, StepSeen::Unknown), []);
    }
    // In a stall no operation ends, so there is no latency.
    let stalled = StepSeen::Known(STEP, LoadNow::default());
    for second in 60..65 {
        assert_eq!(raised(&mut alarms, second, stalled), [], "{second}");
    }
    assert_eq!(raised(&mut alarms, 65, stalled), [(1, true)]);
}

#[test]
fn a_daemon_that_dies_again_and_again_is_one_alarm_a_minute() {
    let mut alarms = alarms(&["ceph-osd dies", "glusterfsd dies"]);
    let deaths = [Death {
        name: String::from("ceph-osd"),
        instance: String::from("osd.3"),
        message: String::from("ceph-osd osd.3 (pid 9) has ended"),
    }];
    let mut look = |second: i64, deaths: &[Death]| {
        let changes = alarms.observe(Observation {
            deaths,
            ..seen(second, StepSeen::None, &[])
        });
        assert!(changes.iter().all(|change| change.alarm.alarm == 0));
        assert!(
            changes
                .iter()
                .all(|change| change.alarm.because == "ceph-osd osd.3 (pid 9) has ended")
        );
        changes
            .iter()
            .map(|change| change.is_raised)
            .collect::<Vec<_>>()
    };
    assert_eq!(look(0, &deaths), [true]);
    assert_eq!(look(1, &deaths), Vec::<bool>::new());
    for second in 2..62 {
        assert_eq!(look(second, &[]), Vec::<bool>::new(), "{second}");
    }
    assert_eq!(look(62, &[]), [false]);
    assert_eq!(look(63, &deaths), [true]);
}

#[test]
fn daemons_that_ended_are_forgotten() {
    let mut alarms = alarms(&["rss of ceph-osd grows 10% per hour", "rss of ceph-osd > 1g"]);
    for minute in 0..1000 {
        let mut daemon = osd(&minute.to_string(), 2 << 30);
        daemon.daemon_id = minute;
        alarms.observe(Observation {
            ended: &[minute - 1, minute - 2],
            ..seen(minute * 60, StepSeen::Unknown, &[daemon])
        });
        assert!(
            alarms.trends.len() <= usize::from(TREND_MINUTES),
            "{minute}"
        );
        assert!(alarms.states.len() <= 3, "{minute}: {:?}", alarms.states);
    }
    // The last one, and the one before it: an alarm is over some seconds after its daemon is gone.
    assert_eq!(alarms.raised().count(), 2);
}
