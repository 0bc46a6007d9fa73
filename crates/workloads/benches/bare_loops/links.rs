//! Rows of `network` on loopback, against iperf3 with as many streams, sockperf's ping-pong, and a plain ping-pong of
//! two threads.

use crate::ours;
use crate::table::{Baseline, Row, Unit};
use benchmesh_workloads::task::PeerEnd;
use benchmesh_workloads::workload::ListenSpec;
use benchmesh_workloads::workloads::network::NETWORK;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TOKEN: &str = "bench";
const PING_BYTES: usize = 64;
const PING_FOR: Duration = Duration::from_millis(600);

pub fn one_stream_128k() -> Row {
    throughput(
        "network 1 stream, 128 KiB",
        json!({"bs": "128k"}),
        &["-l", "128K"],
        "0.95",
    )
}

pub fn one_stream_1m() -> Row {
    throughput(
        "network 1 stream, 1 MiB",
        json!({"bs": "1m"}),
        &["-l", "1M"],
        "0.95",
    )
}

pub fn one_stream_defaults() -> Row {
    throughput("network 1 stream, defaults", json!({}), &[], "1.40")
}

pub fn four_streams_128k() -> Row {
    let ours = json!({"streams": 4, "bs": "128k"});
    throughput(
        "network 4 streams, 128 KiB",
        ours,
        &["-P", "4", "-l", "128K"],
        "0.95",
    )
}

pub fn four_streams_1m() -> Row {
    let ours = json!({"streams": 4, "bs": "1m"});
    throughput(
        "network 4 streams, 1 MiB",
        ours,
        &["-P", "4", "-l", "1M"],
        "0.95",
    )
}

pub fn four_streams_defaults() -> Row {
    throughput(
        "network 4 streams, defaults",
        json!({"streams": 4}),
        &["-P", "4"],
        "0.95",
    )
}

pub fn ping() -> Row {
    Row {
        name: "network ping 64 bytes",
        unit: Unit::NanosPerOp,
        ours: Box::new(|| {
            let params =
                json!({"bs": PING_BYTES, "runtime": format!("{}ms", PING_FOR.as_millis())});
            Some(link("ping", params).nanos_per_op())
        }),
        baselines: vec![Baseline {
            name: "plain ping-pong",
            bar: "-",
            measure: Box::new(|| Some(plain_ping())),
        }],
    }
}

/// The median round trip with both sides blocking in the kernel.
pub fn ping_median() -> Row {
    median_against_sockperf("network ping 64 bytes, median", "blocking", &[])
}

/// As [`ping_median`], with both sides polling.
pub fn ping_median_busy() -> Row {
    median_against_sockperf(
        "network busy ping 64 bytes, median",
        "busy",
        &["--nonblocked"],
    )
}

/// Received datagrams that fit into an Ethernet frame.
pub fn udp_stream_1448() -> Row {
    let params = json!({"bs": 1448});
    udp_stream("network UDP stream, 1448 bytes", params, "1448")
}

pub fn udp_stream_8k() -> Row {
    udp_stream("network UDP stream, 8 KiB", json!({"bs": "8k"}), "8192")
}

/// Without segmentation by the kernel (GSO), which iperf3 does not use.
pub fn udp_stream_8k_one_by_one() -> Row {
    let params = json!({"bs": "8k", "gso": false});
    udp_stream("network UDP stream, 8 KiB, sendmmsg", params, "8192")
}

fn udp_stream(name: &'static str, params: Value, bytes: &'static str) -> Row {
    let mut params = params;
    if let Some(params) = params.as_object_mut() {
        params.insert("runtime".to_owned(), json!("2s"));
    }
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || {
            let (outcome, received) = both_ends("udp-stream", params.clone());
            Some(received as f64 / f64::from(1 << 20) / outcome.seconds)
        }),
        baselines: vec![Baseline {
            name: "iperf3 -u",
            bar: "1.00",
            measure: Box::new(move || iperf3(&["-u", "-b", "0", "-w", "2M", "-l", bytes])),
        }],
    }
}

/// Received datagrams at a rate that both can send.
pub fn udp_stream_8k_paced() -> Row {
    let params = json!({"bs": "8k", "runtime": "2s", "rate": "1500m"});
    Row {
        name: "network UDP stream, 8 KiB at 1500 MiB/s, arrived",
        unit: Unit::Percent,
        ours: Box::new(move || {
            let (outcome, received) = both_ends("udp-stream", params.clone());
            // Received datagrams are counted as an operation of their own, beside those sent.
            Some(received as f64 * 100.0 / (outcome.bytes - received) as f64)
        }),
        baselines: vec![Baseline {
            name: "iperf3 -u",
            bar: "1.00",
            measure: Box::new(|| {
                let result = iperf3_result(&["-u", "-b", "12582912000", "-w", "2M", "-l", "8192"])?;
                let lost = result.pointer("/end/sum/lost_percent")?;
                Some(100.0 - lost.as_f64()?)
            }),
        }],
    }
}

pub fn udp_request_median() -> Row {
    udp_request("network UDP request 64 bytes, median", "blocking", &[])
}

pub fn udp_request_median_busy() -> Row {
    let arguments = &["--nonblocked"];
    udp_request(
        "network busy UDP request 64 bytes, median",
        "busy",
        arguments,
    )
}

