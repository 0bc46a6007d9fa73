#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::overview::Topic;
use benchmesh_answers::compare::FigureName;
use benchmesh_model::figures::{DaemonFigures, Figures, HostFigures, ShownIn, shown_in};
use benchmesh_model::mesh::{RunId, RunState, StepState};
use benchmesh_plan::AgentPolicy;
use benchmesh_scheduler::snapshot::{
    AgentNow, AlarmNow, ArchiveNow, ClientRate, DaemonNow, Health, HostNow, LoadNow, ObjectiveNow,
    RunNow, SecondNow, Snapshot, StepNow,
};
use benchmesh_store::ingest::recent::Newest;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    time::timeout,
};

#[test]
fn the_openapi_file_has_every_route_and_no_other() {
    let file: serde_json::Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let paths = file["paths"].as_object().unwrap();
    let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    let mut served: BTreeSet<&str> = api_routes().into_iter().map(|(path, _)| path).collect();
    served.insert("/metrics");
    assert_eq!(described, served);
    for (path, methods) in paths {
        let methods = methods.as_object().unwrap();
        for method in methods.values() {
            assert!(method["summary"].is_string(), "{path}");
            assert!(method["responses"]["401"].is_object(), "{path}");
        }
    }
    // Every reference resolves.
    let schemas = &file["components"]["schemas"];
    for part in assets::OPENAPI.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas[name].is_object(), "{name}");
    }
}

#[test]
fn the_openapi_file_has_every_figure_that_is_shown_live() {
    let file: serde_json::Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let check = |schema: &str, keys: Vec<String>| {
        let described = &file["components"]["schemas"][schema]["properties"];
        for key in keys {
            assert!(described[&key].is_object(), "{schema}.{key}");
        }
    };
    fn keys<F: Figures>() -> Vec<String> {
        let shown = shown_in::<F>(ShownIn::Live);
        shown.map(|(_, figure)| figure.live_key()).collect()
    }
    check("Daemon", keys::<DaemonFigures>());
    check("Host", keys::<HostFigures>());
}

#[test]
fn the_openapi_file_has_every_compared_figure_and_the_same_parameters_of_each_comparison() {
    let file: serde_json::Value = serde_json::from_str(assets::OPENAPI).unwrap();
    let parameters = |path: &str| &file["paths"][path]["get"]["parameters"];
    let of_answer = parameters("/api/v1/compare").as_array().unwrap();
    for path in ["/api/v1/compare/pictures", "/api/v1/compare.html"] {
        assert_eq!(parameters(path).as_array().unwrap(), of_answer, "{path}");
    }
    let mut figures = of_answer.iter().filter(|one| one["name"] == "figure");
    let comparisons = &file["components"]["schemas"]["Comparisons"]["properties"]["comparisons"];
    let rows = &comparisons["items"]["properties"]["rows"]["items"]["properties"];
    let names = FigureName::names();
    assert_eq!(
        figures.next().unwrap()["schema"]["items"]["enum"],
        json!(names)
    );
    assert_eq!(rows["figure"]["enum"], json!(names));
}

