//! Receiving ends within a range of ports.

use super::*;
use crate::params::PortRange;
use std::net::UdpSocket;
use std::sync::atomic::AtomicU16;

/// A range of free ports below the kernel's ephemeral ones; each call returns another one.
fn free_range(count: u16) -> PortRange {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() % 900).unwrap() * 10;
    loop {
        let first = 20_000 + offset + NEXT.fetch_add(count, Ordering::Relaxed);
        assert!(first < 32_000, "no {count} free ports in a row");
        let range = PortRange::new(first, first + count - 1).unwrap();
        let is_free = |port| {
            TcpListener::bind((LOOPBACK, port)).is_ok() && UdpSocket::bind((LOOPBACK, port)).is_ok()
        };
        if range.ports().all(is_free) {
            return range;
        }
    }
}

fn listen_within(
    range: PortRange,
    mode: &str,
    params: &Value,
) -> Result<Box<dyn Receiver>, TaskError> {
    NETWORK.listen(&ListenSpec {
        mode: mode.into(),
        params: params.as_object().unwrap().clone(),
        bind: LOOPBACK,
        ports: Some(range),
        peer: Some(LOOPBACK),
        networks: Vec::new(),
        token: TOKEN.into(),
    })
}

fn is_open(port: u16) -> [bool; 2] {
    [
        TcpListener::bind((LOOPBACK, port)).is_err(),
        UdpSocket::bind((LOOPBACK, port)).is_err(),
    ]
}

#[test]
fn every_port_of_a_link_lies_in_the_range_and_is_free_again_after_it() {
    for (mode, udp_ports) in [
        ("throughput", 0),
        ("ping", 0),
        ("request", 0),
        ("udp-stream", 3),
        ("udp-request", 3),
    ] {
        let range = free_range(4);
        let ports: Vec<u16> = range.ports().collect();
        let params = json!({"streams": 3, "runtime": "100ms"});
        // Run twice: the second run finds the same ports.
        for _ in 0..2 {
            let receiver = listen_within(range, mode, &params).unwrap();
            assert_eq!(receiver.address().port(), ports[0], "{mode}");
            let open: Vec<[bool; 2]> = ports.iter().map(|port| is_open(*port)).collect();
            let expected: Vec<[bool; 2]> = (0..4)
                .map(|index| [index == 0, index < udp_ports])
                .collect();
            assert_eq!(open, expected, "{mode}");
            let task = prepare(&spec(mode, &params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!((end.state, end.error), (End::Done, None), "{mode}");
            assert!(sum(&intervals, |it| it.ops) > 0, "{mode}");
            assert_eq!(receiver.close().unwrap().connections, 3);
            let open: Vec<[bool; 2]> = ports.iter().map(|port| is_open(*port)).collect();
            assert_eq!(open, [[false; 2]; 4], "{mode}");
        }
    }
}

#[test]
fn a_range_without_enough_free_ports_is_refused_with_how_many_there_are() {
    let refused = |range, mode: &str, streams: u32| {
        let params = json!({"streams": streams});
        match listen_within(range, mode, &params) {
            Err(error @ TaskError::Ports { .. }) => error.to_string(),
            Err(error) => panic!("{}", crate::error_chain(&error)),
            Ok(receiver) => panic!("{}", receiver.address()),
        }
    };
    let range = free_range(2);
    let (first, last) = (*range.ports().start(), *range.ports().end());
    let text = refused(range, "udp-stream", 3);
    let expected = format!("ports {first}-{last}: free over UDP: 2 of 2, needed: 3");
    assert_eq!(text, expected);
    // A link and another service use up the range.
    let link = listen_within(range, "ping", &json!({})).unwrap();
    assert_eq!(link.address().port(), first);
    let service = TcpListener::bind((LOOPBACK, last)).unwrap();
    let text = refused(range, "ping", 1);
    assert!(text.contains("free over TCP: 0 of 2, needed: 1"), "{text}");
    drop(service);
    let other = listen_within(range, "ping", &json!({})).unwrap();
    assert_eq!(other.address().port(), last);
    // Datagrams have their own ports, but none is left for the TCP connection.
    let text = refused(range, "udp-request", 2);
    assert!(text.contains("free over TCP: 0 of 2, needed: 1"), "{text}");
    link.close().unwrap();
    let udp = listen_within(range, "udp-request", &json!({"streams": 2})).unwrap();
    assert_eq!(udp.address().port(), first);
}
