//! The queue from the sampler's thread to the spool. It is bounded and never blocks: the oldest samples are dropped and
//! counted.
//!
//! A sample is dated when it arrives, by the mapping that dates the intervals of the running task ([`Dating`]). If mesh
//! time is not known yet, it is dated when it leaves. A dropped sample leaves its counts as losses, and its daemons'
//! descriptions, because later samples refer to them. After a gap in which mesh time fell behind, samples are left out
//! and counted until mesh time has passed the last dated instant, because counters must grow with mesh time.

use crate::clock::{Dating, MeshMap};
use crate::sampler::{CarrierChange, DaemonChange, DaemonSeen, LinkChange, LinkTrouble, Sampled};
use crate::telemetry::{At, Event, Loss, LossKind, MeshMicros, RunScope, TelemetryRow, clipped};
use benchmesh_model::events::EventKind;
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Maximum number of queued rows: a minute of 300 daemons at 1 Hz, or a few MiB.
const MAX_ROWS: usize = 20_000;

/// A handle to the queue, used by both ends.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    shared: Arc<Shared>,
    dating: Dating,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<WaitingSample>,
    rows: usize,
    /// Whether the scheduler waits for a queued sample.
    awaited: bool,
    /// Descriptions from dropped samples.
    seen: Vec<DaemonSeen>,
    lost: Vec<Lost>,
    /// The newest sample that has left the queue.
    newest: Option<(MeshMap, MeshMicros)>,
    /// After a gap: samples must be dated later than this.
    passed: Option<MeshMicros>,
}

#[derive(Debug)]
struct WaitingSample {
    sampled: Sampled,
    /// The mapping that dates it; `None` if mesh time was not known.
    map: Option<MeshMap>,
}

/// Dropped rows of one kind, on the agent's own clock.
#[derive(Clone, Copy, Debug)]
struct Lost {
    what: LossKind,
    rows: u64,
    from: MonoNanos,
    until: MonoNanos,
}

impl Samples {
    /// An empty queue that dates its samples with `dating`.
    #[must_use]
    pub fn new(dating: Dating) -> Self {
        Self {
            shared: Arc::default(),
            dating,
        }
    }

    /// Adds a sample. Never waits.
    pub fn push(&self, sampled: Sampled) {
        let map = self.dating.map();
        let mut queue = self.lock();
        queue.rows += rows(&sampled);
        queue.awaited |= sampled.awaited;
        queue.waiting.push_back(WaitingSample { sampled, map });
        while queue.rows > MAX_ROWS && queue.waiting.len() > 1 {
            queue.give_up_oldest();
        }
        drop(queue);
        self.shared.arrived.notify_one();
    }

    /// Waits until a sample has arrived since the last call.
    pub async fn ready(&self) {
        self.shared.arrived.notified().await;
    }

    /// Whether a queued sample should be sent at once.
    pub fn is_awaited(&self) -> bool {
        self.lock().awaited
    }

    /// Takes all queued samples, in mesh time; `map` dates those that arrived before mesh time was known.
    pub fn take(&self, map: MeshMap) -> Vec<TelemetryRow> {
        let mut queue = self.lock();
        let (newest, passed) = (queue.newest, queue.passed);
        let mut taken = std::mem::take(&mut *queue);
        (taken.newest, taken.passed) = (newest, passed);
        let waiting = std::mem::take(&mut taken.waiting);
        let mut kept = Vec::with_capacity(waiting.len());
        for WaitingSample { sampled, map: own } in waiting {
            let map = own.unwrap_or(map);
            match taken.is_passed(map, sampled.at) {
                true => taken.leave_out(sampled),
                false => kept.push((sampled, map)),
            }
        }
        (queue.newest, queue.passed) = (taken.newest, taken.passed);
        drop(queue);
        let mut out = Vec::with_capacity(taken.rows + taken.seen.len() + taken.lost.len());
        for lost in taken.lost {
            out.push(TelemetryRow::Loss(Loss {
                what: lost.what,
                rows: lost.rows,
                from: map.to_mesh(lost.from),
                until: map.to_mesh(lost.until),
            }));
        }
        for seen in taken.seen {
            out.push(TelemetryRow::Daemon(At {
                at: map.to_mesh(seen.at),
                row: seen,
            }));
        }
        for (sampled, map) in kept {
            spread(sampled, map, &mut out);
        }
        out
    }

