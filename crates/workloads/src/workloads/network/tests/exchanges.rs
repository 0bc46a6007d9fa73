//! Requests and responses: complete, of the right sizes, timed against a server of known speed, in each way of waiting.

use super::*;
use crate::measure::histogram::Histogram;
use benchmesh_testing::{measured, scheduled, timing};

#[test]
fn every_request_is_answered_whole() {
    measured(|| {
        for (request, response) in [(1, 1), (100, 70_000), (300_000, 3), (1 << 20, 1 << 20)] {
            // Polling streams take CPUs from the tests that run in parallel.
            for (wait, streams) in [("blocking", 2), ("busy", 1)] {
                let params = json!({
                    "numjobs": streams, "request-size": request, "response-size": response, "wait": wait, "runtime": "100ms",
                });
                let receiver = listen("request", &params, LOOPBACK, Some(LOOPBACK));
                let task = prepare(&spec("request", &params, receiver.address(), TOKEN)).unwrap();
                let (end, intervals) = run(task, || ());
                assert_eq!((end.state, end.error), (End::Done, None));
                assert_eq!(end.workers, streams);
                let ops = sum(&intervals, |i| i.ops);
                assert!(intervals.iter().all(|i| i.op == Op::Request));
                timing!(ops > 0, "no processor for the whole runtime");
                assert_eq!(sum(&intervals, |i| i.bytes), ops * (request + response));
                let received = receiver.close().unwrap();
                assert_eq!(received.bytes, ops * (request + response));
                assert_eq!(received.connections, u64::from(streams));
            }
        }
        Ok(())
    });
}

#[test]
fn a_schedule_says_how_many_requests_there_are() {
    measured(|| {
        // The last one is due 49 ms before the end: a worker without a CPU for that long does one less.
        for (process, least, most) in [("linear", 22, 22), ("poisson", 5, 50)] {
            let params = json!({
                "streams": 2, "request-size": 10, "response-size": 1000, "runtime": "549ms", "rate_iops": 20,
                "rate_process": process,
            });
            let receiver = listen("request", &params, LOOPBACK, Some(LOOPBACK));
            let task = prepare(&spec("request", &params, receiver.address(), TOKEN)).unwrap();
            let (end, intervals) = run(task, || ());
            assert_eq!((end.state, end.error), (End::Done, None));
            let ops = sum(&intervals, |i| i.ops);
            scheduled(ops, least..=most)?;
            let timed = |i: &Interval| i.response.as_ref().map_or(0, Histogram::count);
            // Those that were due and not issued by the end are timed too.
            assert!((ops..=most).contains(&sum(&intervals, timed)));
            assert_eq!(receiver.close().unwrap().bytes, ops * 1010);
        }
        Ok(())
    });
}

const REQUEST: usize = 40;
const RESPONSE: usize = 700;

/// A receiving end that answers after `hold` has returned; `hold` gets the number of earlier requests. It reports how
/// long it held each request, in nanoseconds.
struct Server {
    address: SocketAddr,
    held: std::thread::JoinHandle<Vec<u64>>,
}

impl Server {
    fn new(mut hold: impl FnMut(u64) + Send + 'static) -> Self {
        let Sleeper { address, taken } = Sleeper::new();
        let held = std::thread::spawn(move || {
            let mut stream = taken.join().unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut request, mut held) = ([0; REQUEST], Vec::new());
            while stream.read_exact(&mut request).is_ok() {
                let whole = MonoNanos::now();
                hold(held.len() as u64);
                held.push(MonoNanos::now().nanos_since(whole));
                stream.write_all(&[7; RESPONSE]).unwrap();
            }
            let counted = held.len() * (REQUEST + RESPONSE);
            stream.write_all(&(counted as u64).to_le_bytes()).unwrap();
            held
        });
        Self { address, held }
    }

    /// Runs a task against it; returns its end, its intervals, and how long each request was held.
    fn ask(self, params: &Value) -> (TaskEnd, Vec<Interval>, Vec<u64>) {
        let mut params = params.clone();
        params["request-size"] = json!(REQUEST);
        params["response-size"] = json!(RESPONSE);
        let task = prepare(&spec("request", &params, self.address, TOKEN)).unwrap();
        let (end, intervals) = run(task, || ());
        assert_eq!((end.state, end.error.clone()), (End::Done, None));
        (end, intervals, self.held.join().unwrap())
    }
}

