#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::super::tests::{report, step};
use super::super::{EventReport, LossReport, TaskFailure};
use super::*;

fn verdicts(report: &Report) -> Vec<(String, Verdict, String)> {
    let found = checks(report).into_iter();
    found.map(|one| (one.name, one.verdict, one.text)).collect()
}

fn found(report: &Report, name: &str) -> (Verdict, String) {
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

#[test]
fn a_run_without_a_fault_is_fine_in_every_respect() {
    let mut second = step(2, "records", "write");
    second.repeat = 2;
    let got = verdicts(&report(vec![step(1, "records", "write"), second]));
    assert!(
        got.iter().all(|(_, verdict, _)| *verdict == Verdict::Ok),
        "{got:#?}"
    );
    let names: Vec<&str> = got.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "complete", "starts", "tool", "cached", "stalls", "clients", "errors", "samples",
            "repeats"
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
    steps[6].ops[0].errors = 1234;
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
    let check = |name: &str, verdict: Verdict, text: &str| {
        assert_eq!(found(&run, name), (verdict, text.to_owned()));
    };
    check(
        "complete",
        Verdict::Warning,
        "1 of 9 steps (6) partial or without data",
    );
    check(
        "starts",
        Verdict::Note,
        "within 26.0 ms of the common instant, known to 12 us (step 8)",
    );
    check(
        "tool",
        Verdict::Warning,
        "1 of 9 steps (3): benchmesh itself took a large share of the time, or its workers waited for a CPU: the storage can \
         do more",
    );
    check(
        "cached",
        Verdict::Warning,
        "1 of 9 steps (4): read or written faster than the agents' network can carry: a cache answered",
    );
    check("stalls", Verdict::Note, "operations hung 2 times");
    check(
        "clients",
        Verdict::Warning,
        "1 agent without contact; 1 of 9 steps (5): an agent did not run for a while during the step",
    );
    check(
        "errors",
        Verdict::Warning,
        "1,234 failed operations in 1 of 9 steps (7)",
    );
    check(
        "samples",
        Verdict::Warning,
        "12,000 lost on 1 agent: what daemons and hosts did has gaps",
    );
    check(
        "windows",
        Verdict::Note,
        "1 of 9 steps (3): all workers were active together for less than 2.5 seconds or half the step; the rates are \
         over the whole step, to the last worker",
    );
    check(
        "repeats",
        Verdict::Note,
        "one: nothing tells a difference from chance",
    );
}

#[test]
fn only_a_confirmed_cache_drop_counts_as_cold() {
    let mut cold = step(1, "records", "read");
    cold.cache = "cold".into();
    cold.caches_dropped = 3;
    let of = |step: &StepReport| found(&report(vec![step.clone()]), "caches");
    assert_eq!(
        of(&cold),
        (Verdict::Ok, "1 cold step, confirmed by 3 hosts".into())
    );
    cold.caches_kept = vec!["fuse-client".into(), "daemon-caches".into()];
    assert_eq!(
        of(&cold),
        (
            Verdict::Note,
            "1 cold step, confirmed by 3 hosts; caches inside FUSE clients and the daemons cannot be dropped and were kept"
                .into()
        )
    );
    cold.caches_dropped = 0;
    assert_eq!(of(&cold).0, Verdict::Warning);
    cold.caches_failed = vec![TaskFailure {
        agent: "c1".into(),
        error: "page-cache: Permission denied".into(),
    }];
    assert_eq!(
        of(&cold),
        (
            Verdict::Warning,
            "not dropped before the step that should be cold; c1: page-cache: Permission denied"
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
            Verdict::Note,
            "the run is still going; 1 step so far".into()
        )
    );
}

/// Batches that were destroyed or given up are more than gaps in samples.
#[test]
fn lost_batches_are_named_with_what_was_in_them() {
    let loss = |what: &str, rows| LossReport {
        agent: "c1".into(),
        what: what.into(),
        rows,
        from_us: 1,
        until_us: 2,
    };
    let mut run = report(vec![step(1, "records", "write")]);
    run.losses = vec![loss("batches", 18)];
    let text = "18 batches of what was measured, each of about a second, were lost on c1 (how many operations were in them \
                is not known): counts and rates may be too low";
    assert_eq!(found(&run, "samples"), (Verdict::Warning, text.to_owned()));
    run.losses = vec![
        loss("batches", 1),
        loss("operations", 1600),
        loss("net_samples", 9),
    ];
    let text = "1 batch of what was measured, of about a second, was lost on c1 (with 1 600 operations at least): counts \
                and rates may be too low";
    let grouped = text.replace("1 600", &crate::figures::count(1600));
    assert_eq!(found(&run, "samples"), (Verdict::Warning, grouped));
}