    /// Drops all queued samples without counting them.
    pub fn clear(&self) {
        *self.lock() = Queue::default();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn spread(sampled: Sampled, map: MeshMap, out: &mut Vec<TelemetryRow>) {
    let Sampled {
        seen,
        daemons,
        host,
        disks,
        nets,
        carriers,
        links,
        ..
    } = sampled;
    let at = |mono| map.to_mesh(mono);
    out.extend(
        seen.iter()
            .filter_map(|seen| change(seen, map))
            .map(TelemetryRow::Event),
    );
    out.extend(
        carriers
            .iter()
            .map(|change| TelemetryRow::Event(carrier_event(change, map))),
    );
    out.extend(
        links
            .iter()
            .map(|change| TelemetryRow::Event(link_event(change, map))),
    );
    out.extend(seen.into_iter().map(|row| {
        TelemetryRow::Daemon(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(daemons.into_iter().map(|row| {
        TelemetryRow::DaemonSample(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(host.into_iter().map(|row| {
        TelemetryRow::HostSample(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(disks.into_iter().map(|row| {
        TelemetryRow::DiskSample(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(nets.into_iter().map(|row| {
        TelemetryRow::NetSample(At {
            at: at(row.at),
            row,
        })
    }));
}

/// The event of a daemon that was born or has ended.
fn change(seen: &DaemonSeen, map: MeshMap) -> Option<Event> {
    let (kind, what) = match seen.change {
        DaemonChange::None | DaemonChange::Parent => return None,
        DaemonChange::Born => (EventKind::DaemonStarted, "has started"),
        DaemonChange::Restarted => (EventKind::DaemonRestarted, "was started again"),
        DaemonChange::Ended => (EventKind::DaemonEnded, "has ended"),
        DaemonChange::Stopped => (
            EventKind::DaemonStopped,
            "was stopped by a signal and does not run",
        ),
        DaemonChange::Frozen => (
            EventKind::DaemonStopped,
            "was frozen with its cgroup and does not run",
        ),
        DaemonChange::Continued => (EventKind::DaemonContinued, "runs again"),
    };
    let DaemonSeen {
        name,
        instance,
        pid,
        ..
    } = seen;
    let daemon = match instance.as_str() {
        "" => name.clone(),
        instance => format!("{name} {instance}"),
    };
    Some(Event {
        at: map.to_mesh(seen.at),
        scope: RunScope::default(),
        kind: kind.into(),
        message: clipped(format!("{daemon} (pid {pid}) {what}")),
        detail: json!({
            "name": name, "instance": instance, "pid": pid, "start_ticks": seen.start_ticks,
        })
        .to_string(),
    })
}

fn carrier_event(change: &CarrierChange, map: MeshMap) -> Event {
    let interface = change.interface.as_ref();
    let (kind, what) = match change.has_carrier {
        false => (EventKind::CarrierLost, "has lost its carrier"),
        true => (EventKind::CarrierBack, "has a carrier again"),
    };
    Event {
        at: map.to_mesh(change.at),
        scope: RunScope::default(),
        kind: kind.into(),
        message: clipped(format!("interface {interface} {what}")),
        detail: json!({ "interface": interface }).to_string(),
    }
}

fn link_event(change: &LinkChange, map: MeshMap) -> Event {
    let interface = change.interface.as_ref();
    let dated = |at| map.to_mesh(at).0;
    let seconds = |since| change.at.since(since).as_secs();
    let (kind, message, detail) = match change.trouble {
        LinkTrouble::Errors {
            rx_errors,
            tx_errors,
            rx_dropped,
            tx_dropped,
            packets,
            since,
        } => (
            EventKind::LinkErrors,
            format!(
                "interface {interface} has counted {} errors and {} dropped packets within {} s, of {packets} packets",
                rx_errors + tx_errors,
                rx_dropped + tx_dropped,
                seconds(since).max(1),
            ),
            json!({
                "interface": interface, "since_us": dated(since), "rx_errors": rx_errors, "tx_errors": tx_errors,
                "rx_dropped": rx_dropped, "tx_dropped": tx_dropped, "packets": packets,
            }),
        ),
        LinkTrouble::Silent {
            since,
            sent_packets,
        } => (
            EventKind::LinkSilent,
            format!(
                "interface {interface} has its carrier and has received nothing for {} s, in which it sent \
                 {sent_packets} packets",
                seconds(since)
            ),
            json!({ "interface": interface, "since_us": dated(since), "sent_packets": sent_packets }),
        ),
        LinkTrouble::Heard { since } => (
            EventKind::LinkSilentOver,
            format!(
                "interface {interface} receives again, after {} s",
                seconds(since)
            ),
            json!({ "interface": interface, "since_us": dated(since) }),
        ),
    };
    Event {
        at: map.to_mesh(change.at),
        scope: RunScope::default(),
        kind: kind.into(),
        message: clipped(message),
        detail: detail.to_string(),
    }
}

fn rows(sampled: &Sampled) -> usize {
    sampled.seen.len()
        + sampled.carriers.len()
        + sampled.links.len()
        + sampled.daemons.len()
        + usize::from(sampled.host.is_some())
        + sampled.disks.len()
        + sampled.nets.len()
}

impl Queue {
    fn give_up_oldest(&mut self) {
        let Some(oldest) = self.waiting.pop_front() else {
            return;
        };
        self.rows -= rows(&oldest.sampled);
        self.leave_out(oldest.sampled);
    }

    /// Whether an instant is before one that a mapping from before a gap has already dated.
    fn is_passed(&mut self, map: MeshMap, at: MonoNanos) -> bool {
        let at = map.to_mesh(at);
        if let Some((before, newest)) = self.newest
            && !before.is_of_era(map)
        {
            self.passed = self.passed.max(Some(newest));
        }
        if self.passed.is_some_and(|passed| at <= passed) {
            self.newest = self.newest.map(|(_, newest)| (map, newest));
            return true;
        }
        self.newest = Some((map, at));
        false
    }

    /// Counts the losses of a dropped sample, and keeps the descriptions that later samples refer to.
    fn leave_out(&mut self, oldest: Sampled) {
        for (what, rows) in [
            (LossKind::DaemonSamples, oldest.daemons.len()),
            (LossKind::HostSamples, usize::from(oldest.host.is_some())),
            (LossKind::DiskSamples, oldest.disks.len()),
            (LossKind::NetSamples, oldest.nets.len()),
        ] {
            self.note(what, rows as u64, oldest.at);
        }
        // A daemon that has ended needs only its last description.
        for seen in oldest.seen {
            self.seen
                .retain(|held| (held.pid, held.start_ticks) != (seen.pid, seen.start_ticks));
            self.seen.push(seen);
        }
    }

    fn note(&mut self, what: LossKind, rows: u64, at: MonoNanos) {
        if rows == 0 {
            return;
        }
        match self.lost.iter_mut().find(|lost| lost.what == what) {
            Some(lost) => {
                lost.rows += rows;
                lost.until = lost.until.max(at);
            }
            None => self.lost.push(Lost {
                what,
                rows,
                from: at,
                until: at,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Exchange, Filter};
    use crate::sampler::{Cost, DiskSample};
    use benchmesh_model::figures::{DiskFigures, Figures};

    fn map() -> MeshMap {
        let mono = MonoNanos(1_000_000);
        let exchange = Exchange {
            sent: mono,
            mesh_received_ns: 2_000_000,
            mesh_sent_ns: 2_000_000,
            received: mono,
            slept_ns: 0,
        };
        Filter::default()
            .add(exchange)
            .expect("a good exchange")
            .map
    }

    fn sampled(second: u64, disks: usize) -> Sampled {
        let at = MonoNanos(second * 1_000_000_000);
        let seen = DaemonSeen {
            at,
            pid: 7,
            start_ticks: 1,
            name: "ceph-osd".to_owned(),
            instance: format!("osd.{second}"),
            cmdline: String::new(),
            version: String::new(),
            is_replaced: false,
            ended: false,
            age_us: 0,
            change: DaemonChange::None,
        };
        let disk = DiskSample {
            at,
            disk: "sda".into(),
            stacked: false,
            figures: DiskFigures::UNREAD,
        };
        Sampled {
            at,
            seen: vec![seen],
            daemons: Vec::new(),
            host: None,
            disks: vec![disk; disks],
            nets: Vec::new(),
            carriers: Vec::new(),
            links: Vec::new(),
            skipped_ticks: 0,
            cost: Cost::default(),
            awaited: false,
        }
    }

    #[test]
    fn the_oldest_are_given_up_and_counted() {
        let samples = Samples::default();
        for second in 0..10 {
            samples.push(sampled(second, MAX_ROWS / 5));
        }
        let (mut kept, mut lost, mut seen) = (0, 0, 0);
        for row in samples.take(map()) {
            match row {
                TelemetryRow::DiskSample(_) => kept += 1,
                TelemetryRow::Daemon(_) => seen += 1,
                TelemetryRow::Loss(loss) => {
                    assert_eq!(loss.what, LossKind::DiskSamples);
                    assert_eq!(loss.from, map().to_mesh(MonoNanos(0)));
                    lost += loss.rows;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(kept + lost, 10 * MAX_ROWS as u64 / 5);
        assert!(lost > 0 && kept > 0 && seen > 0);
        assert!(samples.take(map()).is_empty());
    }

    fn exchange(second: u64, ahead_s: i64) -> Exchange {
        Exchange::without_delay(second, ahead_s * 1_000_000_000)
    }

    /// Seconds of mesh time at which disks were sampled, and the number of samples that were left out.
    fn dates(rows: Vec<TelemetryRow>) -> (Vec<i64>, u64) {
        let (mut at, mut left_out) = (Vec::new(), 0);
        for row in rows {
            match row {
                TelemetryRow::DiskSample(sample) => at.push(sample.at.0 / 1_000_000),
                TelemetryRow::Loss(loss) => left_out += loss.rows,
                _ => {}
            }
        }
        (at, left_out)
    }

    /// The same mapping dates an interval of that time, however late the sample is written.
    #[test]
    fn a_sample_is_dated_when_it_is_taken_by_the_mapping_of_the_task() {
        let mut filter = Filter::default();
        let first = filter.add(exchange(1, 0)).expect("a good exchange");
        let (newest, watched) = tokio::sync::watch::channel(Some(first));
        let dating = Dating::new(watched);
        let samples = Samples::new(dating.clone());
        let task = dating.begin_task(first.map.moved(-5_000_000_000));
        samples.push(sampled(2, 1));
        drop(task);
        samples.push(sampled(3, 1));
        let later = filter.add(exchange(4, 100)).expect("a good exchange");
        newest.send_replace(Some(later));
        samples.push(sampled(5, 1));
        assert_eq!(dates(samples.take(later.map)), (vec![7, 3, 105], 0));
    }

    #[test]
    fn counters_never_go_back_when_mesh_time_falls_behind() {
        let mut filter = Filter::default();
        let first = filter.add(exchange(1, 100)).expect("a good exchange");
        let (newest, watched) = tokio::sync::watch::channel(Some(first));
        let samples = Samples::new(Dating::new(watched));
        for second in 2..8 {
            samples.push(sampled(second, 2));
        }
        let later = filter.add(exchange(8, 97)).expect("a good exchange");
        newest.send_replace(Some(later));
        let mut at = Vec::new();
        let mut left_out = 0;
        for second in 8..14 {
            samples.push(sampled(second, 2));
            let (dated, lost) = dates(samples.take(later.map));
            at.extend(dated);
            left_out += lost;
        }
        at.dedup();
        assert_eq!(at, (102..=110).collect::<Vec<i64>>());
        assert_eq!(left_out, 6, "8, 9 and 10 lie before 107");
    }
}
