#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod beside;
mod phases;

use super::*;
use benchmesh_model::mesh::{RunId, StepId};

pub(super) fn step(ordinal: i64, phase: &str, mode: &str) -> StepReport {
    StepReport {
        id: StepId(100 + ordinal),
        ordinal,
        loop_number: 1,
        repeat: 1,
        attempt: 1,
        phase: phase.into(),
        target: "cephfs".into(),
        system: "cephfs".into(),
        workload: "io".into(),
        mode: mode.into(),
        params: serde_json::from_str(r#"{"bs": "4k", "size": "128m"}"#).unwrap(),
        clients: 3,
        cache: "asis".into(),
        caches_kept: Vec::new(),
        caches_dropped: 0,
        caches_failed: Vec::new(),
        cpu_user_s: None,
        cpu_system_s: None,
        state: "done".into(),
        partial: false,
        flags: vec![],
        reason: None,
        start_us: Some(1_000_000),
        ended_us: Some(5_000_000),
        resolution_s: 1,
        merged_10s_until_us: None,
        merged_60s_until_us: None,
        skew_us: Some(40),
        skew_error_us: Some(12),
        judged: Judged {
            harness: true,
            cpu: true,
            network: true,
        },
        links: String::new(),
        progress: Vec::new(),
        from_agent: None,
        to_agent: None,
        missing: Vec::new(),
        traffic: Vec::new(),
        failures: vec![],
        groups: vec![],
        ops: vec![op(mode)],
    }
}

pub(super) fn op(name: &str) -> OpReport {
    OpReport {
        group: String::new(),
        op: name.into(),
        ops: Some(49_382),
        bytes: Some(202_268_672),
        errors: Some(0),
        over_s: None,
        headline: "window".into(),
        ops_per_s: Some(12_345.6),
        bytes_per_s: Some(50_567_577.6),
        last_done_ops_per_s: Some(12_000.0),
        last_done_bytes_per_s: Some(49_152_000.0),
        last_done_s: Some(4.115),
        seconds: None,
        clients: None,
        mean_ms: Some(0.243),
        stddev_ms: Some(0.1),
        p50_ms: Some(0.2),
        p90_ms: Some(0.5),
        p95_ms: Some(0.7),
        p99_ms: Some(1.25),
        p999_ms: Some(7.0),
        max_ms: Some(1204.4),
        response_p50_ms: None,
        response_p99_ms: None,
        response_max_ms: None,
    }
}

pub(super) fn cost() -> CostReport {
    CostReport {
        step_id: StepId(101),
        target: "cephfs".into(),
        name: "ceph-osd".into(),
        cpu_us_per_op: Some(50.0),
        cpu_us_per_op_until_idle: None,
        idle_percent: None,
        after_cpu_s: None,
        after_s: None,
        after_idle: None,
        cpu_s_per_gib: None,
        cpu_s: None,
        ops: 1,
        bytes: 1,
        daemons: 3,
        cpu_percent: None,
        span_s: None,
        rss_max_mib: None,
        read_mib: None,
        written_mib: None,
        busiest: String::new(),
        busiest_percent: None,
    }
}

fn labels(role: &str) -> serde_json::Map<String, serde_json::Value> {
    [(String::from("role"), role.into())].into_iter().collect()
}

pub(super) fn report(steps: Vec<StepReport>) -> Report {
    Report {
        format: REPORT_FORMAT,
        card: card::Card::default(),
        run: RunReport {
            id: RunId(7),
            uid: "u-7".into(),
            name: "nightly".into(),
            state: "done".into(),
            partial: false,
            reason: None,
            created_us: 0,
            started_us: Some(1_795_254_092_000_000),
            ended_us: Some(1_795_254_279_000_000),
            paused_us: 0,
            order_seed: Some(7),
            version: "0.1.0".into(),
            imported_from: None,
            plan: "name = \"nightly\"\n".into(),
        },
        findings: vec![],
        validity: vec![],
        comparisons: vec![],
        marks: vec![],
        phases: vec![],
        agents: ["c1", "c2"]
            .map(|name| AgentReport {
                name: name.into(),
                host: "lab".into(),
                kernel: "6.18".into(),
                cpus: 2,
                memory_bytes: 1 << 34,
                labels: labels("client"),
                version: "0.1.0".into(),
                distribution: None,
                cpu_model: None,
                is_client: true,
                interfaces: None,
                disks: None,
                packages: None,
            })
            .into(),
        steps,
        curves: vec![],
        daemons: vec![],
        costs: vec![],
        hosts: vec![],
        links: vec![],
        events: vec![],
        events_total: 0,
        losses: vec![],
        awaited: vec![],
        facts: vec![],
        busy_others: vec![],
        queried: serde_json::Map::new(),
    }
}

/// A table as text: cells joined by ` | `, notes behind `#`.
fn text(table: &Table) -> Vec<String> {
    let heads: Vec<&str> = table
        .columns
        .iter()
        .map(|column| column.title.as_str())
        .collect();
    let mut lines = vec![table.title.clone()];
    if !table.columns.is_empty() {
        lines.push(heads.join(" | "));
    }
    for row in &table.rows {
        assert_eq!(row.len(), table.columns.len());
        lines.push(row.join(" | "));
    }
    lines.extend(table.notes.iter().map(|note| format!("# {note}")));
    lines
}

/// The tables with this title, in full detail.
fn of_title(report: &Report, title: &str) -> Vec<Table> {
    let mut tables = tables(report, Detail::All);
    tables.retain(|table| table.title == title);
    tables
}

fn steps_table(steps: Vec<StepReport>) -> String {
    let tables = of_title(&report(steps), "Steps");
    tables.iter().flat_map(text).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_run_is_headed_by_what_it_is() {
    let mut run = report(vec![]);
    assert_eq!(
        heading(&run),
        [
            "run 7 \"nightly\": done in 3m 07s, started 2026-11-21T09:41:32Z, 2 agents on 1 host, cells in random order (seed 7)"
        ]
    );
    run.run.partial = true;
    run.run.state = "stopped".into();
    run.run.ended_us = None;
    run.run.reason = Some("interrupted by its user".into());
    run.agents.truncate(1);
    assert_eq!(
        heading(&run),
        [
            "run 7 \"nightly\": stopped (partial), started 2026-11-21T09:41:32Z, 1 agent on 1 host, cells in random order (seed 7)",
            "interrupted by its user"
        ]
    );
}

#[test]
fn only_columns_that_say_something_are_shown() {
    insta::assert_snapshot!("one_step", steps_table(vec![step(1, "records", "write")]));
    assert_eq!(steps_table(vec![]), "Steps\n# No step has ended yet.");
}

#[test]
fn what_differs_between_steps_has_its_column() {
    let mut first = step(1, "records", "randread");
    first.ops = vec![op("read")];
    let mut second = step(2, "records", "randread");
    second.params.insert("bs".into(), "64k".into());
    second.repeat = 2;
    second.cache = "cold".into();
    second.ops = vec![op("read"), op("write")];
    second.ops[1].bytes = Some(0);
    second.ops[1].errors = Some(1234);
    second.ops[1].response_p50_ms = Some(3.0);
    second.ops[1].response_p99_ms = Some(4.0);
    second.flags = vec!["tool-bound".into(), "news-to-us".into()];
    second.skew_us = Some(26_000);
    second.skew_error_us = None;
    second.judged = Judged::default();
    let mut third = step(3, "other", "ping");
    third.workload = "network".into();
    third.target = String::new();
    third.links = "c1 -> c2".into();
    third.from_agent = Some("c1".into());
    third.to_agent = Some("c2".into());
    third.partial = true;
    third.state = "failed".into();
    third.reason = Some("an agent was lost".into());
    third.failures = vec![TaskFailure {
        agent: "c1".into(),
        error: "connection refused".into(),
    }];
    third.ops = vec![];
    insta::assert_snapshot!("three_steps", steps_table(vec![first, second, third]));
}

#[test]
fn a_host_with_two_agents_is_one_row() {
    let mut run = report(vec![step(1, "records", "write")]);
    run.agents[1].is_client = false;
    run.agents[1].labels = labels("storage");
    let table = &of_title(&run, "Hosts")[0];
    assert_eq!(table.rows.len(), 1, "{:?}", table.rows);
    assert_eq!(table.rows[0][..2], ["lab (2 agents)", "load; samples"]);
    assert!(table.rows[0].contains(&"role=client; role=storage".to_owned()));
}

#[test]
fn a_flag_of_every_step_is_shown_once() {
    let mut steps = vec![step(1, "records", "write"), step(2, "records", "read")];
    for step in &mut steps {
        step.flags = vec!["window-short".into()];
    }
    steps[1].flags.push("no-data".into());
    let table = &of_title(&report(steps), "Steps")[0];
    assert!(table.rows[0].ends_with(&["0".to_owned(), String::new()]));
    assert!(table.rows[1].ends_with(&["0".to_owned(), "no-data".to_owned()]));
    assert!(
        table.notes[1].starts_with("window-short (every step): "),
        "{:?}",
        table.notes
    );
}

#[test]
fn what_only_one_mode_has_tells_no_step_from_another() {
    let mut ping = step(2, "net", "ping");
    ping.params.insert("wait".into(), "blocking".into());
    let mut steps = vec![step(1, "net", "throughput"), ping.clone()];
    let titles = |steps: &[StepReport]| -> Vec<String> {
        let table = of_title(&report(steps.to_vec()), "Steps").remove(0);
        table
            .columns
            .into_iter()
            .map(|column| column.title)
            .collect()
    };
    assert!(!titles(&steps).contains(&String::from("params")));
    ping.params.insert("wait".into(), "busy".into());
    steps.push(ping);
    assert!(titles(&steps).contains(&String::from("params")));
}

#[test]
fn csv_has_every_figure_and_quotes_what_it_must() {
    let mut odd = step(1, "a, \"b\"\n", "write");
    odd.flags = vec!["x".into(), "y".into()];
    let mut failed = step(2, "c", "read");
    failed.ops = vec![];
    failed.state = "failed".into();
    let text = csv(&report(vec![odd, failed]));
    let (head, rows) = text.split_once('\n').unwrap();
    assert_eq!(head.split(',').count(), 55);
    assert!(
        rows.starts_with(
            "7,nightly,101,1,1,1,\"a, \"\"b\"\"\n\",cephfs,cephfs,io,write,\"{\"\"bs\"\":\"\"4k\"\",\"\"size\"\":\"\"128m\"\"}\",3,asis,\
             done,0,,,1000000,40,12,,write,49382,202268672,0,window,12345.6,50567577.6,12000,49152000,0.243,0.1,0.2,0.5,0.7,1.25,7,\
             1204.4,,,,4.115,,,,,,,,,,,x y,1\n"
        ),
        "{rows}"
    );
    let last = rows.lines().last().unwrap();
    assert!(last.starts_with("7,nightly,102,2,1,1,c,"), "{last}");
    assert!(last.ends_with(",,,,,,,,,,,,,,,,,,,,,1"), "{last}");
}

#[test]
fn a_name_is_no_formula_of_a_spreadsheet() {
    for name in ["=1+1", "@SUM(A1)", "+1", "-1", "\tx"] {
        let text = csv(&report(vec![step(1, name, "write")]));
        let row = text.lines().nth(1).unwrap();
        assert!(row.contains(&format!(",'{name},cephfs")), "{row}");
    }
}

#[test]
fn markdown_is_a_table_whatever_the_names_are() {
    let run = report(vec![step(1, "a|b\n<i>", "write")]);
    let text = markdown(&run, Detail::All);
    let row = text.lines().find(|line| line.starts_with("| 1")).unwrap();
    assert!(
        row.starts_with("| 1 | a\\|b &lt;i&gt; | cephfs | write |"),
        "{row}"
    );
}

#[test]
fn a_report_survives_its_json() {
    let mut run = report(vec![step(1, "records", "write")]);
    run.steps[0].ops[0].mean_ms = None;
    let text = serde_json::to_string(&run).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), run);
}
