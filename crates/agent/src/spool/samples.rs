//! The queue from the sampler's thread to the spool: bounded, never blocking; the oldest samples are dropped and counted.
//!
//! A sample that is dropped leaves its counts as losses, and its daemons' descriptions: later samples refer to them.

use crate::clock::MeshMap;
use crate::sampler::{Change, DaemonSeen, Sampled};
use crate::telemetry::{At, Event, Loss, Row, SampleKind, Scope, Severity, clipped};
use benchmesh_workloads::clock::MonoNanos;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A minute of 300 daemons at 1 Hz, or a few MiB.
const MOST_ROWS: usize = 20_000;

/// A handle on the queue; both ends use the same.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Sampled>,
    rows: usize,
    /// Descriptions out of samples that were given up.
    seen: Vec<DaemonSeen>,
    lost: Vec<Lost>,
}

/// Rows of one kind that were given up, on the agent's own clock.
#[derive(Clone, Copy, Debug)]
struct Lost {
    what: SampleKind,
    rows: u64,
    from: MonoNanos,
    until: MonoNanos,
}

impl Samples {
    /// Takes a sample in. Never waits.
    pub fn push(&self, sampled: Sampled) {
        let mut queue = self.lock();
        queue.rows += rows(&sampled);
        queue.waiting.push_back(sampled);
        while queue.rows > MOST_ROWS && queue.waiting.len() > 1 {
            queue.give_up_oldest();
        }
        drop(queue);
        self.shared.arrived.notify_one();
    }

    /// Until something has come in since the last call.
    pub async fn ready(&self) {
        self.shared.arrived.notified().await;
    }

    /// Everything that waits, in mesh time.
    pub fn take(&self, map: &MeshMap) -> Vec<Row> {
        let taken = std::mem::take(&mut *self.lock());
        let mut out = Vec::with_capacity(taken.rows + taken.seen.len() + taken.lost.len());
        for lost in taken.lost {
            out.push(Row::Loss(Loss {
                what: lost.what,
                rows: lost.rows,
                from: map.to_mesh(lost.from),
                until: map.to_mesh(lost.until),
            }));
        }
        for seen in taken.seen {
            out.push(Row::Daemon(At {
                at: map.to_mesh(seen.at),
                row: seen,
            }));
        }
        for sampled in taken.waiting {
            spread(sampled, map, &mut out);
        }
        out
    }

    /// Gives up everything that waits, without counting it.
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

fn spread(sampled: Sampled, map: &MeshMap, out: &mut Vec<Row>) {
    let Sampled {
        seen,
        daemons,
        host,
        disks,
        nets,
        ..
    } = sampled;
    let at = |mono| map.to_mesh(mono);
    out.extend(
        seen.iter()
            .filter_map(|seen| change(seen, map))
            .map(Row::Event),
    );
    out.extend(seen.into_iter().map(|row| {
        Row::Daemon(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(daemons.into_iter().map(|row| {
        Row::DaemonSample(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(host.into_iter().map(|row| {
        Row::HostSample(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(disks.into_iter().map(|row| {
        Row::DiskSample(At {
            at: at(row.at),
            row,
        })
    }));
    out.extend(nets.into_iter().map(|row| {
        Row::NetSample(At {
            at: at(row.at),
            row,
        })
    }));
}

/// The event of a daemon that was born or has ended.
fn change(seen: &DaemonSeen, map: &MeshMap) -> Option<Event> {
    let (kind, severity, what) = match seen.change {
        Change::None | Change::Parent => return None,
        Change::Born => ("daemon-started", Severity::Info, "has started"),
        Change::Restarted => ("daemon-restarted", Severity::Warning, "was started again"),
        Change::Ended => ("daemon-ended", Severity::Info, "has ended"),
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
        scope: Scope::default(),
        severity,
        kind: kind.to_owned(),
        message: clipped(format!("{daemon} (pid {pid}) {what}")),
        detail: json!({
            "name": name, "instance": instance, "pid": pid, "start_ticks": seen.start_ticks,
        })
        .to_string(),
    })
}

fn rows(sampled: &Sampled) -> usize {
    sampled.seen.len()
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
        self.rows -= rows(&oldest);
        for (what, rows) in [
            (SampleKind::DaemonSamples, oldest.daemons.len()),
            (SampleKind::HostSamples, usize::from(oldest.host.is_some())),
            (SampleKind::DiskSamples, oldest.disks.len()),
            (SampleKind::NetSamples, oldest.nets.len()),
        ] {
            self.note(what, rows as u64, oldest.at);
        }
        // What is known of a daemon that has ended needs one row, not every one that it ever had.
        for seen in oldest.seen {
            self.seen
                .retain(|held| (held.pid, held.start_ticks) != (seen.pid, seen.start_ticks));
            self.seen.push(seen);
        }
    }

    fn note(&mut self, what: SampleKind, rows: u64, at: MonoNanos) {
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

    fn map() -> MeshMap {
        let mono = MonoNanos(1_000_000);
        let exchange = Exchange {
            sent: mono,
            mesh_received_ns: 2_000_000,
            mesh_sent_ns: 2_000_000,
            received: mono,
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
            ended: false,
            age_us: 0,
            change: Change::None,
        };
        let disk = DiskSample {
            at,
            disk: "sda".into(),
            reads: 1,
            read_bytes: 1,
            read_us: 1,
            writes: 1,
            write_bytes: 1,
            write_us: 1,
            in_flight: 0,
            busy_us: 1,
            queue_us: 1,
            discards: 0,
            flushes: 0,
        };
        Sampled {
            at,
            seen: vec![seen],
            daemons: Vec::new(),
            host: None,
            disks: vec![disk; disks],
            nets: Vec::new(),
            skipped_ticks: 0,
            cost: Cost::default(),
        }
    }

    #[test]
    fn the_oldest_are_given_up_and_counted() {
        let samples = Samples::default();
        for second in 0..10 {
            samples.push(sampled(second, MOST_ROWS / 5));
        }
        let (mut kept, mut lost, mut seen) = (0, 0, 0);
        for row in samples.take(&map()) {
            match row {
                Row::DiskSample(_) => kept += 1,
                Row::Daemon(_) => seen += 1,
                Row::Loss(loss) => {
                    assert_eq!(loss.what, SampleKind::DiskSamples);
                    assert_eq!(loss.from, map().to_mesh(MonoNanos(0)));
                    lost += loss.rows;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(kept + lost, 10 * MOST_ROWS as u64 / 5);
        assert!(lost > 0 && kept > 0 && seen > 0);
        assert!(samples.take(&map()).is_empty());
    }
}
