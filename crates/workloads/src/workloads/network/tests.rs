//! Links on loopback: counts match what arrives, only the peer is admitted, and nothing hangs or is left over.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod exchanges;
mod peers;
mod ports;

use super::keys::{Exchange, Wait};
use super::*;
use crate::engine::task::{End, PrepareControl, Task, TaskEnd};
use crate::measure::clock::MonoNanos;
use crate::measure::interval::Interval;
use crate::measure::op::Op;
use crate::registry;
use crate::testing::arm_soon;
use benchmesh_testing::{measured, scheduled, timing};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub(super) const TOKEN: &str = "a token of 128 bits or more";
pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn listen(
    mode: &str,
    params: &Value,
    bind: IpAddr,
    peer: Option<IpAddr>,
) -> Box<dyn Receiver> {
    let spec = ListenSpec {
        mode: mode.into(),
        params: params.as_object().unwrap().clone(),
        bind,
        ports: None,
        peer,
        networks: Vec::new(),
        token: TOKEN.into(),
    };
    NETWORK.listen(&spec).unwrap()
}

pub(super) fn spec(mode: &str, params: &Value, address: SocketAddr, token: &str) -> TaskSpec {
    TaskSpec {
        peer: Some(PeerEnd {
            address,
            token: token.into(),
        }),
        ..TaskSpec::new(NAME, mode, params.as_object().unwrap().clone())
    }
}

/// Each mode with each of its ways of waiting.
const EVERY_WAY: [(&str, Option<&str>); 5] = [
    ("throughput", None),
    ("ping", Some("blocking")),
    ("ping", Some("busy")),
    ("request", Some("blocking")),
    ("request", Some("busy")),
];

fn add_wait(params: &mut Value, wait: Option<&str>) {
    if let Some(wait) = wait {
        params["wait"] = json!(wait);
    }
}

pub(super) fn prepare(spec: &TaskSpec) -> Result<Task, TaskError> {
    registry::prepare(spec, &PrepareControl::silent())
}

/// Runs a task to its end; `during` is called in between.
pub(super) fn run(mut task: Task, during: impl FnOnce() + Send) -> (TaskEnd, Vec<Interval>) {
    arm_soon(&mut task);
    let mut intervals = Vec::new();
    let end = std::thread::scope(|scope| {
        scope.spawn(during);
        task.run_to_end(&mut |interval| intervals.push(interval))
    });
    (end, intervals)
}

fn sum(intervals: &[Interval], pick: fn(&Interval) -> u64) -> u64 {
    intervals.iter().map(pick).sum()
}

/// Waits until a condition holds; panics after a minute.
pub(super) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "{what} did not come true");
        std::thread::yield_now();
    }
}

