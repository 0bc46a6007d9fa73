//! Peers that are not what they should be: strangers, liars, those that go away or do nothing.

use super::*;

#[test]
fn a_wrong_token_is_refused_and_the_right_one_still_let_in() {
    let params = json!({"runtime": "50ms"});
    let receiver = listen("throughput", &params, LOOPBACK, Some(LOOPBACK));
    for wrong in ["another", "", &TOKEN[1..], &"x".repeat(1000)] {
        let refused = prepare(&spec("throughput", &params, receiver.address(), wrong)).unwrap_err();
        let message = refused.in_full();
        assert!(message.contains("token"), "{message}");
    }
    let (end, _) = run(
        prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap(),
        || (),
    );
    assert_eq!(end.error, None);
    assert_eq!(receiver.close().unwrap().connections, 1);
}

#[test]
fn a_stranger_and_a_silent_connection_do_not_get_in_the_way() {
    let params = json!({"runtime": "50ms"});
    let expected: IpAddr = "127.0.0.2".parse().unwrap();
    let receiver = listen("throughput", &params, LOOPBACK, Some(expected));
    let refused = prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap_err();
    assert!(
        refused.in_full().contains("hung up"),
        "{}",
        refused.in_full()
    );
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
    assert!(asked.elapsed() < Duration::from_secs(5));
    let (end, _) = run(
        prepare(&spec("throughput", &params, receiver.address(), TOKEN)).unwrap(),
        || (),
    );
    assert_eq!(end.error, None);
}

#[test]
fn a_receiving_end_that_goes_away_is_a_clear_error() {
    for (mode, wait) in EVERY_WAY {
        let mut params = json!({"streams": 2, "runtime": "60s"});
        add_wait(&mut params, wait);
        let receiver = listen(mode, &params, LOOPBACK, Some(LOOPBACK));
        let task = prepare(&spec(mode, &params, receiver.address(), TOKEN)).unwrap();
        let stopper = task.stopper();
        let (end, intervals) = run(task, move || {
            wait_for("traffic", || !stopper.in_flight().is_empty());
            receiver.close().unwrap();
        });
        assert_eq!(end.state, End::Failed);
        let error = end.error.unwrap();
        assert!(error.contains("the link to 127.0.0.1:"), "{error}");
        assert!(end.ended.since(end.planned_start) < Duration::from_secs(5));
        assert!(sum(&intervals, |i| i.errors) >= 1);
        assert!(!end.errors.is_empty());
    }
}

#[test]
fn a_peer_that_stalls_or_miscounts_is_a_clear_error() {
    let settings = crate::recorder::Settings {
        timing: Timing {
            ramp: None,
            runtime: Some(Duration::from_secs(30)),
        },
        ..crate::recorder::Settings::of(&[Op::Send, Op::Ping])
    };
    let open = |sleeper: &Sleeper| {
        let peer = PeerEnd {
            address: sleeper.address,
            token: TOKEN.into(),
        };
        let mut link = Link::open(&peer, 0).unwrap();
        link.stall_after = Duration::from_millis(300);
        link
    };
    let fails = |worker: &mut dyn Worker, part: &str| {
        let (mut recorder, _taker) = crate::recorder::pair(settings.clone());
        recorder.set_start(MonoNanos::now());
        let OpError::Broken { what } = worker.run(&mut recorder).unwrap_err() else {
            panic!("another kind of error");
        };
        assert!(what.contains(part), "{what}");
    };
    let sleeper = Sleeper::new();
    fails(
        &mut Sender::new(open(&sleeper), 4096, 0),
        "stalled: nothing went through for 0.3 s",
    );
    for wait in [Wait::Blocking, Wait::Busy] {
        let sleeper = Sleeper::new();
        let ping = Exchange {
            op: Op::Ping,
            request_bytes: 64,
            response_bytes: 64,
            bytes: 64,
            wait,
        };
        let mut asker = Asker::new(open(&sleeper), ping, 0).unwrap();
        fails(&mut asker, "stalled");
    }

    let sleeper = Sleeper::new();
    let mut link = open(&sleeper);
    let mut held = sleeper.taken.join().unwrap();
    held.write_all(&7_u64.to_le_bytes()).unwrap();
    let disagreed = link.agree(9, &|| false).unwrap_err();
    assert!(matches!(
        disagreed,
        link::Trouble::Disagreed {
            sent: 9,
            arrived: 7
        }
    ));
}
