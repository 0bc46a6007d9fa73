//! Sections beside the results: daemons, costs, links, events, and the reason of a failed run.

use super::*;

/// The heading contains the run's reason; the notes and the events only list other reasons.
#[test]
fn the_reason_of_a_failed_run_is_shown_once() {
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
            detail: None,
        })
        .into();
    let notes = of_title(&run, "Steps").remove(0).notes;
    let notes: Vec<&String> = notes
        .iter()
        .filter(|note| note.starts_with("step 1"))
        .collect();
    assert_eq!(notes, ["step 1, agent c2: worker 0: gone"]);
    let events = text(&of_title(&run, "Warnings and errors")[0]);
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[2].contains("step-failed"), "{events:?}");
}

#[test]
fn daemons_costs_links_and_events_have_their_tables() {
    let mut run = report(vec![step(1, "records", "write")]);
    run.daemons = vec![DaemonReport {
        daemon_id: 1,
        host: "lab".into(),
        name: "ceph-osd".into(),
        instance: "osd.3".into(),
        pid: 17,
        cpu_s: Some(12.34),
        cpu_percent: Some(41.2),
        span_s: None,
        cpu_percent_max: Some(180.0),
        rss_first_mib: Some(100.0),
        rss_max_mib: Some(141.25),
        rss_peak_mib: Some(241.5),
        rss_last_mib: Some(141.0),
        read_mib: None,
        written_mib: Some(2048.0),
        figures: [("swap_mib".to_owned(), 12.5)].into(),
        serves: Some(true),
        born_us: None,
        ended_us: None,
    }];
    run.costs = vec![
        CostReport {
            step_id: StepId(101),
            target: "cephfs".into(),
            name: "ceph-osd".into(),
            cpu_us_per_op: Some(312.0),
            cpu_s_per_gib: Some(78.0),
            cpu_s: Some(3.0),
            ops: 100,
            bytes: 1 << 20,
            ..cost()
        },
        CostReport {
            step_id: StepId(101),
            target: "cephfs".into(),
            name: "ceph-mon".into(),
            cpu_us_per_op: None,
            cpu_s_per_gib: None,
            cpu_s: None,
            ops: 0,
            bytes: 0,
            ..cost()
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
        detail: None,
    }];
    let shown = tables(&run, Detail::All);
    let wanted = ["Daemons in", "Daemons during", "Links", "Warnings"];
    let of_title = |wanted: &str| {
        let tables = shown.iter().filter(|table| table.title.starts_with(wanted));
        tables
            .map(|table| text(table).join("\n"))
            .collect::<Vec<_>>()
    };
    insta::assert_snapshot!(wanted.map(of_title).concat().join("\n\n"));
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
    let links = |run: &Report| of_title(run, "Links");
    assert!(links(&run).is_empty());
    run.links.extend((15..27).map(|to| link(to, Some(1120.0))));
    let list = &links(&run)[0];
    assert_eq!(list.rows.len(), 12);
    assert!(list.rows.iter().all(|row| row[2] == "1,120"), "{list:?}");
}

/// Eight names are busy: five have a column, and the others share one, whatever they used.
#[test]
fn daemons_without_a_column_share_one() {
    let mut run = report(vec![step(1, "records", "write")]);
    run.costs = (1u8..=8)
        .map(|place| CostReport {
            step_id: StepId(101),
            target: "cephfs".into(),
            name: format!("daemon-{place}"),
            cpu_percent: Some(f64::from(place) * 10.0),
            span_s: Some(2.0),
            cpu_s: Some(f64::from(place) * 0.2),
            cpu_us_per_op: Some(f64::from(place)),
            ops: 1_000,
            ..cost()
        })
        .collect();
    let table = of_title(&run, "Daemons by mode").remove(0);
    let titles: Vec<&str> = table.columns.iter().map(|one| one.title.as_str()).collect();
    let names = ["daemon-4", "daemon-5", "daemon-6", "daemon-7", "daemon-8"];
    assert_eq!(titles[1..6], names);
    assert_eq!(titles[6], "3 others");
    assert_eq!(table.rows[0][6], "60.0");
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.starts_with("Others: daemon-1, daemon-2, daemon-3;")),
        "{:?}",
        table.notes
    );
}

/// A short step with much CPU and a long one with little.
#[test]
fn cpu_usage_of_a_mode_is_weighted_by_the_time_of_its_steps() {
    let mut run = report(vec![
        step(1, "records", "write"),
        step(2, "records", "write"),
    ]);
    run.costs = [(101, 90.0, 1.0), (102, 10.0, 9.0)]
        .map(|(step, percent, span_s)| CostReport {
            step_id: StepId(step),
            target: "cephfs".into(),
            cpu_percent: Some(percent),
            span_s: Some(span_s),
            ..cost()
        })
        .into();
    let table = of_title(&run, "Daemons by mode").remove(0);
    assert_eq!(table.rows[0][1], "18.0");
}
