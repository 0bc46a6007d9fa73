//! Rows of `network` on loopback, against iperf3 with as many streams and sockperf's ping-pong.

use crate::{MIB, Outcome, Row, Unit, output, row, run, spec};
use benchmesh_workloads::task::PeerEnd;
use benchmesh_workloads::workload::ListenSpec;
use benchmesh_workloads::workloads::network::NETWORK;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TOKEN: &str = "bench";

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for streams in [1, 4] {
        for (bs, bytes) in [("128 KiB", "128k"), ("1 MiB", "1m")] {
            let plural = if streams > 1 { "s" } else { "" };
            let name = format!("network {streams} stream{plural}, {bs}");
            let params = json!({"streams": streams, "bs": bytes});
            let iperf = format!("-P {streams} -l {bytes}");
            rows.push(throughput(name, "throughput", params, "0.95", iperf));
        }
    }
    for (what, bytes, gso) in [
        ("1448 bytes", 1448, true),
        ("8 KiB", 8192, true),
        // Without segmentation by the kernel, which iperf3 does not use.
        ("8 KiB, sendmmsg", 8192, false),
    ] {
        let name = format!("network UDP stream, {what}");
        let params = json!({"bs": bytes, "gso": gso});
        let iperf = format!("-u -b 0 -w 2M -l {bytes}");
        rows.push(throughput(name, "udp-stream", params, "1.00", iperf));
    }
    rows.push(paced());
    for (wait, busy) in [("blocking", ""), ("busy", "busy ")] {
        let name = format!("network {busy}ping 64 bytes, median");
        rows.push(median(name, "ping", json!({"bs": 64, "wait": wait})));
        let name = format!("network {busy}UDP request 64 bytes, median");
        let params = json!({"request-size": 64, "response-size": 64, "wait": wait});
        rows.push(median(name, "udp-request", params));
    }
    rows
}

/// Received bytes.
fn throughput(
    name: String,
    mode: &'static str,
    params: Value,
    bar: &'static str,
    iperf: String,
) -> Row {
    row(name, Unit::MibPerSecond, ("iperf3", bar), move || {
        let ours = move || {
            let (outcome, received) = both_ends(mode, &params);
            Some(received / MIB / outcome.seconds)
        };
        let theirs = move || {
            let bits = &iperf3(&iperf)?["sum_received"]["bits_per_second"];
            Some(bits.as_f64()? / 8.0 / MIB)
        };
        (Box::new(ours), Box::new(theirs))
    })
}

/// Received datagrams at a rate that both can send.
fn paced() -> Row {
    let name = "network UDP stream, 8 KiB at 1500 MiB/s, arrived";
    row(name, Unit::Percent, ("iperf3", "1.00"), || {
        let ours = || {
            let params = json!({"bs": "8k", "rate": "1500m"});
            let (outcome, received) = both_ends("udp-stream", &params);
            // Received datagrams are counted as an operation of their own, beside those sent.
            Some(received * 100.0 / (outcome.bytes - received))
        };
        let theirs = || {
            let end = iperf3("-u -b 12582912000 -w 2M -l 8192")?;
            Some(100.0 - end["sum"]["lost_percent"].as_f64()?)
        };
        (Box::new(ours), Box::new(theirs))
    })
}

/// The median round trip, with both sides blocking in the kernel or polling.
fn median(name: String, mode: &'static str, params: Value) -> Row {
    row(name, Unit::NanosPerOp, ("sockperf", "1.00"), move || {
        let is_busy = params["wait"] == "busy";
        let ours = move || Some(both_ends(mode, &params).0.service.quantile(0.5) as f64);
        let theirs = move || sockperf(mode == "ping", is_busy);
        (Box::new(ours), Box::new(theirs))
    })
}

/// Runs both ends in this process for two seconds; returns the sender's outcome and the bytes received.
fn both_ends(mode: &str, params: &Value) -> (Outcome, f64) {
    let mut spec = spec("network", mode, params.clone());
    spec.params.insert("runtime".to_owned(), json!("2s"));
    let listen = ListenSpec {
        mode: mode.to_owned(),
        params: spec.params.clone(),
        bind: LOOPBACK,
        ports: None,
        peer: Some(LOOPBACK),
        networks: Vec::new(),
        token: TOKEN.to_owned(),
    };
    let receiver = NETWORK.listen(&listen).expect("a port on loopback");
    spec.peer = Some(PeerEnd {
        address: receiver.address(),
        token: TOKEN.to_owned(),
    });
    let outcome = run(&spec, Duration::ZERO);
    let received = receiver.close().expect("it received").bytes as f64;
    (outcome, received)
}

fn free_port() -> u16 {
    let free = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
    free.local_addr().expect("it is bound").port()
}

/// The end of its JSON result of two seconds; `None` if it is not installed.
fn iperf3(arguments: &str) -> Option<Value> {
    let port = free_port().to_string();
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", &port])
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    // The server prints when it listens; a client must not connect earlier.
    let lines = BufReader::new(server.stdout.take().expect("it is piped"));
    let mut lines = lines.lines().map_while(Result::ok);
    lines.find(|line| line.contains("listening"));
    let mut client = Command::new("iperf3");
    client.args(["-c", "127.0.0.1", "-t", "2", "-J", "-p", &port]);
    let text = output(client.args(arguments.split(' ')))?;
    lines.for_each(drop);
    server.wait().expect("it ends after one client");
    let mut json: Value = serde_json::from_str(&text).expect("its JSON");
    Some(json["end"].take())
}

/// The median round trip of its ping-pong, in nanoseconds; `None` if it is not installed.
fn sockperf(is_tcp: bool, is_busy: bool) -> Option<f64> {
    let port = free_port();
    let with = |what: &str| {
        let mut command = Command::new("sockperf");
        command.args([what, "-i", "127.0.0.1", "-p", &port.to_string()]);
        command
            .args(is_tcp.then_some("--tcp"))
            .args(is_busy.then_some("--nonblocked"));
        command
    };
    let mut server = with("server")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    until_somebody_listens(is_tcp, port);
    let text = output(with("ping-pong").args(["-m", "64", "-t", "2", "--full-rtt"]));
    server.kill().expect("it serves for ever");
    server.wait().expect("it has ended");
    let median = text?
        .lines()
        .find(|line| line.contains("percentile 50.0"))?
        .to_owned();
    let micros: f64 = median.split('=').nth(1)?.trim().parse().ok()?;
    Some(micros * 1000.0)
}

/// Checks the kernel's list of sockets, because a test connection would count as a client.
fn until_somebody_listens(is_tcp: bool, port: u16) {
    let (list, state) = if is_tcp {
        ("/proc/net/tcp", "0A")
    } else {
        ("/proc/net/udp", "07")
    };
    let listening = format!(":{port:04X} 00000000:0000 {state}");
    let until = Instant::now() + Duration::from_secs(5);
    while !std::fs::read_to_string(list)
        .expect("the kernel's list")
        .contains(&listening)
    {
        assert!(Instant::now() < until, "nobody listens on port {port}");
        std::thread::yield_now();
    }
}
