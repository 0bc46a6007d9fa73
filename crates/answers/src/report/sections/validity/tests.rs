#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::super::{
    BusyOther, DaemonReport, EventReport, Judged, LossReport, SecondsReport, TaskFailure,
    TrafficReport,
};
use super::*;
use crate::report::tests::{report, step};
use benchmesh_model::mesh::StepId;
use benchmesh_testing::table;

fn verdicts(report: &Report) -> Vec<(String, CheckVerdict, String)> {
    let found = checks(report).into_iter();
    found.map(|one| (one.name, one.verdict, one.text)).collect()
}

fn found(report: &Report, name: &str) -> (CheckVerdict, String) {
    let checks = checks(report);
    let one = checks.iter().find(|one| one.name == name).unwrap();
    (one.verdict, one.text.clone())
}

fn event(kind: &str) -> EventReport {
    EventReport {
        at_us: 1,
        severity: "warning".into(),
        kind: kind.into(),
        step_id: None,
        agent: None,
        message: String::new(),
        detail: None,
    }
}

fn seconds(zero: i64) -> SecondsReport {
    SecondsReport {
        seconds: 60,
        zero,
        ops_per_s_stddev: Some(0.0),
        ops_per_s_min: Some(0.0),
        ops_per_s_max: Some(0.0),
        bytes_per_s_stddev: Some(0.0),
        bytes_per_s_min: Some(0.0),
        bytes_per_s_max: Some(0.0),
    }
}

#[test]
fn what_nobody_looked_at_is_never_fine() {
    let mut blind = step(1, "records", "write");
    blind.judged = Judged::default();
    blind.skew_us = None;
    blind.skew_error_us = None;
    let mut paced = step(2, "records", "write");
    paced.params.insert("rate_iops".into(), 100.into());
    let mut run = report(vec![blind, paced]);
    let check = |run: &Report, name: &str, verdict: CheckVerdict, text: &str| {
        assert_eq!(found(run, name), (verdict, text.to_owned()));
    };
    let tool = "1 of 2 steps (2): under a rate, where the schedule is judged; 1 of 2 steps (1): without a calibration";
    check(&run, "tool", CheckVerdict::NotChecked, tool);
    check(
        &run,
        "stalls",
        CheckVerdict::NotChecked,
        "all 2 steps: no whole second to judge",
    );
    run.steps.truncate(1);
    check(
        &run,
        "starts",
        CheckVerdict::NotChecked,
        "no start was reported",
    );
    // Without known agents, losses are unknown.
    run.agents.clear();
    for name in ["policy", "clients", "samples"] {
        assert_eq!(found(&run, name).0, CheckVerdict::NotChecked, "{name}");
    }
    // One step was judged and flagged; the others were not checked.
    let mut flagged = step(2, "records", "write");
    flagged.flags = vec!["tool-bound".into()];
    run.steps.push(flagged);
    let (verdict, text) = found(&run, "tool");
    assert_eq!(verdict, CheckVerdict::Warning);
    assert!(
        text.ends_with("; not checked: 1 of 2 steps (1): without a calibration"),
        "{text}"
    );
}

#[test]
fn of_an_import_nothing_was_checked_and_its_log_is_repeated() {
    let mut step = step(1, "rados", "write");
    step.judged = Judged::default();
    step.ops[0].seconds = Some(seconds(3));
    let mut run = report(vec![step]);
    run.run.imported_from = Some("rados bench".into());
    run.agents.clear();
    assert_eq!(
        verdicts(&run),
        [
            (
                "imported".to_owned(),
                CheckVerdict::NotChecked,
                "from rados bench, by benchmesh 0.1.0; clocks, caches, the clients' CPUs and other load were not \
                 observed"
                    .to_owned()
            ),
            (
                "stalls".to_owned(),
                CheckVerdict::Note,
                "3 seconds in which nothing completed, in the step, as the log shows".to_owned()
            ),
            (
                "repeats".to_owned(),
                CheckVerdict::Note,
                "only one: a difference cannot be told from chance".to_owned()
            ),
        ]
    );
}

#[test]
fn the_worst_error_of_all_starts_is_the_one_that_is_told() {
    let mut steps = vec![step(1, "records", "write"), step(2, "records", "write")];
    steps[0].skew_us = Some(-300);
    steps[1].skew_error_us = Some(65_000);
    let check = |steps: &[StepReport]| found(&report(steps.to_vec()), "starts");
    assert_eq!(
        check(&steps),
        (
            CheckVerdict::Ok,
            "within -300 us of the common instant, known to 65.0 ms".into()
        )
    );
    steps[1].flags = vec!["start-unsure".into()];
    let (verdict, text) = check(&steps);
    assert_eq!(verdict, CheckVerdict::Warning);
    assert!(text.starts_with("within -300 us of the common instant, known to 65.0 ms (step 2); 1 of 2 steps (2): the \
        error of the common start"), "{text}");
}

