//! `/metrics`, as read by a real Prometheus and its checker.

use super::START;
use crate::support::mesh::Mesh;
use crate::support::wait::until;
use serde_json::Value;
use std::process::Command;
use tempfile::TempDir;

/// A real Prometheus scrapes the metrics, with the token from a file; promtool finds no error, and each expression of
/// the Grafana dashboard selects something while a run is under way. Takes about 10 s.
#[test]
fn prometheus_scrapes_the_metrics() {
    let has = |program: &str| {
        Command::new(program)
            .arg("--version")
            .output()
            .is_ok_and(|it| it.status.success())
    };
    if !has("prometheus") || !has("promtool") {
        benchmesh_testing::skip("prometheus", "a real one scrapes the metrics");
        return;
    }
    let directory = TempDir::new().unwrap();
    let token = directory.path().join("token");
    let file = directory.path().join("url");
    let mut mesh = Mesh::with_collector_arguments(&[
        "--http",
        "127.0.0.1:0",
        "--http-url-file",
        file.to_str().unwrap(),
        "--http-token-file",
        token.to_str().unwrap(),
    ]);
    mesh.add(crate::support::mesh::Agent::named("one").allow(directory.path()));
    let mut run = mesh.begin(
        "name = \"metrics\"\n[[phase]]\nworkload = \"null\"\nrate_iops = 1000\nruntime = \"10m\"\n",
    );
    let url = std::fs::read_to_string(&file).unwrap();
    let host = url.trim().strip_prefix("http://").unwrap();
    let (host, _) = host.split_once('/').unwrap();
    let secret = std::fs::read_to_string(&token).unwrap();
    let text = get(host, "/metrics", Some(secret.trim()));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut promtool.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    assert!(
        checked.status.success() && checked.stdout.is_empty() && checked.stderr.is_empty(),
        "{}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    let config = directory.path().join("prometheus.yml");
    std::fs::write(
        &config,
        format!(
            "scrape_configs:\n- job_name: benchmesh\n  scrape_interval: 1s\n  authorization: {{ credentials_file: {} }}\n  static_configs: [{{ targets: [\"{host}\"] }}]\n",
            token.display()
        ),
    )
    .unwrap();
    // A currently free port; Prometheus does not accept 0.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = port.local_addr().unwrap().to_string();
    drop(port);
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            directory.path().join("tsdb").display()
        ))
        .arg(format!("--web.listen-address={own}"));
    let prometheus = crate::support::process::Process::start(
        "prometheus",
        command,
        &directory.path().join("prometheus.log"),
    );
    until("Prometheus has the agents", START, || {
        let answer = try_get(&own, "/api/v1/query?query=benchmesh_agents", None)?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        let samples = answer["data"]["result"].as_array()?;
        let attached = samples
            .iter()
            .find(|sample| sample["metric"]["state"] == "attached")?;
        (attached["value"][1] == "1").then_some(())
    });
    let dashboard: Value = serde_json::from_str(include_str!("../../docs/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut expressions: Vec<&str> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() > 10, "{expressions:?}");
    let answered = crate::support::wait::try_until(START, || {
        expressions.retain(|expression| {
            let path = format!("/api/v1/query?query={}", percent_encoded(expression));
            let answer = try_get(&own, &path, None).unwrap_or_default();
            let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
            answer["data"]["result"]
                .as_array()
                .is_none_or(Vec::is_empty)
        });
        expressions.is_empty().then_some(())
    });
    assert!(answered.is_some(), "these select nothing: {expressions:?}");
    run.interrupt(START);
    drop(prometheus);
    mesh.assert_no_complaints();
}

fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        letter if letter.is_ascii_alphanumeric() => char::from(letter).to_string(),
        other => format!("%{other:02X}"),
    });
    encoded.collect()
}

fn get(host: &str, path: &str, token: Option<&str>) -> String {
    try_get(host, path, token).unwrap_or_else(|| panic!("no answer from {host}{path}"))
}

/// The body of a response with status 200.
fn try_get(host: &str, path: &str, token: Option<&str>) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(host).ok()?;
    stream.set_read_timeout(Some(START)).ok()?;
    let token = token.map_or_else(String::new, |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    // HTTP 1.0: the response is not chunked, and ends when the connection closes.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n{token}\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}