fn full() -> Snapshot {
    let hostile = "a\"b\\c\nd";
    let daemon = |host: &str, pid, cpu_us| DaemonNow {
        daemon_id: pid,
        host: host.to_owned(),
        name: "ceph-osd".to_owned(),
        instance: "osd.3".to_owned(),
        pid,
        cpu_us,
        cpu_percent: Some(12.5),
        newest: Newest {
            figures: DaemonFigures {
                rss_bytes: 1 << 20,
                ..DaemonFigures::UNREAD
            },
            ..Newest::default()
        },
    };
    Snapshot {
        health: Health {
            version: "1",
            mesh_uid: hostile.to_owned(),
            agents_attached: 1,
            agents_known: 3,
            cpu_s: 1.5,
            now_us: 5_000_000,
            archive: Some(ArchiveNow {
                waiting_runs: 2,
                oldest_waiting_us: Some(2_000_000),
                error: Some(hostile.to_owned()),
                failing_since_us: Some(1),
                ..ArchiveNow::default()
            }),
            ..Health::default()
        },
        run: Some(RunNow {
            run_id: RunId(7),
            run: hostile.to_owned(),
            state: RunState::Running,
            steps_done: 1,
            steps_total: 4,
            started_us: Some(1),
            elapsed_us: 1,
            share_done: 0.25,
            alarms: vec![AlarmNow {
                when: hostile.to_owned(),
                because: hostile.to_owned(),
            }],
            objectives: vec![ObjectiveNow {
                holds: hostile.to_owned(),
                seconds: 100,
                bad_seconds: 3,
                budget_s: 1.0,
                broken: true,
            }],
            step: Some(StepNow {
                ordinal: 2,
                phase: "p".to_owned(),
                mode: "write".to_owned(),
                state: StepState::Running,
                clients: 2,
                clients_absent: 1,
                elapsed_us: 2_500_000,
                load: LoadNow {
                    ops: 10,
                    bytes: 100,
                    window_s: 3,
                    ops_per_s: 1234.5,
                    bytes_per_s: 1e9,
                    p50_ms: Some(0.5),
                    p99_ms: Some(20.0),
                    max_ms: None,
                    response_p99_ms: None,
                },
                start_us: Some(1_000_000),
                seconds: vec![SecondNow {
                    at_us: 1_000_000,
                    span_us: 1_000_000,
                    ops_per_s: 1234.5,
                    bytes_per_s: 1e9,
                    p50_ms: Some(0.5),
                    p99_ms: Some(20.0),
                    max_ms: None,
                    response_p99_ms: None,
                }],
                ..StepNow::default()
            }),
            clients: vec![ClientRate {
                agent: hostile.to_owned(),
                ops_per_s: 3.0,
                bytes_per_s: 0.0,
                is_absent: true,
            }],
            ..RunNow::default()
        }),
        agents: vec![AgentNow {
            agent_id: 1,
            name: hostile.to_owned(),
            attached: true,
            host: "h".to_owned(),
            labels: BTreeMap::new(),
            version: "1".to_owned(),
            kernel: String::new(),
            cpus: 1,
            memory_bytes: 1,
            allowed_paths: Vec::new(),
            policy: Some(AgentPolicy {
                networks: vec![hostile.to_owned()],
                ..AgentPolicy::default()
            }),
            address: String::new(),
            last_seen_us: None,
            clock_error_us: Some(250),
            round_trip_us: None,
            samples_host: true,
        }],
        // Two processes of one daemon are one series.
        daemons: vec![daemon("h", 5, 1_000_000), daemon("h", 6, 500_000)],
        hosts: vec![HostNow {
            host: "h".to_owned(),
            cpus: 2,
            busy_percent: Some(50.0),
            iowait_percent: None,
            newest: Newest {
                figures: HostFigures {
                    memory_total_bytes: 2,
                    memory_available_bytes: 1,
                    load1: 150,
                    ..HostFigures::UNREAD
                },
                ..Newest::default()
            },
        }],
        events: Vec::new(),
        runs: Vec::new(),
    }
}

/// Parses a line of the text format: name, labels, value. Fails if it breaks the format's rules.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let name = &line[..end];
    let is_name = |text: &str| {
        !text.starts_with(|c: char| c.is_ascii_digit())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    let mut rest = &line[end..];
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let mut value = String::new();
            let mut letters = after.char_indices();
            let end = loop {
                match letters.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match letters.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, '\n') => panic!("a line break in {line}"),
                    (_, letter) => value.push(letter),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    (name.to_owned(), labels, value)
}

