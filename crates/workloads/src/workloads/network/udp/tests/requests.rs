//! Requests that are answered, lost, or answered too late.

use super::*;
use benchmesh_testing::{measured, scheduled, timing};

#[test]
fn every_request_is_answered_at_any_depth() {
    for (wait, depth) in [("blocking", 1), ("blocking", 16), ("busy", 1), ("busy", 4)] {
        let params = json!({
            "request-size": 100, "response-size": 300, "ops": 500, "iodepth": depth, "wait": wait,
            "timeout": "10s",
        });
        let receiver = listen("udp-request", &params, LOOPBACK, Some(LOOPBACK));
        let task = prepare(&spec("udp-request", &params, receiver.address(), TOKEN)).unwrap();
        let (end, intervals) = run(task, || ());
        assert_eq!(end.error, None);
        let own = |op| (ops(&intervals, op), bytes(&intervals, op));
        assert_eq!(
            (own(Op::Request), own(Op::Lost)),
            ((500, 500 * 400), (0, 0))
        );
        assert_eq!(receiver.close().unwrap().bytes, 500 * 400);
    }
}

/// Of 40 requests each fifth has no response, each seventh of the others has two, and one has a response after its
/// timeout.
#[test]
fn a_request_without_a_response_is_lost_and_has_no_latency() {
    for depth in [1, 8] {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let receiver = HandReceiver::admit(&listener);
            let mut unanswered = Vec::new();
            for number in 0..40 {
                let (sequence, from) = loop {
                    match receiver.next() {
                        (PROBE, _) => {}
                        request => break request,
                    }
                };
                if number % 5 == 4 {
                    unanswered.push(sequence);
                    continue;
                }
                receiver.respond(sequence, from, 64);
                if number % 7 == 0 {
                    receiver.respond(sequence, from, 64);
                }
                if number == 20 {
                    // Expired long ago with one request in flight; of the wrong size with several.
                    let late = unanswered.remove(0);
                    receiver.respond(late, from, if depth == 1 { 64 } else { 63 });
                }
            }
            let mut rest = Vec::new();
            let _ = (&receiver.control).read_to_end(&mut rest);
            unanswered.len() + 1
        });
        let params = json!({"ops": 40, "iodepth": depth, "timeout": "250ms", "request-size": 40});
        let task = prepare(&spec("udp-request", &params, address, TOKEN)).unwrap();
        let notes: Vec<_> = task.notes().iter().map(|note| note.kind.as_str()).collect();
        assert_eq!(notes, ["socket-buffer"]);
        let (end, intervals) = run(task, || ());
        assert_eq!(end.error, None);
        let lost = peer.join().unwrap() as u64;
        assert_eq!(
            (ops(&intervals, Op::Lost), ops(&intervals, Op::Request)),
            (lost, 40 - lost)
        );
        for interval in &intervals {
            assert!(
                interval.service.max_ns() < 250_000_000,
                "a latency of a lost request"
            );
            assert_eq!(interval.errors, 0);
        }
    }
}

#[test]
fn a_paced_load_keeps_its_instants_while_requests_are_lost() {
    measured(|| {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let receiver = HandReceiver::admit(&listener);
            let timeout = Some(Duration::from_secs(2));
            receiver.socket.set_read_timeout(timeout).unwrap();
            let mut rest = Vec::new();
            let _ = (&receiver.control).read_to_end(&mut rest);
        });
        let params =
            json!({"runtime": "300ms", "rate_iops": 100, "iodepth": 64, "timeout": "200ms"});
        let task = prepare(&spec("udp-request", &params, address, TOKEN)).unwrap();
        let (end, intervals) = run(task, || ());
        peer.join().unwrap();
        assert_eq!(end.error, None);
        assert_eq!(ops(&intervals, Op::Request), 0);
        scheduled(ops(&intervals, Op::Lost), 30..=30)?;
        let ran = end.ended.since(end.planned_start);
        timing!(ran < Duration::from_millis(400), "{ran:?}");
        Ok(())
    });
}

/// Detected on the TCP connection; waits for at most 0.1 s.
#[test]
fn a_peer_that_goes_away_ends_the_task() {
    for mode in ["udp-request", "udp-stream"] {
        let params = json!({"runtime": "60s"});
        let receiver = listen(mode, &params, LOOPBACK, Some(LOOPBACK));
        let task = prepare(&spec(mode, &params, receiver.address(), TOKEN)).unwrap();
        let in_flight = task.in_flight();
        let (end, _) = run(task, move || {
            wait_for("traffic", || in_flight().is_some());
            receiver.close().unwrap();
        });
        let error = end.error.unwrap();
        assert!(error.contains("the link to 127.0.0.1:"), "{mode}: {error}");
    }
}