#[test]
fn agents_are_counted_and_not_their_events() {
    let mut run = report(vec![step(1, "records", "write")]);
    let lost = |agent: &str| EventReport {
        agent: Some(agent.into()),
        ..event("agent-lost")
    };
    run.events = vec![lost("c1"), lost("c2"), lost("c1")];
    assert_eq!(
        found(&run, "clients").1,
        "2 agents without contact, 3 times in all"
    );
}

#[test]
fn who_took_the_cpus_is_named() {
    let mut steps = vec![step(1, "records", "write")];
    steps[0].flags = vec!["cpu-short".into()];
    let mut run = report(steps);
    let daemon = DaemonReport {
        daemon_id: 1,
        host: run.agents[0].host.clone(),
        name: "ceph-osd".into(),
        instance: String::new(),
        pid: 1,
        cpu_s: None,
        cpu_percent: Some(85.0),
        span_s: None,
        cpu_percent_max: None,
        rss_first_mib: None,
        rss_max_mib: None,
        rss_peak_mib: None,
        rss_last_mib: None,
        read_mib: None,
        written_mib: None,
        figures: Default::default(),
        serves: Some(false),
        born_us: None,
        ended_us: None,
    };
    run.daemons = vec![daemon];
    let text = found(&run, "cpu").1;
    assert!(
        text.ends_with("; busiest there: ceph-osd on lab, 85.0 % of a CPU"),
        "{text}"
    );
    // Also the unmonitored processes, but only those of the flagged steps.
    let other = |step_id: i64, name: &str, percent: f64| BusyOther {
        step_id: StepId(step_id),
        host: "lab".into(),
        name: name.into(),
        percent,
    };
    let id = run.steps[0].id.0;
    run.busy_others = vec![
        other(id + 1, "make", 99.0),
        other(id, "cc1", 41.0),
        other(id, "backup", 12.0),
    ];
    let text = found(&run, "cpu").1;
    assert!(
        text.ends_with("; others: cc1 41.0 % of a CPU on lab, backup 12.0 % of a CPU on lab"),
        "{text}"
    );
    run.steps[0].flags = vec!["tool-bound".into()];
    let text = found(&run, "tool").1;
    assert!(
        text.contains("; others: cc1 41.0 % of a CPU on lab"),
        "{text}"
    );
}

#[test]
fn a_run_without_a_fault_is_fine_in_every_respect() {
    let mut second = step(2, "records", "write");
    second.repeat = 2;
    let mut steps = vec![step(1, "records", "write"), second];
    for step in &mut steps {
        step.ops[0].seconds = Some(seconds(0));
    }
    let got = verdicts(&report(steps));
    assert!(
        got.iter()
            .all(|(_, verdict, _)| *verdict == CheckVerdict::Ok),
        "{got:#?}"
    );
    let names: Vec<&str> = got.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "complete", "starts", "tool", "cpu", "policy", "stalls", "clients", "errors",
            "samples", "repeats"
        ]
    );
    assert_eq!(
        got[1].2,
        "within 40 us of the common instant, known to 12 us"
    );
}

#[test]
fn each_fault_names_its_steps() {
    let mut steps: Vec<StepReport> = (1..=9).map(|at| step(at, "records", "write")).collect();
    steps[2].flags = vec!["tool-bound".into(), "window-short".into()];
    steps[3].flags = vec!["cache-suspect".into()];
    steps[4].flags = vec!["client-frozen".into()];
    steps[5].partial = true;
    steps[6].ops[0].errors = Some(1234);
    steps[7].skew_us = Some(26_000);
    let mut run = report(steps);
    run.events = vec![event("stall"), event("stall"), event("agent-lost")];
    run.losses = vec![LossReport {
        agent: "c1".into(),
        what: "daemon_samples".into(),
        rows: 12_000,
        from_us: 1,
        until_us: 2,
    }];
    for [name, verdict, text] in table(
        r#"
        complete | Warning | 1 of 9 steps (6) partial or without data
        starts   | Note    | within 26.0 ms of the common instant (step 8), known to 12 us
        tool     | Warning | 1 of 9 steps (3): benchmesh itself took a large share of the time: the storage can do more
        cached   | Warning
            | 1 of 9 steps (4): a cache served the load: the clients read more than they received, or moved data faster than their network can
        stalls   | Note    | operations hung 2 times
        clients  | Warning | 1 agent without contact; 1 of 9 steps (5): an agent did not run for a while during the step
        errors   | Warning | 1,234 failed operations in 1 of 9 steps (7)
        samples  | Warning | 12,000 lost on 1 agent: the figures of daemons and hosts have gaps
        windows  | Note
            | 1 of 9 steps (3): all workers were active together for less than 2.5 seconds or half the step; the rates are over the whole step, to the last worker
        repeats  | Note    | only one: a difference cannot be told from chance
        "#,
    ) {
        let (found, words) = found(&run, &name);
        assert_eq!((format!("{found:?}"), words), (verdict, text), "{name}");
    }
}

