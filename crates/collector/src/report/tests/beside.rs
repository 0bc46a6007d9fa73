//! What stands beside the results: daemons, costs, links, events, and why a run failed.

use super::*;

/// The heading has the run's reason; the notes and the events are for what it does not say.
#[test]
fn why_a_run_failed_is_said_once() {
    let why = "agent `c1`: worker 0: no space left";
    let mut failed = step(1, "records", "randread");
    failed.reason = Some(why.into());
    failed.failures = ["c1", "c2"]
        .map(|agent| TaskFailure {
            agent: agent.into(),
            error: format!(
                "worker 0: {}",
                if agent == "c1" {
                    "no space left"
                } else {
                    "gone"
                }
            ),
        })
        .into();
    let mut run = report(vec![failed]);
    let whole = format!("step 1 (records randread on cephfs) failed: {why}");
    run.run.reason = Some(whole.clone());
    run.events = ["step-failed", "run-failed"]
        .map(|kind| EventReport {
            at_us: 0,
            severity: "error".into(),
            kind: kind.into(),
            step_id: None,
            agent: None,
            message: whole.clone(),
        })
        .into();
    let shown = sheets(&run);
    let notes: Vec<&String> = shown[0]
        .notes
        .iter()
        .filter(|note| note.starts_with("step 1"))
        .collect();
    assert_eq!(notes, ["step 1, agent c2: worker 0: gone"]);
    let events = text(shown.last().unwrap());
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[2].contains("step-failed"), "{events:?}");
}

#[test]
fn daemons_costs_links_and_events_have_their_sheets() {
    let mut run = report(vec![step(1, "records", "write")]);
    run.daemons = vec![DaemonReport {
        host: "lab".into(),
        name: "ceph-osd".into(),
        instance: "osd.3".into(),
        pid: 17,
        cpu_s: Some(12.34),
        cpu_percent: Some(41.2),
        cpu_percent_max: Some(180.0),
        rss_first_mib: Some(100.0),
        rss_max_mib: Some(141.25),
        rss_last_mib: Some(141.0),
        read_mib: None,
        written_mib: Some(2048.0),
    }];
    run.costs = vec![
        CostReport {
            step_id: StepId(101),
            target: "cephfs".into(),
            name: "ceph-osd".into(),
            cpu_us_per_op: Some(312.0),
            cpu_s_per_gib: Some(78.0),
        },
        CostReport {
            step_id: StepId(101),
            target: "cephfs".into(),
            name: "ceph-mon".into(),
            cpu_us_per_op: None,
            cpu_s_per_gib: None,
        },
    ];
    run.links = vec![
        LinkReport {
            from_agent: "c1".into(),
            to_agent: "c2".into(),
            mib_per_s: Some(1120.0),
            rtt_p50_us: None,
            rtt_busy_p50_us: None,
        },
        LinkReport {
            from_agent: "c2".into(),
            to_agent: "c1".into(),
            mib_per_s: None,
            rtt_p50_us: Some(65.4),
            rtt_busy_p50_us: Some(5.25),
        },
    ];
    run.events = vec![EventReport {
        at_us: 1_795_254_092_000_000,
        severity: "warning".into(),
        kind: "agent-lost".into(),
        step_id: None,
        agent: Some("c2".into()),
        message: "no contact for 30 s".into(),
    }];
    let shown = sheets(&run);
    let got: Vec<Vec<String>> = shown.iter().skip(1).map(text).collect();
    assert_eq!(
        got,
        [
            vec![
                "Daemons during the steps",
                "host | daemon | instance | pid | CPU s | CPU % | CPU % max | RSS first MiB | max MiB | last MiB | read \
                 MiB | written MiB",
                "lab | ceph-osd | osd.3 | 17 | 12.3 | 41.2 | 180 | 100 | 141 | 141 | - | 2,048",
                "# CPU %: 100 is one CPU; mean over the steps, and of the step in which it was highest.",
            ],
            vec![
                "Cost of an operation to the daemons",
                "step | phase | target | mode | daemon | CPU us/op | CPU s/GiB",
                "1 | records | cephfs | write | ceph-osd | 312 | 78.0",
                "# CPU time of all daemons of one name during the step, over its operations and its bytes.",
            ],
            vec![
                "Links, throughput in MiB/s",
                "from \\ to | c1 | c2",
                "c1 | - | 1,120",
                "c2 | - | -",
                "# The best of all phases, cells and repeats; SELECT * FROM v_links has each.",
            ],
            vec![
                "Links, round trip in us (median, blocking)",
                "from \\ to | c1 | c2",
                "c1 | - | -",
                "c2 | 65.4 | -",
                "# The best of all phases, cells and repeats; SELECT * FROM v_links has each.",
            ],
            vec![
                "Links, round trip in us (median, busy polling)",
                "from \\ to | c1 | c2",
                "c1 | - | -",
                "c2 | 5.25 | -",
                "# The best of all phases, cells and repeats; SELECT * FROM v_links has each.",
            ],
            vec![
                "Warnings and errors",
                "when | severity | agent | event | message",
                "2026-11-21T09:41:32Z | warning | c2 | agent-lost | no contact for 30 s",
            ],
        ]
    );
}

#[test]
fn a_link_of_requests_alone_has_no_row_of_dashes() {
    let link = |to: usize, mib_per_s| LinkReport {
        from_agent: "c00".into(),
        to_agent: format!("c{to:02}"),
        mib_per_s,
        rtt_p50_us: None,
        rtt_busy_p50_us: None,
    };
    let mut run = report(vec![step(1, "records", "write")]);
    run.links = (1..15).map(|to| link(to, None)).collect();
    assert_eq!(sheets(&run).len(), 1);
    run.links.extend((15..27).map(|to| link(to, Some(1120.0))));
    let shown = sheets(&run);
    let [_, list] = shown.as_slice() else {
        panic!("results and links: {shown:?}");
    };
    assert_eq!(list.rows.len(), 12);
    assert!(list.rows.iter().all(|row| row[2] == "1,120"), "{list:?}");
}