/// The rules of the text format: a help and a type line before the samples of a name, each series once.
#[test]
fn the_exposition_keeps_the_rules_of_the_text_format() {
    let text = exposition(&full());
    assert!(text.ends_with('\n'));
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut open = String::new();
    let mut values = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !types.contains_key(name), "{line}");
            open = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, open);
            assert!(matches!(kind, "gauge" | "counter"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let (name, labels, value) = sample(line);
            assert_eq!(name, open, "{line}");
            assert!(types.contains_key(&name), "{line}");
            assert!(seen.insert((name.clone(), labels.clone())), "{line}");
            values.insert(name, (labels, value));
        }
    }
    let (labels, value) = &values["benchmesh_step_operations_per_second"];
    assert_eq!(*value, 1234.5);
    assert_eq!(labels["run"], "a\"b\\c\nd");
    assert_eq!(values["benchmesh_daemon_cpu_seconds_total"].1, 1.5);
    assert_eq!(values["benchmesh_step_latency_seconds"].1, 0.02);
    assert_eq!(values["benchmesh_agent_clock_error_seconds"].1, 0.00025);
    assert_eq!(values["benchmesh_host_cpu_busy_ratio"].1, 0.5);
    assert_eq!(values["benchmesh_host_load1"].1, 1.5);
    assert_eq!(values["benchmesh_archive_waiting_runs"].1, 2.0);
    assert_eq!(values["benchmesh_archive_oldest_waiting_seconds"].1, 3.0);
    assert_eq!(values["benchmesh_archive_failing"].1, 1.0);
    let resident = values["benchmesh_daemon_resident_memory_bytes"].1;
    assert_eq!(resident, f64::from(2 << 20));
}

#[test]
fn without_a_run_there_are_no_figures_of_one() {
    let text = exposition(&Snapshot::default());
    assert!(text.contains("benchmesh_run_active 0\n"));
    assert!(!text.contains("benchmesh_step") && !text.contains("benchmesh_daemon"));
    assert!(!text.contains("benchmesh_archive"), "without --archive");
}

/// A renamed metric would leave a dashboard empty without an error.
#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/grafana.json")).unwrap();
    let text = exposition(&full());
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let names = expression
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .filter(|word| word.starts_with("benchmesh_") || word.starts_with("process_"));
            for name in names {
                asked += 1;
                assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
            }
        }
    }
    assert!(asked >= 14, "{asked}");
}

/// Over a real socket, with a stall limit of one second. For a viewer, the collector holds only the events that it has
/// taken and not yet passed to the kernel.
#[tokio::test]
async fn a_viewer_that_never_reads_is_cut_and_little_is_held_for_it() {
    const STALL: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(60);
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("mesh.db"))
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let access = Access::new(Token::new(), address.port(), Vec::new());
    let bearer = access.token().text().to_owned();
    let overview = Overview::new(None);
    let app = App {
        store,
        overview: overview.clone(),
        access: Arc::new(access),
        refusals: Arc::default(),
        viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
        queries: Arc::new(Semaphore::new(MAX_QUERIES)),
        reports: Arc::new(Semaphore::new(MAX_REPORTS)),
        closing: CancellationToken::new(),
    };
    let viewers = Arc::clone(&app.viewers);
    let connections = Connections::new(listener).cut_after(STALL);
    let served = tokio::spawn(async move { axum::serve(connections, router(app)).await });
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(address).await.unwrap();
    let request = format!(
        "GET /api/v1/stream HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {bearer}\r\n\r\n"
    );
    deaf.write_all(request.as_bytes()).await.unwrap();
    let mut published: Vec<Weak<[u8]>> = Vec::new();
    let mut most_held = 0;
    timeout(LIMIT, async {
        while viewers.available_permits() == MAX_VIEWERS {
            tokio::task::yield_now().await;
        }
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while viewers.available_permits() < MAX_VIEWERS {
            let version = published.len() as u64 + 1;
            let topic = Topic::new("daemons", version, "x".repeat(256 << 10));
            published.push(Arc::downgrade(&topic.event));
            overview.publish(vec![topic]);
            ticks.tick().await;
            let held = published.iter().filter(|one| one.strong_count() > 0);
            most_held = most_held.max(held.count());
        }
    })
    .await
    .expect("the viewer is cut");
    // More was published than the kernel buffers for a client: at least 32 MiB, since a stall is 200 ticks or so.
    assert!(published.len() > 100, "{}", published.len());
    assert!(most_held <= 8, "{most_held} events of 256 KiB are held");
    // The data in the kernel's buffer end in the middle of an event.
    let mut taken = Vec::new();
    let end = timeout(LIMIT, deaf.read_to_end(&mut taken)).await.unwrap();
    let last = taken.rsplit(|&byte| byte == b'\n').next().unwrap();
    assert!(end.is_err() || !last.is_empty(), "{} bytes", taken.len());
    served.abort();
}