#[test]
fn only_a_confirmed_cache_drop_counts_as_cold() {
    let mut cold = step(1, "records", "read");
    cold.cache = "cold".into();
    cold.caches_dropped = 3;
    let of = |step: &StepReport| found(&report(vec![step.clone()]), "caches");
    assert_eq!(
        of(&cold),
        (CheckVerdict::Ok, "1 cold step, confirmed by 3 hosts".into())
    );
    cold.caches_kept = vec!["fuse-client".into(), "daemon-caches".into()];
    assert_eq!(
        of(&cold),
        (
            CheckVerdict::Note,
            "1 cold step, confirmed by 3 hosts; caches inside FUSE clients and the daemons cannot be dropped and were kept"
                .into()
        )
    );
    cold.caches_dropped = 0;
    assert_eq!(of(&cold).0, CheckVerdict::Warning);
    cold.caches_failed = vec![TaskFailure {
        agent: "c1".into(),
        error: "page-cache: Permission denied".into(),
    }];
    assert_eq!(
        of(&cold),
        (
            CheckVerdict::Warning,
            "not dropped before the step, which should be cold; c1: page-cache: Permission denied"
                .into()
        )
    );
}

#[test]
fn a_run_that_is_still_going_or_has_no_step_says_so() {
    let empty = verdicts(&report(vec![]));
    assert_eq!(empty.len(), 1);
    assert_eq!(empty[0].2, "no step has ended yet");
    let mut running = report(vec![step(1, "records", "write")]);
    running.run.state = "running".into();
    assert_eq!(
        found(&running, "complete"),
        (
            CheckVerdict::Note,
            "the run is still going; 1 step so far".into()
        )
    );
}

/// Lost or dropped batches are more serious than gaps in samples.
#[test]
fn lost_batches_are_named_with_what_was_in_them() {
    let loss = |what: &str, rows| LossReport {
        agent: "c1".into(),
        what: what.into(),
        rows,
        from_us: 1,
        until_us: 2,
    };
    let mut flagged = step(1, "records", "write");
    flagged.flags = vec!["batches-lost".into()];
    let mut run = report(vec![flagged]);
    run.losses = vec![loss("batches", 18)];
    let meaning = benchmesh_results::flags::meaning("batches-lost");
    let text = format!(
        "the step: {meaning}; 18 batches of measurements, each of about a second, were lost on c1 (number of \
         operations unknown)"
    );
    assert_eq!(found(&run, "samples"), (CheckVerdict::Warning, text));
    run.steps[0].flags.clear();
    run.losses = vec![
        loss("batches", 1),
        loss("operations", 1600),
        loss("net_samples", 9),
    ];
    let text = "1 batch of measurements, of about a second, was lost on c1 (with at least 1 600 operations); 9 \
                lost on 1 agent: the figures of daemons and hosts have gaps";
    let grouped = text.replace("1 600", &benchmesh_workloads::figures::count(1600));
    assert_eq!(found(&run, "samples"), (CheckVerdict::Warning, grouped));
}

#[test]
fn a_cached_read_is_judged_by_bytes_or_not_at_all() {
    let traffic = |read_mib: f64, cached_percent, not_judged: Option<&str>| TrafficReport {
        host: "lab".into(),
        read_mib,
        written_mib: 5.0,
        received_mib: None,
        sent_mib: None,
        disk_read_mib: None,
        disk_written_mib: None,
        received_bytes_per_op: None,
        sent_bytes_per_op: None,
        cached_percent,
        not_judged: not_judged.map(Into::into),
    };
    let cached = |flags: &[&str], traffic: TrafficReport| {
        let mut one = step(1, "records", "read");
        one.flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        one.traffic = vec![traffic];
        found(&report(vec![one]), "cached")
    };
    let (verdict, text) = cached(&["cache-suspect"], traffic(980.0, Some(100.0), None));
    assert_eq!(verdict, CheckVerdict::Warning);
    assert!(
        text.ends_with("lab read 980 MiB in step 1, of which 100 % never reached it"),
        "{text}"
    );
    assert_eq!(
        cached(&[], traffic(980.0, None, Some("the target is in memory"))),
        (
            CheckVerdict::NotChecked,
            "not judged in the step: the target is in memory".to_owned()
        )
    );
    assert_eq!(
        cached(&[], traffic(980.0, Some(0.0), None)).0,
        CheckVerdict::Ok
    );
    assert_eq!(cached(&[], traffic(0.0, None, None)).1, "nothing was read");
}
