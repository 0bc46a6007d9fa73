//! Counts of a stream's receiving end.

use super::*;
use benchmesh_testing::{measured, scheduled, timing};

/// 1000 datagrams: each tenth is left out, each seventh of the others sent twice, each pair 20k+3, 20k+4 swapped.
#[test]
fn drops_duplicates_and_swaps_are_counted_exactly() {
    let receiver = listen("udp-stream", &json!({}), LOOPBACK, Some(LOOPBACK));
    let mut sender = HandSender::new(receiver.address());
    let (mut lost, mut duplicates, mut reordered) = (0, 0, 0);
    let mut order: Vec<u64> = (0..1000).collect();
    for pair in order.chunks_mut(20) {
        pair.swap(3, 4);
        reordered += 1;
    }
    for sequence in order {
        if sequence % 10 == 9 {
            lost += 1;
            continue;
        }
        sender.send(KEY, sequence);
        if sequence % 7 == 0 {
            sender.send(KEY, sequence);
            duplicates += 1;
        }
    }
    let counts = sender.conclude(1000).counts;
    assert_eq!((counts.received, counts.lost), (1000 - lost, lost));
    assert_eq!(
        (counts.duplicates, counts.reordered),
        (duplicates, reordered)
    );
    assert_eq!((counts.late, counts.bytes), (0, (1000 - lost) * 30));
    assert_eq!(receiver.close().unwrap().bytes, counts.bytes);
}

/// Waits for six reports, 0.6 s.
#[test]
fn a_datagram_that_comes_half_a_second_late_was_lost() {
    let receiver = listen("udp-stream", &json!({}), LOOPBACK, Some(LOOPBACK));
    let mut sender = HandSender::new(receiver.address());
    sender.send(KEY, 0);
    sender.send(KEY, 2);
    while sender.report().counts.lost == 0 {}
    sender.send(KEY, 1);
    sender.send(KEY, 1);
    let counts = sender.conclude(3).counts;
    assert_eq!((counts.received, counts.lost), (2, 1));
    assert_eq!((counts.late, counts.duplicates), (1, 1));
    receiver.close().unwrap();
}

#[test]
fn a_datagram_without_the_key_is_dropped_and_counted() {
    let receiver = listen("udp-stream", &json!({}), LOOPBACK, Some(LOOPBACK));
    let mut sender = HandSender::new(receiver.address());
    for _ in 0..5 {
        sender.send(StreamKey(*b"another!"), 0);
    }
    sender.socket.send(b"short").unwrap();
    let stranger = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    stranger
        .connect(sender.socket.peer_addr().unwrap())
        .unwrap();
    stranger.send(&[7; 100]).unwrap();
    stranger.set_nonblocking(true).unwrap();
    sender.send(KEY, 0);
    let counts = sender.conclude(1).counts;
    assert_eq!((counts.received, counts.lost, counts.bytes), (1, 0, 30));
    assert_eq!(
        stranger.recv(&mut [0; 10]).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
    assert_eq!(receiver.close().unwrap().strangers, 7);
}

/// A paced stream on loopback loses nothing, and each operation is one datagram.
#[test]
fn every_datagram_of_a_schedule_is_received() {
    measured(|| {
        for (streams, size) in [(1, 1448), (3, 24), (1, 65_507)] {
            let params =
                json!({"streams": streams, "bs": size, "rate_iops": 500, "runtime": "300ms"});
            let receiver = listen("udp-stream", &params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec("udp-stream", &params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!(end.error, None);
            let sent = ops(&intervals, Op::Send);
            scheduled(sent, 140 * streams..=150 * streams)?;
            assert_eq!(ops(&intervals, Op::Receive), sent);
            assert_eq!(bytes(&intervals, Op::Receive), sent * size);
            assert_eq!(bytes(&intervals, Op::Send), sent * size);
            for none in [Op::Lost, Op::Reordered, Op::Duplicate, Op::Late] {
                assert_eq!(ops(&intervals, none), 0, "{none}");
            }
            // The receiving end reports periodically, but skips reports while it has no CPU.
            timing!(ops(&intervals, Op::Jitter) >= 2 * streams);
            assert_eq!(receiver.close().unwrap().bytes, sent * size);
            // The wait for the last report is no part of the load.
            let ran = end.ended.since(end.planned_start);
            timing!(ran < Duration::from_millis(400), "{ran:?}");
        }
        Ok(())
    });
}

/// As fast as possible, with and without segmentation by the kernel: every datagram is received or lost.
#[test]
fn what_was_sent_was_received_or_lost() {
    measured(|| {
        for gso in [true, false] {
            let params = json!({"bs": 1000, "gso": gso, "runtime": "200ms"});
            let receiver = listen("udp-stream", &params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec("udp-stream", &params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!(end.error, None);
            let sent = ops(&intervals, Op::Send);
            let (received, lost) = (ops(&intervals, Op::Receive), ops(&intervals, Op::Lost));
            timing!(received > 1000, "{received} of {sent}");
            assert_eq!(sent, received + lost);
            assert_eq!(receiver.close().unwrap().bytes, received * 1000);
        }
        Ok(())
    });
}

#[test]
fn a_stream_ends_after_its_size() {
    let params = json!({"bs": 1000, "size": 64_500, "streams": 2});
    let receiver = listen("udp-stream", &params, LOOPBACK, Some(LOOPBACK));
    let task = prepare(&spec("udp-stream", &params, receiver.address(), TOKEN)).unwrap();
    let (end, intervals) = run(task, || ());
    assert_eq!(end.error, None);
    assert_eq!(ops(&intervals, Op::Send), 2 * 65);
    receiver.close().unwrap();
}

/// A call that sends many datagrams takes the time of all of them at the limit.
#[test]
fn a_limit_counts_every_datagram_of_a_call() {
    let params = json!({"bs": 1000, "size": 640_000});
    let receiver = listen("udp-stream", &params, LOOPBACK, Some(LOOPBACK));
    let limited = TaskSpec {
        limit: Some(Arc::new(RateLimit::new(1_600_000))),
        ..spec("udp-stream", &params, receiver.address(), TOKEN)
    };
    let (end, intervals) = run(prepare(&limited).unwrap(), || ());
    assert_eq!(end.error, None);
    assert_eq!(bytes(&intervals, Op::Send), 640_000);
    // 0.4 s, less the time of the last call and the credit.
    let took = end.ended.since(end.planned_start);
    assert!(took >= Duration::from_millis(340), "{took:?}");
    receiver.close().unwrap();
}
