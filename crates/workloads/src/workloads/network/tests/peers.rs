//! Misbehaving peers: strangers, false reports, peers that vanish or do nothing.

use super::*;
use crate::engine::workload::Timing;
use crate::measure::recorder::Settings;
use crate::measure::timing::StopRequest;
use benchmesh_testing::{logs, measured, timing};
use std::sync::Arc;

#[test]
fn a_wrong_token_is_refused_and_the_right_one_still_let_in() {
    let params = json!({"runtime": "50ms"});
    let receiver = listen("throughput", &params, LOOPBACK, Some(LOOPBACK));
    for wrong in ["another", "", &TOKEN[1..], &"x".repeat(1000)] {
        let refused = prepare(&spec("throughput", &params, receiver.address(), wrong)).unwrap_err();
        let message = crate::error_chain(&refused);
        assert!(message.contains("token"), "{message}");
    }
    let (end, _) = run(
        prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap(),
        || (),
    );
    assert_eq!(end.error, None);
    assert_eq!(receiver.close().unwrap().connections, 1);
}

/// A host that reaches the port can cause refusals, but cannot fill the log.
#[test]
fn refused_connections_are_logged_once_and_counted() {
    logs::keep_warnings();
    let params = json!({"runtime": "50ms"});
    for (expected, greeting) in [("127.0.0.1", &b"x"[..]), ("127.0.0.2", b"")] {
        let expected: IpAddr = expected.parse().unwrap();
        let receiver = listen("throughput", &params, LOOPBACK, Some(expected));
        let port = receiver.address().to_string();
        for _ in 0..5 {
            let mut stranger = TcpStream::connect(receiver.address()).unwrap();
            let _ = stranger.write_all(&greeting.repeat(64));
            assert_eq!(stranger.read(&mut [0; 1]).unwrap_or(0), 0);
        }
        receiver.close().unwrap();
        let lines = logs::warnings(&port);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains("refused=5"), "{lines:?}");
    }
}

#[test]
fn a_stranger_and_a_silent_connection_do_not_get_in_the_way() {
    measured(|| {
        let params = json!({"runtime": "50ms"});
        let expected: IpAddr = "127.0.0.2".parse().unwrap();
        let receiver = listen("throughput", &params, LOOPBACK, Some(expected));
        let refused = prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap_err();
        let refused = crate::error_chain(&refused);
        assert!(refused.contains("hung up"), "{refused}");
        assert_eq!(receiver.close().unwrap().connections, 0);

        let receiver = listen("throughput", &params, LOOPBACK, Some(LOOPBACK));
        let mut silent = TcpStream::connect(receiver.address()).unwrap();
        let mut noisy = TcpStream::connect(receiver.address()).unwrap();
        noisy.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(
            noisy.read(&mut [0; 1]).unwrap_or(0),
            0,
            "noise was answered"
        );
        silent
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let asked = Instant::now();
        assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "silence was answered");
        timing!(asked.elapsed() < Duration::from_secs(5));
        let (end, _) = run(
            prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap(),
            || (),
        );
        assert_eq!(end.error, None);
        Ok(())
    });
}

#[test]
fn a_receiving_end_that_goes_away_is_a_clear_error() {
    measured(|| {
        for (mode, wait) in EVERY_WAY {
            let mut params = json!({"streams": 2, "runtime": "60s"});
            add_wait(&mut params, wait);
            let receiver = listen(mode, &params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec(mode, &params, receiver.address(), TOKEN)).unwrap();
            let in_flight = task.in_flight();
            let (end, intervals) = run(task, move || {
                wait_for("traffic", || in_flight().is_some());
                receiver.close().unwrap();
            });
            assert_eq!(end.state, End::Failed);
            let error = end.error.unwrap();
            assert!(error.contains("the link to 127.0.0.1:"), "{error}");
            timing!(end.ended.since(end.planned_start) < Duration::from_secs(5));
            assert!(sum(&intervals, |i| i.errors) >= 1);
            assert!(!end.errors.is_empty());
        }
        Ok(())
    });
}

fn link_to(sleeper: &Sleeper) -> Connection {
    let peer = PeerEnd {
        address: sleeper.address,
        token: TOKEN.into(),
    };
    Connection::open(&peer, 0).unwrap()
}

fn ping(wait: Wait) -> Exchange {
    Exchange {
        op: Op::Ping,
        request_bytes: 64,
        response_bytes: 64,
        bytes: 64,
        wait,
    }
}

/// At the end of the runtime both ends reconcile their counts. That is no operation, but can hang like one.
#[test]
fn a_peer_that_says_nothing_at_the_end_is_waited_for_and_shown() {
    let settings = Settings {
        timing: Timing {
            ramp: None,
            runtime: Some(Duration::from_millis(1)),
        },
        ..Settings::of(&[Op::Send, Op::Ping])
    };
    let sender = |connection| -> Box<dyn Worker> { Box::new(Sender::new(connection, 4096, 0)) };
    let requester = |wait| {
        move |connection| -> Box<dyn Worker> {
            Box::new(Requester::new(connection, ping(wait), 0).unwrap())
        }
    };
    type Ending<'a> = &'a dyn Fn(Connection) -> Box<dyn Worker>;
    let ways: [(Op, Ending<'_>); 3] = [
        (Op::Send, &sender),
        (Op::Ping, &requester(Wait::Blocking)),
        (Op::Ping, &requester(Wait::Busy)),
    ];
    for (op, worker) in ways {
        let stop = Arc::<StopRequest>::default();
        let sleeper = Sleeper::new();
        let mut worker = worker(link_to(&sleeper));
        let _held = sleeper.taken.join().unwrap();
        let (mut recorder, consumer) = crate::measure::recorder::pair(Settings {
            stop: Arc::clone(&stop),
            ..settings.clone()
        });
        let start = MonoNanos::now();
        recorder.set_start(start);
        recorder.advance_to(start.saturating_add(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let ended = scope.spawn(move || worker.run(&mut recorder));
            wait_for("it is shown for long", || {
                let shown = consumer.in_flight().filter(|it| it.op == op);
                shown
                    .is_some_and(|it| MonoNanos::now().since(it.since) > Duration::from_millis(300))
            });
            assert!(!ended.is_finished(), "{op} gave up");
            stop.set();
            assert!(ended.join().unwrap().is_ok(), "{op} was stopped");
        });
        assert_eq!(consumer.in_flight(), None);
    }
}

#[test]
fn a_peer_that_miscounts_is_a_clear_error() {
    let sleeper = Sleeper::new();
    let connection = link_to(&sleeper);
    let mut held = sleeper.taken.join().unwrap();
    held.write_all(&7_u64.to_le_bytes()).unwrap();
    let disagreed = connection.confirm_received(9, &|| false).unwrap_err();
    assert!(matches!(
        disagreed,
        connection::ConnectionError::Disagreed {
            sent: 9,
            arrived: 7
        }
    ));
}
