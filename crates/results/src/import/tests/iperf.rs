//! Logs of a real iperf3 over loopback.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// The client's log of one test against a server over loopback, two seconds.
fn iperf(arguments: &[&str]) -> Option<String> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let mut server = match Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
    {
        Ok(server) => server,
        Err(error) => {
            benchmesh_testing::skip("iperf3", &error.to_string());
            return None;
        }
    };
    // Its first lines show that it listens.
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("listening")));
    let client = ["-c", "127.0.0.1", "-p", &port, "-t", "1", "--json"];
    let output = Command::new("iperf3")
        .args(client)
        .args(arguments)
        .output()
        .unwrap();
    // The server ends after one test; after a failed client it has to be killed.
    if !output.status.success() {
        server.kill().unwrap();
    }
    server.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn figures_of_a_real_iperf3_are_its_own_to_the_digit() {
    let Some(log) = iperf(&["-P", "2"]) else {
        return;
    };
    let json: Value = serde_json::from_str(&log).unwrap();
    let read = parsed(&log).unwrap();
    assert!(read.tool.starts_with("iperf3 3."), "{}", read.tool);
    let step = &read.steps[0];
    assert_eq!(
        (step.mode.as_str(), &step.params["streams"]),
        ("throughput", &Value::from(2))
    );
    for (op, sum) in step.ops.iter().zip(["sum_sent", "sum_received"]) {
        let sum = &json["end"][sum];
        assert_eq!((op.bytes, op.ops), (sum["bytes"].as_i64(), None));
        assert_eq!(
            op.bytes_per_s,
            sum["bits_per_second"].as_f64().map(|bits| bits / 8.0)
        );
    }
    let seconds: i64 = step.seconds.iter().filter_map(|second| second.bytes).sum();
    assert_eq!(Some(seconds), json["end"]["sum_sent"]["bytes"].as_i64());
    cut_anywhere(&log, &read);
    let log = iperf(&["-u", "-b", "8M"]).unwrap();
    let json: Value = serde_json::from_str(&log).unwrap();
    let step = &parsed(&log).unwrap().steps[0];
    assert_eq!(step.mode, "udp-stream");
    let sum = &json["end"]["sum"];
    let figures: Vec<(&str, Option<i64>)> =
        step.ops.iter().map(|op| (op.op.as_str(), op.ops)).collect();
    let (packets, lost) = (sum["packets"].as_i64(), sum["lost_packets"].as_i64());
    assert_eq!(
        figures,
        [
            ("send", packets),
            ("receive", packets.zip(lost).map(|(all, lost)| all - lost)),
            ("lost", lost),
            ("jitter", None)
        ]
    );
    assert_eq!(
        step.ops[1].bytes,
        json["end"]["sum_received"]["bytes"].as_i64(),
        "what was received is not what was sent"
    );
    assert_eq!(
        step.ops[3].mean_ns,
        sum["jitter_ms"].as_f64().map(|ms| ms * 1e6)
    );
    let refused =
        "{\"start\": {\"version\": \"iperf 3.12\"}, \"error\": \"unable to connect to server\"}";
    let failed = &parsed(refused).unwrap().steps[0];
    assert_eq!(
        failed.failed.as_deref(),
        Some("unable to connect to server")
    );
    assert!(failed.ops.is_empty());
}
