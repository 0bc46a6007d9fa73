//! Trouble on an interface that has its carrier: rising errors and drops, and silence.
//!
//! Pure: it compares samples with earlier ones. An interface is silent if it has received before, receives nothing for
//! ten seconds of a step, and keeps sending. An interface that sends a stream meanwhile is not silent, because a sender
//! of one-way datagrams gets no answer.

use super::sampled::{LinkChange, LinkTrouble, NetSample};
use benchmesh_workloads::clock::MonoNanos;
use std::sync::Arc;
use std::time::Duration;

/// As for carriers: a host with more has interfaces of containers.
const MAX_WATCHED: usize = 64;
/// Minimum time between two error events of an interface.
const ERRORS_EVERY: Duration = Duration::from_secs(60);
/// Drops are common (protocols without a listener). Fewer than `MIN_DROPS`, or than one packet in `DROPS_PART`, are no
/// event.
const MIN_DROPS: i64 = 10;
const DROPS_PART: i64 = 10_000;
/// Duration without received data that counts as a silence.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(10);
/// Sending more than this per second during a silence is a stream: TCP would wait for its acknowledgements.
const STREAM_BYTES_PER_S: i64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Links {
    known: Vec<WatchedLink>,
}

#[derive(Debug)]
struct WatchedLink {
    last: NetSample,
    /// Baseline for errors and drops.
    base: NetSample,
    told_at: Option<MonoNanos>,
    has_received: bool,
    /// The newest sample in which data was received.
    heard: NetSample,
    /// Start of the reported silence.
    silent: Option<MonoNanos>,
}

impl Links {
    /// Changes in these samples. `in_step`: start of the running step; `has_carrier`: the carrier of an interface, if
    /// known.
    pub(crate) fn changes(
        &mut self,
        in_step: Option<MonoNanos>,
        sampled: &[NetSample],
        has_carrier: impl Fn(&str) -> Option<bool>,
    ) -> Vec<LinkChange> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.known);
        let watched = sampled.iter().filter(|net| net.interface.as_ref() != "lo");
        for net in watched.take(MAX_WATCHED) {
            let known = before
                .iter()
                .position(|link| link.last.interface == net.interface);
            let Some(place) = known else {
                self.known.push(WatchedLink::new(net));
                continue;
            };
            let mut link = before.swap_remove(place);
            let carrier = has_carrier(&net.interface) != Some(false);
            let found = [link.errors(net), link.silence(net, in_step, carrier)];
            changes.extend(found.into_iter().flatten().map(|trouble| LinkChange {
                at: net.at,
                interface: Arc::clone(&net.interface),
                trouble,
            }));
            link.last = net.clone();
            self.known.push(link);
        }
        changes
    }
}

impl WatchedLink {
    fn new(net: &NetSample) -> WatchedLink {
        WatchedLink {
            last: net.clone(),
            base: net.clone(),
            told_at: None,
            has_received: false,
            heard: net.clone(),
            silent: None,
        }
    }

    /// Errors since the last report.
    fn errors(&mut self, net: &NetSample) -> Option<LinkTrouble> {
        let is_soon = |at: MonoNanos| net.at.since(at) < ERRORS_EVERY;
        if self.told_at.is_some_and(is_soon) {
            return None;
        }
        let (net, now) = (net.figures, net);
        let base = self.base.figures;
        let errors = (net.rx_errors - base.rx_errors) + (net.tx_errors - base.tx_errors);
        let drops = (net.rx_dropped - base.rx_dropped) + (net.tx_dropped - base.tx_dropped);
        let packets = (net.rx_packets - base.rx_packets) + (net.tx_packets - base.tx_packets);
        let are_many = drops >= MIN_DROPS && drops >= packets / DROPS_PART;
        if errors <= 0 && !are_many {
            // Rare drops must not add up over days.
            if now.at.since(self.base.at) >= ERRORS_EVERY {
                self.base = now.clone();
            }
            return None;
        }
        let trouble = LinkTrouble::Errors {
            rx_errors: net.rx_errors - base.rx_errors,
            tx_errors: net.tx_errors - base.tx_errors,
            rx_dropped: net.rx_dropped - base.rx_dropped,
            tx_dropped: net.tx_dropped - base.tx_dropped,
            packets,
            since: self.base.at,
        };
        (self.base, self.told_at) = (now.clone(), Some(now.at));
        Some(trouble)
    }