#[test]
fn every_byte_that_is_counted_has_arrived() {
    measured(|| {
        for (streams, bs) in [(1, 1 << 20), (3, 65_536), (2, 777)] {
            let params = json!({"streams": streams, "bs": bs, "runtime": "200ms"});
            let receiver = listen("throughput", &params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!((end.state, end.error), (End::Done, None));
            assert_eq!(end.workers, streams);
            let (ops, bytes) = (sum(&intervals, |i| i.ops), sum(&intervals, |i| i.bytes));
            let received = receiver.close().unwrap();
            assert_eq!(received.connections, u64::from(streams));
            assert_eq!(bytes, received.bytes);
            // Only the last block of each stream may have been cut.
            assert!(
                bytes <= ops * bs && bytes > (ops - u64::from(streams)) * bs,
                "{bytes} in {ops}"
            );
            let ran = end.ended.since(end.planned_start);
            assert!(ran >= Duration::from_millis(190), "{ran:?}");
            timing!(ran < Duration::from_secs(2), "{ran:?}");
        }
        Ok(())
    });
}

#[test]
fn a_schedule_says_how_many_blocks_there_are() {
    measured(|| {
        for (rate, runtime, blocks) in [(50, "300ms", 15), (100, "205ms", 21), (3, "200ms", 1)] {
            let params = json!({"bs": 4096, "runtime": runtime, "rate_iops": rate});
            let receiver = listen("throughput", &params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!((end.state, end.error), (End::Done, None));
            scheduled(sum(&intervals, |i| i.ops), blocks..=blocks)?;
            let received = receiver.close().unwrap();
            assert_eq!(received.bytes, blocks * 4096);
            assert_eq!(sum(&intervals, |i| i.bytes), received.bytes);
        }
        Ok(())
    });
}

#[test]
fn pings_are_whole_round_trips() {
    measured(|| {
        let params = json!({"streams": 2, "bs": 1000, "runtime": "200ms", "ramp_time": "50ms"});
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let receiver = listen("ping", &params, any, Some(LOOPBACK));
        let address = SocketAddr::new(LOOPBACK, receiver.address().port());
        let task = prepare(&spec("ping", &params, address, TOKEN)).unwrap();
        let (end, intervals) = run(task, || ());
        assert_eq!((end.state, end.error), (End::Done, None));
        let ops = sum(&intervals, |i| i.ops);
        assert!(ops > 0);
        assert_eq!(sum(&intervals, |i| i.bytes), ops * 1000);
        assert_eq!(receiver.close().unwrap().bytes, ops * 1000);
        timing!(intervals.iter().any(|i| i.ramp) && intervals.iter().any(|i| !i.ramp));
        Ok(())
    });
}

#[test]
fn a_stream_ends_with_its_bytes_or_with_its_time_whichever_comes_first() {
    measured(|| {
        let run_with = |params: &Value| {
            let receiver = listen("throughput", params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec("throughput", params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!((end.state, &end.error), (End::Done, &None), "{params}");
            let (ops, bytes) = (sum(&intervals, |i| i.ops), sum(&intervals, |i| i.bytes));
            assert_eq!(receiver.close().unwrap().bytes, bytes, "{params}");
            (ops, bytes, end.ended.since(end.planned_start))
        };
        let footprint = |params: &Value| {
            NETWORK
                .check("throughput", params.as_object().unwrap())
                .unwrap()
        };
        for (size, bs, blocks) in [
            (1_000_000, Some(65_536), 16),
            (655_360, Some(65_536), 10),
            (777, Some(777), 1),
            (5, Some(1), 5),
            (3 << 20, None, 3),
            (1000, None, 1),
        ] {
            for timed in [false, true] {
                let mut params = json!({"streams": 2, "size": size});
                if let Some(bs) = bs {
                    params["bs"] = json!(bs);
                }
                let footprint_of = footprint(&params);
                assert_eq!(
                    (footprint_of.moved_bytes, footprint_of.runtime),
                    (2 * size, None)
                );
                if timed {
                    params["runtime"] = json!("1h");
                }
                let (ops, bytes, _) = run_with(&params);
                assert_eq!((ops, bytes), (2 * blocks, 2 * size), "{params}");
            }
        }
        // A schedule also works, and then takes its time.
        let paced = json!({"size": 10_000, "bs": 1000, "rate_iops": 50});
        let (ops, bytes, ran) = run_with(&paced);
        assert_eq!((ops, bytes), (10, 10_000));
        assert!(ran >= Duration::from_millis(180), "{ran:?}");
        let (_, bytes, ran) = run_with(&json!({"size": "1p", "runtime": "150ms"}));
        assert!(ran >= Duration::from_millis(140), "{ran:?}");
        timing!(bytes > 0, "no processor for {ran:?}");
        Ok(())
    });
}

#[test]
fn round_trips_are_counted_or_ended_by_time_whichever_comes_first() {
    measured(|| {
        for (mode, wait) in EVERY_WAY.into_iter().skip(1) {
            let run_with = |mut params: Value| {
                add_wait(&mut params, wait);
                let receiver = listen(mode, &params, LOOPBACK, Some(LOOPBACK));
                let task = prepare(&spec(mode, &params, receiver.address(), TOKEN)).unwrap();
                let (end, intervals) = run(task, || ());
                assert_eq!(
                    (end.state, &end.error),
                    (End::Done, &None),
                    "{mode} {params}"
                );
                let bytes = sum(&intervals, |i| i.bytes);
                (
                    sum(&intervals, |i| i.ops),
                    bytes,
                    receiver.close().unwrap().bytes,
                )
            };
            for params in [
                json!({"ops": 70, "streams": 2}),
                json!({"ops": 70, "streams": 2, "runtime": "1h"}),
            ] {
                let footprint = NETWORK.check(mode, params.as_object().unwrap()).unwrap();
                let (ops, bytes, arrived) = run_with(params);
                assert_eq!((ops, bytes), (140, arrived), "{mode}");
                assert_eq!(footprint.moved_bytes, bytes);
            }
            let (ops, _, _) = run_with(json!({"ops": 1_000_000_000, "runtime": "100ms"}));
            timing!((1..1_000_000_000).contains(&ops), "{mode}: {ops}");
        }
        Ok(())
    });
}

#[test]
fn a_peer_of_the_other_family_is_known_by_its_mapped_address() {
    let params = json!({"runtime": "50ms"});
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let receiver = listen("throughput", &params, any, Some(LOOPBACK));
    let address = SocketAddr::new(LOOPBACK, receiver.address().port());
    let (end, _) = run(
        prepare(&spec("throughput", &params, address, TOKEN)).unwrap(),
        || (),
    );
    assert_eq!(end.error, None);
}

#[test]
fn the_port_closes_with_the_last_stream_and_with_the_receiving_end() {
    measured(|| {
        let params = json!({"streams": 2, "runtime": "50ms"});
        let receiver = listen("throughput", &params, LOOPBACK, Some(LOOPBACK));
        let address = receiver.address();
        let task = prepare(&spec("throughput", &params, address, TOKEN)).unwrap();
        wait_for("a closed port", || TcpStream::connect(address).is_err());
        drop(task);
        let begun = Instant::now();
        receiver.close().unwrap();
        timing!(begun.elapsed() < Duration::from_secs(1));

        let unused = listen("ping", &params, LOOPBACK, None);
        let address = unused.address();
        drop(unused);
        assert!(TcpStream::connect(address).is_err());
        Ok(())
    });
}

/// A receiving end that accepts a stream and then ignores it.
struct Sleeper {
    address: SocketAddr,
    taken: std::thread::JoinHandle<TcpStream>,
}

impl Sleeper {
    fn new() -> Self {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let taken = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut greeting = vec![0; hello::encode(0, TOKEN).unwrap().len()];
            stream.read_exact(&mut greeting).unwrap();
            stream.write_all(&[hello::WELCOME]).unwrap();
            stream
        });
        Self { address, taken }
    }
}

#[test]
fn a_stop_is_noticed_within_half_a_second_even_when_blocked() {
    measured(|| {
        for (mode, wait) in EVERY_WAY {
            let mut params = json!({"runtime": "60s"});
            add_wait(&mut params, wait);
            let sleeper = Sleeper::new();
            let task = prepare(&spec(mode, &params, sleeper.address, TOKEN)).unwrap();
            let held = sleeper.taken.join().unwrap();
            let (stopper, in_flight) = (task.stopper(), task.in_flight());
            let (sender, took) = std::sync::mpsc::sync_channel(1);
            let (end, _) = run(task, move || {
                let is_blocked = || {
                    in_flight().is_some_and(|operation| {
                        MonoNanos::now().since(operation.since) > Duration::from_millis(150)
                    })
                };
                wait_for("a blocked operation", is_blocked);
                let stopped_at = MonoNanos::now();
                stopper.stop();
                wait_for("the end", || in_flight().is_none());
                sender.send(MonoNanos::now().since(stopped_at)).unwrap();
            });
            assert_eq!((end.state, end.error), (End::Stopped, None));
            drop(held);
            let took = took.recv().unwrap();
            timing!(took < Duration::from_millis(500), "{mode}: {took:?}");
        }
        Ok(())
    });
}

#[test]
fn parameters_are_checked() {
    let check = |mode: &str, params: Value| NETWORK.check(mode, params.as_object().unwrap());
    let footprint = check(
        "throughput",
        json!({"streams": 4, "runtime": "5s", "ramp_time": "1s"}),
    )
    .unwrap();
    assert_eq!(
        (footprint.workers, footprint.runtime),
        (4, Some(Duration::from_secs(6)))
    );
    assert_eq!(
        check("ping", json!({})).unwrap().runtime,
        Some(keys::DEFAULT_RUNTIME)
    );
    let timed = json!({"ops": 5, "size": 5, "runtime": "3s"});
    for (mode, params, runtime) in [
        ("ping", json!({"ops": 5}), None),
        ("throughput", json!({"size": 5}), None),
        // The amount belongs to another mode.
        ("throughput", json!({"ops": 5}), Some(keys::DEFAULT_RUNTIME)),
        ("request", json!({"size": 5}), Some(keys::DEFAULT_RUNTIME)),
        ("ping", timed.clone(), Some(Duration::from_secs(3))),
        ("throughput", timed, Some(Duration::from_secs(3))),
    ] {
        assert_eq!(check(mode, params).unwrap().runtime, runtime, "{mode}");
    }
    check("ping", json!({"on-error": "stop"})).unwrap();
    let request = json!({"numjobs": 3, "request-size": "1k", "response-size": "64k"});
    assert_eq!(check("request", request).unwrap().workers, 3);
    for (bad, key) in [
        (json!({"streams": 0}), "streams"),
        (json!({"streams": 1000}), "streams"),
        (json!({"bs": 0}), "bs"),
        (json!({"bs": "1x"}), "bs"),
        (json!({"runtime": 0}), "runtime"),
        (json!({"numjobs": 2, "streams": 2}), "numjobs"),
        (json!({"numjobs": 0}), "numjobs"),
        (json!({"request-size": 0}), "request-size"),
        (json!({"response-size": "5g"}), "response-size"),
        (json!({"wait": "sleeping"}), "wait"),
        (json!({"size": 0}), "size"),
        (json!({"size": "4k", "bs": "8k"}), "size"),
        (json!({"ops": 0}), "ops"),
        (json!({"on-error": "continue"}), "on-error"),
    ] {
        assert_eq!(
            check("throughput", bad).unwrap_err().key.as_deref(),
            Some(key)
        );
    }
    let without_peer = NETWORK.load(&TaskSpec::new(NAME, "ping", PlanParams::new()));
    assert!(matches!(without_peer, Err(TaskError::NoPeer { .. })));
    let open_to_all = ListenSpec {
        mode: "ping".into(),
        params: PlanParams::new(),
        bind: LOOPBACK,
        ports: None,
        peer: None,
        networks: Vec::new(),
        token: String::new(),
    };
    assert!(NETWORK.listen(&open_to_all).is_err());
    let nobody = TcpListener::bind((LOOPBACK, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = prepare(&spec("ping", &json!({}), nobody, TOKEN)).unwrap_err();
    let refused = crate::error_chain(&refused);
    assert!(
        refused.contains("connect to the receiving end at 127.0.0.1"),
        "{refused}"
    );
}