fn udp_request(name: &'static str, wait: &'static str, arguments: &'static [&'static str]) -> Row {
    Row {
        name,
        unit: Unit::NanosPerOp,
        ours: Box::new(move || {
            let params = json!({
                "request-size": PING_BYTES, "response-size": PING_BYTES, "runtime": "2s", "wait": wait,
            });
            Some(both_ends("udp-request", params).0.median_nanos())
        }),
        baselines: vec![Baseline {
            name: "sockperf",
            bar: "1.00",
            measure: Box::new(move || sockperf(Protocol::Udp, arguments)),
        }],
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

fn median_against_sockperf(
    name: &'static str,
    wait: &'static str,
    arguments: &'static [&'static str],
) -> Row {
    Row {
        name,
        unit: Unit::NanosPerOp,
        ours: Box::new(move || {
            let params = json!({"bs": PING_BYTES, "runtime": "2s", "wait": wait});
            Some(link("ping", params).median_nanos())
        }),
        baselines: vec![Baseline {
            name: "sockperf",
            bar: "1.00",
            measure: Box::new(move || sockperf(Protocol::Tcp, arguments)),
        }],
    }
}

fn throughput(
    name: &'static str,
    params: Value,
    iperf: &'static [&'static str],
    bar: &'static str,
) -> Row {
    let mut params = params;
    if let Some(params) = params.as_object_mut() {
        params.insert("runtime".to_owned(), json!("2s"));
    }
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || Some(link("throughput", params.clone()).mib_per_second())),
        baselines: vec![Baseline {
            name: "iperf3",
            bar,
            measure: Box::new(move || iperf3(iperf)),
        }],
    }
}

fn link(mode: &str, params: Value) -> ours::Outcome {
    let (outcome, received) = both_ends(mode, params);
    assert_eq!(received, outcome.bytes);
    outcome
}

/// Runs both ends in this process; returns the sender's outcome and the bytes received.
fn both_ends(mode: &str, params: Value) -> (ours::Outcome, u64) {
    let mut spec = ours::spec("network", mode, params);
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
    let outcome = ours::run(&spec);
    let received = receiver.close().expect("it received");
    (outcome, received.bytes)
}

/// MiB per second received by its server; `None` if it is not installed.
fn iperf3(arguments: &[&str]) -> Option<f64> {
    let bits = iperf3_result(arguments)?
        .pointer("/end/sum_received/bits_per_second")?
        .as_f64()?;
    Some(bits / 8.0 / f64::from(1 << 20))
}

/// Its JSON result of two seconds; `None` if it is not installed.
fn iperf3_result(arguments: &[&str]) -> Option<Value> {
    let free = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
    let port = free.local_addr().expect("it is bound").port().to_string();
    drop(free);
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-B", "127.0.0.1", "-p", &port])
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    // The server prints when it listens; a client must not connect earlier.
    let lines = BufReader::new(server.stdout.take().expect("it is piped"));
    let mut lines = lines.lines().map_while(Result::ok);
    lines.find(|line| line.contains("listening"));
    let client = Command::new("iperf3")
        .args(["-c", "127.0.0.1", "-t", "2", "-J", "-p", &port])
        .args(arguments)
        .output()
        .expect("the server was there, too");
    lines.for_each(drop);
    server.wait().expect("it ends after one client");
    Some(serde_json::from_slice(&client.stdout).expect("its JSON"))
}

/// The median round trip of its ping-pong, in nanoseconds; `None` if it is not installed.
fn sockperf(protocol: Protocol, arguments: &[&str]) -> Option<f64> {
    let free = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);
    let with = |what: &str| {
        let mut command = Command::new("sockperf");
        command.args([what, "-i", "127.0.0.1", "-p", &port.to_string()]);
        if protocol == Protocol::Tcp {
            command.arg("--tcp");
        }
        command.args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut server = with("server").spawn().ok()?;
    until_somebody_listens(protocol, port);
    let size = PING_BYTES.to_string();
    let client = with("ping-pong")
        .args(["-m", &size, "-t", "2", "--full-rtt"])
        .stdout(Stdio::piped())
        .output()
        .expect("the server was there, too");
    server.kill().expect("it serves for ever");
    server.wait().expect("it has ended");
    let text = String::from_utf8_lossy(&client.stdout);
    let median = text.lines().find(|line| line.contains("percentile 50.0"))?;
    let micros: f64 = median.split('=').nth(1)?.trim().parse().ok()?;
    Some(micros * 1000.0)
}

/// Checks the kernel's list of sockets, because a test connection would count as a client.
fn until_somebody_listens(protocol: Protocol, port: u16) {
    let (list, state) = match protocol {
        Protocol::Tcp => ("/proc/net/tcp", "0A"),
        Protocol::Udp => ("/proc/net/udp", "07"),
    };
    let listening = format!(":{port:04X} 00000000:0000 {state}");
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let sockets = std::fs::read_to_string(list).expect("the kernel's list");
        if sockets.contains(&listening) {
            return;
        }
        assert!(Instant::now() < until, "nobody listens on port {port}");
        std::thread::yield_now();
    }
}

/// Nanoseconds per round trip of two plain threads, blocking as ours do.
fn plain_ping() -> f64 {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("a port on loopback");
    let address = listener.local_addr().expect("it is bound");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the other thread connects");
        stream.set_nodelay(true).expect("a TCP socket");
        let mut message = [0; PING_BYTES];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message).expect("the other thread reads");
        }
    });
    let mut stream = TcpStream::connect(address).expect("the other thread listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let mut message = [0; PING_BYTES];
    let mut trips = 0.0;
    let began = Instant::now();
    while began.elapsed() < PING_FOR {
        stream.write_all(&message).expect("the other thread reads");
        stream
            .read_exact(&mut message)
            .expect("the other thread writes");
        trips += 1.0;
    }
    let nanos = began.elapsed().as_secs_f64() * 1e9;
    drop(stream);
    echo.join().expect("it only echoed");
    nanos / trips
}