fn sleep(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a server of known speed")]
    std::thread::sleep(duration);
}

fn merged(intervals: &[Interval], pick: impl Fn(&Interval) -> &Histogram) -> Histogram {
    let mut all = Histogram::new();
    intervals.iter().for_each(|one| all.add(pick(one)));
    all
}

#[test]
fn a_server_of_known_speed_is_reported_with_its_time() {
    measured(|| {
        for (wait, delay_ms) in [("blocking", 5), ("busy", 5), ("blocking", 20)] {
            let delay = Duration::from_millis(delay_ms);
            let server = Server::new(move |_| sleep(delay));
            let (end, intervals, held) = server.ask(&json!({"wait": wait, "runtime": "1s"}));
            let service = merged(&intervals, |one| &one.service);
            assert_eq!(service.count(), held.len() as u64);
            // Compare the fastest one: a polling thread has used up its time slice when something else wants the CPU,
            // and waits for its next one. A histogram's step is 1 %; the rest is the round trip on loopback.
            let (was, reported) = (held.iter().copied().min().unwrap(), service.min_ns());
            timing!(
                reported as f64 >= was as f64 * 0.99 && reported as f64 <= was as f64 * 1.05,
                "{wait}: {reported} ns, and the server took {was}"
            );
            // Check how it waited: asleep, or on a CPU whenever one was free.
            let on_cpu = [end.cpu_user, end.cpu_system, end.wait_cpu]
                .into_iter()
                .sum::<Option<Duration>>()
                .unwrap();
            let share = on_cpu.as_secs_f64() / end.ended.since(end.last_start).as_secs_f64();
            match wait {
                "busy" => timing!(share > 0.8, "polling took {share:.2} of the time"),
                _ => timing!(share < 0.3, "sleeping took {share:.2} of the time"),
            }
        }
        Ok(())
    });
}

#[test]
fn a_pause_of_the_server_stands_in_the_response_time_of_all_that_fell_due() {
    measured(|| {
        // 100 per second for 1.5 s; the 51st is held for half a second.
        let server = Server::new(|before| {
            if before == 50 {
                sleep(Duration::from_millis(500));
            }
        });
        let (_, intervals, held) = server.ask(&json!({"rate_iops": 100, "runtime": "1500ms"}));
        scheduled(held.len() as u64, 150..=150)?;
        let response = merged(&intervals, |one| one.response.as_ref().unwrap());
        let service = merged(&intervals, |one| &one.service);
        assert_eq!((response.count(), service.count()), (150, 150));
        // 50 requests were late by 0 to 500 ms: a fifth of all by more than 200 ms.
        let (p80, p99) = (response.quantile(0.80), response.quantile(0.99));
        timing!((150_000_000..300_000_000).contains(&p80), "{p80}");
        timing!((450_000_000..650_000_000).contains(&p99), "{p99}");
        // In service time it is one operation: the worker waited, and sent nothing meanwhile.
        assert!(service.max_ns() >= 500_000_000);
        timing!(service.quantile(149.0 / 150.0) < 100_000_000, "{service:?}");
        Ok(())
    });
}

#[test]
fn only_round_trips_have_a_way_of_waiting_to_be_stored() {
    let stored = |mode: &str, params: Value| {
        Value::Object(NETWORK.as_stored(mode, params.as_object().unwrap()))
    };
    for mode in ["ping", "request"] {
        assert_eq!(stored(mode, json!({})), json!({"wait": "blocking"}));
        assert_eq!(
            stored(mode, json!({"wait": "busy"})),
            json!({"wait": "busy"})
        );
    }
    assert_eq!(stored("throughput", json!({"bs": 1})), json!({"bs": 1}));
}