    fn silence(
        &mut self,
        net: &NetSample,
        in_step: Option<MonoNanos>,
        carrier: bool,
    ) -> Option<LinkTrouble> {
        let received = net.figures.rx_bytes != self.last.figures.rx_bytes;
        self.has_received |= received;
        if received || !carrier {
            let since = self.silent.take();
            self.heard = net.clone();
            return since
                .filter(|_| received)
                .map(|since| LinkTrouble::Heard { since });
        }
        let step = in_step?;
        // A silence that continues is reported again in each step.
        self.silent = self.silent.filter(|since| *since >= step);
        let quiet_since = self.heard.at.max(step);
        let span_us = net.at.since(self.last.at).as_micros();
        let span_us = i64::try_from(span_us).unwrap_or(i64::MAX).max(1);
        let sent = net
            .figures
            .tx_bytes
            .saturating_sub(self.last.figures.tx_bytes);
        let streams = sent.saturating_mul(1_000_000) / span_us > STREAM_BYTES_PER_S;
        let sent_packets = net.figures.tx_packets - self.heard.figures.tx_packets;
        let is_new = self.silent.is_none()
            && self.has_received
            && !streams
            && sent_packets > 0
            && net.at.since(quiet_since) >= SILENT_AFTER;
        is_new.then(|| {
            self.silent = Some(quiet_since);
            LinkTrouble::Silent {
                since: quiet_since,
                sent_packets,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_model::figures::NetFigures;

    const ZERO: NetFigures = NetFigures {
        rx_bytes: 0,
        rx_packets: 0,
        rx_errors: 0,
        rx_dropped: 0,
        tx_bytes: 0,
        tx_packets: 0,
        tx_errors: 0,
        tx_dropped: 0,
    };
    const SECOND: u64 = 1_000_000_000;

    fn net(at_s: u64, change: impl FnOnce(&mut NetSample)) -> NetSample {
        let mut net = NetSample {
            at: MonoNanos(at_s * SECOND),
            interface: "eth0".into(),
            figures: ZERO,
        };
        change(&mut net);
        net
    }

    fn told(links: &mut Links, in_step: Option<u64>, net: NetSample) -> Vec<LinkTrouble> {
        let in_step = in_step.map(|at_s| MonoNanos(at_s * SECOND));
        let changes = links.changes(in_step, &[net], |_| Some(true));
        changes.into_iter().map(|change| change.trouble).collect()
    }

    #[test]
    fn errors_are_told_at_once_and_then_once_a_minute() {
        let mut links = Links::default();
        let mut at = |at_s, rx_errors, tx_dropped| {
            told(
                &mut links,
                None,
                net(at_s, |net| {
                    (
                        net.figures.rx_errors,
                        net.figures.tx_dropped,
                        net.figures.rx_packets,
                    ) = (rx_errors, tx_dropped, 1000);
                }),
            )
        };
        // Counts from before the first sample are not reported.
        assert_eq!(at(100, 7, 0), []);
        assert_eq!(at(101, 7, 9), [], "a few drops");
        assert_eq!(
            at(102, 10, 9),
            [LinkTrouble::Errors {
                rx_errors: 3,
                tx_errors: 0,
                rx_dropped: 0,
                tx_dropped: 9,
                packets: 0,
                since: MonoNanos(100 * SECOND),
            }]
        );
        assert_eq!(at(103, 50, 9), []);
        assert_eq!(at(161, 60, 9), []);
        let [LinkTrouble::Errors { rx_errors, .. }] = at(162, 61, 9)[..] else {
            panic!("one event");
        };
        assert_eq!(rx_errors, 51);
        assert_eq!(at(163, 61, 9), []);
        assert_eq!(at(300, 61, 9), []);
        assert_eq!(at(301, 61, 19).len(), 1, "drops alone");
    }

    /// One interface, sampled every second with the bytes that it received and sent.
    struct TestInterface {
        links: Links,
        now: NetSample,
    }

    impl TestInterface {
        fn new() -> Self {
            Self {
                links: Links::default(),
                now: net(99, |_| {}),
            }
        }

        fn pass(&mut self, rx: i64, tx: i64, in_step: Option<u64>) -> Vec<LinkTrouble> {
            self.now.at = self.now.at.saturating_add(Duration::from_secs(1));
            (self.now.figures.rx_bytes, self.now.figures.tx_bytes) = (
                self.now.figures.rx_bytes + rx,
                self.now.figures.tx_bytes + tx,
            );
            self.now.figures.tx_packets += tx.min(1);
            told(&mut self.links, in_step, self.now.clone())
        }

        fn seconds(
            &mut self,
            count: usize,
            rx: i64,
            tx: i64,
            in_step: Option<u64>,
        ) -> Vec<LinkTrouble> {
            let all = (0..count).flat_map(|_| self.pass(rx, tx, in_step));
            all.collect()
        }
    }

    #[test]
    fn silence_in_a_step_is_told_once_and_its_end_too() {
        let mut line = TestInterface::new();
        let step = Some(100);
        assert_eq!(line.seconds(5, 1500, 1500, step), []);
        let heard = line.now.at;
        assert_eq!(line.seconds(9, 0, 60, step), []);
        assert_eq!(
            line.seconds(1, 0, 60, step),
            [LinkTrouble::Silent {
                since: heard,
                sent_packets: 10
            }]
        );
        assert_eq!(line.seconds(30, 0, 60, step), []);
        assert_eq!(
            line.pass(60, 0, step),
            [LinkTrouble::Heard { since: heard }]
        );
        assert_eq!(line.pass(60, 0, step), []);
    }

    #[test]
    fn quiet_interfaces_and_streams_are_not_silent() {
        let step = Some(100);
        // Nothing was ever received, nothing is sent, or no step runs.
        assert_eq!(TestInterface::new().seconds(30, 0, 60, step), []);
        let mut idle = TestInterface::new();
        idle.seconds(5, 60, 60, step);
        assert_eq!(idle.seconds(30, 0, 0, step), []);
        let mut at_rest = TestInterface::new();
        at_rest.seconds(5, 60, 60, None);
        assert_eq!(at_rest.seconds(30, 0, 60, None), []);
        // A later step waits for ten seconds of its own.
        let begun = at_rest.now.at.0 / SECOND;
        assert_eq!(at_rest.seconds(9, 0, 60, Some(begun)), []);
        assert_eq!(at_rest.seconds(1, 0, 60, Some(begun)).len(), 1);
        let mut stream = TestInterface::new();
        stream.seconds(5, 60, 60, step);
        assert_eq!(stream.seconds(30, 0, 50 << 20, step), []);
        // A missing carrier is another event.
        let mut cut = TestInterface::new();
        cut.seconds(5, 60, 60, step);
        for _ in 0..30 {
            cut.now.at = cut.now.at.saturating_add(Duration::from_secs(1));
            cut.now.figures.tx_packets += 1;
            let nets = [cut.now.clone()];
            let changes = cut
                .links
                .changes(Some(MonoNanos(0)), &nets, |_| Some(false));
            assert_eq!(changes, []);
        }
    }
}
